# The operations on images of the CUDA table against the CPU reference (skipped, 77, without a GPU), and how fast they
# are.
if(GPUCAP_NVCC AND GPUCAP_CUDART_SHARED AND TARGET train_cuda)
  add_library(kernels_mirror STATIC kernels_mirror.c)
  target_link_libraries(kernels_mirror PRIVATE gpucap_flags PUBLIC kernels_support)
  foreach(test kernels_conv_cuda kernels_images_cuda)
    gpucap_test(${test} LABEL gpu LIBS kernels_mirror SOURCES ${test}.c)
  endforeach()
  add_executable(kernels_speed_images kernels_speed_images.c)
  target_link_libraries(kernels_speed_images PRIVATE gpucap_flags kernels_mirror)
  foreach(program kernels_conv_cuda kernels_images_cuda kernels_speed_images)
    # As in train: a simulated runtime in LD_LIBRARY_PATH must be able to come first.
    target_link_options(${program} PRIVATE -Wl,--enable-new-dtags)
    add_dependencies(${program} train_cuda)
  endforeach()
endif()
