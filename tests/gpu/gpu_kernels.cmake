# The CUDA table of operations against the CPU reference, and train on a real GPU. Skipped (77) without one. One test
# per family: kernels_cuda_FAMILY.c (those of images are in gpu_kernels_images.cmake). kernels_speed is no test: it prints how fast the operations
# of one training step are.
if(GPUCAP_NVCC AND GPUCAP_CUDART_SHARED AND TARGET train_cuda)
  add_library(kernels_support STATIC kernels_support.c)
  target_link_libraries(kernels_support PRIVATE gpucap_flags PUBLIC unity train_ops_cpu gpucap_cuda_headers
    ${GPUCAP_CUDART_SHARED} ${CMAKE_DL_LIBS})
  target_include_directories(kernels_support PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  foreach(family attention dense transformer update)
    set(name kernels_cuda_${family})
    gpucap_test(${name} LABEL gpu LIBS kernels_support SOURCES ${name}.c)
    # As in train: a simulated runtime in LD_LIBRARY_PATH must be able to come first.
    target_link_options(${name} PRIVATE -Wl,--enable-new-dtags)
    add_dependencies(${name} train_cuda)
  endforeach()
  add_executable(kernels_speed kernels_speed.c)
  target_link_libraries(kernels_speed PRIVATE gpucap_flags kernels_support)
  target_link_options(kernels_speed PRIVATE -Wl,--enable-new-dtags)
  add_dependencies(kernels_speed train_cuda)
  gpucap_test(kernels_train LABEL gpu LIBS test_support SOURCES kernels_train.c)
  add_dependencies(kernels_train train train_cuda)
  # What tools/setup --data gets; a text is put beside it by hand.
  gpucap_test(train_goals LABEL gpu LIBS test_support SOURCES train_goals.c
    ENV "TRAIN_DATA=${CMAKE_SOURCE_DIR}/third_party/data")
  add_dependencies(train_goals train train_cuda)
endif()
