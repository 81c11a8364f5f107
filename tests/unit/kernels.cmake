# The CPU table of operations.
gpucap_test(kernels_ops LIBS train_ops_cpu SOURCES kernels_ops.c)
gpucap_test(kernels_gradients LIBS train_ops_cpu SOURCES kernels_gradients.c)
