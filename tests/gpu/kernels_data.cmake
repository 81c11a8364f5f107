# The data side on a real GPU: pictures prepared there and on the host, copies. The last is the unit test that simgpu
# passes, with the toolkit's runtime.
if(GPUCAP_NVCC AND GPUCAP_CUDART_SHARED AND TARGET train_cuda)
  find_package(Threads REQUIRED)
  gpucap_test(kernels_data LABEL gpu LIBS train_feed kernels_support SOURCES kernels_data.c)
  gpucap_test(kernels_data_feed LABEL gpu LIBS train_feed gpucap_cuda_headers ${GPUCAP_CUDART_SHARED}
    Threads::Threads SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/harness/harness_feed.c)
  target_compile_definitions(kernels_data_feed PRIVATE TEST_ON_GPU)
  foreach(program kernels_data kernels_data_feed)
    target_link_options(${program} PRIVATE -Wl,--enable-new-dtags)
  endforeach()
  add_dependencies(kernels_data train_cuda)
  # nvJPEG itself, where the machine has it, against libjpeg.
  if(TARGET harness_files)
    gpucap_test(kernels_data_decode LABEL gpu LIBS train_models ${GPUCAP_CUDART_SHARED} harness_files
      SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/harness/harness_decode.c)
    target_compile_definitions(kernels_data_decode PRIVATE TEST_ON_GPU)
    target_link_options(kernels_data_decode PRIVATE -Wl,--enable-new-dtags)
    set_target_properties(kernels_data_decode PROPERTIES BUILD_RPATH ${CMAKE_BINARY_DIR}) # libtrain_cuda.so
    add_dependencies(kernels_data_decode train_cuda)
  endif()
endif()
