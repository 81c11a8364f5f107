/* fill: out[count] = value. One thread per element, stepping by the grid. The CPU reference is fill.c. */
#include "ops_cuda.h"

static __global__ void fill_kernel(struct op_fill args)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < args.count; i += step)
        args.out[i] = args.value;
}

int cuda_fill(ops_stream stream, const struct op_fill *args)
{
    if (args->count == 0)
        return OPS_OK;
    fill_kernel<<<cuda_grid(args->count), CUDA_BLOCK, 0, stream>>>(*args);
    return cudaGetLastError();
}
