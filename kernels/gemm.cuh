/* The parts of the matrix product that cuBLASLt does not do (gemm_plain.cu). */
#ifndef KERNELS_GEMM_CUH
#define KERNELS_GEMM_CUH

#include "types.cuh"

/* Computes the whole product with a kernel of our own. Slow; for shapes that cuBLASLt has no algorithm for.
 */
int gemm_plain(ops_stream stream, const struct op_gemm *args);

/* Computes c = act(c + bias) and aux = c + bias after a product without them. With a 16-bit type this rounds
 * once more than a fused kernel. */
int gemm_epilogue(ops_stream stream, const struct op_gemm *args);

#endif
