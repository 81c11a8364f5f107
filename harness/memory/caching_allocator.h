/* A caching allocator with PyTorch's rules, to compare its behaviour with the other modes. Requests are
 * rounded to 512 bytes. Up to 1 MiB they share segments of 2 MiB, below 10 MiB segments of 20 MiB; a larger
 * request gets its own segment, rounded to 2 MiB. A freed block is reused only on the stream it was taken
 * for. Segments return to the device when it runs out of memory, or by caching_allocator_trim. Owns no
 * lock: that of the supply guards it (supply.h). */
#ifndef HARNESS_CACHING_ALLOCATOR_H
#define HARNESS_CACHING_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <cuda_runtime_api.h>

struct caching_allocator;

/* Functions that take and give back segments. They return CUDA's errors; cudaErrorMemoryAllocation makes
 * the allocator free its unused segments and try again. */
struct caching_allocator_source {
    cudaError_t (*take)(void *owner, void **data, size_t bytes);
    cudaError_t (*give)(void *owner, void *data, size_t bytes);
    void *owner;
};

/* Returns NULL if the host has no memory. */
struct caching_allocator *caching_allocator_open(struct caching_allocator_source source);

/* Gives all segments back. Every block must have been given back before. */
cudaError_t caching_allocator_close(struct caching_allocator *cache);

/* Sets *data to at least `bytes` bytes and *block to the record that caching_allocator_give wants. */
cudaError_t caching_allocator_take(struct caching_allocator *cache, cudaStream_t stream, size_t bytes,
                                   void **data, void **block);
void caching_allocator_give(struct caching_allocator *cache, void *block);

/* While pinned, no segment goes back to the device: a captured graph contains their addresses. */
void caching_allocator_pin(struct caching_allocator *cache, bool pinned);

/* Gives every unused segment back to the device. Does nothing while pinned. */
cudaError_t caching_allocator_trim(struct caching_allocator *cache);

/* Returns the bytes of all taken blocks, each rounded up. */
size_t caching_allocator_live(const struct caching_allocator *cache);

#endif
