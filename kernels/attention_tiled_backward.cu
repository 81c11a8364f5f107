/* The backward pass of attention in floats, in two kernels without atomics, so that a run repeats to the bit:
 * one takes tiles of queries and gives delta and dq, the other takes tiles of keys and gives dk and dv. Both
 * compute the probabilities again from lse; the second works on the transposed scores (keys by queries). See
 * attention_tiled.cuh. */
#include "kernels/attention_tiled.cuh"

/* Blocks on a multiprocessor: what shared memory allows on Hopper. It bounds the registers of a thread. */
static const int BLOCKS = 2;

/* Two tiles of the block's rows, two of a step, the scores; by keys also lse and delta of a step's queries.
 */
template <int D> static constexpr size_t shared_bytes(void)
{
    return (size_t)(2 * tiled<D>::large + 2 * tiled<D>::small + tiled<D>::scores + 2 * TILED_STEP) *
           sizeof(float);
}

/* delta of the lane's rows, from the tile of dout; out is at the block's first row. Rows from count on get
 * that of the last. */
template <int D>
static __device__ __forceinline__ void find_delta(float (&delta)[tiled<D>::down], const float *out,
                                                  size_t step, const float *dout, int count)
{
#pragma unroll
    for (int i = 0; i < tiled<D>::down; i++) {
        int row = min(tiled_row<D>() + i * TILED_DOWN, count - 1);
        float sum = 0.0f;

#pragma unroll
        for (int g = 0; g < tiled<D>::across; g += 4) {
            int d = tiled_col() * 4 + g * TILED_ACROSS;
            pack<float> a = load_pack(out + row * step + d), b = load_pack(dout + row * tiled<D>::stride + d);

#pragma unroll
            for (int n = 0; n < 4; n++)
                sum += a.v[n] * b.v[n];
        }
        delta[i] = tiled_sum(sum);
    }
}

template <int D>
static __global__ void __launch_bounds__(TILED_THREADS, BLOCKS)
    query_kernel(struct op_attention_backward args, float scale)
{
    extern __shared__ __align__(16) float shared[];
    float *q = shared, *dout = q + tiled<D>::large, *k = dout + tiled<D>::large;
    float *v = k + tiled<D>::small, *scores = v + tiled<D>::small;
    struct attention_head<float> h =
        attention_find_head<float>(args.qkv, blockIdx.x, args.length, args.heads, D);
    const int down = tiled<D>::down;
    int row0 = (gridDim.y - 1 - blockIdx.y) * tiled<D>::rows; /* the longest first */
    int count = args.length - row0;
    int last = row0 + (threadIdx.x / CUDA_WARP + 1) * tiled<D>::warp_rows - 1;
    int keys = args.causal ? min(row0 + tiled<D>::rows, args.length) : args.length;
    size_t out_at = h.out + row0 * h.out_step;
    float dq[down][tiled<D>::across] = {};
    float lse[down], delta[down];

    tiled_load<tiled<D>::rows, D>(q, h.q + row0 * h.step, h.step, count);
    tiled_load<tiled<D>::rows, D>(dout, (const float *)args.dout + out_at, h.out_step, count);
    tiled_wait();
    find_delta<D>(delta, (const float *)args.out + out_at, h.out_step, dout, count);
#pragma unroll
    for (int i = 0; i < down; i++) {
        int row = tiled_row<D>() + i * TILED_DOWN;

        lse[i] = args.lse[h.statistics + row0 + min(row, count - 1)];
        if (tiled_col() == 0 && row < count)
            args.delta[h.statistics + row0 + row] = delta[i];
    }
    for (int key0 = 0; key0 < keys; key0 += TILED_STEP) {
        const float *from = h.q + h.part + key0 * h.step;
        float s[down][TILED_COLS], ds[down][TILED_COLS];

        __syncthreads();
        tiled_load<TILED_STEP, D>(k, from, h.step, args.length - key0);
        tiled_load<TILED_STEP, D>(v, from + h.part, h.step, args.length - key0);
        tiled_wait();
        if (args.causal && key0 > last)
            continue;
        tiled_multiply_rows<D, 2>(s, q, k);
        tiled_mask<D, false>(s, row0, key0, args.length, args.causal);
        tiled_multiply_rows<D, 2>(ds, dout, v);
#pragma unroll
        for (int i = 0; i < down; i++) {
#pragma unroll
            for (int j = 0; j < TILED_COLS; j++)
                ds[i][j] = expf(s[i][j] * scale - lse[i]) * (ds[i][j] - delta[i]);
        }
        tiled_put_scores<D>(scores, ds);
        tiled_multiply_add<D>(dq, scores, k);
    }
    tiled_put_rows<D>((float *)args.dqkv + (h.q - (const float *)args.qkv) + row0 * h.step, h.step, count, dq,
                      scale);
}

/* s becomes the probabilities; lse is that of the step's queries, which are columns. */
template <int D>
static __device__ __forceinline__ void find_probabilities(float (&s)[tiled<D>::down][TILED_COLS],
                                                          const float *lse, float scale)
{
#pragma unroll
    for (int j = 0; j < TILED_COLS; j++) {
        float offset = lse[tiled_col() + j * TILED_ACROSS];

#pragma unroll
        for (int i = 0; i < tiled<D>::down; i++)
            s[i][j] = expf(s[i][j] * scale - offset);
    }
}

