/* pool: the memory of one context under cuMemAlloc and cuMemFree.
 *
 * An allocation takes a free range. If none fits, the pool grows, or moves whole free chunks to where the
 * request fits (pool_grow.c). Live blocks never move, so no pointer changes. The fence decides when freed
 * memory may be reused or unmapped; the budget decides how much the pool may hold.
 *
 * Owns one lock per pool. It is held across the driver's mapping calls, which do not wait for running work,
 * and never across a call that does.
 */
#ifndef GPUCAP_POOL_H
#define GPUCAP_POOL_H

#include "interpose/base/lock.h"
#include "interpose/pool/cache.h"
#include "interpose/pool/fence.h"
#include "interpose/pool/ranges.h"
#include "interpose/pool/small.h"
#include "interpose/pool/vmm.h"

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

struct pool_stats {
    uint64_t live, live_count; /* bytes and blocks that the program holds; sizes rounded to 512, or to whole
                                  pages with guard=on */
    uint64_t cached;           /* held and free */
    uint64_t pending;          /* freed, but its work is not done, or it is pinned or exposed */
    uint64_t physical;         /* taken from the driver */
    uint64_t peak_live, peak_physical;
    uint64_t largest;  /* free range */
    uint64_t stranded; /* held and free, but useless for the largest request that would otherwise fit */
    uint64_t hits, stitches, stitched_chunks, grows, waits, joins, trims;
    uint64_t driver_calls;     /* create, map, access, unmap, release */
    uint64_t room_ns, wait_ns; /* time spent making room, and of this, waiting for work */
};

struct pool_entry {
    uint64_t address;
    struct range *range;
};

/* A place that a chunk has left, or where it could be neither used nor unmapped (pool_dead.h). */
struct pool_dead {
    uint64_t start, bytes;
    uint64_t epoch; /* of the last free there */
    CUmemGenericAllocationHandle handle;
    bool only; /* the chunk is mapped nowhere else: release it when it is unmapped here */
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
    struct pool_entry *table; /* live blocks by address */
    uint64_t table_capacity, table_count;
    struct range *pending, *pending_last; /* freed, not usable yet; in order of epochs, linked by newer */
    uint64_t pending_bytes;
    uint64_t unclosed, unclosed_bytes; /* frees and bytes of these since the last fence_poll */
    uint64_t pinned_bytes;             /* freed, but pinned or exposed */
    struct pool_exposed *exposed;      /* exposed parts of freed blocks (pool_expose.h) */
    uint64_t exposed_count, exposed_capacity;
    struct vmm_chunk *chunks; /* scratch for stitching */
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
};

/* Opens a pool. Returns 0, -ENOTSUP if the card lacks what pooling needs, or another -errno. */
int pool_open(struct pool *pool, CUcontext context, CUdevice ordinal, const struct pool_budget *budget,
              uint32_t slack_permille);
/* Puts every block into pages of its own (pool_guard.h). Call before the first pool_alloc. */
void pool_guard(struct pool *pool);
/* Releases all memory. `context_lives`: the context still exists, so events are destroyed too. */
void pool_close(struct pool *pool, bool context_lives);

/* Allocates a block. Returns 0 and *address, -EINVAL for 0 bytes, or -ENOMEM. The pool's context must be
 * current. May wait for work, without the lock. */
int pool_alloc(struct pool *pool, uint64_t bytes, uint64_t *address);

/* Looks up the live block that begins at `address`, or, with `inside`, that contains it. Returns 0 or
 * -EINVAL. */
struct pool_block {
    uint64_t address, asked, id; /* ids are unique within the process */
    uint32_t pins;
    bool sync_memops; /* what pool_set_sync_memops has set */
};
int pool_block(struct pool *pool, uint64_t address, bool inside, struct pool_block *block);

/* Frees the block at `address`. `done`: all work on it is known to be done. Returns 0 or -EINVAL. */
int pool_free(struct pool *pool, uint64_t address, bool done);

/* Pins a block for another process: its memory is not unmapped, moved or reused until the last pool_unpin,
 * even if the program frees the block. Returns 0 or -EINVAL. */
