/* pool: the memory of one context under cuMemAlloc and cuMemFree.
 *
 * An allocation takes a free range. If none fits, the pool grows, or moves whole free chunks to where the
 * request fits (pool_grow.c). Live blocks never move, so no pointer changes. The fence decides when freed
 * memory may be reused or unmapped; the budget decides how much the pool may hold.
 *
 * Owns one lock per pool. It is held across the driver's mapping calls, which do not wait for running work,
 * and never across a call that does. pool_state.h lists the modules that a pool is made of, lowest first;
 * what callers need of them is included here.
 */
#ifndef GPUCAP_POOL_H
#define GPUCAP_POOL_H

#include "interpose/pool/pool_blocks.h"
#include "interpose/pool/pool_chunks.h"
#include "interpose/pool/pool_dead.h"
#include "interpose/pool/pool_figures.h"
#include "interpose/pool/pool_guard.h"
#include "interpose/pool/pool_reach.h"
#include "interpose/pool/pool_trim.h"

/* Opens a pool. Returns 0, -ENOTSUP if the card lacks what pooling needs, or another -errno. */
int pool_open(struct pool *pool, CUcontext context, CUdevice ordinal, const struct pool_budget *budget,
              uint32_t slack_permille);
/* Releases all memory. `context_lives`: the context still exists, so events are destroyed too. */
void pool_close(struct pool *pool, bool context_lives);

/* Allocates a block. Returns 0 and *address, -EINVAL for 0 bytes, or -ENOMEM. The pool's context must be
 * current. May wait for work, without the lock. */
int pool_alloc(struct pool *pool, uint64_t bytes, uint64_t *address);

/* Returns true if a live block begins at the address. */
bool pool_has_block(struct pool *pool, uint64_t address);
/* The same without a lock: returns false for many large blocks. */
bool pool_knows_block(struct pool *pool, uint64_t address);

/* Frees the block at `address`. `done`: all work on it is known to be done. Returns 0 or -EINVAL. */
int pool_free(struct pool *pool, uint64_t address, bool done);
/* Set when this thread frees a pinned block. The caller of pool_free then calls ipc_freed and resets it. */
extern _Thread_local bool pool_freed_pinned;

/* Checks the pool's structures. Returns NULL, or a message that says what is wrong. */
const char *pool_check(struct pool *pool);

#endif
