/* pool_dead: chunks that change their place without waiting. Called with the pool's lock; pool_grow.c is its
 * user.
 *
 * A chunk may be mapped at two addresses at once. So one that is free, but on which the stream still works,
 * is mapped at its new place at once: the order of the stream keeps the two uses apart, as it does for any
 * reused block. Its old place stays mapped, dead, until the work there is done; nothing else can be put
 * there, and address space is free. Unmapping, half the price of a move, so leaves the way of the allocation.
 */
#ifndef GPUCAP_POOL_DEAD_H
#define GPUCAP_POOL_DEAD_H

#include "pool.h"

/* Room for `count` more, so that pool_retire and pool_stuck cannot fail. 0 or -ENOMEM. */
int pool_dead_prepare(struct pool *pool, uint64_t count);

/* The whole free chunk at `start`, last freed in `epoch`, leaves its place. Needs two prepared nodes. */
struct vmm_chunk pool_retire(struct pool *pool, uint64_t start, uint64_t epoch);

/* Takes the latest pool_retire back. */
void pool_revive(struct pool *pool, const struct vmm_chunk *chunk);

/* A chunk that could be neither used nor unmapped stays at `start`, in a hole, until it can be unmapped.
 * `only`: it is mapped nowhere else, and is given back then; till then it is held. Needs two prepared nodes
 * and pool_dead_prepare. */
void pool_stuck(struct pool *pool, uint64_t start, const struct vmm_chunk *chunk, bool only);

/* Unmaps at most `most` chunks' old places whose work is done by `reached`. Returns how many are left that
 * are done: 0 if all of them could be unmapped. */
uint64_t pool_bury(struct pool *pool, uint64_t reached, uint64_t most);

/* Whether the chunk that begins at `start` is still mapped where it was before: then unmapping it here frees
 * no memory. */
bool pool_left_behind(const struct pool *pool, uint64_t start);

/* Unmaps all old places, done or not, and forgets them. */
void pool_dead_close(struct pool *pool);

#endif