int pool_pin(struct pool *pool, uint64_t address);
/* Removes one pin. If it was the last one and the block has been freed, frees its memory. Returns 0 or
 * -EINVAL. */
int pool_unpin(struct pool *pool, uint64_t address);
/* Set when this thread frees a pinned block. The caller of pool_free then calls ipc_freed and resets it. */
extern _Thread_local bool pool_freed_pinned;

/* Marks a block that a descriptor or a device on the bus may reach for an unknown time. When the program
 * frees it, its memory goes back to the driver instead of being reused. Returns 0 or -EINVAL. */
int pool_expose(struct pool *pool, uint64_t address);

/* Counts releases to the driver by all pools. A caller whose request was refused compares it with an earlier
 * value to see whether memory was released meanwhile. */
extern _Atomic uint64_t pool_given_back;

/* Stores CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of a block until it is freed. Returns 0 or -EINVAL. */
int pool_set_sync_memops(struct pool *pool, uint64_t address, bool on);

/* Returns the chunks behind a pinned block in *chunks, in order of address; the block begins `*offset` bytes
 * into the first. The caller frees the array. Returns 0, -EINVAL or -ENOMEM. */
int pool_backing(struct pool *pool, uint64_t address, struct vmm_chunk **chunks, uint64_t *count,
                 uint64_t *offset);

/* Waits for earlier work on blocks that have been handed out again. Call before another process, card or
 * context, or a device on the bus, may touch a block. The caller holds no lock that work could wait for. */
void pool_settle(struct pool *pool);

/* Gives another card access to all memory of the pool, present and future, until pool_remove_peer has been
 * called as often. Returns 0, or -errno and changes nothing. */
int pool_add_peer(struct pool *pool, CUdevice peer);
void pool_remove_peer(struct pool *pool, CUdevice peer);

/* Gives idle memory back to the driver, at least `bytes` if the pool has that much. Returns how much. Never
 * waits for work. */
uint64_t pool_trim(struct pool *pool, uint64_t bytes);

/* Returns true if a request of `bytes` might fit once all freed memory is usable. */
bool pool_may_have(struct pool *pool, uint64_t bytes);

/* Waits for the oldest work that keeps pool_trim from freed memory. *more: there is other such work. Returns
 * 0, -ENOENT if there is no such work, or as fence_wait. The pool's context must be current. */
int pool_wait(struct pool *pool, bool *more);

/* Unmaps dead places when there are many. Called by the helper thread. */
void pool_sweep(struct pool *pool);

/* Register and unregister a thread's cache; pool_drop_cache takes its blocks back into the pool. Called by
 * cache.c. */
void pool_add_cache(struct pool *pool, struct cache *cache);
void pool_drop_cache(struct pool *pool, struct cache *cache);

/* Returns the bytes that have been free ever since the last call. */
uint64_t pool_idle_bytes(struct pool *pool);

/* Returns true if more than `permille` thousandths of what the pool holds are not live. */
bool pool_mostly_free(struct pool *pool, uint32_t permille);

/* Returns the bytes of whole free chunks, which could be stitched or released. */
uint64_t pool_reclaimable(struct pool *pool);

/* Calls `visit` for each block of the program, with the lock. A block that is allocated or freed meanwhile
 * may be missed or shown. */
struct pool_live {
    uint64_t address, asked;
    uint16_t tag;
};
void pool_each_live(struct pool *pool, void (*visit)(const struct pool_live *block, void *argument),
                    void *argument);

/* Returns what the pools of a card hold together. No lock. */
uint64_t pool_held_on(CUdevice ordinal);

/* Polls the fence if freed blocks are pending, and makes those usable whose work is done. */
void pool_take_in(struct pool *pool);

/* Returns the figures as far as known. Never calls the driver, so it works at the end of the process. */
struct pool_stats pool_stats(struct pool *pool);
/* The same for an exit handler: does not flush the thread's small blocks. Returns false if the lock cannot be
 * taken. */
bool pool_stats_at_exit(struct pool *pool, struct pool_stats *stats);

/* Checks the pool's structures. Returns NULL, or a message that says what is wrong. */
const char *pool_check(struct pool *pool);

#endif
