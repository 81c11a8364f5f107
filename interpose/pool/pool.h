/* pool: the memory of one context under cuMemAlloc and cuMemFree.
 *
 * A request is served from what is free and mapped; else the pool grows, or moves whole free chunks to where
 * the request fits (pool_grow.c). Nothing live moves, and no pointer changes. The fence says what may be
 * reused or unmapped when; the budget says how much may be held.
 *
 * Owns one lock per pool. It is held across the driver's mapping calls, which do not wait for running work,
 * and never across one that does.
 */
#ifndef GPUCAP_POOL_H
#define GPUCAP_POOL_H

#include "interpose/base/lock.h"
#include "interpose/pool/cache.h"
#include "interpose/pool/fence.h"
#include "interpose/pool/ranges.h"
#include "interpose/pool/small.h"
#include "interpose/pool/vmm.h"

/* How much the pool may hold. Each grant is used or given back. */
struct pool_budget {
    void *owner;
    /* True if so much more could be had; takes nothing. NULL: cannot be told beforehand. */
    bool (*fits)(void *owner, uint64_t bytes);
    /* About how much more could be had, without asking long. NULL: without end. */
    uint64_t (*room)(void *owner);
    bool (*take)(void *owner, uint64_t bytes);
    void (*settle)(void *owner, uint64_t bytes, bool success);
    void (*give)(void *owner, uint64_t bytes);
};

struct pool_stats {
    uint64_t live, live_count; /* bytes and blocks that the program holds, rounded to 512, or to whole pages
                                  if they are guarded */
    uint64_t cached;           /* held, free */
    uint64_t pending;          /* freed, waiting for work to end, or held by others */
    uint64_t physical;         /* taken from the driver */
    uint64_t peak_live, peak_physical;
    uint64_t largest;  /* free range */
    uint64_t stranded; /* held, free, and of no use for the largest request that would otherwise fit */
    uint64_t hits, stitches, stitched_chunks, grows, waits, joins, trims;
    uint64_t driver_calls;     /* create, map, access, unmap, release */
    uint64_t room_ns, wait_ns; /* time in which allocations made room, and of this, waited for work */
};

struct pool_entry {
    uint64_t address;
    struct range *range;
};

/* Where a chunk was mapped before it was mapped elsewhere, or could not be used (pool_dead.h). */
struct pool_dead {
    uint64_t start, bytes;
    uint64_t epoch; /* of the last free there */
    CUmemGenericAllocationHandle handle;
    bool only; /* it is mapped nowhere else: to be released when it is unmapped */
};

struct pool {
    CUcontext context;
    CUdevice ordinal;
    struct pool_budget budget;
    uint32_t slack_permille;   /* of the peak of live bytes: how much more may be held before chunks are moved
                                  or work is waited for */
    bool guard;                /* each block has pages of its own (pool_guard.h); set once */
    _Atomic(CUstream) filling; /* a stream of our own for zero=on and fill=on, made at its first use */
    _Atomic uint64_t next_id;  /* numbers of blocks, taken by caches in batches */
    struct vmm vmm;
    struct fence fence;
    struct small small;
    struct lock lock;
    /* guarded by lock */
    struct ranges ranges;
    struct pool_entry *table; /* live blocks by address */
    uint64_t table_capacity, table_count;
    struct range *pending, *pending_last; /* freed, not reusable yet; by epoch, linked by newer */
    uint64_t pending_bytes;
    uint64_t unclosed, unclosed_bytes; /* of these, since the fence was last asked */
    uint64_t pinned_bytes;             /* freed, and others hold their memory */
    struct pool_exposed *exposed; /* parts of freed blocks whose memory others may reach (pool_expose.h) */
    uint64_t exposed_count, exposed_capacity;
    struct vmm_chunk *chunks; /* scratch for stitching */
    uint64_t chunk_capacity;
    struct pool_dead *dead; /* in the order in which they were left */
    uint64_t dead_kept;     /* so many of them stay mapped */
    uint64_t dead_count, dead_capacity;
    uint64_t stuck_bytes;      /* of those that are mapped nowhere else */
    uint64_t guard_next;       /* where the search for the place of the next guarded block begins */
    struct cache *caches;      /* of threads */
    struct cache_figures gone; /* of those that have ended */
    uint64_t least_free;       /* since pool_idle_bytes was last asked */
    uint64_t recent_peak;      /* of live bytes, in this period of decay and the one before */
    uint64_t period_peak;      /* in this one */
    uint64_t peak_live, peak_physical, hits, stitches, stitched, grows, waits, joins, trims;
    uint64_t room_ns, wait_ns;
};

/* 0; -ENOTSUP where the card cannot do it; another -errno. */
int pool_open(struct pool *pool, CUcontext context, CUdevice ordinal, const struct pool_budget *budget,
              uint32_t slack_permille);
