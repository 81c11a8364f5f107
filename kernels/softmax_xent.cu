/* Softmax and cross-entropy. Shapes: logits, probs, dlogits are [rows][cols], labels and losses [rows].
 *     forward:  probs = exp(logits - max) / sum; losses = log(sum) - (logits[label] - max); one warp per row
 *     backward: dlogits = scale * (probs - onehot(label)); one thread per element
 * The row maximum is subtracted so that no logit overflows. The warp sums in a fixed butterfly order, so a
 * run repeats bit by bit. The CPU reference is softmax_xent.c. */
#include "ops_cuda.h"

enum { WARP = 32, ROWS_PER_BLOCK = CUDA_BLOCK / WARP };

static const unsigned ALL_LANES = 0xffffffffu;

static __device__ float warp_max(float v)
{
    for (int d = WARP / 2; d > 0; d /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, d));
    return v;
}

static __device__ float warp_sum(float v)
{
    for (int d = WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, d);
    return v;
}

static __global__ void forward_kernel(struct op_softmax_xent_forward args)
{
    int row = blockIdx.x * ROWS_PER_BLOCK + threadIdx.y;
    int lane = threadIdx.x;

    if (row >= args.rows)
        return;

    const float *logits = args.logits + (size_t)row * args.cols;
    float *probs = args.probs + (size_t)row * args.cols;
    float max = -INFINITY;
    float sum = 0.0f;

    for (int c = lane; c < args.cols; c += WARP)
        max = fmaxf(max, logits[c]);
    max = warp_max(max);
    /* Every lane reads it before any lane overwrites it: the two buffers may be one. */
    float at_label = logits[args.labels[row]] - max;
    __syncwarp();
    for (int c = lane; c < args.cols; c += WARP) {
        float e = expf(logits[c] - max);

        probs[c] = e;
        sum += e;
    }
    sum = warp_sum(sum);
    for (int c = lane; c < args.cols; c += WARP)
        probs[c] /= sum;
    if (lane == 0)
        args.losses[row] = logf(sum) - at_label;
}

static __global__ void backward_kernel(struct op_softmax_xent_backward args)
{
    size_t count = (size_t)args.rows * args.cols;
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int label = args.labels[i / args.cols];

        args.dlogits[i] = args.scale * (args.probs[i] - ((int)(i % args.cols) == label ? 1.0f : 0.0f));
    }
}

int cuda_softmax_xent_forward(ops_stream stream, const struct op_softmax_xent_forward *args)
{
    dim3 block(WARP, ROWS_PER_BLOCK);

    if (args->rows == 0 || args->cols == 0)
        return OPS_OK;
    forward_kernel<<<(args->rows + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK, block, 0, stream>>>(*args);
    return cudaGetLastError();
}

int cuda_softmax_xent_backward(ops_stream stream, const struct op_softmax_xent_backward *args)
{
    size_t count = (size_t)args->rows * args->cols;

    if (count == 0)
        return OPS_OK;
    backward_kernel<<<cuda_grid(count), CUDA_BLOCK, 0, stream>>>(*args);
    return cudaGetLastError();
}
