/* prune sets small weights to 0; quantize stores rows of weights as bytes with one scale per row (max |x| /
 * 127, halves to even); dequantize converts them back. A block per row for quantize, else one thread per
 * element. The CPU reference is quantize.c. */
#include "kernels/types.cuh"

static __global__ void prune_kernel(struct op_prune args)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < args.count; i += step)
        args.x[i] = fabsf(args.x[i]) < args.threshold ? 0.0f : args.x[i];
}

int cuda_prune(struct cuda_ops *, ops_stream stream, const struct op_prune *args)
{
    if (args->count == 0)
        return OPS_OK;
    prune_kernel<<<cuda_grid(args->count), CUDA_BLOCK, 0, stream>>>(*args);
    return cudaGetLastError();
}

static __global__ void quantize_kernel(struct op_quantize args)
{
    const float largest = 127.0f;
    const float *x = args.x + (size_t)blockIdx.x * args.cols;
    int8_t *q = args.q + (size_t)blockIdx.x * args.cols;
    float max = 0.0f;

    for (int c = threadIdx.x; c < args.cols; c += blockDim.x)
        max = fmaxf(max, fabsf(x[c]));
    max = block_max(max);
    float scale = __fdiv_rn(max, largest);
    for (int c = threadIdx.x; c < args.cols; c += blockDim.x) {
        float v = max > 0.0f ? rintf(__fdiv_rn(x[c], scale)) : 0.0f;

        q[c] = (int8_t)fminf(fmaxf(v, -largest), largest);
    }
    if (threadIdx.x == 0)
        args.scale[blockIdx.x] = scale;
}

int cuda_quantize(struct cuda_ops *, ops_stream stream, const struct op_quantize *args)
{
    if (args->rows == 0)
        return OPS_OK;
    quantize_kernel<<<args->rows, CUDA_BLOCK, 0, stream>>>(*args);
    return cudaGetLastError();
}

template <class T> static __global__ void dequantize_kernel(struct op_dequantize args)
{
    size_t count = (size_t)args.rows * args.cols;
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        ((T *)args.x)[i] = from_float<T>(args.q[i] * args.scale[i / args.cols]);
}

int cuda_dequantize(struct cuda_ops *, ops_stream stream, const struct op_dequantize *args)
{
    size_t count = (size_t)args->rows * args->cols;

    if (count == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, dequantize_kernel<T><<<cuda_grid(count), CUDA_BLOCK, 0, stream>>>(*args));
    return cudaGetLastError();
}
