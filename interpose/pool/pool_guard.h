/* pool_guard: blocks in pages of their own, for guard=on. All functions but pool_guard (pool.h) need the
 * pool's lock.
 *
 * A guarded block is one chunk in fresh address space. It ends where the chunk ends, and at least one page on
 * each side of the chunk is unmapped: an access behind the block faults on the device. What the chunk has
 * before the block is a live range without a block, the rest, until the block is freed. Freed blocks are not
 * reused: their chunks are unmapped and given back by the next trim after their work is done, and their
 * addresses come last in the search for a place. Threads' caches and the heap of small blocks are not used.
 */
#ifndef GPUCAP_POOL_GUARD_H
#define GPUCAP_POOL_GUARD_H

#include "interpose/pool/pool_grow.h"

/* A range of `size` bytes at the end of a chunk of its own. May drop the lock to wait for work. 0 or -ENOMEM.
 */
int pool_guard_take(struct pool *pool, uint64_t size, struct range **out, struct pool_effort *effort);

/* Frees the rest of a guarded block's chunk, so that the chunk is whole when the block is free too. Does
 * nothing for other blocks. */
void pool_guard_give_rest(struct pool *pool, const struct range *block);

#endif
