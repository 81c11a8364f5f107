/* dropout: y[i] = x[i] / (1 - rate) where element i is kept, else 0. dropout.h decides which elements are
 * kept, for both tables. A group of elements per thread, in a grid-stride loop. The CPU reference is
 * dropout.c. */
#include "kernels/dropout.h"

#include "kernels/types.cuh"

template <class T> static __global__ void dropout_kernel(struct op_dropout args, bool packed)
{
    size_t step = (size_t)gridDim.x * blockDim.x * CUDA_GROUP;
    uint64_t key = dropout_key(args.seed, args.step ? *args.step : 0);
    uint32_t threshold = dropout_threshold(args.rate);
    float factor = args.rate < 1.0f ? 1.0f / (1.0f - args.rate) : 0.0f;

    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * CUDA_GROUP; at < args.count;
         at += step) {
        float v[CUDA_GROUP];

        read_group(v, (const T *)args.x, at, args.count, packed);
#pragma unroll
        for (int j = 0; j < CUDA_GROUP; j += DROPOUT_GROUP) {
            uint64_t bits = dropout_bits(key, at / DROPOUT_GROUP + j / DROPOUT_GROUP);

#pragma unroll
            for (int i = 0; i < DROPOUT_GROUP; i++)
                v[j + i] = dropout_keeps(bits, i, threshold) ? v[j + i] * factor : 0.0f;
        }
        write_group((T *)args.y, v, at, args.count, packed);
    }
}

int cuda_dropout(struct cuda_ops *, ops_stream stream, const struct op_dropout *args)
{
    unsigned grid = cuda_grid(cuda_groups(args->count));
    bool packed = cuda_aligned(0, args->x, args->y);

    if (args->count == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, dropout_kernel<T><<<grid, CUDA_BLOCK, 0, stream>>>(*args, packed));
    return cudaGetLastError();
}
