# The training harness: its parts without a device, then `train` itself on the simulated GPU.
gpucap_test(harness_arena LIBS train_core SOURCES harness_arena.c)
gpucap_test(harness_idx LIBS train_core SOURCES harness_idx.c)
gpucap_test(harness_options LIBS train_core SOURCES harness_options.c)
gpucap_test(harness_data LIBS train_core SOURCES harness_data.c)
gpucap_test(harness_train TIMEOUT 300 LIBS test_support SOURCES harness_train.c)
add_dependencies(harness_train train simgpu_cuda simgpu_cudart)
