/* The building blocks of attention in floats: products of tiles in shared memory, with plain fused
 * multiply-adds, which keep all 24 bits that the tensor cores would cut to 11.
 *
 * A block of four warps takes a number of rows of one side (queries or keys) and goes along the other side in
 * steps of TILED_STEP, the columns of the scores. A warp has its own rows; its lanes are 4 down by 8 across.
 * A lane has every fourth of the warp's rows and every eighth of the columns: a piece of the scores of
 * 8 x 4 (4 x 4 for dim 128), and of those rows of the result every eighth group of four elements. Each value
 * loaded from shared memory is thus used four to eight times.
 *
 * Rows of a tile are 4 floats longer than dim, and rows of scores 8 floats longer than a step: thus the
 * addresses that the lanes of a warp access at once lie in different banks. */
#ifndef KERNELS_ATTENTION_TILED_CUH
#define KERNELS_ATTENTION_TILED_CUH

#include "kernels/attention.cuh"

static const int TILED_WARPS = 4, TILED_THREADS = TILED_WARPS * CUDA_WARP;
static const int TILED_ACROSS = 8, TILED_DOWN = CUDA_WARP / TILED_ACROSS;
static const int TILED_STEP = 32, TILED_COLS = TILED_STEP / TILED_ACROSS;
static const int TILED_SCORES = TILED_STEP + 8; /* floats from one row of scores to the next */

/* Sizes for a dim. Dim 128 has fewer rows, for the sake of registers and shared memory. */
template <int D> struct tiled {
    static const int down = D <= 64 ? 8 : 4;        /* rows of a lane */
    static const int across = D / TILED_ACROSS;     /* elements that a lane has of a row of the result */
    static const int warp_rows = down * TILED_DOWN; /* rows of a warp */
    static const int rows = warp_rows * TILED_WARPS;
    static const int stride = D + 4; /* floats from one row of a tile to the next */
    static const int large = rows * stride, small = TILED_STEP * stride, scores = rows * TILED_SCORES;
};

/* The first of the lane's rows, within the block's; the others are TILED_DOWN apart. */
template <int D> static __device__ __forceinline__ int tiled_row(void)
{
    int warp = threadIdx.x / CUDA_WARP, lane = threadIdx.x % CUDA_WARP;

    return warp * tiled<D>::warp_rows + lane / TILED_ACROSS;
}

/* The first of the lane's columns; the others are TILED_ACROSS apart. */
static __device__ __forceinline__ int tiled_col(void)
{
    return threadIdx.x % TILED_ACROSS;
}

