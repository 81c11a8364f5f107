# The operations on images of the CPU table.
foreach(test kernels_conv kernels_batchnorm kernels_images)
  gpucap_test(${test} LIBS train_ops_cpu SOURCES ${test}.c $<TARGET_OBJECTS:kernels_check>)
endforeach()
