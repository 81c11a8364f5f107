/* cache: blocks that a thread has freed and may have again at once, without the pool's lock.
 *
 * Each thread knows a few blocks of each pool: CACHE_SMALL of less than a page and one larger. Such a block
 * stays a live range of the pool, and its word says whose it is: the program's, the cache's, or nobody's.
 * Only who changes the word by compare-and-swap has the block; the number in it is never used twice, so a
 * word that is still the same means that nothing has happened. The pool takes cached blocks back when it
 * needs them, with the same compare-and-swap, under its own lock.
 *
 * Owns caches_lock (rank: before a pool's), held while a cache is made or ends.
 */
#ifndef GPUCAP_CACHE_H
#define GPUCAP_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "ranges.h"

struct pool;

/* A block's word: its number times four, and one of these. 0: not a block of the program's. */
enum cache_word {
    CACHE_CACHED = 0,
    CACHE_LIVE = 1,
    CACHE_BUSY = 2,   /* between the two */
    CACHE_PINNED = 3, /* live, and others hold its memory: never cached */
    CACHE_STATE = 3,
};

#define CACHE_SMALL 8 /* blocks that a program frees and asks for again; more cost more to look through */

struct cache_slot {
    _Atomic(struct range *) range;
    _Atomic uint64_t word;   /* what the block's word was when this thread last changed it */
    uint64_t address, bytes; /* the thread's own; 0 bytes: nothing */
};

/* What only its own thread writes, except where it says otherwise. */
struct cache {
    _Atomic(struct pool *) pool; /* NULL: the pool has ended; written under caches_lock */
    struct cache *next;          /* of the pool's; guarded by the pool's lock */
    struct cache *others;        /* of the thread's, or spare ones */
    /* Blocks kept less small blocks handed out (small.h), as this thread did it; modulo 2^64. */
    _Atomic uint64_t bytes, count;
    _Atomic uint64_t taken_bytes, taken_count; /* by the pool, under its lock */
    _Atomic uint64_t least;                    /* of bytes, since the pool last looked */
    _Atomic uint64_t hits;
    uint64_t id, last_id; /* numbers that this thread may use */
    unsigned turn;
    unsigned tcache;                          /* of the pool's heap */
    struct cache_slot slots[CACHE_SMALL + 1]; /* the last one is for a large block */
} __attribute__((aligned(128)));

/* The calling thread's cache of the pool; NULL: there can be none. Not with the pool's lock. */
struct cache *cache_mine(struct pool *pool);

/* What the calling thread keeps of the pool's heap goes back to it. Not with the pool's lock. */
void cache_flush_small(const struct pool *pool);

/* A number for a block. */
uint64_t cache_new_id(struct pool *pool, struct cache *cache);

/* A small block of so many bytes was handed out, or taken back (the negative number). */
void cache_count_small(struct cache *cache, uint64_t bytes);

/* A block of exactly `size` bytes from the calling thread's cache: true and *address. */
bool cache_take(struct pool *pool, uint64_t asked, uint64_t size, uint64_t *address);

/* Keeps a block that the calling thread's cache knows; `done`: no work is left on it. False: not known, or
 * not to be kept; then the pool must see to it. */
bool cache_keep(struct pool *pool, uint64_t address, bool done);

/* ---- with the pool's lock ---- */

/* Keeps a block of which the pool has just taken the word (0 now), freed in `epoch`. Returns another block,
 * which the pool must take in its place, or NULL; `range` itself if it cannot be kept. */
struct range *cache_put(struct pool *pool, struct range *range, uint64_t epoch);

/* Takes one cached block back, with its word 0, or NULL: any of at least `least` bytes. */
struct range *cache_steal(struct pool *pool, uint64_t least);

struct cache_figures {
    uint64_t bytes, count, hits;
    uint64_t least; /* of bytes, as far as the calling thread knows, since it last asked */
};
struct cache_figures cache_figures(const struct pool *pool);

/* ---- life ---- */

/* The pool ends: its caches are empty from now on. */
void cache_close(struct pool *pool);

/* In the child of a fork nothing is given back. */
void cache_after_fork(void);

#endif
