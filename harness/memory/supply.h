/* Where device memory comes from, by allocation mode: the driver each time (naive, static), a caching
 * allocator (cache), one large block (arena), or the stream-ordered allocator (async). Models of one process
 * may share one; its lock guards everything in it. A budget, where there is one, is common to all
 * supplies of the process and bounds what they take from the device together. */
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
    _Atomic size_t peak; /* the most that all supplies held at one time */
};

enum { SUPPLY_MAX_STREAMS = 16 };

struct supply {
    enum alloc_mode mode;
    struct budget *budget;
    pthread_mutex_t lock;
    /* guarded by lock */
    size_t held; /* bytes taken from the device now; async: bytes asked for */
    size_t peak;
    char *base; /* the arena's block, else NULL */
    struct arena arena;
    struct caching_allocator *cache;
    cudaStream_t stream[SUPPLY_MAX_STREAMS]; /* those that took from an arena */
    int streams;
    cudaEvent_t passed; /* orders one stream behind the others */
};

/* In arena mode takes the given fraction of what cudaMemGetInfo reports free. */
enum status supply_open(struct supply *supply, enum alloc_mode mode, double fraction, struct budget *budget);

/* Every tensor must have been dropped. A supply that was zeroed and never opened is allowed. */
enum status supply_close(struct supply *supply);

/* STATUS_NO_MEMORY comes without a message, and CUDA's own error is cleared: the caller may try less. What is
 * taken may be used by work on that stream at once. */
enum status supply_take(struct supply *supply, cudaStream_t stream, size_t bytes, const char *kind,
                        void **data, void **block);

/* Work already queued on the stream may still use it. */
enum status supply_give(struct supply *supply, cudaStream_t stream, void *data, void *block, size_t bytes);

size_t supply_held(struct supply *supply);

/* Pinned, no memory goes back to the device, because a captured graph knows its addresses. */
void supply_pin(struct supply *supply, bool pinned);

/* Waits for the stream and gives the device what a cache, the stream-ordered allocator or gpucap's pool keeps
 * without need. An arena stays as large as it is. */
enum status supply_trim(struct supply *supply, cudaStream_t stream);

/* Says on stderr what was asked for and what there was. */
void supply_explain(struct supply *supply, size_t bytes, const char *kind);

#endif
