/* The CUDA side of the table of operations: one function per operation, each in the .cu file beside its CPU
 * reference, each queuing one kernel on the stream and returning the launch's error number. Included by .cu
 * files only. */
#ifndef KERNELS_OPS_CUDA_H
#define KERNELS_OPS_CUDA_H

#include "ops.h"

#define OPS_DECLARE_KERNEL(name) __attribute__((weak)) int cuda_##name(ops_stream stream, const struct op_##name *args);
OPS_LIST(OPS_DECLARE_KERNEL)
#undef OPS_DECLARE_KERNEL

/* Threads of a block of the kernels that treat one element each: enough to fill a multiprocessor, small
 * enough for many blocks. */
enum { CUDA_BLOCK = 256 };

/* Blocks for count elements. Kernels step by the whole grid, so a bounded grid serves any count. */
static inline unsigned cuda_grid(size_t count)
{
    const size_t most = 65535;
    size_t blocks = (count + CUDA_BLOCK - 1) / CUDA_BLOCK;

    return (unsigned)(blocks < most ? blocks : most);
}

#endif
