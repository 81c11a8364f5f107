/* What the two directions of batch normalization share (batchnorm.cu, batchnorm_backward.cu).
 *
 * A block is wide x tall threads: a thread holds V neighbouring channels (16 bytes, or one channel where rows
 * are not aligned) and every tall-th row of what its block treats. Large inputs take three kernels: sums of
 * stripes of rows into the workspace, their total in a fixed order, and the pass that applies it; the second
 * pass goes through memory in the other direction than the first, so that it begins with what the cache still
 * holds. Small inputs, and any without workspace, take one kernel with one block for each group of channels.
 */
#ifndef KERNELS_BATCHNORM_CUH
#define KERNELS_BATCHNORM_CUH

#include "types.cuh"

enum { THREADS = 256, WIDE_PACKS = 8, WIDE_SINGLES = 32, UNROLL = 2 };
/* Below this many rows the launches cost more than one block for each group of channels does. */
enum { FEW_ROWS = 512 };

/* Blocks of a multiprocessor in flight, for the number of stripes. */
enum { BLOCKS_EACH = 6 };

struct shape {
    int rows, cols;
    int wide, tall; /* threads */
    int stripes;    /* gridDim.y */
};

template <class T, int V> struct values {
    float v[V];
};

template <class T, int V> static __device__ __forceinline__ values<T, V> load(const T *from)
{
    values<T, V> r;

    if constexpr (V == 1) {
        r.v[0] = to_float(*from);
    } else {
        pack<T> p = load_pack(from);

#pragma unroll
        for (int i = 0; i < V; i++)
            r.v[i] = to_float(p.v[i]);
    }
    return r;
}

template <class T, int V> static __device__ __forceinline__ void store(T *to, const values<T, V> &r)
{
    if constexpr (V == 1) {
        *to = from_float<T>(r.v[0]);
    } else {
        pack<T> p;

#pragma unroll
        for (int i = 0; i < V; i++)
            p.v[i] = from_float<T>(r.v[i]);
        store_pack(to, p);
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

/* A block adds the stripes of 8 channels: tall threads of each take every tall-th stripe, then their sums are
 * added. The same order every time. */
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

/* Threads and stripes for V channels each; stripes 1 where the workspace holds no partial sums. */
static inline struct shape shape_of(const struct cuda_ops *ops, int rows, int cols, int v,
                                    size_t workspace_bytes)
{
    struct shape s = {rows, cols, 1, THREADS, 1};
    int groups, most = v == 1 ? WIDE_SINGLES : WIDE_PACKS;
    int steps;
    size_t room = workspace_bytes / (2 * sizeof(float) * cols);

    while (s.wide < most && s.wide * v < cols)
        s.wide *= 2;
    s.tall = THREADS / s.wide;
    groups = (cols + s.wide * v - 1) / (s.wide * v);
    steps = (rows + s.tall * UNROLL - 1) / (s.tall * UNROLL);
    if (rows >= FEW_ROWS && room > 1) { /* one place is for the totals */
        s.stripes = smaller((ops->multiprocessors * BLOCKS_EACH + groups - 1) / groups, steps);
        s.stripes = room - 1 < (size_t)s.stripes ? (int)(room - 1) : s.stripes;
    }
    return s;
}

static inline dim3 grid_of(const struct shape &s, int v)
{
    return dim3((s.cols + s.wide * v - 1) / (s.wide * v), s.stripes);
}

#endif
