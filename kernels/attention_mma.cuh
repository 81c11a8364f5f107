/* The building blocks of attention on the tensor cores: 16 x 8 x 16 products of one warp (mma.sync),
 * fragments from shared memory (ldmatrix), and tiles that are copied from global to shared memory in the
 * background (cp.async).
 *
 * A tile is [rows][D] of 16-bit elements. Its 16-byte pieces are permuted within a row by the row's number,
 * so that the eight rows that ldmatrix reads at once lie in different banks. */
#ifndef KERNELS_ATTENTION_MMA_CUH
#define KERNELS_ATTENTION_MMA_CUH

#include "kernels/attention.cuh"

/* The byte offset of piece `piece` (8 elements) of a row in a tile. */
template <int D> static __device__ __forceinline__ uint32_t tile_at(int row, int piece)
{
    if (D == 32)
        return row * 64 + ((piece ^ (row / 2 % 4)) * 16);
    return row * (D * 2) + ((piece ^ (row % 8)) * 16);
}

/* Begins to copy rows [0, ROWS) of a matrix, whose rows are `step` elements apart, into a tile; rows from
 * `count` on are filled with 0. */
template <int ROWS, int D, int THREADS, class T>
static __device__ __forceinline__ void tile_load(uint32_t tile, const T *from, size_t step, int count)
{
    const int pieces = D / 8;

#pragma unroll
    for (int i = 0; i < ROWS * pieces / THREADS; i++) {
        int at = i * THREADS + threadIdx.x;
        int row = at / pieces, piece = at % pieces;
        bool exists = row < count;

        copy_async16(tile + tile_at<D>(row, piece), from + (exists ? row * step : 0) + piece * 8, exists);
    }
}

static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

static __device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/* The left operand: rows [row, row + 16) of a tile, elements [16 k, 16 k + 16). */
template <int D>
static __device__ __forceinline__ void load_left(uint32_t (&r)[4], uint32_t tile, int row, int k)
{
    int lane = threadIdx.x % CUDA_WARP;

    load_matrices(r, tile + tile_at<D>(row + lane % 16, 2 * k + lane / 16));
}

/* The right operand, where the tile's rows are the columns of the product: rows [row, row + 16), elements
 * [16 k, 16 k + 16). r[0..1] is for the first eight columns, r[2..3] for the others. */
template <int D>
static __device__ __forceinline__ void load_right(uint32_t (&r)[4], uint32_t tile, int row, int k)
{
    int lane = threadIdx.x % CUDA_WARP;

    load_matrices(r, tile + tile_at<D>(row + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
}

/* The right operand, where the tile's rows are what is summed over: rows [row, row + 16), elements
 * [16 n, 16 n + 16) are the columns. */
template <int D>
static __device__ __forceinline__ void load_right_rows(uint32_t (&r)[4], uint32_t tile, int row, int n)
{
    int lane = threadIdx.x % CUDA_WARP;

    load_matrices_transposed(r, tile + tile_at<D>(row + lane % 16, 2 * n + lane / 16));
}

template <class T>
static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                uint32_t b1);

template <>
__device__ __forceinline__ void multiply<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                        uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void multiply<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two floats as two 16-bit elements, the first in the low half. */
template <class T> static __device__ __forceinline__ uint32_t pack_two(float low, float high);

template <> __device__ __forceinline__ uint32_t pack_two<__nv_bfloat16>(float low, float high)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);

    return *reinterpret_cast<uint32_t *>(&v);
}

template <> __device__ __forceinline__ uint32_t pack_two<__half>(float low, float high)
{
    __half2 v = __floats2half2_rn(low, high);

    return *reinterpret_cast<uint32_t *>(&v);
}

/* Two neighbouring results of 16 x 8 as the left operand of the next product. */
template <class T>
static __device__ __forceinline__ void as_left(uint32_t (&a)[4], const float (&first)[4],
                                               const float (&second)[4])
{
    a[0] = pack_two<T>(first[0], first[1]);
    a[1] = pack_two<T>(first[2], first[3]);
    a[2] = pack_two<T>(second[0], second[1]);
    a[3] = pack_two<T>(second[2], second[3]);
}

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Over the four lanes that share a row of a result. */
static __device__ __forceinline__ float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

static __device__ __forceinline__ float quad_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/* Writes a warp's 16 rows of results to global memory, through rows [row, row + 16) of a tile that only this
 * warp uses. Rows of `to` are `step` elements apart; those from `count` on do not exist. */
template <class T, int D>
static __device__ __forceinline__ void put_rows(char *tile, const float (&acc)[D / 8][4], float factor0,
                                                float factor1, int row, T *to, size_t step, int count)
{
    int lane = threadIdx.x % CUDA_WARP;
    const int pieces = D / 8;

    __syncwarp();
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        uint32_t low = tile_at<D>(row + lane / 4, n) + lane % 4 * 4;
        uint32_t high = tile_at<D>(row + lane / 4 + 8, n) + lane % 4 * 4;

        *(uint32_t *)(tile + low) = pack_two<T>(acc[n][0] * factor0, acc[n][1] * factor0);
        *(uint32_t *)(tile + high) = pack_two<T>(acc[n][2] * factor1, acc[n][3] * factor1);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * pieces / CUDA_WARP; i++) {
        int at = i * CUDA_WARP + lane;
        int r = at / pieces, piece = at % pieces;

        if (r < count)
            *(uint4 *)(to + r * step + piece * 8) = *(const uint4 *)(tile + tile_at<D>(row + r, piece));
    }
}

static const float FLASH_LOG2_E = 1.4426950408889634f;

#endif
