/* Softmax and cross-entropy. Shapes: logits, dlogits are [rows][cols], labels, losses, lse are [rows].
 *     forward:  lse = max + log(sum of exp(logits - max)); losses = lse - logits[label]
 *     backward: dlogits = scale * *scale_by * (exp(logits - lse) - onehot(label))
 * Forward reads a row once, with a running maximum and sum per thread that are joined in a fixed order at the
 * end: one block for a long row, one warp for a short one. The CPU reference is softmax_xent.c. */
#include "kernels/types.cuh"

static const int LONG_ROW = 2048, ROW_BLOCK = 512;

/* A maximum and the sum of exp(x - maximum). */
struct softmax_part {
    float max, sum;
};

static __device__ __forceinline__ void add_values(struct softmax_part *p, const float (&v)[CUDA_GROUP])
{
    float max = p->max;
    float sum = 0.0f;

#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        max = fmaxf(max, v[i]);
    if (max == -INFINITY)
        return;
#pragma unroll
    for (int i = 0; i < CUDA_GROUP; i++)
        sum += __expf(v[i] - max);
    p->sum = p->sum * __expf(p->max - max) + sum;
    p->max = max;
}

template <class T, bool PACKED>
static __device__ __forceinline__ struct softmax_part row_part(const T *row, int cols, int thread,
                                                               int threads)
{
    struct softmax_part p = {-INFINITY, 0.0f};

#pragma unroll 4
    for (int c = thread * CUDA_GROUP; c < cols; c += threads * CUDA_GROUP) {
        float v[CUDA_GROUP];

        read_row<PACKED>(v, row, c, cols);
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            v[i] = PACKED || c + i < cols ? v[i] : -INFINITY;
        add_values(&p, v);
    }
    return p;
}

template <class T>
static __device__ __forceinline__ void put_row(const struct op_softmax_xent_forward &args, const T *logits,
                                               int row, float max, float sum)
{
    float lse = max + logf(sum);
    int label = args.labels[row];

    args.lse[row] = lse;
    args.losses[row] = label < 0 ? 0.0f : lse - to_float(logits[label]);
}

template <class T, bool PACKED>
static __global__ void forward_long_kernel(struct op_softmax_xent_forward args)
{
    const T *logits = (const T *)args.logits + (size_t)blockIdx.x * args.cols;
    struct softmax_part p = row_part<T, PACKED>(logits, args.cols, threadIdx.x, blockDim.x);
    float max = block_max(p.max);
    float sum = block_sum(p.max == -INFINITY ? 0.0f : p.sum * __expf(p.max - max));

    if (threadIdx.x == 0)
        put_row(args, logits, blockIdx.x, max, sum);
}

template <class T, bool PACKED>
static __global__ void forward_short_kernel(struct op_softmax_xent_forward args)
{
    int row = blockIdx.x * (blockDim.x / CUDA_WARP) + threadIdx.x / CUDA_WARP;
    int lane = threadIdx.x % CUDA_WARP;

    if (row >= args.rows)
        return;
    const T *logits = (const T *)args.logits + (size_t)row * args.cols;
    struct softmax_part p = row_part<T, PACKED>(logits, args.cols, lane, CUDA_WARP);
    float max = warp_max(p.max);
    float sum = warp_sum(p.max == -INFINITY ? 0.0f : p.sum * __expf(p.max - max));

    if (lane == 0)
        put_row(args, logits, row, max, sum);
}

int cuda_softmax_xent_forward(struct cuda_ops *, ops_stream stream,
                              const struct op_softmax_xent_forward *args)
{
    const int rows_of_block = CUDA_BLOCK / CUDA_WARP;
    unsigned grid = (args->rows + rows_of_block - 1) / rows_of_block;
    bool packed = cuda_packed(args->cols, args->logits);

    if (args->rows == 0 || args->cols == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, {
        CUDA_BY_PACKED(packed, P, {
            if (args->cols >= LONG_ROW)
                forward_long_kernel<T, P><<<args->rows, ROW_BLOCK, 0, stream>>>(*args);
            else
                forward_short_kernel<T, P><<<grid, CUDA_BLOCK, 0, stream>>>(*args);
        });
    });
    return cudaGetLastError();
}

/* threads of one row: a block, or a warp of it where rows are short. */
template <class T, bool PACKED>
static __global__ void backward_kernel(struct op_softmax_xent_backward args, int threads)
{
    int row = blockIdx.x * (blockDim.x / threads) + threadIdx.x / threads;

    if (row >= args.rows)
        return;
    const T *logits = (const T *)args.logits + (size_t)row * args.cols;
    T *dlogits = (T *)args.dlogits + (size_t)row * args.cols;
    int label = args.labels[row];
    float lse = args.lse[row];
    float scale = label < 0 ? 0.0f : args.scale * (args.scale_by ? *args.scale_by : 1.0f);

    for (int c = threadIdx.x % threads * CUDA_GROUP; c < args.cols; c += threads * CUDA_GROUP) {
        float v[CUDA_GROUP];

        read_row<PACKED>(v, logits, c, args.cols);
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            v[i] = label < 0 ? 0.0f : scale * (__expf(v[i] - lse) - (c + i == label ? 1.0f : 0.0f));
        write_row<PACKED>(dlogits, v, c, args.cols);
    }
}

int cuda_softmax_xent_backward(struct cuda_ops *, ops_stream stream,
                               const struct op_softmax_xent_backward *args)
{
    bool packed = cuda_packed(args->cols, args->logits, args->dlogits);
    bool whole = args->cols >= LONG_ROW;
    int threads = whole ? ROW_BLOCK : (int)CUDA_WARP;
    int block = whole ? ROW_BLOCK : (int)CUDA_BLOCK;
    unsigned grid = (args->rows + block / threads - 1) / (block / threads);

    if (args->rows == 0 || args->cols == 0)
        return OPS_OK;
    CUDA_BY_TYPE(args->type, T, {
        CUDA_BY_PACKED(packed, P, { backward_kernel<T, P><<<grid, block, 0, stream>>>(*args, threads); });
    });
    return cudaGetLastError();
}
