/* small: blocks of at most HEAP_LARGEST bytes, from a heap whose extents are ranges of the pool.
 *
 * The heap finds room. Which addresses begin a live block is recorded here, out of band: 24 bytes for each
 * 512 bytes of address space in use, changed by compare-and-swap like a larger block's word (base/mark.h). So
 * a second free, or an address inside a block, never reaches the heap, and neither allocation nor free needs
 * a lock.
 *
 * Not to be called with the pool's lock except where noted: the heap's own locks rank before it.
 */
#ifndef GPUCAP_SMALL_H
#define GPUCAP_SMALL_H

#include "interpose/pool/cache.h"

/* Extents share pages of this size. It is smaller than RANGES_PAGE, so that the rest of a chunk is left to
 * other small blocks, and holds the heap's largest extent: 448 KiB on hosts with pages of 64 KiB. */
#define SMALL_PAGE       (UINT64_C(512) << 10)
#define SMALL_PIECE      4096 /* extents are multiples of this */
#define SMALL_PIECES     (SMALL_PAGE / SMALL_PIECE)
#define SMALL_PAGE_UNITS (SMALL_PAGE / RANGES_UNIT)

/* A page of address space that has or had extents. Created under the pool's lock, kept until it is closed. */
struct small_page {
    /* guarded by the pool's lock */
    struct range *range;             /* NULL: no extents here */
    struct small_page *next, **here; /* list of pages with room; the pointer to this one */
    struct small_page *made;         /* the page created before this one */
    uint64_t address;                /* written once */
    unsigned taken;                  /* pieces */
    uint64_t pieces[SMALL_PIECES / 64];
    struct mark marks[SMALL_PAGE_UNITS]; /* one for each unit at which a block can begin */
};

/* Opens a pool's heap. Without jemalloc or memory for its table small blocks are served like others. */
void small_open(struct pool *pool);
void small_close(struct pool *pool);

/* Calls `visit` for each live small block, with its address and mark. The caller holds the pool's lock. */
void small_each(struct pool *pool, void (*visit)(uint64_t address, const struct mark *mark, void *argument),
                void *argument);

/* Allocates a small block. Returns true and *address, or false: then the pool itself may have room. */
bool small_take(struct pool *pool, struct cache *cache, uint64_t asked, uint64_t size, uint64_t *address);

/* Returns the mark of the live block that begins at `address`, and its word, or NULL. */
struct mark *small_find(struct pool *pool, uint64_t address, uint64_t *word);
/* The same for the live block that contains `address`; *start is its beginning. */
struct mark *small_around(struct pool *pool, uint64_t address, uint64_t *start, uint64_t *word);

/* Frees a small block. Returns 0, 1 if another process has it pinned, -EINVAL if no live block begins there,
 * or -ENOENT if the address is not in an extent. `cache` may be NULL, here and below: then the block goes
 * straight to the heap. */
int small_free(struct pool *pool, struct cache *cache, uint64_t address, bool done);

/* Returns pending blocks to the heap whose epochs are known to be usable. */
void small_reclaim(struct pool *pool, struct cache *cache);

/* Returns unused extents of the heap to the pool. Never waits. */
void small_trim(struct pool *pool);

/* Flushes threads that have been idle since the last call. Returns how many bytes the pool got back. */
uint64_t small_flush_idle(struct pool *pool);

/* Returns unused extents of the heap to the pool; waits for pending frees if need be, for *wait_ns. Returns
 * true if the pool got any back. */
bool small_trim_wait(struct pool *pool, struct cache *cache, uint64_t *wait_ns);

/* Removes one pin of a small block, with the pool's lock. Returns 0, -ENOENT if there is no such pinned
 * block, or 1 if the block has been freed: then the caller must call small_free_pinned, without the lock. */
int small_unpin(struct pool *pool, uint64_t address);
void small_free_pinned(struct pool *pool, uint64_t address);

#endif
