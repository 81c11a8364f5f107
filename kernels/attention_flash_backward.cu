/* The backward pass of attention on the tensor cores, in two kernels without atomics, so that a run repeats
 * to the bit: one takes rows of queries and gives delta and dq, the other takes rows of keys and gives dk and
 * dv. Both compute the probabilities again from lse; the second works on the transposed scores (keys by
 * queries), so that a result of one product is, in registers, the left operand of the next. Copies are
 * double-buffered as in attention_flash_forward.cu. A step is treated in halves, which keeps the registers
 * few enough for several blocks on a multiprocessor. */
#include "kernels/attention_mma.cuh"

/* A step of the other side, and what of it is treated at once. */
static const int STEP = 64, HALF = 32;
static const int QUERY_ROWS = 128, QUERY_THREADS = QUERY_ROWS / 16 * CUDA_WARP;
static const int KEY_ROWS = 64, KEY_THREADS = KEY_ROWS / 16 * CUDA_WARP;

/* Up to this dim a warp keeps its two left operands in registers; beyond, it reads them again. */
static const int KEPT_DIM = 64;

template <int D> static constexpr size_t query_shared_bytes(void)
{
    return (size_t)(2 * QUERY_ROWS + 4 * STEP) * D * 2;
}

template <int D> static constexpr size_t key_shared_bytes(void)
{
    return (size_t)(2 * KEY_ROWS + 4 * STEP) * D * 2 + 4 * STEP * sizeof(float);
}

/* A warp's 16 rows as left operand, from registers or from the tile. */
template <int D> struct left_rows {
    static const bool kept = D <= KEPT_DIM;
    uint32_t r[kept ? D / 16 : 1][4];
    uint32_t tile;
    int row;

    __device__ __forceinline__ void open(uint32_t from_tile, int from_row)
    {
        tile = from_tile;
        row = from_row;
        if (kept) {
#pragma unroll
            for (int k = 0; k < D / 16; k++)
                load_left<D>(r[kept ? k : 0], tile, row, k);
        }
    }

    __device__ __forceinline__ const uint32_t (&get(int k))[4]
    {
        if (!kept)
            load_left<D>(r[0], tile, row, k);
        return r[kept ? k : 0];
    }
};

