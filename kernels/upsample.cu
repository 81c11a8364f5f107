/* upsample and channels_copy on the device; the expressions are in upsample.c, the CPU reference. A thread
 * moves V neighbouring channels: 16 bytes if everything is aligned, else one. */
#include "kernels/types.cuh"

/* V elements, for one access. */
template <class T, int V> struct alignas(V * sizeof(T)) raw {
    T v[V];
};

template <class T, int V> static __global__ void up_kernel(struct op_upsample_forward a)
{
    size_t groups = a.c / V, wide = (size_t)a.w * 2, count = (size_t)a.n * a.h * 2 * wide * groups;
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x; t < count; t += step) {
        size_t pixel = t / groups, row = pixel / wide, column = pixel % wide;

        ((raw<T, V> *)a.y)[t] = ((const raw<T, V> *)a.x)[(row / 2 * a.w + column / 2) * groups + t % groups];
    }
}

template <class T, int V> static __global__ void up_back_kernel(struct op_upsample_backward a)
{
    size_t groups = a.c / V, count = (size_t)a.n * a.h * a.w * groups, line = (size_t)a.w * 2 * groups;
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x; t < count; t += step) {
        size_t pixel = t / groups, row = pixel / a.w, column = pixel % a.w;
        const raw<T, V> *dy = (const raw<T, V> *)a.dy + row * 2 * line + column * 2 * groups + t % groups;
        raw<T, V> four[4] = {dy[0], dy[groups], dy[line], dy[line + groups]}, sum;

#pragma unroll
        for (int i = 0; i < V; i++)
            sum.v[i] = from_float<T>(to_float(four[0].v[i]) + to_float(four[1].v[i]) +
                                     to_float(four[2].v[i]) + to_float(four[3].v[i]));
        ((raw<T, V> *)a.dx)[t] = sum;
    }
}

template <class T, int V> static __global__ void copy_kernel(struct op_channels_copy a)
{
    size_t groups = a.cols / V, count = a.rows * groups, step = (size_t)gridDim.x * blockDim.x;

    for (size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x; t < count; t += step) {
        size_t row = t / groups, col = t % groups * V;
        raw<T, V> value = *(const raw<T, V> *)((const T *)a.x + row * a.x_cols + a.x_from + col);
        raw<T, V> *out = (raw<T, V> *)((T *)a.out + row * a.out_cols + a.out_from + col);

        if (a.accumulate) {
            raw<T, V> before = *out;

#pragma unroll
            for (int i = 0; i < V; i++)
                value.v[i] = from_float<T>(to_float(value.v[i]) + to_float(before.v[i]));
        }
        *out = value;
    }
}

int cuda_upsample_forward(struct cuda_ops *ops, ops_stream stream, const struct op_upsample_forward *args)
{
    size_t count = (size_t)args->n * args->h * args->w * 4 * args->c;

    (void)ops;
    if (count == 0)
        return OPS_OK;
    CUDA_BY_WIDTH(cuda_aligned(args->c * ops_type_bytes(args->type), args->x, args->y), args->type, T, V,
                  (up_kernel<T, V><<<cuda_grid(count / V), CUDA_BLOCK, 0, stream>>>(*args)));
    return cudaGetLastError();
}

int cuda_upsample_backward(struct cuda_ops *ops, ops_stream stream, const struct op_upsample_backward *args)
{
    size_t count = (size_t)args->n * args->h * args->w * args->c;

    (void)ops;
    if (count == 0)
        return OPS_OK;
    CUDA_BY_WIDTH(cuda_aligned(args->c * ops_type_bytes(args->type), args->dx, args->dy), args->type, T, V,
                  (up_back_kernel<T, V><<<cuda_grid(count / V), CUDA_BLOCK, 0, stream>>>(*args)));
    return cudaGetLastError();
}

int cuda_channels_copy(struct cuda_ops *ops, ops_stream stream, const struct op_channels_copy *args)
{
    size_t count = args->rows * args->cols, bytes = ops_type_bytes(args->type);
    /* Multiple of 16 if that holds for each row, its part that is copied, and where that begins. */
    size_t rows = (args->x_cols | args->out_cols | args->x_from | args->out_from | args->cols) * bytes;

    (void)ops;
    if (count == 0)
        return OPS_OK;
    CUDA_BY_WIDTH(cuda_aligned(rows, args->x, args->out), args->type, T, V,
                  (copy_kernel<T, V><<<cuda_grid(count / V), CUDA_BLOCK, 0, stream>>>(*args)));
    return cudaGetLastError();
}
