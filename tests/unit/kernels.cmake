# The CPU table of operations; those on images are in kernels_images.cmake.
foreach(test kernels_dense kernels_layers kernels_attention kernels_loss kernels_update kernels_elements)
  gpucap_test(${test} LIBS train_ops_cpu SOURCES ${test}.c kernels_check.c)
endforeach()
gpucap_test(kernels_threads LIBS train_ops_cpu SOURCES kernels_threads.c)
