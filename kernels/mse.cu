/* Mean squared error on the device; the expressions are in mse.c, the CPU reference. One block sums a row in
 * a fixed order. */
#include "kernels/types.cuh"

template <class T> static __global__ void loss_kernel(struct op_mse_forward a)
{
    for (size_t row = blockIdx.x; row < (size_t)a.rows; row += gridDim.x) {
        const T *x = (const T *)a.x + row * a.cols, *target = (const T *)a.target + row * a.cols;
        float sum = 0.0f;

        for (int c = threadIdx.x; c < a.cols; c += blockDim.x) {
            float d = to_float(x[c]) - to_float(target[c]);

            sum += d * d;
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            a.losses[row] = sum / (float)a.cols;
    }
}

template <class T> static __global__ void gradient_kernel(struct op_mse_backward a)
{
    size_t count = (size_t)a.rows * a.cols, step = (size_t)gridDim.x * blockDim.x;
    float factor = a.scale * (a.scale_by ? *a.scale_by : 1.0f) * 2.0f / (float)a.cols;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        ((T *)a.dx)[i] =
            from_float<T>(factor * (to_float(((const T *)a.x)[i]) - to_float(((const T *)a.target)[i])));
}

int cuda_mse_forward(struct cuda_ops *ops, ops_stream stream, const struct op_mse_forward *args)
{
    unsigned rows = args->rows < 65535 ? args->rows : 65535;

    (void)ops;
    if (args->rows <= 0 || args->cols <= 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, (loss_kernel<T><<<rows, CUDA_BLOCK, 0, stream>>>(*args)));
    return cudaGetLastError();
}

int cuda_mse_backward(struct cuda_ops *ops, ops_stream stream, const struct op_mse_backward *args)
{
    size_t count = (size_t)args->rows * args->cols;

    (void)ops;
    if (count == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, (gradient_kernel<T><<<cuda_grid(count), CUDA_BLOCK, 0, stream>>>(*args)));
    return cudaGetLastError();
}
