/* The types of the table on the device: float, __nv_bfloat16 and __half, read and written as floats, singly
 * or in packs of 16 bytes; sums over warps and blocks in a fixed order; and macros that select the instance
 * of a template by type, by packing or by both. */
#ifndef KERNELS_TYPES_CUH
#define KERNELS_TYPES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "kernels/ops_cuda.h"

enum { CUDA_WARP = 32, CUDA_PACK_BYTES = 16 };

/* CUDA_BY_TYPE(type, T, statement): runs the statement with T defined as the element type. */
#define CUDA_BY_TYPE(type, T, ...)                                                                           \
    do {                                                                                                     \
        if ((type) == OPS_F32) {                                                                             \
            using T = float;                                                                                 \
            __VA_ARGS__;                                                                                     \
        } else if ((type) == OPS_BF16) {                                                                     \
            using T = __nv_bfloat16;                                                                         \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            using T = __half;                                                                                \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    } while (0)

static __device__ __forceinline__ float to_float(float v)
{
    return v;
}

static __device__ __forceinline__ float to_float(__nv_bfloat16 v)
{
    return __bfloat162float(v);
}

static __device__ __forceinline__ float to_float(__half v)
{
    return __half2float(v);
}

template <class T> static __device__ __forceinline__ T from_float(float v);

template <> __device__ __forceinline__ float from_float<float>(float v)
{
    return v;
}

template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v)
{
    return __float2bfloat16_rn(v);
}

template <> __device__ __forceinline__ __half from_float<__half>(float v)
{
    return __float2half_rn(v);
}

/* The elements of one 16-byte access: 4 floats or 8 elements of 16 bits. */
template <class T> struct alignas(CUDA_PACK_BYTES) pack {
    static constexpr int size = CUDA_PACK_BYTES / (int)sizeof(T);
    T v[size];
};

template <class T> static __device__ __forceinline__ pack<T> load_pack(const T *from)
{
    union {
        uint4 raw;
        pack<T> p;
    } u = {*reinterpret_cast<const uint4 *>(from)};

    return u.p;
}

template <class T> static __device__ __forceinline__ void store_pack(T *to, const pack<T> &p)
{
    union {
        pack<T> p;
        uint4 raw;
    } u = {p};

    *reinterpret_cast<uint4 *>(to) = u.raw;
}

/* Can packs be used? True if the length of a row and every address (NULL too) are multiples of 16 bytes. */
template <class... P> static inline bool cuda_aligned(size_t row_bytes, P... pointers)
{
    uintptr_t all = row_bytes;

    ((all |= (uintptr_t)pointers), ...);
    return all % CUDA_PACK_BYTES == 0;
}

/* Elements that a thread of an elementwise kernel processes at a time, as floats: one or two packs. */
enum { CUDA_GROUP = 8 };

/* v = elements [at, at + CUDA_GROUP) of an array of count, 0 beyond its end. packed may be true if
 * cuda_aligned() is for the array and at is a multiple of CUDA_GROUP. */
