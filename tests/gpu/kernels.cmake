# The CUDA table of operations against the CPU reference, and train on a real GPU. Skipped (77) without one.
if(GPUCAP_NVCC AND GPUCAP_CUDART_SHARED)
  gpucap_test(kernels_cuda LABEL gpu LIBS train_ops_cpu gpucap_cuda_headers ${GPUCAP_CUDART_SHARED} ${CMAKE_DL_LIBS}
    SOURCES kernels_cuda.c)
  # As in train: a simulated runtime in LD_LIBRARY_PATH must be able to come first.
  target_link_options(kernels_cuda PRIVATE -Wl,--enable-new-dtags)
  add_dependencies(kernels_cuda train_cuda)
  gpucap_test(kernels_train LABEL gpu TIMEOUT 300 LIBS test_support SOURCES kernels_train.c)
  add_dependencies(kernels_train train train_cuda)
endif()
