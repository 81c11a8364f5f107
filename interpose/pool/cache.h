/* cache: blocks that a thread has freed and may have again at once, without the pool's lock.
 *
 * Each thread knows a few blocks of each pool: some of the heap, some others of less than a page, and one
 * larger. Such a block keeps its place, and its mark (mark.h) says whose it is. The pool takes cached blocks
 * back when it needs them, under its own lock; those of the heap go back when the thread or a trim says so.
 *
 * Owns caches_lock (rank: before the heap's own and a pool's), held while a cache is made, flushed by others,
 * or ends.
 */
#ifndef GPUCAP_CACHE_H
#define GPUCAP_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/pool/ranges.h"

struct pool;

/* Blocks that a program frees and asks for again; more would cost more to look through. */
#define CACHE_HEAP  8                        /* of the heap (small.h) */
#define CACHE_MID   8                        /* others of less than a page */
#define CACHE_LARGE (CACHE_HEAP + CACHE_MID) /* the place of the large one */
#define CACHE_SLOTS (CACHE_HEAP + CACHE_MID + 1)

struct cache_slot {
    _Atomic(struct range *) range; /* NULL for a block of the heap */
    _Atomic uint64_t word;         /* what the block's word was when this thread last changed it */
    /* Those of the word, which is written last; only the thread itself writes them. */
    _Atomic(struct mark *) mark;
    _Atomic uint64_t address, bytes; /* 0 bytes: nothing */
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
    uint64_t id, last_id;  /* numbers that this thread may use */
    unsigned turn, latest; /* slots: the next to be filled; the one whose block was handed out last */
    atomic_bool busy;      /* somebody uses the tcache */
    unsigned tcache;       /* of the pool's heap; whoever has set busy writes it */
    struct cache_slot slots[CACHE_SLOTS]; /* of the heap, others, a large one */
    uint64_t seen_hits, seen_count;       /* by cache_flush_idle; guarded by caches_lock */
} __attribute__((aligned(128)));

/* The calling thread's cache of the pool; NULL: there can be none. Not with the pool's lock. */
struct cache *cache_mine(struct pool *pool);

/* What the calling thread keeps of the pool's heap goes back to it. Not with the pool's lock. */
void cache_flush_small(const struct pool *pool);
/* What all threads keep of it, but for those that are in the heap just now. Not with the pool's lock. */
void cache_flush_all(struct pool *pool);

/* The same of threads that have neither taken nor freed a block since this was last asked. */
void cache_flush_idle(struct pool *pool);

/* Around every use of the tcache, which it returns: others may flush it in between. */
unsigned cache_enter(struct cache *cache);
void cache_leave(struct cache *cache);

/* A number for a block. */
uint64_t cache_new_id(struct pool *pool, struct cache *cache);

/* A small block of so many bytes was handed out, or taken back (the negative number). */
void cache_count_small(struct cache *cache, uint64_t bytes);

/* A block of exactly `size` bytes from the calling thread's cache: true and *address. */
bool cache_take(struct pool *pool, uint64_t asked, uint64_t size, uint64_t *address);

/* Keeps a block that the calling thread's cache knows; `done`: no work is left on it. False: not known, or
 * not to be kept; then the pool must see to it. */
bool cache_keep(struct pool *pool, uint64_t address, bool done);

/* Keeps a block of the heap of which the caller has just taken the word (0 now). *other: a block that the
 * caller must give to the heap in its place, of *other_bytes, or 0. Not with the pool's lock. */
void cache_put_small(struct pool *pool, struct cache *cache, struct mark *mark, uint64_t address,
                     uint64_t bytes, uint64_t *other, uint64_t *other_bytes);

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

#endif
