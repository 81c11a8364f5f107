# The operations on images of the CPU table.
gpucap_test(kernels_conv LIBS train_ops_cpu SOURCES kernels_conv.c kernels_check.c)
