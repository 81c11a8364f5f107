/* bench_cuda: the CUDA runtime, loaded by name, so that the environment decides whether it is the real one or
 * simgpu's, and whether gpucap is in front of it. Allocates through the runtime or, after
 * bench_cuda_by_driver(), through the driver. */
#ifndef GPUCAP_BENCH_CUDA_H
#define GPUCAP_BENCH_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

struct bench_cuda {
    cudaError_t (*malloc)(void **pointer, size_t bytes);
    cudaError_t (*free)(void *pointer);
    cudaError_t (*malloc_async)(void **pointer, size_t bytes, cudaStream_t stream);
    cudaError_t (*free_async)(void *pointer, cudaStream_t stream);
    cudaError_t (*memset_async)(void *pointer, int value, size_t bytes, cudaStream_t stream);
    cudaError_t (*synchronize)(void);
    cudaError_t (*context_wait)(void); /* the driver's cuCtxSynchronize */
    cudaError_t (*last_error)(void);
    cudaError_t (*set_device)(int device);
    cudaError_t (*default_pool)(cudaMemPool_t *pool, int device);
    cudaError_t (*pool_set)(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value);
    cudaError_t (*memory)(size_t *free_bytes, size_t *total_bytes);
};
extern struct bench_cuda bench_cuda;

/* Loads the runtime and makes the context; keeps the driver's own pool from giving anything back. Ends the
 * program if that cannot be done. */
void bench_cuda_start(void);

/* From now on malloc and free are the driver's cuMemAlloc and cuMemFree, and the two async ones are too:
 * threads then meet at the allocator, not at a lock of the runtime's. */
void bench_cuda_by_driver(void);

/* What the library in front says of itself; all 0 without one. */
struct bench_stats {
    uint64_t stitches, driver_calls;
};
struct bench_stats bench_stats(void);

uint64_t bench_now(void); /* nanoseconds */

/* Says why, and ends the program. */
void bench_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* 1024, 64K, 8M, 2G: bytes. Ends the program if it is none. */
uint64_t bench_bytes(const char *text);

#endif
