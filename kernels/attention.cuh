/* Shared by the files of attention: declares the three implementations, and finds the rows of a head.
 * attention_flash*.cu use the tensor cores and need 16-bit types; attention_tiled*.cu are for floats; both
 * need dim 32, 64 or 128 and addresses that are multiples of 16 bytes. attention_plain.cu is for everything
 * else, with one warp per row. */
#ifndef KERNELS_ATTENTION_CUH
#define KERNELS_ATTENTION_CUH

#include "kernels/types.cuh"

enum { ATTENTION_MOST_DIM = 128 };

int attention_plain_forward(ops_stream stream, const struct op_attention_forward *args);
int attention_plain_backward(ops_stream stream, const struct op_attention_backward *args);
int attention_flash_forward(ops_stream stream, const struct op_attention_forward *args);
int attention_flash_backward(ops_stream stream, const struct op_attention_backward *args);
int attention_tiled_forward(ops_stream stream, const struct op_attention_forward *args);
int attention_tiled_backward(ops_stream stream, const struct op_attention_backward *args);

/* Where the rows of a head are, for a block of the flash and tiled kernels. */
template <class T> struct attention_head {
    const T *q;
    size_t part; /* elements from q to k, and from k to v */
    size_t step;
    size_t out; /* the head's first element in out and dout */
    size_t out_step;
    size_t statistics; /* the head's first element in lse and delta */
};

template <class T>
static __device__ __forceinline__ struct attention_head<T>
attention_find_head(const void *qkv, int index, int length, int heads, int dim) {
    size_t batch = index / heads, at = index % heads;
    size_t part = (size_t)heads * dim;

    return {(const T *)qkv + batch * length * 3 * part + at * dim,
            part,
            3 * part,
            batch *length *part + at *dim,
            part,
            (size_t)index *length};
}

/* Copies from global to shared memory in the background, of 0 where nothing exists. The address must be
 * valid all the same. */
static __device__ __forceinline__ void
copy_async16(uint32_t to, const void *from, bool exists)
{
    int bytes = exists ? 16 : 0;

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

static __device__ __forceinline__ void copy_async4(uint32_t to, const void *from, bool exists)
{
    int bytes = exists ? 4 : 0;

    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

static __device__ __forceinline__ void copies_close(void)
{
    asm volatile("cp.async.commit_group;");
}

static __device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

/* Allows a kernel to use more shared memory than the default limit of a launch. */
template <class K> static int attention_allow_shared(K kernel, size_t bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

#endif
