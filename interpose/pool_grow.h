/* pool_grow: what a pool does when no free range fits. Called with the pool's lock; pool.c is its only user.
 */
#ifndef GPUCAP_POOL_GROW_H
#define GPUCAP_POOL_GROW_H

#include "pool.h"

/* What an allocation has cost so far, so that it is counted once. */
struct pool_effort {
    bool made;   /* chunks were put together or taken */
    bool waited; /* for work */
};

/* Makes room for `size` bytes and takes them: by blocks whose work has ended, by stitching, by growing, by
 * waiting. 0 or -ENOMEM. May drop the lock while it waits for work. */
int pool_make_fit(struct pool *pool, uint64_t size, struct range **out, struct pool_effort *effort);

/* Whether waiting may help: if all that has been freed were usable, could the rest be had? If not, what would
 * be waited for may be behind work that the program lets go on only when it has been refused. With the lock.
 */
bool pool_may_fit(const struct pool *pool, uint64_t size);

/* Memory for the heap of small blocks, or NULL. May drop the lock while it waits for work. */
struct range *pool_take_extent(struct pool *pool, uint64_t bytes, uint64_t alignment,
                               struct pool_effort *effort);

/* What the program holds, given cache_figures' bytes. */
uint64_t pool_live_bytes(const struct pool *pool, uint64_t cached);

/* Makes cached blocks of at least so many bytes plain free memory. True if there were any. */
bool pool_cool_down(struct pool *pool, uint64_t least);

/* Takes back the blocks whose work has ended. True if there were any. */
bool pool_reclaim(struct pool *pool);

/* Behind several streams: makes what has been freed usable if a large block would otherwise break a range
 * that does not fit it. Another block would miss that range later, and chunks would have to move for it. */
void pool_prefer_fit(struct pool *pool, uint64_t size);

/* Bytes of whole chunks in free ranges, up to `enough`. */
uint64_t pool_whole_bytes(struct pool *pool, uint64_t enough);

/* The end of the highest address that has ever had memory. */
uint64_t pool_mapped_end(const struct pool *pool);

#endif
