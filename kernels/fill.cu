/* fill: out[count] = value. A group of elements per thread, in a grid-stride loop. The CPU reference is
 * fill.c. */
#include "kernels/types.cuh"

#include <math.h>

template <class T> static __global__ void fill_kernel(T *out, size_t count, float value, bool packed)
{
    size_t step = (size_t)gridDim.x * blockDim.x * CUDA_GROUP;
    float v[CUDA_GROUP];

    for (int i = 0; i < CUDA_GROUP; i++)
        v[i] = value;
    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * CUDA_GROUP; at < count; at += step)
        write_group(out, v, at, count, packed);
}

int cuda_fill(struct cuda_ops *, ops_stream stream, const struct op_fill *args)
{
    unsigned grid = cuda_grid(cuda_groups(args->count));

    if (args->count == 0)
        return OPS_OK;
    if (args->value == 0.0f && !signbit(args->value))
        return cudaMemsetAsync(args->out, 0, args->count * ops_type_bytes(args->type), stream);
    CUDA_BY_TYPE(args->type, T,
                 fill_kernel<<<grid, CUDA_BLOCK, 0, stream>>>((T *)args->out, args->count, args->value,
                                                              cuda_aligned(0, args->out)));
    return cudaGetLastError();
}
