/* Shared by the two directions of batch normalization (batchnorm.cu, batchnorm_backward.cu).
 *
 * A block has wide x tall threads. A thread has V neighbouring channels (16 bytes, or one channel if rows are
 * not aligned) of every tall-th row of its block. Large inputs take three kernels: sums of stripes of rows
 * into the workspace, their total in a fixed order, and the pass that applies it. The two passes go through
 * memory in opposite directions, so that the second begins with what is still in the cache. Small inputs, and
 * any without workspace, take one kernel with one block for each group of channels.
 */
#ifndef KERNELS_BATCHNORM_CUH
#define KERNELS_BATCHNORM_CUH

#include <type_traits>

#include "kernels/types.cuh"

/* Threads of a block, and the most of them in one row of threads. */
enum { THREADS = 256, MOST_WIDE = 16, MOST_WIDE_SINGLES = 32 };
/* Blocks that a multiprocessor runs at once. The kernels are compiled for that, and there are no more
 * stripes, because a last wave of a few blocks takes as long as a full one. */
enum { BLOCKS_EACH = 3 };
/* With fewer rows, three launches cost more than one kernel with a block for each group of channels. */
enum { FEW_ROWS = 512 };

struct shape {
    int rows, cols;
    int wide, tall; /* threads */
    int stripes;    /* gridDim.y */
};

/* V elements in their type in memory. They are converted only when used: as floats they would take twice the
 * registers, and fewer loads could be in flight to hide the latency of memory. */
template <class T, int V> struct raw {
    uint32_t word[V == 1 ? 1 : CUDA_PACK_BYTES / 4];
};

template <class T, int V> static __device__ __forceinline__ raw<T, V> load(const void *from, size_t at)
{
    raw<T, V> r;

    if constexpr (V == 1) {
        r.word[0] = __float_as_uint(to_float(((const T *)from)[at]));
    } else {
        uint4 u = *(const uint4 *)((const T *)from + at);

        r.word[0] = u.x;
        r.word[1] = u.y;
        r.word[2] = u.z;
        r.word[3] = u.w;
    }
    return r;
}

/* Element i as a float. */
template <class T, int V> static __device__ __forceinline__ float get(const raw<T, V> &r, int i)
{
    if constexpr (V == 1 || sizeof(T) == 4)
        return __uint_as_float(r.word[i]);
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        return __uint_as_float(i % 2 ? r.word[i / 2] & 0xffff0000u : r.word[i / 2] << 16);
    else
        return __half2float(__ushort_as_half((unsigned short)(i % 2 ? r.word[i / 2] >> 16 : r.word[i / 2])));
}

template <class T, int V>
static __device__ __forceinline__ void store(void *to, size_t at, const float *values)
{
    if constexpr (V == 1) {
        ((T *)to)[at] = from_float<T>(values[0]);
    } else {
        pack<T> p;

#pragma unroll
        for (int i = 0; i < V; i++)
            p.v[i] = from_float<T>(values[i]);
        store_pack((T *)to + at, p);
    }
}

/* Adds first and second over the rows of threads of the block; the result is in the threads with y == 0. */
template <int V> static __device__ void add_over_rows(float *first, float *second)
{
    __shared__ float shared[2][THREADS * V];
    int wide = blockDim.x * V, at = threadIdx.x * V;

    __syncthreads();
#pragma unroll
    for (int i = 0; i < V; i++) {
        shared[0][threadIdx.y * wide + at + i] = first[i];
        shared[1][threadIdx.y * wide + at + i] = second[i];
    }
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int t = threadIdx.y * blockDim.x + threadIdx.x; t < half * wide; t += THREADS) {
            shared[0][t] += shared[0][t + half * wide];
            shared[1][t] += shared[1][t + half * wide];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < V; i++) {
        first[i] = shared[0][at + i];
        second[i] = shared[1][at + i];
    }
}

/* A block adds the stripes of 8 channels: each of TOTAL_TALL threads per channel takes every TOTAL_TALL-th
 * stripe, then their sums are added, always in the same order. */
enum { TOTAL_WIDE = 8, TOTAL_TALL = THREADS / TOTAL_WIDE };

static __device__ void total_of(const float *partial, int stripes, int cols, int c, float *first,
                                float *second)
{
    *first = *second = 0.0f;
    if (c < cols) {
#pragma unroll 4
        for (int stripe = threadIdx.y; stripe < stripes; stripe += TOTAL_TALL) {
            *first += partial[(size_t)stripe * 2 * cols + c];
            *second += partial[(size_t)stripe * 2 * cols + cols + c];
        }
    }
    add_over_rows<1>(first, second);
}

static inline int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Returns the numbers of threads and stripes for V channels per thread; stripes is 1 if the workspace has no
 * room for partial sums. */
static inline struct shape shape_of(const struct cuda_ops *ops, int rows, int cols, int v,
                                    size_t workspace_bytes)
{
    struct shape s = {rows, cols, 1, THREADS, 1};
    int groups, most = v == 1 ? MOST_WIDE_SINGLES : MOST_WIDE;
    size_t room = workspace_bytes / (2 * sizeof(float) * cols);

    while (s.wide < most && s.wide * v < cols)
        s.wide *= 2;
    s.tall = THREADS / s.wide;
    groups = (cols + s.wide * v - 1) / (s.wide * v);
    if (rows >= FEW_ROWS && room > 1) { /* one stripe's room is for the totals */
        s.stripes = smaller(ops->multiprocessors * BLOCKS_EACH / groups, rows / s.tall);
        s.stripes = room - 1 < (size_t)s.stripes ? (int)(room - 1) : s.stripes;
        s.stripes = s.stripes < 1 ? 1 : s.stripes;
    }
    return s;
}

static inline dim3 grid_of(const struct shape &s, int v)
{
    return dim3((s.cols + s.wide * v - 1) / (s.wide * v), s.stripes);
}

/* Programmatic dependent launch (Hopper and later; on older GPUs the order of the stream is enough): blocks
 * of the next kernel of a call may start, and wait, while the last blocks of the previous one still run. A
 * block calls let_next_start() when it has started, and wait_for_previous() before it reads what the previous
 * kernel has written. */
static __device__ __forceinline__ void let_next_start()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

static __device__ __forceinline__ void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

/* Launches a kernel that itself waits for the previous one. */
template <class... P, class... A>
static inline void launch_close(const struct cuda_ops *ops, ops_stream stream, dim3 grid, dim3 block,
                                void (*kernel)(P...), A... args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};

    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = ops->capability >= 90 ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, P(args)...);
}

#endif
