/* cast and add: out[i] = x[i] from one type to another; out[i] = a[i] + b[i]. A group of elements per thread,
 * in a grid-stride loop; out may be a or b, because a group is read before it is written. The CPU reference
 * is cast.c. */
#include "kernels/types.cuh"

template <class X, class T> static __global__ void cast_kernel(const X *x, T *out, size_t count, bool packed)
{
    size_t step = (size_t)gridDim.x * blockDim.x * CUDA_GROUP;

    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * CUDA_GROUP; at < count; at += step) {
        float v[CUDA_GROUP];

        read_group(v, x, at, count, packed);
        write_group(out, v, at, count, packed);
    }
}

int cuda_cast(struct cuda_ops *, ops_stream stream, const struct op_cast *args)
{
    unsigned grid = cuda_grid(cuda_groups(args->count));
    bool packed = cuda_aligned(0, args->x, args->out);

    if (args->count == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->x_type, X, {
        CUDA_BY_TYPE(args->out_type, T, {
            cast_kernel<<<grid, CUDA_BLOCK, 0, stream>>>((const X *)args->x, (T *)args->out, args->count,
                                                         packed);
        });
    });
    return cudaGetLastError();
}

template <class T>
static __global__ void add_kernel(const T *a, const T *b, T *out, size_t count, bool packed)
{
    size_t step = (size_t)gridDim.x * blockDim.x * CUDA_GROUP;

    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * CUDA_GROUP; at < count; at += step) {
        float v[CUDA_GROUP], w[CUDA_GROUP];

        read_group(v, a, at, count, packed);
        read_group(w, b, at, count, packed);
        for (int i = 0; i < CUDA_GROUP; i++)
            v[i] += w[i];
        write_group(out, v, at, count, packed);
    }
}

int cuda_add(struct cuda_ops *, ops_stream stream, const struct op_add *args)
{
    unsigned grid = cuda_grid(cuda_groups(args->count));
    bool packed = cuda_aligned(0, args->a, args->b, args->out);

    if (args->count == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T,
                 add_kernel<<<grid, CUDA_BLOCK, 0, stream>>>((const T *)args->a, (const T *)args->b,
                                                             (T *)args->out, args->count, packed));
    return cudaGetLastError();
}
