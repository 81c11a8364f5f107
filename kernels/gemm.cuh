/* The parts of the matrix product that cuBLASLt does not do (gemm_plain.cu). */
#ifndef KERNELS_GEMM_CUH
#define KERNELS_GEMM_CUH

#include "types.cuh"

/* The whole product by own kernels: slow, for what cuBLASLt has no algorithm for. */
int gemm_plain(ops_stream stream, const struct op_gemm *args);

/* c = act(c + bias), and aux = c + bias: what follows a product without them. With aux of 16 bits the sum
 * passes through c's type once more than in one kernel. */
int gemm_epilogue(ops_stream stream, const struct op_gemm *args);

#endif
