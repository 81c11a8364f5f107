/* pool_pending: freed blocks whose work is not done, oldest first. All functions need the pool's lock. */
#ifndef GPUCAP_POOL_PENDING_H
#define GPUCAP_POOL_PENDING_H

#include "interpose/pool/pool_state.h"

/* What an allocation has done so far, so that each kind of effort is counted once per allocation. */
struct pool_effort {
    bool made;        /* chunks were moved or created for it */
    bool waited;      /* it waited for work */
    uint64_t wait_ns; /* since it was last recorded */
};

/* Puts a freed block, which is not in the table any more, off until its epoch is usable. */
void pool_put_off(struct pool *pool, struct range *range, uint64_t epoch);

/* Makes pending blocks free whose epochs are usable. Returns true if there were any. */
bool pool_reclaim(struct pool *pool);

/* Orders later work behind everything freed so far (fence_join). Returns true if blocks became free. */
bool pool_join(struct pool *pool);

/* Call before a large block is cut from a much larger free range: makes pending memory usable first, by a
 * join if need be, because it may fit better. Cutting the range would cost a later request that range, and
 * chunks would have to move. */
void pool_prefer_fit(struct pool *pool, uint64_t size);

/* Drops the lock and waits for the oldest work on freed memory. *more: there is other. Returns 0 or -EIO. */
int pool_wait_for_work(struct pool *pool, bool *more);
/* The same, counted as the effort of an allocation. */
int pool_wait_counted(struct pool *pool, struct pool_effort *effort, bool *more);

#endif
