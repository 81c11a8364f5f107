/* Attention for any type and dim: a warp takes a row of q (or, for dk and dv, of k). It goes along the other
 * side in steps of 32: each lane computes the product of the row with one of them, then each lane adds its
 * elements of the result over the 32. Sums are in one fixed order, without atomics. */
#include "kernels/attention.cuh"

static const int WARPS = 4;
static const int PARTS = ATTENTION_MOST_DIM / CUDA_WARP; /* elements of a row that a lane has */

enum part { PART_Q, PART_K, PART_V };

/* A head's rows: element d of row i of a part is at part + i * step + d. */
template <class T> struct head {
    const T *q, *k, *v;
    size_t step;
    int length, dim;
    float scale;
};

template <class T>
static __device__ struct head<T> find_head(const void *qkv, int index, int length, int heads, int dim) {
    size_t step = (size_t)3 * heads * dim;
    const T *q = (const T *)qkv + index / heads * (length * step) + index % heads * dim;

    return {q, q + heads *dim, q + 2 * heads *dim, step, length, dim, rsqrtf((float)dim)};
}

template <class T>
static __device__ float dot(const float *row, const T *other, int dim)
{
    float sum = 0.0f;

    for (int d = 0; d < dim; d++)
        sum += row[d] * to_float(other[d]);
    return sum;
}

template <class T> static __device__ void stage_row(float *row, const T *from, int dim)
{
    for (int d = threadIdx.x; d < dim; d += CUDA_WARP)
        row[d] = to_float(from[d]);
    __syncwarp();
}

/* acc += the sum over the lanes' weights of the rows from `first` on; count of them exist. */
template <class T>
static __device__ void add_rows(float (&acc)[PARTS], float weight, const T *rows, size_t step, int count,
                                int dim)
{
    for (int j = 0; j < CUDA_WARP; j++) {
        float w = __shfl_sync(0xffffffffu, weight, j);

        if (j >= count)
            continue;
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            int d = p * CUDA_WARP + threadIdx.x;

            if (d < dim)
                acc[p] += w * to_float(rows[j * step + d]);
        }
    }
}

template <class T> static __device__ void put_row(T *to, const float (&acc)[PARTS], float factor, int dim)
{
    for (int p = 0; p < PARTS; p++) {
        int d = p * CUDA_WARP + threadIdx.x;

        if (d < dim)
            to[d] = from_float<T>(acc[p] * factor);
    }
}

template <class T> static __global__ void forward_kernel(struct op_attention_forward args)
{
    __shared__ float q[WARPS][ATTENTION_MOST_DIM];
    struct head<T> h = find_head<T>(args.qkv, blockIdx.x, args.length, args.heads, args.dim);
    int row = blockIdx.y * WARPS + threadIdx.y;
    float acc[PARTS] = {};
    float max = -INFINITY, sum = 0.0f;

    if (row >= args.length)
        return;
    stage_row(q[threadIdx.y], h.q + row * h.step, h.dim);
    int keys = args.causal ? row + 1 : args.length;

    for (int j = 0; j < keys; j += CUDA_WARP) {
        int key = j + threadIdx.x;
        float s = key < keys ? dot(q[threadIdx.y], h.k + key * h.step, h.dim) * h.scale : -INFINITY;
        float larger = fmaxf(max, warp_max(s));
        float e = expf(s - larger), shrink = expf(max - larger);

        sum = sum * shrink + warp_sum(e);
        max = larger;
        for (int p = 0; p < PARTS; p++)
            acc[p] *= shrink;
        add_rows(acc, e, h.v + j * h.step, h.step, keys - j, h.dim);
    }
    size_t batch = blockIdx.x / args.heads, at = blockIdx.x % args.heads;

    put_row((T *)args.out + ((batch * args.length + row) * args.heads + at) * args.dim, acc, 1.0f / sum,
            h.dim);
    if (threadIdx.x == 0)
        args.lse[(size_t)blockIdx.x * args.length + row] = max + logf(sum);
}

int attention_plain_forward(ops_stream stream, const struct op_attention_forward *args)
{
    dim3 grid(args->batch * args->heads, (args->length + WARPS - 1) / WARPS), block(CUDA_WARP, WARPS);

    CUDA_BY_TYPE(args->type, T, forward_kernel<T><<<grid, block, 0, stream>>>(*args));
    return cudaGetLastError();
}

