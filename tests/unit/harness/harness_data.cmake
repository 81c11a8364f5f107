# The data side of the harness: formats, pictures, pipeline; then pinned memory and copies on the simulated GPU.
find_package(Threads REQUIRED)
find_package(JPEG QUIET)
find_package(PNG QUIET)
# A search for leaks costs seconds (GpucapFlags.cmake): it is made where memory is freed on many paths.
set(no_leaks "ASAN_OPTIONS=detect_leaks=0")
gpucap_test(harness_augment LIBS train_data SOURCES harness_augment.c ENV ${no_leaks})
gpucap_test(harness_pipeline LIBS train_data SOURCES harness_pipeline.c ENV ${no_leaks})
gpucap_test(harness_pipeline_limits LIBS train_data SOURCES harness_pipeline_limits.c)
if(JPEG_FOUND AND PNG_FOUND)
  add_library(harness_files STATIC harness_files.c)
  target_link_libraries(harness_files PRIVATE gpucap_flags unity JPEG::JPEG PNG::PNG)
  gpucap_test(harness_image LIBS train_data harness_files SOURCES harness_image.c)
  gpucap_test(harness_dataset LIBS train_data harness_files SOURCES harness_dataset.c ENV ${no_leaks})
  gpucap_test(harness_data_faults LIBS train_data harness_files SOURCES harness_data_faults.c)
  target_link_options(harness_data_faults PRIVATE
    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=pthread_create)
  gpucap_test(harness_train_data LIBS harness_support harness_files m SOURCES harness_train_data.c)
  add_dependencies(harness_train_data train simgpu_cuda simgpu_cudart)
else()
  message(STATUS "libjpeg or libpng not found: the tests of image files are left out")
endif()

# MALLOC_CONF: no jemalloc of ours may look at it.
gpucap_test(harness_pinned LIBS train_feed simgpu_cudart Threads::Threads SOURCES harness_pinned.c
  ENV ${no_leaks} "MALLOC_CONF=abort_conf:true,nonsense:1")
gpucap_test(harness_pinned_odd LIBS train_feed simgpu_cudart Threads::Threads SOURCES harness_pinned.c ENV ${no_leaks})
target_compile_definitions(harness_pinned_odd PRIVATE ODD_ALIGNMENT)
target_link_options(harness_pinned_odd PRIVATE -Wl,--wrap=cudaHostAlloc,--wrap=cudaFreeHost)
gpucap_test(harness_feed LIBS train_feed simgpu_cudart SOURCES harness_feed.c ENV ${no_leaks})
add_dependencies(harness_pinned simgpu_cuda)
add_dependencies(harness_pinned_odd simgpu_cuda)
add_dependencies(harness_feed simgpu_cuda)
