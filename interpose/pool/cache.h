/* cache: blocks that a thread freed last and may have again without the pool's lock.
 *
 * Each thread caches a few blocks of each pool: some of the heap, some others of the small zone, and one of
 * the large zone. A cached block keeps its place; its mark (mark.h) says who has it. The pool takes cached
 * blocks back under its own lock when it needs them. Blocks of the heap return to it when the thread ends or
 * flushes them, or at a trim.
 *
 * Owns caches_lock (rank: before the heap's own locks and a pool's), held while a cache is created, flushed
 * by another thread, or ended.
 */
#ifndef GPUCAP_CACHE_H
#define GPUCAP_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/pool/pool_state.h"
#include "interpose/see/tags.h"

/* Slots per cache. More would take longer to search. */
#define CACHE_HEAP  8                        /* for blocks of the heap (small.h) */
#define CACHE_MID   8                        /* for others of the small zone */
#define CACHE_LARGE (CACHE_HEAP + CACHE_MID) /* the slot of the large block */
#define CACHE_SLOTS (CACHE_HEAP + CACHE_MID + 1)

struct cache_slot {
    _Atomic(struct range *) range; /* NULL for a block of the heap */
    _Atomic uint64_t word;         /* the block's word as this thread last set it */
    /* The fields below describe the block of `word`, which is written last; only this thread writes them. */
    _Atomic(struct mark *) mark;
    _Atomic uint64_t address, bytes; /* bytes 0: the slot is empty */
};

/* Written by its own thread only, except where a field says otherwise. */
struct cache {
    _Atomic(struct pool *) pool; /* NULL: the pool is closed; written under caches_lock */
    struct cache *next;          /* next cache of the pool; guarded by the pool's lock */
    struct cache *others;        /* next cache of the thread, or next spare one */
    /* Rises by each block that this thread caches, falls by each small block (small.h) that it hands out; may
     * wrap below 0. Only the sum over all threads has a meaning. */
    _Atomic uint64_t bytes, count;
    _Atomic uint64_t taken_bytes, taken_count; /* taken back by the pool, under its lock */
    _Atomic uint64_t least;                    /* least value of bytes since the pool last read it */
    _Atomic uint64_t hits;
    uint64_t id, last_id;  /* block ids that this thread may use */
    unsigned turn, latest; /* slots: the next to fill; the one whose block was handed out last */
    atomic_bool busy;      /* a thread uses the tcache */
    unsigned tcache;       /* jemalloc's cache for the pool's heap; written by the thread that has set busy */
    struct cache_slot slots[CACHE_SLOTS];
    uint64_t seen_hits, seen_count; /* as of the last cache_flush_idle; guarded by caches_lock */
} __attribute__((aligned(128)));

/* Returns the calling thread's cache of the pool, created if need be, or NULL. Not with the pool's lock. */
struct cache *cache_mine(struct pool *pool);

/* Returns the calling thread's cached small blocks to the heap. Not with the pool's lock. */
void cache_flush_small(const struct pool *pool);
/* The same for all threads; skips the tcache of a thread that is using the heap. Not with the pool's lock. */
void cache_flush_all(struct pool *pool);

/* The same for threads that have neither taken nor freed a block since the last call. */
void cache_flush_idle(struct pool *pool);

/* Take a block from the heap, and give one back, through the thread's jemalloc cache. `cache` may be NULL for
 * cache_heap_give: then the block goes straight to the heap. cache_heap_take returns 0 if there is none. Not
 * with the pool's lock. */
uint64_t cache_heap_take(struct pool *pool, struct cache *cache, uint64_t size);
void cache_heap_give(struct cache *cache, uint64_t address, uint64_t bytes);

/* Fills in the mark, apart from its word, of a block of `size` bytes that is handed out. */
static inline void cache_mark(struct mark *mark, uint64_t asked, uint64_t size)
{
    atomic_store_explicit(&mark->asked, asked, memory_order_relaxed);
    atomic_store_explicit(&mark->sync_memops, false, memory_order_relaxed);
    atomic_store_explicit(&mark->tag, tags_current, memory_order_relaxed);
    if (tags_current)
        tags_add(tags_current, size);
}

/* Returns a new block id. */
uint64_t cache_new_id(struct pool *pool, struct cache *cache);

/* Counts a small block of `bytes` as handed out, or, with the negative number, as taken back. */
void cache_count_small(struct cache *cache, uint64_t bytes);

/* Takes a block of exactly `size` bytes from the thread's cache. Returns true and *address, or false. */
bool cache_take(struct pool *pool, uint64_t asked, uint64_t size, uint64_t *address);

/* Returns true if the calling thread's cache knows that a live block begins at the address. */
bool cache_knows_live(const struct pool *pool, uint64_t address);

/* Caches a freed block that the calling thread's cache knows. `done`: no work is left on it. Returns false if
 * the block is unknown or must not be cached; then the pool frees it. */
bool cache_keep(struct pool *pool, uint64_t address, bool done);

/* Caches a block of the heap whose word the caller has just set to 0. The block that it replaces goes back to
 * the heap. Not with the pool's lock. */
void cache_put_small(struct pool *pool, struct cache *cache, struct mark *mark, uint64_t address,
                     uint64_t bytes);

/* ---- with the pool's lock ---- */

/* Caches a block whose word the pool has just set to 0, freed in `epoch`. The block that it replaces becomes
 * free memory, and so does the block itself if it cannot be cached. */
void cache_put(struct pool *pool, struct range *range, uint64_t epoch);

/* Takes cached blocks of at least `least` bytes back into the free ranges. Returns true if there were any. */
bool cache_empty(struct pool *pool, uint64_t least);

/* Takes the cached blocks of the large zone back. A large block that the calling thread took from its cache
 * goes to the pool when it is freed. Call when other large blocks come or go: a block that stayed cached
 * would be taken again at its old place, which may no longer be the best fit. */
void cache_return_large(struct pool *pool);

/* Takes back the calling thread's cached blocks of the small zone that are not of the heap. Call before
 * another block is taken from the free ranges of that zone, for the same reason. */
void cache_return_mid(struct pool *pool);

struct cache_figures cache_figures(const struct pool *pool);

/* ---- life ---- */

/* Empties the caches of a pool that is being closed and detaches them from it. */
void cache_close(struct pool *pool);

#endif