/* ds, of which ds holds dout v', from the probabilities that the lane itself put among the scores. */
template <int D>
static __device__ __forceinline__ void find_ds(float (&ds)[tiled<D>::down][TILED_COLS], const float *scores,
                                               const float *delta)
{
    scores += tiled_row<D>() * TILED_SCORES + tiled_col();
#pragma unroll
    for (int i = 0; i < tiled<D>::down; i++) {
#pragma unroll
        for (int j = 0; j < TILED_COLS; j++) {
            float p = scores[i * TILED_DOWN * TILED_SCORES + j * TILED_ACROSS];

            ds[i][j] = p * (ds[i][j] - delta[tiled_col() + j * TILED_ACROSS]);
        }
    }
}

/* One warp copies lse and the next one delta of a step's queries; those from count on get 0. */
static __device__ __forceinline__ void load_statistics(float *to, const float *lse, const float *delta,
                                                       int count)
{
    int at = threadIdx.x % TILED_STEP;

    if (threadIdx.x < 2 * TILED_STEP)
        to[threadIdx.x] = at < count ? (threadIdx.x < TILED_STEP ? lse : delta)[at] : 0.0f;
}

template <int D>
static __global__ void __launch_bounds__(TILED_THREADS, BLOCKS)
    key_kernel(struct op_attention_backward args, float scale)
{
    extern __shared__ __align__(16) float shared[];
    float *k = shared, *v = k + tiled<D>::large, *q = v + tiled<D>::large, *dout = q + tiled<D>::small;
    float *scores = dout + tiled<D>::small, *lse = scores + tiled<D>::scores, *delta = lse + TILED_STEP;
    struct attention_head<float> h =
        attention_find_head<float>(args.qkv, blockIdx.x, args.length, args.heads, D);
    const int down = tiled<D>::down;
    int row0 = blockIdx.y * tiled<D>::rows, count = args.length - row0;
    int first = row0 + threadIdx.x / CUDA_WARP * tiled<D>::warp_rows;
    float dk[down][tiled<D>::across] = {}, dv[down][tiled<D>::across] = {};

    tiled_load<tiled<D>::rows, D>(k, h.q + h.part + row0 * h.step, h.step, count);
    tiled_load<tiled<D>::rows, D>(v, h.q + 2 * h.part + row0 * h.step, h.step, count);
    for (int query0 = args.causal ? row0 : 0; query0 < args.length; query0 += TILED_STEP) {
        size_t at = h.statistics + query0;
        int left = args.length - query0;
        float s[down][TILED_COLS];

        __syncthreads();
        tiled_load<TILED_STEP, D>(q, h.q + query0 * h.step, h.step, left);
        tiled_load<TILED_STEP, D>(dout, (const float *)args.dout + h.out + query0 * h.out_step, h.out_step,
                                  left);
        load_statistics(lse, args.lse + at, args.delta + at, left);
        tiled_wait();
        if (args.causal && query0 + TILED_STEP - 1 < first)
            continue;
        tiled_multiply_rows<D, 1>(s, k, q);
        tiled_mask<D, true>(s, row0, query0, args.length, args.causal);
        find_probabilities<D>(s, lse, scale);
        tiled_put_scores<D>(scores, s);
        tiled_multiply_add<D>(dv, scores, dout);
        tiled_multiply_rows<D, 2>(s, v, dout);
        find_ds<D>(s, scores, delta);
        tiled_put_scores<D>(scores, s);
        tiled_multiply_add<D>(dk, scores, q);
    }
    float *to = (float *)args.dqkv + (h.q - (const float *)args.qkv) + h.part + row0 * h.step;

    tiled_put_rows<D>(to, h.step, count, dk, scale);
    tiled_put_rows<D>(to + h.part, h.step, count, dv, 1.0f);
}

template <int D> static int launch(ops_stream stream, const struct op_attention_backward *args)
{
    const int rows = tiled<D>::rows;
    dim3 grid(args->batch * args->heads, (args->length + rows - 1) / rows);
    float scale = 1.0f / sqrtf((float)D);

    /* GPUs with less shared memory per block (sm_86) use the plain kernels. */
    if (attention_allow_shared(query_kernel<D>, shared_bytes<D>()) ||
        attention_allow_shared(key_kernel<D>, shared_bytes<D>())) {
        cudaGetLastError();
        return attention_plain_backward(stream, args);
    }
    query_kernel<D><<<grid, TILED_THREADS, shared_bytes<D>(), stream>>>(*args, scale);
    key_kernel<D><<<grid, TILED_THREADS, shared_bytes<D>(), stream>>>(*args, scale);
    return cudaGetLastError();
}

int attention_tiled_backward(ops_stream stream, const struct op_attention_backward *args)
{
    if (args->dim == 32)
        return launch<32>(stream, args);
    return args->dim == 64 ? launch<64>(stream, args) : launch<128>(stream, args);
}
