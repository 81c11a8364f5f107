/* average: every parts[p][i] = the mean over p, summed in the order of p. One thread per element, in a
 * grid-stride loop. The CPU reference is average.c. */
#include "kernels/types.cuh"

static __global__ void average_kernel(struct op_average args, bool packed)
{
    size_t step = (size_t)gridDim.x * blockDim.x * CUDA_GROUP;
    float factor = 1.0f / args.count;

    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * CUDA_GROUP; at < args.elements;
         at += step) {
        float sum[CUDA_GROUP], v[CUDA_GROUP];

        read_group(sum, args.parts[0], at, args.elements, packed);
        for (int p = 1; p < args.count; p++) {
            read_group(v, args.parts[p], at, args.elements, packed);
#pragma unroll
            for (int i = 0; i < CUDA_GROUP; i++)
                sum[i] += v[i];
        }
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            sum[i] *= factor;
        for (int p = 0; p < args.count; p++)
            write_group(args.parts[p], sum, at, args.elements, packed);
    }
}

int cuda_average(struct cuda_ops *, ops_stream stream, const struct op_average *args)
{
    bool packed = true;

    if (args->count < 2 || args->elements == 0)
        return OPS_OK;
    if (args->count > OPS_PARTS)
        return OPS_INVALID;
    for (int p = 0; p < args->count; p++)
        packed = packed && cuda_aligned(0, args->parts[p]);
    average_kernel<<<cuda_grid(cuda_groups(args->elements)), CUDA_BLOCK, 0, stream>>>(*args, packed);
    return cudaGetLastError();
}
