/* One launch over all parameters, whose sizes are only in device memory: every block computes how many chunks
 * the parameters have and takes each gridDim.x-th of them. More than PARAMS_BATCH parameters take several
 * launches. Used by grad_check.cu, sgd.cu and adamw.cu. */
#ifndef KERNELS_PARAMS_CUH
#define KERNELS_PARAMS_CUH

#include "kernels/types.cuh"

enum { PARAMS_BATCH = 1024, PARAMS_BLOCK = 256, PARAMS_CHUNK = 16384 };

/* ends[p] = the number of chunks of the parameters up to p, for all of PARAMS_BATCH. All threads of the block
 * must call it. */
static __device__ __forceinline__ void params_scan(const struct ops_param *params, int count,
                                                   uint32_t (&ends)[PARAMS_BATCH])
{
    __shared__ uint32_t warp_total[PARAMS_BLOCK / CUDA_WARP];
    const int per_thread = PARAMS_BATCH / PARAMS_BLOCK;
    int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    uint32_t own[per_thread], total = 0, before;

    for (int i = 0; i < per_thread; i++) {
        int p = threadIdx.x * per_thread + i;

        total += p < count ? (uint32_t)((params[p].count + PARAMS_CHUNK - 1) / PARAMS_CHUNK) : 0;
        own[i] = total;
    }
    before = total;
    for (int d = 1; d < CUDA_WARP; d *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffffu, before, d);

        before += lane >= d ? other : 0;
    }
    if (lane == CUDA_WARP - 1)
        warp_total[warp] = before;
    __syncthreads();
    before -= total;
    for (int w = 0; w < warp; w++)
        before += warp_total[w];
    for (int i = 0; i < per_thread; i++)
        ends[threadIdx.x * per_thread + i] = before + own[i];
    __syncthreads();
}

/* Returns the index of the parameter that a chunk belongs to. */
static __device__ __forceinline__ int params_find(const uint32_t (&ends)[PARAMS_BATCH], int count,
                                                  uint32_t chunk)
{
    int low = 0, high = count - 1;

    while (low < high) {
        int middle = (low + high) / 2;

        if (ends[middle] > chunk)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Calls treat(param, begin, end) for every chunk of this block. */
template <class F>
static __device__ __forceinline__ void params_walk(const struct ops_param *params, int all, F treat)
{
    __shared__ uint32_t ends[PARAMS_BATCH];

    for (int at = 0; at < all; at += PARAMS_BATCH, params += PARAMS_BATCH) {
        int count = min(all - at, (int)PARAMS_BATCH);

        __syncthreads();
        params_scan(params, count, ends);
        for (uint32_t chunk = blockIdx.x; chunk < ends[PARAMS_BATCH - 1]; chunk += gridDim.x) {
            int p = params_find(ends, count, chunk);
            uint64_t begin = (uint64_t)(chunk - (p > 0 ? ends[p - 1] : 0)) * PARAMS_CHUNK;
            uint64_t end = begin + PARAMS_CHUNK;

            treat(params[p], begin, end < params[p].count ? end : params[p].count);
        }
    }
}

/* Returns the number of blocks: a few for each multiprocessor, at most as many as there can be chunks. */
static inline unsigned params_grid(const struct cuda_ops *ops, int count, uint64_t largest)
{
    const unsigned blocks_per_multiprocessor = 6;
    uint64_t most = (uint64_t)count * ((largest + PARAMS_CHUNK - 1) / PARAMS_CHUNK);
    unsigned grid = ops->multiprocessors * blocks_per_multiprocessor;

    return most < grid ? (unsigned)most : grid;
}

/* Can all arrays, and the copy of type T, be accessed four elements at a time? */
template <class T> static __device__ __forceinline__ bool params_packed(const struct ops_param &p)
{
    uintptr_t floats = (uintptr_t)p.weight | (uintptr_t)p.first | (uintptr_t)p.second | (uintptr_t)p.grad;

    return floats % CUDA_PACK_BYTES == 0 && (uintptr_t)p.copy % (4 * sizeof(T)) == 0;
}

/* copy[at..at+3] = v, rounded; at is a multiple of 4. */
template <class T>
static __device__ __forceinline__ void params_copy4(void *copy, uint64_t at, const float (&v)[4])
{
    struct alignas(4 * sizeof(T)) four {
        T v[4];
    } out;

#pragma unroll
    for (int i = 0; i < 4; i++)
        out.v[i] = from_float<T>(v[i]);
    *(four *)((T *)copy + at) = out;
}

/* Sets bad_step if a gradient of this update is not finite. All threads write the same value. */
static __device__ __forceinline__ void params_note_bad(struct ops_scalars *scalars, bool bad)
{
    volatile uint64_t *bad_step = &scalars->bad_step;

    if (bad && *bad_step == 0)
        *bad_step = scalars->step + (uint64_t)scalars->skipped;
}

/* Loads and stores with a streaming hint: every value is used once, and all of them do not fit the cache. */
static __device__ __forceinline__ void params_load4(float (&v)[4], const float *from)
{
    float4 f = __ldcs((const float4 *)from);

    v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
}

static __device__ __forceinline__ void params_store4(float *to, const float (&v)[4])
{
    __stcs((float4 *)to, make_float4(v[0], v[1], v[2], v[3]));
}

#endif
