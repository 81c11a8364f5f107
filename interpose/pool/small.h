/* small: blocks of at most HEAP_LARGEST bytes, from a heap whose extents are ranges of the pool.
 *
 * The heap finds room; whether an address is the beginning of a live block is known here, out of band: 24
 * bytes for each 512 of address space in use, changed by compare-and-swap as a larger block's word is
 * (cache.h). So a second free, or an address inside a block, never reaches the heap, and neither way needs a
 * lock.
 *
 * Never called with the pool's lock, except where it says so: the heap's own locks come before it.
 */
#ifndef GPUCAP_SMALL_H
#define GPUCAP_SMALL_H

#include "interpose/pool/cache.h"
#include "interpose/pool/heap.h"

struct pool;
struct pool_block;

/* A free that must wait for work. */
struct small_pending {
    uint64_t address, bytes, epoch;
};

#define SMALL_PAGE_UNITS (RANGES_PAGE / RANGES_UNIT)
#define SMALL_PIECE      4096 /* extents are multiples of this */
#define SMALL_PIECES     (RANGES_PAGE / SMALL_PIECE)

/* What is known of a page of the address space in which extents are, or were. Made under the pool's lock, and
 * never taken away while the pool lives. */
struct small_page {
    /* guarded by the pool's lock */
    struct range *range;             /* NULL: no extents here now */
    struct small_page *next, **here; /* of those with extents and room for more; what points to this one */
    struct small_page *made;         /* before this one */
    unsigned taken;                  /* pieces */
    uint64_t pieces[SMALL_PIECES / 64];
    struct mark marks[SMALL_PAGE_UNITS]; /* of the blocks that begin at each unit */
};

struct small {
    bool on;
    unsigned arena;
    struct heap_source source;
    _Atomic(struct small_page *) *pages;          /* by page of the pool's address space */
    _Atomic uint64_t extent_bytes, pending_count; /* written under the pool's lock */
    _Atomic uint64_t pinned_bytes;                /* freed, and others hold their memory */
    _Atomic uint64_t wrong;                       /* how often the heap was wrong: 0, or it is damaged */
    /* guarded by the pool's lock */
    struct small_page *first;      /* with extents and room for more */
    struct small_page *made;       /* the latest of all */
    struct small_pending *pending; /* a ring, oldest first */
    uint64_t pending_first, pending_capacity, pending_bytes;
    uint64_t grown; /* blocks for which memory was put together or taken; they count as hits */
};

/* Without jemalloc, or without memory for the table, small blocks are like others. */
void small_open(struct pool *pool);
void small_close(struct pool *pool);

static inline bool small_fits(uint64_t size)
{
    return size <= HEAP_LARGEST;
}

/* True and *address, or false: then the pool itself may have room. */
bool small_take(struct pool *pool, struct cache *cache, uint64_t asked, uint64_t size, uint64_t *address);

/* What an address is: the unit of a live block that begins there, or NULL. *word is its word. */
struct mark *small_find(struct pool *pool, uint64_t address, uint64_t *word);
/* The same for the block around an address; *start is its beginning. */
struct mark *small_around(struct pool *pool, uint64_t address, uint64_t *start, uint64_t *word);

/* 0; -EINVAL if no live block begins there; -ENOENT if it is none of ours at all. `cache` may be NULL, here
 * and below: then the heap has the block at once. */
int small_free(struct pool *pool, struct cache *cache, uint64_t address, bool done);

/* Blocks whose work has ended, as far as known, go back to the heap. */
void small_reclaim(struct pool *pool, struct cache *cache);

/* Gives back what the heap holds and nobody has, without waiting. */
void small_trim(struct pool *pool);

/* Gives back what threads keep that have done nothing since this was last asked. Returns how much the pool
 * has got of it. */
uint64_t small_let_go_idle(struct pool *pool);

/* Gives back what the heap holds and nobody has; waits for work if need be, for *wait_ns.
 * True if the pool has got any of it. */
bool small_settle(struct pool *pool, struct cache *cache, uint64_t *wait_ns);

/* With the pool's lock. 0, -EINVAL or -ENOENT. After small_unpin says 1, the block is free: small_free_pinned
 * must follow, without the lock. */
int small_pin(struct pool *pool, uint64_t address);
int small_unpin(struct pool *pool, uint64_t address);
void small_free_pinned(struct pool *pool, uint64_t address);

#endif
