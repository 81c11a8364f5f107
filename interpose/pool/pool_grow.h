/* pool_grow: what a pool does when no free range fits. All functions need the pool's lock. */
#ifndef GPUCAP_POOL_GROW_H
#define GPUCAP_POOL_GROW_H

#include "interpose/pool/pool.h"

/* What an allocation has done so far, so that each kind of effort is counted once per allocation. */
struct pool_effort {
    bool made;        /* chunks were moved or created for it */
    bool waited;      /* it waited for work */
    uint64_t wait_ns; /* in pool_make_fit */
};

/* Makes room for `size` bytes in a zone and takes them: reuses blocks whose work is done, grows, moves
 * chunks, or waits. `wait`: may drop the lock to wait for work. Returns 0 and *out, or -ENOMEM. */
int pool_make_fit(struct pool *pool, enum ranges_zone zone, uint64_t size, bool wait, struct range **out,
                  struct pool_effort *effort);

/* Returns false if the request would not fit even if all freed memory were usable. Then do not wait: it would
 * not help, and the work may depend on the program getting its error. */
bool pool_may_fit(const struct pool *pool, uint64_t size);

/* Takes a range for the heap of small blocks, at a multiple of `alignment`. Returns NULL if there is none.
 * Never waits, because jemalloc's locks are held. */
struct range *pool_take_extent(struct pool *pool, uint64_t bytes, uint64_t alignment,
                               struct pool_effort *effort);

/* Returns the bytes that the program holds. `cached` is cache_figures' bytes. */
uint64_t pool_live_bytes(const struct pool *pool, uint64_t cached);

/* Takes cached blocks of at least `least` bytes back into the free ranges. Returns true if there were any. */
bool pool_empty_caches(struct pool *pool, uint64_t least);

/* Makes pending blocks free whose epochs are usable. Returns true if there were any. */
bool pool_reclaim(struct pool *pool);

/* Call before a large block is cut from a much larger free range: makes pending memory usable first, by a
 * join if need be, because it may fit better. Cutting the range would cost a later request that range, and
 * chunks would have to move. */
void pool_prefer_fit(struct pool *pool, uint64_t size);

/* Returns the bytes of whole chunks in free ranges. Stops counting at `enough`. */
uint64_t pool_whole_bytes(struct pool *pool, uint64_t enough);

/* Finds the highest whole chunk in the free bytes from `floor` to `*below`, and sets *below to its start.
 * Returns false if there is none. Going from high to low leaves the rest of a range in one piece. */
bool pool_next_chunk(const struct pool *pool, uint64_t floor, uint64_t *below, uint64_t *start,
                     uint64_t *bytes);

/* Unmaps and releases the whole free chunk at `start`. Its work is done and it is mapped nowhere else.
 * Returns 0 or -errno. */
int pool_give_back(struct pool *pool, uint64_t start);

/* One step of pool_trim: releases about `bytes`, in a limited number of chunks. Returns how much. */
uint64_t pool_trim_some(struct pool *pool, uint64_t bytes);

/* Releases an unmapped chunk and gives its bytes back to the budget. If the driver refuses, the chunk stays
 * held until pool_release_left succeeds. */
void pool_release_chunk(struct pool *pool, const struct vmm_chunk *chunk);
void pool_release_left(struct pool *pool);

/* Creates a chunk if the budget grants it. Returns 0 or -errno. */
int pool_create_chunk(struct pool *pool, uint64_t bytes, struct vmm_chunk *chunk);

/* Returns scratch memory for `count` chunks, valid until the next call, or NULL. */
struct vmm_chunk *pool_scratch(struct pool *pool, uint64_t count);

/* Waits for the oldest work that freed memory depends on, with the lock dropped. *more: there is other such
 * work. Returns 0 or -EIO. */
int pool_wait_for_work(struct pool *pool, bool *more);

/* Returns the end of the highest range that has ever been mapped. */
uint64_t pool_mapped_end(const struct pool *pool);

/* Returns the size of new chunks for ordinary blocks. It depends on how much room the limits leave. */
uint64_t pool_usual_chunk(const struct pool *pool);

#endif
