/* Where device memory comes from, by allocation mode: cudaMalloc each time (naive, static), a caching
 * allocator (cache), one large block (arena), or cudaMallocAsync (async). Models of one process may share a
 * supply; its lock guards it. A budget limits what all supplies of the process hold together. */
#ifndef HARNESS_SUPPLY_H
#define HARNESS_SUPPLY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <cuda_runtime_api.h>

#include "harness/memory/arena.h"
#include "harness/base/train_options.h"
#include "harness/base/status.h"

struct caching_allocator;

struct budget {
    size_t limit; /* 0: none */
    _Atomic size_t used;
    _Atomic size_t peak; /* highest value of `used` */
};

enum { SUPPLY_MAX_STREAMS = 16 };

struct supply {
    enum alloc_mode mode;
    struct budget *budget;
    const char *tag; /* gpucap's tag for a cache or arena, which serves tensors of all kinds */
    pthread_mutex_t lock;
    /* guarded by lock */
    size_t held; /* bytes held from the device; async: bytes requested */
    size_t peak;
    char *base; /* the arena's block; NULL in other modes */
    struct arena arena;
    struct caching_allocator *cache;
    cudaStream_t stream[SUPPLY_MAX_STREAMS]; /* streams that use the arena */
    int streams;
    cudaEvent_t passed; /* recorded on one stream, waited for by another */
};

/* Arena mode takes `fraction` of the free memory that cudaMemGetInfo reports. Other modes ignore it. */
enum status supply_open(struct supply *supply, enum alloc_mode mode, double fraction, struct budget *budget);

/* Every tensor must have been dropped before. Accepts a zeroed supply that was never opened. Prints a message
 * if memory cannot be given back. */
void supply_close(struct supply *supply);

/* Takes memory that work on `stream` may use at once. Returns STATUS_NO_MEMORY without a message and with
 * CUDA's error cleared: the caller may try a smaller size. */
enum status supply_take(struct supply *supply, cudaStream_t stream, size_t bytes, const char *kind,
                        void **data, void **block);

/* Gives memory back. Work already queued on `stream` may still use it. */
enum status supply_give(struct supply *supply, cudaStream_t stream, void *data, void *block, size_t bytes);

/* Returns the bytes held from the device now. */
size_t supply_held(struct supply *supply);

/* While pinned, no memory goes back to the device: a captured graph contains its addresses. */
void supply_pin(struct supply *supply, bool pinned);

/* Waits for the stream, then gives unused memory back to the device: that of the cache, of the
 * stream-ordered allocator, or of gpucap's pool. An arena keeps its size. */
enum status supply_trim(struct supply *supply, cudaStream_t stream);

/* Prints to stderr what was requested and how much memory there was. */
void supply_explain(struct supply *supply, size_t bytes, const char *kind);

#endif
