/* pool_grow: what a pool does when no free range fits. All functions need the pool's lock. */
#ifndef GPUCAP_POOL_GROW_H
#define GPUCAP_POOL_GROW_H

#include "interpose/pool/pool.h"

/* What an allocation has cost so far, so that it is counted once. */
struct pool_effort {
    bool made;   /* chunks were moved or created for it */
    bool waited; /* it waited for work */
};

/* Makes room for `size` bytes in a zone and takes them: from blocks whose work has ended, by growing, by
 * moving chunks, by waiting. `wait`: may drop the lock to wait for work. 0 or -ENOMEM. */
int pool_make_fit(struct pool *pool, enum ranges_zone zone, uint64_t size, bool wait, struct range **out,
                  struct pool_effort *effort);

/* False if the request could not be met even if all freed memory were usable: then waiting is in vain, and
 * the work that would be waited for may depend on the program's being refused. */
bool pool_may_fit(const struct pool *pool, uint64_t size);

/* A page-aligned range for the heap of small blocks, or NULL. Never waits: jemalloc's locks are held. */
struct range *pool_take_extent(struct pool *pool, uint64_t bytes, uint64_t alignment,
                               struct pool_effort *effort);

/* What the program holds, given cache_figures' bytes. */
uint64_t pool_live_bytes(const struct pool *pool, uint64_t cached);

/* Turns cached blocks of at least `least` bytes into plain free memory. True if there were any. */
bool pool_empty_caches(struct pool *pool, uint64_t least);

/* Takes back blocks whose epochs are usable. True if there were any. */
bool pool_reclaim(struct pool *pool);

/* Behind several streams: makes freed memory usable if a large block would otherwise break a range that does
 * not fit it. Another block would miss that range later, and chunks would have to move for it. */
void pool_prefer_fit(struct pool *pool, uint64_t size);

/* Bytes of whole chunks in free ranges, up to `enough`. */
uint64_t pool_whole_bytes(struct pool *pool, uint64_t enough);

/* The next whole chunk of free bytes from `floor` to `*below`, which then is its beginning; false if there is
 * none. From high to low, so that what remains of a range stays in one piece. */
bool pool_next_chunk(const struct pool *pool, uint64_t floor, uint64_t *below, uint64_t *start,
                     uint64_t *bytes);

/* Unmaps one whole free chunk, whose work is done and which is mapped nowhere else, and gives it back. 0 or
 * -errno. */
int pool_give_back(struct pool *pool, uint64_t start);

/* One step of pool_trim: gives back about `bytes`, in a limited number of chunks. Returns how much. */
uint64_t pool_trim_some(struct pool *pool, uint64_t bytes);

/* Gives an unmapped chunk back to the driver and to the budget. If the driver refuses, it stays held, and is
 * tried again by pool_release_left. */
void pool_release_chunk(struct pool *pool, const struct vmm_chunk *chunk);
void pool_release_left(struct pool *pool);

/* Creates a chunk if the budget grants it. 0 or -errno. */
int pool_create_chunk(struct pool *pool, uint64_t bytes, struct vmm_chunk *chunk);

/* Memory for a list of so many chunks, until the next call. NULL if there is none. */
struct vmm_chunk *pool_scratch(struct pool *pool, uint64_t count);

/* Waits for the oldest freed memory's work, with the lock dropped. *more: there is other such work. 0 or
 * -EIO. */
int pool_wait_for_work(struct pool *pool, bool *more);

/* The end of the highest address that has ever had memory. */
uint64_t pool_mapped_end(const struct pool *pool);

/* The size of new chunks for blocks of usual sizes, by the room that the limits leave. */
uint64_t pool_usual_chunk(const struct pool *pool);

#endif
