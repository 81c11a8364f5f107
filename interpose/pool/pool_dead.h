/* pool_dead: places that chunks have left. All functions but pool_sweep (pool.h) need the pool's lock.
 *
 * A chunk may be mapped at two addresses at once (measured). A free chunk on which a stream still works is
 * mapped at its new place at once: the order of the stream keeps the two uses apart, as it does for any
 * reused block. The old place stays mapped, dead: nothing else can be put there, and address space is free.
 * It is unmapped when the chunk is to be given back, or when there are many such places; its work is done by
 * then.
 */
#ifndef GPUCAP_POOL_DEAD_H
#define GPUCAP_POOL_DEAD_H

#include "interpose/pool/pool.h"

/* Old places that stay mapped: an unmap costs 16 us, and keeping one nothing (H200). */
#define POOL_DEAD_KEPT 2048

/* Makes room for `count` more, so that pool_retire and pool_stuck cannot fail. 0 or -ENOMEM. */
int pool_dead_prepare(struct pool *pool, uint64_t count);

/* The whole free chunk at `start`, last freed in `epoch`, leaves its place. Needs two prepared nodes. */
struct vmm_chunk pool_retire(struct pool *pool, uint64_t start, uint64_t epoch);

/* Takes the latest pool_retire back. */
void pool_revive(struct pool *pool, const struct vmm_chunk *chunk);

/* A chunk that could be neither used nor unmapped stays at `start`, in a hole, until it can be unmapped.
 * `only`: it is mapped nowhere else, and is given back then; till then it is held. Needs two prepared nodes
 * and pool_dead_prepare. */
void pool_stuck(struct pool *pool, uint64_t start, const struct vmm_chunk *chunk, bool only);

/* Unmaps old places whose work is done by `reached`: stuck ones, and the oldest of many. */
void pool_bury_some(struct pool *pool, uint64_t reached);

/* Unmaps the old places of the chunk that begins at `start`. True if it is mapped there alone now: only then
 * does unmapping and releasing it free memory. */
bool pool_bury_chunk(struct pool *pool, uint64_t start, uint64_t reached);

/* Unmaps all old places, done or not, and forgets them. */
void pool_dead_close(struct pool *pool);

#endif
