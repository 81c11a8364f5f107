# The CPU table of operations; those on images are in kernels_images.cmake.
# The searches for leaks would take most of the time (GpucapFlags.cmake); kernels_threads has one.
foreach(test kernels_dense kernels_layers kernels_attention kernels_loss kernels_update kernels_elements)
  gpucap_test(${test} LIBS train_ops_cpu ENV "ASAN_OPTIONS=detect_leaks=0"
    SOURCES ${test}.c $<TARGET_OBJECTS:kernels_check>)
endforeach()
# It forks with threads running, which ThreadSanitizer would otherwise refuse.
gpucap_test(kernels_threads LIBS train_ops_cpu SOURCES kernels_threads.c
  ENV "TSAN_OPTIONS=halt_on_error=1 second_deadlock_stack=1 die_after_fork=0")
