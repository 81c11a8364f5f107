/* A private caching allocator as PyTorch has one, so that its manners can be seen beside others: requests are
 * rounded to 512 bytes; up to 1 MiB they are cut from segments of 2 MiB, up to 10 MiB from segments of 20
 * MiB, larger ones get a segment of their own, rounded to 2 MiB; a freed block serves the stream that used it
 * last and no other; segments go back to the device only when it has no more memory to give. The caller's
 * lock (supply.h) guards it. */
#ifndef HARNESS_CACHING_ALLOCATOR_H
#define HARNESS_CACHING_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <cuda_runtime_api.h>

struct caching_allocator;

/* Where segments come from and go back to: supply.c's device memory within the budget. An error is CUDA's. */
struct caching_allocator_source {
    cudaError_t (*take)(void *owner, void **data, size_t bytes);
    cudaError_t (*give)(void *owner, void *data, size_t bytes);
    void *owner;
};

/* NULL: no host memory. */
struct caching_allocator *caching_allocator_open(struct caching_allocator_source source);
cudaError_t caching_allocator_close(struct caching_allocator *cache);

cudaError_t caching_allocator_take(struct caching_allocator *cache, cudaStream_t stream, size_t bytes,
                                   void **data, void **block);
void caching_allocator_give(struct caching_allocator *cache, void *block);

/* Pinned, segments stay: a captured graph knows their addresses. */
void caching_allocator_pin(struct caching_allocator *cache, bool pinned);

/* Gives every segment that is free as a whole back to the device, unless they are pinned. */
cudaError_t caching_allocator_trim(struct caching_allocator *cache);

/* Bytes of the blocks that are handed out, rounded up. */
size_t caching_allocator_live(const struct caching_allocator *cache);

#endif
