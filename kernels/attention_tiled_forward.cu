/* The forward pass of attention in floats. A block takes a tile of queries of one head and goes over the keys
 * in steps, keeping a running maximum and sum for each row, as FlashAttention does; only the scores of one
 * step exist at a time. With causal, steps after all of a warp's queries are skipped. Copies are not
 * double-buffered: several blocks on a multiprocessor compute while one waits. See attention_tiled.cuh. */
#include "kernels/attention_tiled.cuh"

/* Blocks on a multiprocessor: what shared memory allows on Hopper. It bounds the registers of a thread. */
static constexpr int blocks(int dim)
{
    return dim <= 64 ? 3 : 2;
}

template <int D> static constexpr size_t shared_bytes(void)
{
    return (size_t)(tiled<D>::large + 2 * tiled<D>::small + tiled<D>::scores) * sizeof(float);
}

/* s becomes the probabilities relative to the new maximum; sums and out are scaled to it. A sum is of the
 * lane's own columns only, a maximum is the row's. */
template <int D>
static __device__ __forceinline__ void
softmax_step(float (&s)[tiled<D>::down][TILED_COLS], float (&out)[tiled<D>::down][tiled<D>::across],
             float (&max)[tiled<D>::down], float (&sum)[tiled<D>::down])
{
#pragma unroll
    for (int i = 0; i < tiled<D>::down; i++) {
        float larger = s[i][0], shrink;

#pragma unroll
        for (int j = 1; j < TILED_COLS; j++)
            larger = fmaxf(larger, s[i][j]);
        larger = fmaxf(max[i], tiled_max(larger));
        shrink = expf(max[i] - larger);
        max[i] = larger;
        sum[i] *= shrink;
#pragma unroll
        for (int d = 0; d < tiled<D>::across; d++)
            out[i][d] *= shrink;
#pragma unroll
        for (int j = 0; j < TILED_COLS; j++) {
            s[i][j] = expf(s[i][j] - larger);
            sum[i] += s[i][j];
        }
    }
}

/* out becomes the averages; lse is written by the first of the lanes that share a row. */
template <int D>
static __device__ __forceinline__ void finish(float (&out)[tiled<D>::down][tiled<D>::across],
                                              const float (&max)[tiled<D>::down],
                                              const float (&sum)[tiled<D>::down], float *lse, int count)
{
#pragma unroll
    for (int i = 0; i < tiled<D>::down; i++) {
        int row = tiled_row<D>() + i * TILED_DOWN;
        float whole = tiled_sum(sum[i]), factor = 1.0f / whole;

#pragma unroll
        for (int d = 0; d < tiled<D>::across; d++)
            out[i][d] *= factor;
        if (tiled_col() == 0 && row < count)
            lse[row] = max[i] + logf(whole);
    }
}

template <int D>
static __global__ void __launch_bounds__(TILED_THREADS, blocks(D))
    forward_kernel(struct op_attention_forward args, float scale)
{
    extern __shared__ __align__(16) float shared[];
    float *q = shared, *k = q + tiled<D>::large, *v = k + tiled<D>::small, *scores = v + tiled<D>::small;
    struct attention_head<float> h =
        attention_find_head<float>(args.qkv, blockIdx.x, args.length, args.heads, D);
    const int down = tiled<D>::down;
    int row0 = (gridDim.y - 1 - blockIdx.y) * tiled<D>::rows; /* the longest first */
    int count = args.length - row0;
    int last = row0 + (threadIdx.x / CUDA_WARP + 1) * tiled<D>::warp_rows - 1;
    int keys = args.causal ? min(row0 + tiled<D>::rows, args.length) : args.length;
    float out[down][tiled<D>::across] = {};
    float max[down], sum[down];

#pragma unroll
    for (int i = 0; i < down; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    tiled_load<tiled<D>::rows, D>(q, h.q + row0 * h.step, h.step, count);
    /* Start at the first key, which every row sees, so that the maximum is finite before a step is masked
     * entirely. */
    for (int key0 = 0; key0 < keys; key0 += TILED_STEP) {
        const float *from = h.q + h.part + key0 * h.step;
        float s[down][TILED_COLS];

        __syncthreads();
        tiled_load<TILED_STEP, D>(k, from, h.step, args.length - key0);
        tiled_load<TILED_STEP, D>(v, from + h.part, h.step, args.length - key0);
        tiled_wait();
        if (args.causal && key0 > last)
            continue;
        tiled_multiply_rows<D, 1>(s, q, k);
#pragma unroll
        for (int i = 0; i < down; i++) {
#pragma unroll
            for (int j = 0; j < TILED_COLS; j++)
                s[i][j] *= scale;
        }
        tiled_mask<D, false>(s, row0, key0, args.length, args.causal);
        softmax_step<D>(s, out, max, sum);
        tiled_put_scores<D>(scores, s);
        tiled_multiply_add<D>(out, scores, v);
    }
    finish<D>(out, max, sum, args.lse + h.statistics + row0, count);
    tiled_put_rows<D>((float *)args.out + h.out + row0 * h.out_step, h.out_step, count, out, 1.0f);
}

template <int D> static int launch(ops_stream stream, const struct op_attention_forward *args)
{
    const int rows = tiled<D>::rows;
    dim3 grid(args->batch * args->heads, (args->length + rows - 1) / rows);

    /* GPUs with less shared memory per block (sm_86) use the plain kernels. */
    if (attention_allow_shared(forward_kernel<D>, shared_bytes<D>())) {
        cudaGetLastError();
        return attention_plain_forward(stream, args);
    }
    forward_kernel<D><<<grid, TILED_THREADS, shared_bytes<D>(), stream>>>(*args, 1.0f / sqrtf((float)D));
    return cudaGetLastError();
}

int attention_tiled_forward(ops_stream stream, const struct op_attention_forward *args)
{
    if (args->dim == 32)
        return launch<32>(stream, args);
    return args->dim == 64 ? launch<64>(stream, args) : launch<128>(stream, args);
}
