# Reuse of freed memory on simgpu: tests/gpu/litmus without fences, and under libgpucap.so. Included by CMakeLists.txt of
# this folder.
gpucap_test(litmus_reuse TIMEOUT 900 LIBS test_support SOURCES litmus_reuse.c)
add_dependencies(litmus_reuse litmus gpucap_library simgpu_cuda simgpu_nvml)

# A pattern in every block on simgpu.
gpucap_test(pattern_reuse TIMEOUT 900 LIBS test_support SOURCES pattern_reuse.c)
add_dependencies(pattern_reuse pattern gpucap_library simgpu_cuda simgpu_nvml)