/* Over the eight lanes that share a row. */
static __device__ __forceinline__ float tiled_sum(float v)
{
#pragma unroll
    for (int d = TILED_ACROSS / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

static __device__ __forceinline__ float tiled_max(float v)
{
#pragma unroll
    for (int d = TILED_ACROSS / 2; d > 0; d /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* Begins to copy rows [0, ROWS) of a matrix, whose rows are `step` elements apart, into a tile; rows from
 * `count` on are filled with 0. tiled_wait() ends it. */
template <int ROWS, int D>
static __device__ __forceinline__ void tiled_load(float *tile, const float *from, size_t step, int count)
{
    const int packs = D / 4, rows = TILED_THREADS / packs; /* of a round of all threads */
    int row = threadIdx.x / packs, d = threadIdx.x % packs * 4;
    uint32_t to = (uint32_t)__cvta_generic_to_shared(tile + row * tiled<D>::stride + d);
    const float *at = from + row * step + d;

#pragma unroll
    for (int i = 0; i < ROWS / rows; i++) {
        bool exists = row + i * rows < count;

        copy_async16(to + i * rows * tiled<D>::stride * 4, exists ? at : from, exists);
        at += rows * step;
    }
}

/* Waits until the copies that all threads of the block have begun are visible to the whole block. */
static __device__ __forceinline__ void tiled_wait(void)
{
    copies_close();
    copies_wait();
    __syncthreads();
}

/* s = the lane's piece of the products of the rows of `left` with those of `right`. UNROLL steps of four
 * elements are mixed, which hides the loads of all but the first, as far as there are registers. */
template <int D, int UNROLL>
static __device__ __forceinline__ void tiled_multiply_rows(float (&s)[tiled<D>::down][TILED_COLS],
                                                           const float *left, const float *right)
{
    const int down = tiled<D>::down, stride = tiled<D>::stride;

    left += tiled_row<D>() * stride;
    right += tiled_col() * stride;
#pragma unroll
    for (int i = 0; i < down; i++) {
#pragma unroll
        for (int j = 0; j < TILED_COLS; j++)
            s[i][j] = 0.0f;
    }
#pragma unroll UNROLL
    for (int d = 0; d < D; d += 4) {
        pack<float> a[down];

#pragma unroll
        for (int i = 0; i < down; i++)
            a[i] = load_pack(left + i * TILED_DOWN * stride + d);
#pragma unroll
        for (int j = 0; j < TILED_COLS; j++) {
            pack<float> b = load_pack(right + j * TILED_ACROSS * stride + d);

#pragma unroll
            for (int n = 0; n < 4; n++) {
#pragma unroll
                for (int i = 0; i < down; i++)
                    s[i][j] += a[i].v[n] * b.v[n];
            }
        }
    }
}

/* Sets to -inf the scores of pairs that do not count: a column beyond the length, or, when causal, a key
 * after the query. BY_KEYS: rows are keys and columns queries, else the other way round. row0 and col0 are
 * the first of the block. A warp without such pairs has nothing to do. */
template <int D, bool BY_KEYS>
static __device__ __forceinline__ void tiled_mask(float (&s)[tiled<D>::down][TILED_COLS], int row0, int col0,
                                                  int length, bool causal)
{
    int first = row0 + threadIdx.x / CUDA_WARP * tiled<D>::warp_rows, last = first + tiled<D>::warp_rows - 1;
    bool crosses = causal && (BY_KEYS ? col0 < last : col0 + TILED_STEP - 1 > first);

    if (!crosses && col0 + TILED_STEP <= length)
        return;
#pragma unroll
    for (int i = 0; i < tiled<D>::down; i++) {
        int row = row0 + tiled_row<D>() + i * TILED_DOWN;

#pragma unroll
        for (int j = 0; j < TILED_COLS; j++) {
            int col = col0 + tiled_col() + j * TILED_ACROSS;
            bool hidden = causal && (BY_KEYS ? col < row : col > row);

            s[i][j] = hidden || col >= length ? -INFINITY : s[i][j];
        }
    }
}

/* acc += the lane's rows of scores by the tile `right`, whose rows are what is summed over. */
template <int D>
static __device__ __forceinline__ void tiled_multiply_add(float (&acc)[tiled<D>::down][tiled<D>::across],
                                                          const float *scores, const float *right)
{
    const int down = tiled<D>::down;

    scores += tiled_row<D>() * TILED_SCORES;
    right += tiled_col() * 4;
#pragma unroll 1
    for (int j = 0; j < TILED_STEP; j += 4) {
        pack<float> a[down];

#pragma unroll
        for (int i = 0; i < down; i++)
            a[i] = load_pack(scores + i * TILED_DOWN * TILED_SCORES + j);
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int g = 0; g < tiled<D>::across; g += 4) {
                pack<float> b = load_pack(right + (j + n) * tiled<D>::stride + g * TILED_ACROSS);

#pragma unroll
                for (int i = 0; i < down; i++) {
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        acc[i][g + e] += a[i].v[n] * b.v[e];
                }
            }
        }
    }
}

/* Puts the lane's piece where the warp's other lanes read it, once all have read what was there before. */
template <int D>
static __device__ __forceinline__ void tiled_put_scores(float *scores,
                                                        const float (&s)[tiled<D>::down][TILED_COLS])
{
    scores += tiled_row<D>() * TILED_SCORES + tiled_col();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < tiled<D>::down; i++) {
#pragma unroll
        for (int j = 0; j < TILED_COLS; j++)
            scores[i * TILED_DOWN * TILED_SCORES + j * TILED_ACROSS] = s[i][j];
    }
    __syncwarp();
}

/* Writes the lane's pieces of the result. Rows of `to`, the block's first, are `step` elements apart; those
 * from `count` on do not exist. */
template <int D>
static __device__ __forceinline__ void tiled_put_rows(float *to, size_t step, int count,
                                                      const float (&acc)[tiled<D>::down][tiled<D>::across],
                                                      float factor)
{
#pragma unroll
    for (int i = 0; i < tiled<D>::down; i++) {
        int row = tiled_row<D>() + i * TILED_DOWN;

#pragma unroll
        for (int g = 0; g < tiled<D>::across; g += 4) {
            float4 v = make_float4(acc[i][g] * factor, acc[i][g + 1] * factor, acc[i][g + 2] * factor,
                                   acc[i][g + 3] * factor);

            if (row < count)
                *(float4 *)(to + row * step + tiled_col() * 4 + g * TILED_ACROSS) = v;
        }
    }
}

#endif
