/* pool_trim: gives idle memory of a pool back to the driver. Callers hold no lock of the pool, except for
 * pool_trim_some. */
#ifndef GPUCAP_POOL_TRIM_H
#define GPUCAP_POOL_TRIM_H

#include "interpose/pool/pool_state.h"

/* Gives idle memory back to the driver, at least `bytes` if the pool has that much. Returns how much. Never
 * waits for work. */
uint64_t pool_trim(struct pool *pool, uint64_t bytes);
/* One step of it, with the pool's lock: releases about `bytes`, in a limited number of chunks. Returns how
 * much. */
uint64_t pool_trim_some(struct pool *pool, uint64_t bytes);

/* Polls the fence if freed blocks are pending, and makes those usable whose work is done. */
void pool_poll(struct pool *pool);

/* Waits for the oldest work that keeps pool_trim from freed memory. *more: there is other such work. Returns
 * 0, -ENOENT if there is no such work, or as fence_wait_oldest. The pool's context must be current. */
int pool_wait(struct pool *pool, bool *more);

/* Returns the bytes that have been free ever since the last call. */
uint64_t pool_idle_bytes(struct pool *pool);

/* Returns the bytes of chunks without live blocks, which could be stitched or released, if need be after a
 * wait for work. */
uint64_t pool_reclaimable(struct pool *pool);

#endif
