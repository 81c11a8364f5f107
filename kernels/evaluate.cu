/* evaluate: total[0] += the sum of losses[rows]; total[1] += the rows whose largest logit, the first of
 * several, is the label's; total[2] += the rows. A row with a negative label does not count. One block sums
 * the losses in a fixed order; a warp per row finds the largest logit, and counts are added by atomics, which
 * are exact for whole numbers below 2^24. The CPU reference is evaluate.c. */
#include "kernels/types.cuh"

enum { SUM_BLOCK = 1024 };

static __global__ void losses_kernel(struct op_evaluate args)
{
    float losses = 0.0f, rows = 0.0f;

    for (int row = threadIdx.x; row < args.rows; row += SUM_BLOCK) {
        if (!args.labels || args.labels[row] >= 0) {
            losses += args.losses[row];
            rows += 1.0f;
        }
    }
    losses = block_sum(losses);
    rows = block_sum(rows);
    if (threadIdx.x == 0) {
        args.total[0] += losses;
        args.total[2] += rows;
    }
}

/* Keeps the larger of two logits, the first of two equal ones, and never NaN. */
static __device__ __forceinline__ void keep_larger(float *best, int *at, float value, int where)
{
    if (value > *best || (value == *best && where < *at)) {
        *best = value;
        *at = where;
    }
}

template <class T> static __global__ void right_kernel(struct op_evaluate args)
{
    int row = blockIdx.x * (blockDim.x / CUDA_WARP) + threadIdx.x / CUDA_WARP;
    int lane = threadIdx.x % CUDA_WARP;

    if (row >= args.rows || args.labels[row] < 0)
        return;
    const T *logits = (const T *)args.logits + (size_t)row * args.cols;
    float best = -INFINITY;
    int at = args.cols;

    for (int c = lane; c < args.cols; c += CUDA_WARP)
        keep_larger(&best, &at, to_float(logits[c]), c);
    for (int d = CUDA_WARP / 2; d > 0; d /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, best, d);
        int other_at = __shfl_xor_sync(0xffffffffu, at, d);

        keep_larger(&best, &at, other, other_at);
    }
    if (lane == 0 && (at < args.cols ? at : 0) == args.labels[row])
        atomicAdd(args.total + 1, 1.0f);
}

int cuda_evaluate(struct cuda_ops *, ops_stream stream, const struct op_evaluate *args)
{
    const int rows_of_block = CUDA_BLOCK / CUDA_WARP;
    unsigned grid = (args->rows + rows_of_block - 1) / rows_of_block;

    if (args->rows == 0)
        return OPS_OK;
    losses_kernel<<<1, SUM_BLOCK, 0, stream>>>(*args);
    if (args->logits && args->labels && args->cols > 0)
        CUDA_BY_TYPE(args->type, T, right_kernel<T><<<grid, CUDA_BLOCK, 0, stream>>>(*args));
    return cudaGetLastError();
}
