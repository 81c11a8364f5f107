/* Sums over the rows of a matrix, in a fixed order: blocks sum chunks of rows into partial[chunks][cols] in
 * the workspace, then columns_finish adds the chunks. One chunk needs no workspace and no second kernel. Used
 * by bias_act.cu and layernorm_backward.cu. */
#ifndef KERNELS_COLUMNS_CUH
#define KERNELS_COLUMNS_CUH

#include "kernels/types.cuh"

/* A block of the first kernel: 32 groups of columns, 8 rows at a time. */
enum { COLUMNS_ACROSS = 32, COLUMNS_DOWN = 8, COLUMNS_OF_BLOCK = COLUMNS_ACROSS * CUDA_GROUP };

/* Adds v over threadIdx.y; the result is in the threads with threadIdx.y == 0. All threads must call it. */
static __device__ __forceinline__ void columns_block_sum(float (&v)[CUDA_GROUP])
{
    __shared__ float all[COLUMNS_DOWN][CUDA_GROUP][COLUMNS_ACROSS];

    __syncthreads();
    for (int i = 0; i < CUDA_GROUP; i++)
        all[threadIdx.y][i][threadIdx.x] = v[i];
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int r = 1; r < COLUMNS_DOWN; r++) {
            for (int i = 0; i < CUDA_GROUP; i++)
                v[i] += all[r][i][threadIdx.x];
        }
    }
}

enum { FINISH_SIDE = 32 };

/* out0[c] (c < cols) and out1[c - cols] = the sum over chunks of partial[chunk][c], added to what is there if
 * accumulate. width is cols, or 2 * cols with out1. */
static __global__ void columns_finish_kernel(const float *partial, int chunks, int width, int cols,
                                             float *out0, float *out1, int accumulate)
{
    __shared__ float all[FINISH_SIDE][FINISH_SIDE + 1];
    int col = blockIdx.x * FINISH_SIDE + threadIdx.x;
    float sum = 0.0f;

    for (int r = threadIdx.y; col < width && r < chunks; r += FINISH_SIDE)
        sum += partial[(size_t)r * width + col];
    all[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = warp_sum(all[threadIdx.x][threadIdx.y]);
    col = blockIdx.x * FINISH_SIDE + threadIdx.y;
    if (threadIdx.x == 0 && col < width) {
        float *out = col < cols ? out0 + col : out1 + (col - cols);

        *out = accumulate ? *out + sum : sum;
    }
}

static inline int columns_finish(ops_stream stream, const float *partial, int chunks, int width, int cols,
                                 float *out0, float *out1, int accumulate)
{
    dim3 block(FINISH_SIDE, FINISH_SIDE);

    columns_finish_kernel<<<(width + FINISH_SIDE - 1) / FINISH_SIDE, block, 0, stream>>>(
        partial, chunks, width, cols, out0, out1, accumulate);
    return cudaGetLastError();
}

/* Returns the number of chunks: enough blocks for the device, no more than rows or workspace allow, at least
 * one. */
static inline int columns_chunks(const struct cuda_ops *ops, int rows, int cols, int width,
                                 const void *workspace, size_t workspace_bytes)
{
    const int blocks_per_multiprocessor = 8, least_rows = 2 * COLUMNS_DOWN;
    size_t across = ((size_t)cols + COLUMNS_OF_BLOCK - 1) / COLUMNS_OF_BLOCK;
    size_t chunks = (size_t)ops->multiprocessors * blocks_per_multiprocessor / (across ? across : 1);
    size_t by_rows = (size_t)rows / least_rows;
    size_t by_space = workspace ? workspace_bytes / ((size_t)width * sizeof(float)) : 0;

    chunks = chunks < by_rows ? chunks : by_rows;
    chunks = chunks < by_space ? chunks : by_space;
    return chunks < 1 ? 1 : (int)(chunks < 65535 ? chunks : 65535);
}

#endif