/* Where row `row` of the block's head is in out and dout. */
static __device__ size_t out_at(const struct op_attention_backward &args, int row)
{
    size_t batch = blockIdx.x / args.heads, at = blockIdx.x % args.heads;

    return ((batch * args.length + row) * args.heads + at) * args.dim;
}

/* delta and dq, by rows of q. */
template <class T> static __global__ void query_kernel(struct op_attention_backward args)
{
    __shared__ float q[WARPS][ATTENTION_MOST_DIM], dout[WARPS][ATTENTION_MOST_DIM];
    struct head<T> h = find_head<T>(args.qkv, blockIdx.x, args.length, args.heads, args.dim);
    int row = blockIdx.y * WARPS + threadIdx.y;
    float dq[PARTS] = {};
    float delta = 0.0f;

    if (row >= args.length)
        return;
    const T *out = (const T *)args.out + out_at(args, row);

    stage_row(q[threadIdx.y], h.q + row * h.step, h.dim);
    stage_row(dout[threadIdx.y], (const T *)args.dout + out_at(args, row), h.dim);
    for (int d = threadIdx.x; d < h.dim; d += CUDA_WARP)
        delta += dout[threadIdx.y][d] * to_float(out[d]);
    delta = warp_sum(delta);
    int keys = args.causal ? row + 1 : args.length;
    float lse = args.lse[(size_t)blockIdx.x * args.length + row];

    for (int j = 0; j < keys; j += CUDA_WARP) {
        int key = j + threadIdx.x;
        float ds = 0.0f;

        if (key < keys) {
            float p = expf(dot(q[threadIdx.y], h.k + key * h.step, h.dim) * h.scale - lse);

            ds = p * (dot(dout[threadIdx.y], h.v + key * h.step, h.dim) - delta);
        }
        add_rows(dq, ds, h.k + j * h.step, h.step, keys - j, h.dim);
    }
    put_row((T *)args.dqkv + (h.q + row * h.step - (const T *)args.qkv), dq, h.scale, h.dim);
    if (threadIdx.x == 0)
        args.delta[(size_t)blockIdx.x * args.length + row] = delta;
}

/* dk and dv, by rows of k. */
template <class T> static __global__ void key_kernel(struct op_attention_backward args)
{
    __shared__ float k[WARPS][ATTENTION_MOST_DIM], v[WARPS][ATTENTION_MOST_DIM];
    struct head<T> h = find_head<T>(args.qkv, blockIdx.x, args.length, args.heads, args.dim);
    size_t out_step = (size_t)args.heads * args.dim;
    int row = blockIdx.y * WARPS + threadIdx.y;
    float dk[PARTS] = {}, dv[PARTS] = {};

    if (row >= args.length)
        return;
    stage_row(k[threadIdx.y], h.k + row * h.step, h.dim);
    stage_row(v[threadIdx.y], h.v + row * h.step, h.dim);
    for (int i = args.causal ? row : 0; i < args.length; i += CUDA_WARP) {
        int query = i + threadIdx.x;
        const T *dout = (const T *)args.dout + out_at(args, i);
        float p = 0.0f, ds = 0.0f;

        if (query < args.length) {
            size_t at = (size_t)blockIdx.x * args.length + query;

            p = expf(dot(k[threadIdx.y], h.q + query * h.step, h.dim) * h.scale - args.lse[at]);
            ds = p * (dot(v[threadIdx.y], dout + threadIdx.x * out_step, h.dim) - args.delta[at]);
        }
        add_rows(dv, p, dout, out_step, args.length - i, h.dim);
        add_rows(dk, ds, h.q + i * h.step, h.step, args.length - i, h.dim);
    }
    put_row((T *)args.dqkv + (h.k + row * h.step - (const T *)args.qkv), dk, h.scale, h.dim);
    put_row((T *)args.dqkv + (h.v + row * h.step - (const T *)args.qkv), dv, 1.0f, h.dim);
}

int attention_plain_backward(ops_stream stream, const struct op_attention_backward *args)
{
    dim3 grid(args->batch * args->heads, (args->length + WARPS - 1) / WARPS), block(CUDA_WARP, WARPS);

    CUDA_BY_TYPE(args->type, T, {
        query_kernel<T><<<grid, block, 0, stream>>>(*args);
        key_kernel<T><<<grid, block, 0, stream>>>(*args);
    });
    return cudaGetLastError();
}
