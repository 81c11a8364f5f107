/* SGD with momentum over count weights: velocity = momentum * velocity + grad; weight -= rate * velocity.
 * One thread per weight, stepping by the grid. The CPU reference is sgd.c. */
#include "ops_cuda.h"

static __global__ void sgd_kernel(struct op_sgd args)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < args.count; i += step) {
        float v = args.momentum * args.velocity[i] + args.grad[i];

        args.velocity[i] = v;
        args.weight[i] -= args.rate * v;
    }
}

int cuda_sgd(ops_stream stream, const struct op_sgd *args)
{
    if (args->count == 0)
        return OPS_OK;
    sgd_kernel<<<cuda_grid(args->count), CUDA_BLOCK, 0, stream>>>(*args);
    return cudaGetLastError();
}