template <class T>
static __device__ __forceinline__ void read_group(float (&v)[CUDA_GROUP], const T *from, size_t at,
                                                  size_t count, bool packed)
{
    if (packed && at + CUDA_GROUP <= count) {
#pragma unroll
        for (int j = 0; j < CUDA_GROUP; j += pack<T>::size) {
            pack<T> p = load_pack(from + at + j);

#pragma unroll
            for (int i = 0; i < pack<T>::size; i++)
                v[j + i] = to_float(p.v[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++)
            v[i] = at + i < count ? to_float(from[at + i]) : 0.0f;
    }
}

template <class T>
static __device__ __forceinline__ void write_group(T *to, const float (&v)[CUDA_GROUP], size_t at,
                                                   size_t count, bool packed)
{
    if (packed && at + CUDA_GROUP <= count) {
#pragma unroll
        for (int j = 0; j < CUDA_GROUP; j += pack<T>::size) {
            pack<T> p;

#pragma unroll
            for (int i = 0; i < pack<T>::size; i++)
                p.v[i] = from_float<T>(v[j + i]);
            store_pack(to + at + j, p);
        }
    } else {
#pragma unroll
        for (int i = 0; i < CUDA_GROUP; i++) {
            if (at + i < count)
                to[at + i] = from_float<T>(v[i]);
        }
    }
}

/* The same for rows, with packed (cuda_packed) known at compile time: without the branch, the loads of
 * several groups can be in flight together. */
template <bool PACKED, class T>
static __device__ __forceinline__ void read_row(float (&v)[CUDA_GROUP], const T *row, size_t at, size_t cols)
{
    if (PACKED) {
#pragma unroll
        for (int j = 0; j < CUDA_GROUP; j += pack<T>::size) {
            pack<T> p = load_pack(row + at + j);

#pragma unroll
            for (int i = 0; i < pack<T>::size; i++)
                v[j + i] = to_float(p.v[i]);
        }
    } else {
        read_group(v, row, at, cols, false);
    }
}

template <bool PACKED, class T>
static __device__ __forceinline__ void write_row(T *row, const float (&v)[CUDA_GROUP], size_t at, size_t cols)
{
    if (PACKED) {
#pragma unroll
        for (int j = 0; j < CUDA_GROUP; j += pack<T>::size) {
            pack<T> p;

#pragma unroll
            for (int i = 0; i < pack<T>::size; i++)
                p.v[i] = from_float<T>(v[j + i]);
            store_pack(row + at + j, p);
        }
    } else {
        write_group(row, v, at, cols, false);
    }
}

/* Can rows of cols elements at these addresses (NULL too) be accessed in whole groups? */
template <class... P> static inline bool cuda_packed(int cols, P... pointers)
{
    return cols % CUDA_GROUP == 0 && cuda_aligned(0, pointers...);
}

/* CUDA_BY_PACKED(packed, P, statement): runs the statement with P defined as a constant. */
#define CUDA_BY_PACKED(packed, P, ...)                                                                       \
    do {                                                                                                     \
        if (packed) {                                                                                        \
            constexpr bool P = true;                                                                         \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            constexpr bool P = false;                                                                        \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    } while (0)

/* CUDA_BY_WIDTH(aligned, type, T, V, statement): runs the statement with T defined as the element type and V
 * as the elements that a thread accesses at once: a pack if aligned (cuda_aligned), else 1. */
#define CUDA_BY_WIDTH(aligned, type, T, V, ...)                                                              \
    CUDA_BY_PACKED(aligned, WIDTH_IS_PACK, CUDA_BY_TYPE(type, T, {                                           \
                       constexpr int V = WIDTH_IS_PACK ? pack<T>::size : 1;                                  \
                       __VA_ARGS__;                                                                          \
                   }))

/* Returns the number of groups for count elements. */
static inline size_t cuda_groups(size_t count)
{
    return (count + CUDA_GROUP - 1) / CUDA_GROUP;
}

static __device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int d = CUDA_WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int d = CUDA_WARP / 2; d > 0; d /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* The sum over a block of at most 1024 threads (a multiple of 32), in every thread. All threads must call it.
 */
static __device__ __forceinline__ float block_sum(float v)
{
    __shared__ float partial[CUDA_WARP];
    int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    int warps = blockDim.x / CUDA_WARP;

    v = warp_sum(v);
    __syncthreads();
    if (lane == 0)
        partial[warp] = v;
    __syncthreads();
    return warp_sum(lane < warps ? partial[lane] : 0.0f);
}

static __device__ __forceinline__ float block_max(float v)
{
    __shared__ float partial[CUDA_WARP];
    int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    int warps = blockDim.x / CUDA_WARP;

    v = warp_max(v);
    __syncthreads();
    if (lane == 0)
        partial[warp] = v;
    __syncthreads();
    return warp_max(lane < warps ? partial[lane] : -INFINITY);
}

#endif
