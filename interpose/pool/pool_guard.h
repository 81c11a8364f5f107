/* pool_guard: blocks in pages of their own, for guard=on. All functions but pool_guard need the pool's
 * lock.
 *
 * A guarded block is one chunk in fresh address space. It ends where the chunk ends, and at least one page on
 * each side of the chunk is unmapped, so an access behind the block faults on the device. The part of the
 * chunk before the block, the rest, is a live range without a block until the block is freed. Freed blocks
 * are not reused: the next trim after their work is done unmaps and releases their chunks, and their
 * addresses are tried last for new blocks. Threads' caches and the heap of small blocks are not used.
 */
#ifndef GPUCAP_POOL_GUARD_H
#define GPUCAP_POOL_GUARD_H

#include "interpose/pool/pool_pending.h"

/* Puts every block of a pool into pages of its own. Call before the first pool_alloc. */
void pool_guard(struct pool *pool);

/* Takes `size` bytes at the end of a new chunk. May drop the lock. Returns 0 and *out, or -ENOMEM. */
int pool_guard_take(struct pool *pool, uint64_t size, struct range **out, struct pool_effort *effort);

/* Frees the rest of a guarded block's chunk: then the chunk is free once the block is. Ignores others. */
void pool_guard_give_rest(struct pool *pool, const struct range *block);

#endif