/* c[HALF / 8] = the 16 left rows by rows [row, row + HALF) of a tile. */
template <class T, int D>
static __device__ __forceinline__ void multiply_rows(float (&c)[HALF / 8][4], struct left_rows<D> &left,
                                                     uint32_t tile, int row)
{
#pragma unroll
    for (int n = 0; n < HALF / 8; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        const uint32_t(&a)[4] = left.get(k);

#pragma unroll
        for (int n = 0; n < HALF / 16; n++) {
            uint32_t b[4];

            load_right<D>(b, tile, row + n * 16, k);
            multiply<T>(c[2 * n], a, b[0], b[1]);
            multiply<T>(c[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* acc[D / 8] += p (16 x HALF) by rows [row, row + HALF) of a tile. */
template <class T, int D>
static __device__ __forceinline__ void multiply_add(float (&acc)[D / 8][4], const float (&p)[HALF / 8][4],
                                                    uint32_t tile, int row)
{
#pragma unroll
    for (int k = 0; k < HALF / 16; k++) {
        uint32_t a[4];

        as_left<T>(a, p[2 * k], p[2 * k + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];

            load_right_rows<D>(b, tile, row + k * 16, n);
            multiply<T>(acc[2 * n], a, b[0], b[1]);
            multiply<T>(acc[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* delta of a row, by two lanes; both get it. */
template <class T, int D> static __device__ __forceinline__ float row_delta(const T *out, const T *dout)
{
    int half = threadIdx.x % 2;
    float sum = 0.0f;

#pragma unroll
    for (int i = half * (D / 2); i < half * (D / 2) + D / 2; i += pack<T>::size) {
        pack<T> a = load_pack(out + i), b = load_pack(dout + i);

#pragma unroll
        for (int j = 0; j < pack<T>::size; j++)
            sum += to_float(a.v[j]) * to_float(b.v[j]);
    }
    return sum + __shfl_xor_sync(0xffffffffu, sum, 1);
}

template <class T, int D>
static __global__ void __launch_bounds__(QUERY_THREADS, D <= 64 ? 2 : 1)
    query_kernel(struct op_attention_backward args, float scale)
{
    extern __shared__ __align__(128) char shared[];
    uint32_t tile_q = (uint32_t)__cvta_generic_to_shared(shared), tile_d = tile_q + QUERY_ROWS * D * 2;
    uint32_t tile_k = tile_d + QUERY_ROWS * D * 2, tile_v = tile_k + 2 * STEP * D * 2;
    const uint32_t stage = STEP * D * 2;
    struct attention_head<T> h = attention_find_head<T>(args.qkv, blockIdx.x, args.length, args.heads, D);
    int row0 = (gridDim.y - 1 - blockIdx.y) * QUERY_ROWS;
    int warp_row = threadIdx.x / CUDA_WARP * 16, row = row0 + warp_row;
    int lane = threadIdx.x % CUDA_WARP;
    int last_key = args.causal ? min(row0 + QUERY_ROWS, args.length) : args.length;
    int steps = (last_key + STEP - 1) / STEP;
    struct left_rows<D> q, dout;
    float dq[D / 8][4] = {};
    float lse[2], delta[2];

    auto load_keys = [&](int step, int into) {
        const T *k = h.q + h.part + (size_t)step * STEP * h.step;

        tile_load<STEP, D, QUERY_THREADS>(tile_k + into * stage, k, h.step, args.length - step * STEP);
        tile_load<STEP, D, QUERY_THREADS>(tile_v + into * stage, k + h.part, h.step,
                                          args.length - step * STEP);
        copies_close();
    };

    tile_load<QUERY_ROWS, D, QUERY_THREADS>(tile_q, h.q + (size_t)row0 * h.step, h.step, args.length - row0);
    tile_load<QUERY_ROWS, D, QUERY_THREADS>(tile_d, (const T *)args.dout + h.out + (size_t)row0 * h.out_step,
                                            h.out_step, args.length - row0);
    load_keys(0, 0);
    {
        int mine = min(row + lane / 2, args.length - 1);
        size_t at = h.out + (size_t)mine * h.out_step;
        float d = row_delta<T, D>((const T *)args.out + at, (const T *)args.dout + at);

        if (lane % 2 == 0 && row + lane / 2 < args.length)
            args.delta[h.statistics + mine] = d;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = min(row + lane / 4 + half * 8, args.length - 1);

            delta[half] = __shfl_sync(0xffffffffu, d, (lane / 4 + half * 8) * 2);
            lse[half] = args.lse[h.statistics + query] * FLASH_LOG2_E;
        }
    }
    for (int step = 0, now = 0; step < steps; step++, now ^= 1) {
        copies_wait();
        __syncthreads();
        if (step == 0) {
            q.open(tile_q, warp_row);
            dout.open(tile_d, warp_row);
        }
        if (step + 1 < steps)
            load_keys(step + 1, now ^ 1);
#pragma unroll
        for (int part = 0; part < STEP / HALF; part++) {
            int key0 = step * STEP + part * HALF;
            float s[HALF / 8][4], ds[HALF / 8][4];

            if (key0 >= args.length || (args.causal && key0 > row + 15))
                break;
            multiply_rows<T, D>(s, q, tile_k + now * stage, part * HALF);
            multiply_rows<T, D>(ds, dout, tile_v + now * stage, part * HALF);
            bool masked = key0 + HALF > args.length || (args.causal && key0 + HALF - 1 > row);

#pragma unroll
            for (int n = 0; n < HALF / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float p = exp2_fast(s[n][i] * scale - lse[i / 2]);
                    int key = key0 + n * 8 + lane % 4 * 2 + i % 2;

                    if (masked && (key >= args.length || (args.causal && key > row + lane / 4 + i / 2 * 8)))
                        p = 0.0f;
                    ds[n][i] = p * (ds[n][i] - delta[i / 2]);
                }
            }
            multiply_add<T, D>(dq, ds, tile_k + now * stage, part * HALF);
        }
    }
    float factor = scale / FLASH_LOG2_E;

    put_rows<T, D>(shared, dq, factor, factor, warp_row,
                   (T *)args.dqkv + (h.q - (const T *)args.qkv) + (size_t)row * h.step, h.step,
                   args.length - row);
}

template <class T, int D>
static __global__ void __launch_bounds__(KEY_THREADS, D <= 64 ? 3 : 1)
    key_kernel(struct op_attention_backward args, float scale)
{
    extern __shared__ __align__(128) char shared[];
    uint32_t tile_k = (uint32_t)__cvta_generic_to_shared(shared), tile_v = tile_k + KEY_ROWS * D * 2;
    uint32_t tile_q = tile_v + KEY_ROWS * D * 2, tile_d = tile_q + 2 * STEP * D * 2;
    const uint32_t stage = STEP * D * 2, statistics_at = (2 * KEY_ROWS + 4 * STEP) * D * 2;
    float *statistics = (float *)(shared + statistics_at); /* [2][lse, delta][STEP] */
    struct attention_head<T> h = attention_find_head<T>(args.qkv, blockIdx.x, args.length, args.heads, D);
    int row0 = blockIdx.y * KEY_ROWS;
    int warp_row = threadIdx.x / CUDA_WARP * 16, row = row0 + warp_row;
    int lane = threadIdx.x % CUDA_WARP;
    int first = args.causal ? row0 / STEP : 0, steps = (args.length + STEP - 1) / STEP;
    struct left_rows<D> k, v;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};

    auto load_queries = [&](int step, int into) {
        int query0 = step * STEP, count = args.length - query0;
        int at = threadIdx.x % STEP;
        const float *from = (threadIdx.x < STEP ? args.lse : args.delta) + h.statistics + query0;

        tile_load<STEP, D, KEY_THREADS>(tile_q + into * stage, h.q + (size_t)query0 * h.step, h.step, count);
        tile_load<STEP, D, KEY_THREADS>(tile_d + into * stage,
                                        (const T *)args.dout + h.out + (size_t)query0 * h.out_step,
                                        h.out_step, count);
        copy_async4(tile_k + statistics_at + (into * 2 * STEP + threadIdx.x) * 4,
                    from + (at < count ? at : 0), at < count);
        copies_close();
    };

    tile_load<KEY_ROWS, D, KEY_THREADS>(tile_k, h.q + h.part + (size_t)row0 * h.step, h.step,
                                        args.length - row0);
    tile_load<KEY_ROWS, D, KEY_THREADS>(tile_v, h.q + 2 * h.part + (size_t)row0 * h.step, h.step,
                                        args.length - row0);
    load_queries(first, 0);
    for (int step = first, now = 0; step < steps; step++, now ^= 1) {
        copies_wait();
        __syncthreads();
        if (step == first) {
            k.open(tile_k, warp_row);
            v.open(tile_v, warp_row);
        }
        if (step + 1 < steps)
            load_queries(step + 1, now ^ 1);
#pragma unroll
        for (int part = 0; part < STEP / HALF; part++) {
            int query0 = step * STEP + part * HALF;
            const float *lse = statistics + now * 2 * STEP + part * HALF, *delta = lse + STEP;
            float s[HALF / 8][4], ds[HALF / 8][4];

            if (args.causal && query0 + HALF - 1 < row)
                continue;
            multiply_rows<T, D>(s, k, tile_q + now * stage, part * HALF);
            multiply_rows<T, D>(ds, v, tile_d + now * stage, part * HALF);
            bool masked = args.causal && query0 < row + 15;

#pragma unroll
            for (int n = 0; n < HALF / 8; n++) {
                int at = n * 8 + lane % 4 * 2;
                float2 l = *(const float2 *)(lse + at), d = *(const float2 *)(delta + at);

#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float p = exp2_fast(s[n][i] * scale - (i % 2 ? l.y : l.x) * FLASH_LOG2_E);

                    if (masked && query0 + at + i % 2 < row + lane / 4 + i / 2 * 8)
                        p = 0.0f;
                    s[n][i] = p;
                    ds[n][i] = p * (ds[n][i] - (i % 2 ? d.y : d.x));
                }
            }
            multiply_add<T, D>(dv, s, tile_d + now * stage, part * HALF);
            multiply_add<T, D>(dk, ds, tile_q + now * stage, part * HALF);
        }
    }
    float factor = scale / FLASH_LOG2_E;
    T *to = (T *)args.dqkv + (h.q - (const T *)args.qkv) + h.part + (size_t)row * h.step;

    put_rows<T, D>(shared, dk, factor, factor, warp_row, to, h.step, args.length - row);
    put_rows<T, D>(shared + KEY_ROWS * D * 2, dv, 1.0f, 1.0f, warp_row, to + h.part, h.step,
                   args.length - row);
}

template <class T, int D> static int launch(ops_stream stream, const struct op_attention_backward *args)
{
    dim3 by_query(args->batch * args->heads, (args->length + QUERY_ROWS - 1) / QUERY_ROWS);
    dim3 by_key(args->batch * args->heads, (args->length + KEY_ROWS - 1) / KEY_ROWS);
    float scale = FLASH_LOG2_E / sqrtf((float)D);

    /* GPUs with less shared memory per block (sm_86, sm_89, sm_120) use the plain kernels: dim 128 takes 128
     * KiB. The forward pass takes 96 KiB at most, which they have. */
    if (attention_allow_shared(query_kernel<T, D>, query_shared_bytes<D>()) ||
        attention_allow_shared(key_kernel<T, D>, key_shared_bytes<D>())) {
        cudaGetLastError();
        return attention_plain_backward(stream, args);
    }
    query_kernel<T, D><<<by_query, QUERY_THREADS, query_shared_bytes<D>(), stream>>>(*args, scale);
    key_kernel<T, D><<<by_key, KEY_THREADS, key_shared_bytes<D>(), stream>>>(*args, scale);
    return cudaGetLastError();
}

template <class T> static int launch_dim(ops_stream stream, const struct op_attention_backward *args)
{
    if (args->dim == 32)
        return launch<T, 32>(stream, args);
    return args->dim == 64 ? launch<T, 64>(stream, args) : launch<T, 128>(stream, args);
}

int attention_flash_backward(ops_stream stream, const struct op_attention_backward *args)
{
    return args->type == OPS_BF16 ? launch_dim<__nv_bfloat16>(stream, args)
                                  : launch_dim<__half>(stream, args);
}