/* Guards every block (pool_guard.h). To be called before the first pool_alloc. */
void pool_guard(struct pool *pool);
/* Gives everything back. `context_lives`: its events can still be destroyed. */
void pool_close(struct pool *pool, bool context_lives);

/* 0 and *address, or -ENOMEM. The calling thread's context is the pool's. */
int pool_alloc(struct pool *pool, uint64_t bytes, uint64_t *address);

/* A block by its address. 0, or -EINVAL if it is not the beginning of a live block. */
struct pool_block {
    uint64_t address, asked, id; /* no two blocks of the process ever have the same id */
    uint32_t pins;
    bool sync_memops; /* what pool_set_sync_memops has set */
};
int pool_block(struct pool *pool, uint64_t address, bool inside, struct pool_block *block);

/* Frees a block: done is true if all work on it is known to be done. 0 or -EINVAL. */
int pool_free(struct pool *pool, uint64_t address, bool done);

/* Another process holds the memory of the block: it is not unmapped, moved or reused until the pin is taken
 * away, also when the program frees it. 0 or -EINVAL. */
int pool_pin(struct pool *pool, uint64_t address);
/* Takes a pin away; if it was the last of a block that has been freed, its memory is free now. 0 or -EINVAL.
 */
int pool_unpin(struct pool *pool, uint64_t address);
/* Set when this thread frees a pinned block. The caller of pool_free tells ipc_freed, and resets it. */
extern _Thread_local bool pool_freed_pinned;

/* A descriptor or a device on the bus may reach the memory of the block, for how long cannot be known: when
 * the program frees the block, its memory is given back to the driver and not handed out again. 0 or -EINVAL.
 */
int pool_expose(struct pool *pool, uint64_t address);

/* Counts chunks given back to the driver, of all pools: a request that was refused may have met one on its
 * way. */
extern _Atomic uint64_t pool_given_back;

/* Notes CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of a block, until it is freed. 0 or -EINVAL. */
int pool_set_sync_memops(struct pool *pool, uint64_t address, bool on);

/* The chunks behind a pinned block, in order, from the one that holds its beginning, `*offset` bytes into it.
 * The caller frees the array. 0, -EINVAL or -ENOMEM. */
int pool_backing(struct pool *pool, uint64_t address, struct vmm_chunk **chunks, uint64_t *count,
                 uint64_t *offset);

/* Waits for work that may still be under way on blocks that have been handed out again. To be called before
 * others than the streams of this context may touch a block: another process, card or context, or a device on
 * the bus. Not with a lock that work could wait for. */
void pool_settle(struct pool *pool);

/* Lets another card reach all memory of the pool, now and later, until as many calls have taken it back. 0 or
 * -errno, and then nothing has changed. */
int pool_add_peer(struct pool *pool, CUdevice peer);
void pool_remove_peer(struct pool *pool, CUdevice peer);

/* Gives idle memory back to the driver, at least `bytes` if there is that much. Returns how much. Does not
 * wait for work. */
uint64_t pool_trim(struct pool *pool, uint64_t bytes);

/* Whether so much might be had when all that has been freed is usable. */
bool pool_may_have(struct pool *pool, uint64_t bytes);

/* Waits for the oldest work that pool_trim has to leave memory to; *more: there is other such work. 0, or
 * -ENOENT if there is none, or as fence_wait. The calling thread's context is the pool's. */
int pool_wait(struct pool *pool, bool *more);

/* For the helper thread: unmaps places that chunks have left, where there are many. */
void pool_sweep(struct pool *pool);

/* A thread's cache begins or ends; what it holds is the pool's again. Called by the cache. */
void pool_add_cache(struct pool *pool, struct cache *cache);
void pool_drop_cache(struct pool *pool, struct cache *cache);

/* What has been free ever since this was last asked: idle memory. */
uint64_t pool_idle_bytes(struct pool *pool);

/* True if more than so many thousandths of what the pool holds are free. */
bool pool_mostly_free(struct pool *pool, uint32_t permille);

/* Bytes of whole free chunks: what could be stitched together or given back. */
uint64_t pool_reclaimable(struct pool *pool);

/* Learns which work has ended, if anything freed waits for some, and takes back what does not wait any more.
 */
void pool_take_in(struct pool *pool);

/* As far as known: calls nothing of the driver, as at the end of the process. */
struct pool_stats pool_stats(struct pool *pool);
/* The same in an exit handler: what small blocks a thread keeps is left with it, and false if the figures
 * cannot be had. */
bool pool_stats_at_exit(struct pool *pool, struct pool_stats *stats);

/* NULL, or what is wrong. */
const char *pool_check(struct pool *pool);

#endif
