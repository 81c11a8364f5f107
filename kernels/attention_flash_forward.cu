/* The forward pass of attention on the tensor cores, after FlashAttention-2. A block takes ROWS queries of
 * one head, each warp 16 of them with its part of q in registers, and goes over the keys in steps of KEYS,
 * from the last to the first, keeping a running maximum and sum for each row. The next step's k and v are
 * copied while this one is computed, into the other half of a double buffer, so one barrier per step is
 * enough: after it, this step's copies have arrived and no warp reads the previous step's any more. With
 * causal, keys after all of a warp's queries are skipped. Probabilities are exp2 of scores scaled by log2 e.
 */
#include "kernels/attention_mma.cuh"

static const int ROWS = 128, KEYS = 64, WARPS = ROWS / 16, THREADS = WARPS * CUDA_WARP;

template <int D> static constexpr size_t shared_bytes(void)
{
    return (size_t)(ROWS + 4 * KEYS) * D * 2;
}

/* Sets the scores of keys that a row must not see to -inf. */
static __device__ __forceinline__ void mask(float (&s)[KEYS / 8][4], int row, int key0, int length,
                                            bool causal)
{
    int lane = threadIdx.x % CUDA_WARP;

#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = key0 + n * 8 + lane % 4 * 2 + i % 2;
            int query = row + lane / 4 + i / 2 * 8;

            if (key >= length || (causal && key > query))
                s[n][i] = -INFINITY;
        }
    }
}

/* s becomes the probabilities relative to the new maximum; sums and out are scaled to it. */
template <int D>
static __device__ __forceinline__ void softmax_step(float (&s)[KEYS / 8][4], float (&out)[D / 8][4],
                                                    float (&max)[2], float (&sum)[2], float scale)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float larger = max[half], shrink, offset;

#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            larger = fmaxf(larger, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        larger = quad_max(larger);
        shrink = exp2_fast((max[half] - larger) * scale);
        offset = larger * scale;
        max[half] = larger;
        sum[half] *= shrink;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            out[n][2 * half] *= shrink;
            out[n][2 * half + 1] *= shrink;
        }
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            s[n][2 * half] = exp2_fast(s[n][2 * half] * scale - offset);
            s[n][2 * half + 1] = exp2_fast(s[n][2 * half + 1] * scale - offset);
            sum[half] += s[n][2 * half] + s[n][2 * half + 1];
        }
    }
}

template <class T, int D>
static __global__ void __launch_bounds__(THREADS, D <= 64 ? 2 : 1)
    forward_kernel(struct op_attention_forward args, float scale)
{
    extern __shared__ __align__(128) char shared[];
    uint32_t tile_q = (uint32_t)__cvta_generic_to_shared(shared);
    uint32_t tile_k = tile_q + ROWS * D * 2, tile_v = tile_k + 2 * KEYS * D * 2;
    const uint32_t stage = KEYS * D * 2;
    struct attention_head<T> h = attention_find_head<T>(args.qkv, blockIdx.x, args.length, args.heads, D);
    int row0 = (gridDim.y - 1 - blockIdx.y) * ROWS; /* the blocks with most keys first */
    int warp_row = threadIdx.x / CUDA_WARP * 16, row = row0 + warp_row;
    int lane = threadIdx.x % CUDA_WARP;
    int last_key = args.causal ? min(row0 + ROWS, args.length) : args.length;
    int steps = (last_key + KEYS - 1) / KEYS;
    uint32_t q[D / 16][4];
    float out[D / 8][4] = {};
    float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};

    auto load_keys = [&](int step, int into) {
        const T *k = h.q + h.part + (size_t)step * KEYS * h.step;

        tile_load<KEYS, D, THREADS>(tile_k + into * stage, k, h.step, args.length - step * KEYS);
        tile_load<KEYS, D, THREADS>(tile_v + into * stage, k + h.part, h.step, args.length - step * KEYS);
        copies_close();
    };

    tile_load<ROWS, D, THREADS>(tile_q, h.q + (size_t)row0 * h.step, h.step, args.length - row0);
    load_keys(steps - 1, 0);
    for (int step = steps - 1, now = 0; step >= 0; step--, now ^= 1) {
        int key0 = step * KEYS;

        copies_wait();
        __syncthreads();
        if (step == steps - 1) {
#pragma unroll
            for (int k = 0; k < D / 16; k++)
                load_left<D>(q[k], tile_q, warp_row, k);
        }
        if (step > 0)
            load_keys(step - 1, now ^ 1);
        if (args.causal && key0 > row + 15)
            continue;

        float s[KEYS / 8][4] = {};

#pragma unroll
        for (int k = 0; k < D / 16; k++) {
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                uint32_t b[4];

                load_right<D>(b, tile_k + now * stage, n * 16, k);
                multiply<T>(s[2 * n], q[k], b[0], b[1]);
                multiply<T>(s[2 * n + 1], q[k], b[2], b[3]);
            }
        }
        if (key0 + KEYS > args.length || (args.causal && key0 + KEYS - 1 > row))
            mask(s, row, key0, args.length, args.causal);
        softmax_step<D>(s, out, max, sum, scale);
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) {
            uint32_t p[4];

            as_left<T>(p, s[2 * k], s[2 * k + 1]);
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                uint32_t b[4];

                load_right_rows<D>(b, tile_v + now * stage, k * 16, n);
                multiply<T>(out[2 * n], p, b[0], b[1]);
                multiply<T>(out[2 * n + 1], p, b[2], b[3]);
            }
        }
    }
    sum[0] = quad_sum(sum[0]);
    sum[1] = quad_sum(sum[1]);
    for (int half = 0; half < 2; half++) {
        int query = row + lane / 4 + half * 8;

        if (lane % 4 == 0 && query < args.length)
            args.lse[h.statistics + query] = max[half] * (scale / FLASH_LOG2_E) + logf(sum[half]);
    }
    put_rows<T, D>(shared, out, 1.0f / sum[0], 1.0f / sum[1], warp_row,
                   (T *)args.out + h.out + row * h.out_step, h.out_step, args.length - row);
}

template <class T, int D> static int launch(ops_stream stream, const struct op_attention_forward *args)
{
    dim3 grid(args->batch * args->heads, (args->length + ROWS - 1) / ROWS);
    int status = attention_allow_shared(forward_kernel<T, D>, shared_bytes<D>());

    if (status)
        return status;
    forward_kernel<T, D><<<grid, THREADS, shared_bytes<D>(), stream>>>(*args, FLASH_LOG2_E / sqrtf((float)D));
    return cudaGetLastError();
}

template <class T> static int launch_dim(ops_stream stream, const struct op_attention_forward *args)
{
    if (args->dim == 32)
        return launch<T, 32>(stream, args);
    return args->dim == 64 ? launch<T, 64>(stream, args) : launch<T, 128>(stream, args);
}

int attention_flash_forward(ops_stream stream, const struct op_attention_forward *args)
{
    return args->type == OPS_BF16 ? launch_dim<__nv_bfloat16>(stream, args)
                                  : launch_dim<__half>(stream, args);
}
