/* pool_state: what a pool is made of. Data only.
 *
 * The modules beside it work on a struct pool, each on its own part, and may call only those that stand
 * before them in this list:
 *
 *   pool_table     live blocks by address
 *   cache          blocks that a thread has freed and may have again without the lock
 *   pool_chunks    physical chunks: create, release, find whole free ones
 *   pool_dead      places that chunks have left
 *   pool_expose    freed memory that others may still reach
 *   pool_pending   freed memory whose work is not done
 *   pool_figures   what is live, and the statistics
 *   pool_apart     what keeps idle memory from being one block, for gpucap why
 *   pool_grow      makes room when no free range fits
 *   pool_split     replaces large chunks by smaller ones
 *   small          blocks of at most 14 KiB, from a heap
 *   pool_trim      gives idle memory back
 *   pool_guard     blocks in pages of their own (guard=on)
 *   pool_blocks    looks up blocks
 *   pool_reach     who else may reach a block: other processes, other cards, devices on the bus
 *   pool           open, allocate, free, close
 */
#ifndef GPUCAP_POOL_STATE_H
#define GPUCAP_POOL_STATE_H

#include "interpose/base/lock.h"
#include "interpose/base/table.h"
#include "interpose/pool/fence.h"
#include "interpose/pool/heap.h"
#include "interpose/pool/ranges.h"
#include "interpose/pool/vmm.h"

struct cache;
struct small_page;

/* Limits how much the pool may hold. Each successful `take` is followed by `settle`. */
struct pool_budget {
    void *owner;
    /* Returns true if `bytes` more would be granted; grants nothing. NULL: assume true. */
    bool (*fits)(void *owner, uint64_t bytes);
    /* Returns roughly how much more would be granted, without a long search. NULL: no limit. */
    uint64_t (*room)(void *owner);
    bool (*take)(void *owner, uint64_t bytes);
    void (*settle)(void *owner, uint64_t bytes, bool success);
    void (*give)(void *owner, uint64_t bytes);
};

struct pool_entry {
    uint64_t address;
    struct range *range;
};

/* Sums over the caches of threads. */
struct cache_figures {
    uint64_t bytes, count, hits;
    uint64_t least; /* least value of bytes since the last call of cache_figures, where known */
};

/* A place that a chunk has left, or where it could be neither used nor unmapped (pool_dead.h). */
struct pool_dead {
    uint64_t start, bytes;
    uint64_t epoch; /* of the last free there */
    CUmemGenericAllocationHandle handle;
    bool only; /* the chunk is mapped nowhere else: release it when it is unmapped here */
};

/* A small block that was freed and whose work is not done. */
struct small_pending {
    uint64_t address, bytes, epoch;
};

/* The heap of small blocks (small.h). */
struct small {
    bool on;
    unsigned arena;
    struct heap_source source;
    _Atomic(struct small_page *) *pages;          /* by small page of the address space */
    _Atomic uint64_t extent_bytes, pending_count; /* written under the pool's lock */
    _Atomic uint64_t pinned_bytes;                /* freed, but pinned */
    _Atomic uint64_t lost_bytes;                  /* of these, exposed: unused until the pool is closed */
    _Atomic uint64_t wrong; /* times the heap contradicted our marks; not 0: it is damaged */
    /* guarded by the pool's lock */
    struct small_page *first;      /* small pages with extents and room for more */
    struct small_page *made;       /* the one created last */
    struct small_pending *pending; /* a ring, oldest first */
    uint64_t pending_first, pending_capacity, pending_bytes;
    uint64_t grown; /* allocations that made the pool grow or move chunks, which caches count as hits */
};

struct pool {
    CUcontext context;
    CUdevice ordinal;
    struct pool_budget budget;
    uint32_t slack_permille; /* how far above the peak of live bytes the pool may grow before it moves chunks
                                or waits for work */
    bool guard;              /* each block has pages of its own (pool_guard.h); set once */
    _Atomic(CUstream) filling; /* our stream for zero=on and fill=on, created at first use */
    _Atomic uint64_t next_id;  /* block ids; caches take them in batches */
    struct vmm vmm;
    struct fence fence;
    struct small small;
    struct lock lock;
    /* guarded by lock */
    struct ranges ranges;
    struct ranges unmoved;                /* see struct ranges */
    struct table table;                   /* of struct pool_entry: live blocks by address */
    struct range *pending, *pending_last; /* freed, not usable yet; in order of epochs, linked by newer */
    uint64_t pending_bytes;
    uint64_t unclosed, unclosed_bytes; /* frees and bytes of these since the last fence_poll */
    uint64_t pinned_bytes;             /* freed, but pinned or exposed */
    struct range *exposed;             /* parts of freed blocks, linked by next (pool_expose.h) */
    struct vmm_chunk *chunks;          /* scratch for stitching */
    uint64_t chunk_capacity;
    struct pool_dead *dead; /* oldest first */
    uint64_t dead_kept;     /* pool_sweep leaves this many mapped */
    uint64_t dead_count, dead_capacity;
    uint64_t stuck_bytes;      /* of dead places whose chunk is mapped nowhere else */
    uint64_t guard_next;       /* where the search for a place for the next guarded block begins */
    struct cache *caches;      /* of threads */
    struct cache_figures gone; /* sums over caches of threads that have ended */
    uint64_t least_free;       /* least free bytes since the last pool_idle_bytes */
    uint64_t recent_peak;      /* peak of live bytes in this period of decay and the one before */
    uint64_t period_peak;      /* the same in this period only */
    uint64_t peak_live, peak_physical, hits, stitches, stitched, grows, waits, joins, trims;
    uint64_t room_ns, wait_ns;
    uint64_t requested; /* bytes of all requests that were not met from a cache */
};

/* A program that exposes and frees small blocks again and again gets its small blocks from the pool's ranges
 * once so many bytes are lost: the chunks of those can go back to the driver. */
#define POOL_LOST_MOST (UINT64_C(1) << 20)

/* Returns true if new blocks of `size` bytes come from the heap of small blocks. */
static inline bool pool_is_small(const struct pool *pool, uint64_t size)
{
    return pool->small.on && size <= HEAP_LARGEST &&
           atomic_load_explicit(&pool->small.lost_bytes, memory_order_relaxed) < POOL_LOST_MOST;
}

#endif
