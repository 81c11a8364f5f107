/* The parts of the matrix product that cuBLASLt does not do (gemm_plain.cu, gemm_tune.cu). */
#ifndef KERNELS_GEMM_CUH
#define KERNELS_GEMM_CUH

#include "kernels/types.cuh"

/* Computes the whole product with a kernel of our own. Slow; for shapes that cuBLASLt has no algorithm for.
 */
int gemm_plain(ops_stream stream, const struct op_gemm *args);

/* Computes c = act(c + bias) and aux = c + bias after a product without them. With a 16-bit type this rounds
 * once more than a fused kernel. */
int gemm_epilogue(ops_stream stream, const struct op_gemm *args);

/* Queues one run of a candidate. Returns 0 or an error number: the candidate is then not chosen. */
typedef int (*gemm_tune_run_fn)(void *arg, int candidate, ops_stream stream);

/* Runs the candidates 0 to count - 1 several times each and waits for them. Returns the fastest, of those
 * within 2 % the first; -1 if none ran. The stream must not be captured. */
int gemm_tune_fastest(gemm_tune_run_fn run, void *arg, int count, ops_stream stream);

#endif
