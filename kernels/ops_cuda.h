/* The CUDA side of the table of operations: one function per operation, each in the .cu file beside its CPU
 * reference, each queuing its kernels on the stream and returning the error number of the launch. State that
 * lives between calls (library handles, chosen algorithms) belongs to the table, never to a global variable,
 * because two threads may use two tables. Included by .cu files only. */
#ifndef KERNELS_OPS_CUDA_H
#define KERNELS_OPS_CUDA_H

#include <cuda_runtime.h>

#include "kernels/ops.h"

struct cuda_gemm; /* gemm.cu */
struct cuda_conv; /* conv.cu */

struct cuda_ops {
    struct ops table;
    int device;
    int multiprocessors;
    int capability; /* 90 for sm_90 */
    struct cuda_gemm *gemm;
    struct cuda_conv *conv;
};

#define OPS_DECLARE_KERNEL(name)                                                                             \
    int cuda_##name(struct cuda_ops *ops, ops_stream stream, const struct op_##name *args);
OPS_LIST(OPS_DECLARE_KERNEL)
#undef OPS_DECLARE_KERNEL

/* Return 0 and the state of a family of operations, or an error number. They allocate host memory only. */
int cuda_gemm_open(struct cuda_ops *ops, struct cuda_gemm **out);
void cuda_gemm_close(struct cuda_gemm *gemm);
int cuda_conv_open(struct cuda_ops *ops, struct cuda_conv **out);
void cuda_conv_close(struct cuda_conv *conv);

/* Is the stream being captured? Then nothing may be tried out or waited for. */
static inline bool cuda_capturing(ops_stream stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

    return cudaStreamIsCapturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

/* Threads per block of kernels with a thread per element: enough to fill a multiprocessor, few enough for
 * many blocks. */
enum { CUDA_BLOCK = 256 };

/* Returns the number of blocks for count threads. Kernels loop with the size of the grid as the step, so that
 * a bounded grid works for any count. */
static inline unsigned cuda_grid(size_t count)
{
    const size_t most = 65535;
    size_t blocks = (count + CUDA_BLOCK - 1) / CUDA_BLOCK;

    return (unsigned)(blocks < most ? blocks : most);
}

#endif
