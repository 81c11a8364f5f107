/* pool_grow: what a pool does when no free range fits. All functions need the pool's lock. */
#ifndef GPUCAP_POOL_GROW_H
#define GPUCAP_POOL_GROW_H

#include "interpose/pool/pool_pending.h"

/* Makes room for `size` bytes in a zone and takes them: reuses blocks whose work is done, grows, moves
 * chunks, or waits. `wait`: may drop the lock to wait for work. Returns 0 and *out, or -ENOMEM. */
int pool_make_fit(struct pool *pool, enum ranges_zone zone, uint64_t size, bool wait, struct range **out,
                  struct pool_effort *effort);

/* Takes a range for the heap of small blocks, at a multiple of its size, if need be after making room.
 * Returns NULL if there is none. Never waits, because jemalloc's locks are held. */
struct range *pool_take_aligned(struct pool *pool, uint64_t bytes, struct pool_effort *effort);

/* Returns false if the request would not fit even if all freed memory were usable. Then do not wait: it would
 * not help, and the work may depend on the program getting its error. */
bool pool_may_fit(const struct pool *pool, uint64_t size);

/* Returns the size of new chunks for ordinary blocks. It depends on how much room the limits leave. */
uint64_t pool_usual_chunk(const struct pool *pool);

#endif
