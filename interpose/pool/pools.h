/* pools: finds the pool of a context or of an address.
 *
 * A green context has no pool: its memory belongs to the primary context, natively too. Owns registry_lock,
 * held while a pool is opened, closed or visited, and never while work is waited for.
 */
#ifndef GPUCAP_POOLS_H
#define GPUCAP_POOLS_H

#include "interpose/pool/pool.h"
#include "interpose/settings/options.h"

#define POOLS_MAX 64

void pools_setup(const struct options *options);

/* Returns the context whose pool serves the current `context`: behind a green one the primary one. */
CUcontext pools_owner(CUcontext context);

/* Returns the same without asking the driver, as long as the program has made no green context. */
CUcontext pools_owner_if_green(CUcontext context);
/* Call before a green context is made. The caller holds no lock: stops relying on the order of streams. */
void pools_expect_green(void);

/* Returns the pool of the current context and opens it if need be. NULL: there is no context, pooling is off,
 * or the card cannot do it. */
struct pool *pools_current(void);
/* Returns that pool, or NULL if it is not open yet. */
struct pool *pools_current_if_open(void);

/* Call after pool_alloc has failed. Returns true if other threads' requests in flight may be the reason,
 * after waiting until one of them is settled. The caller holds no lock, because they may need the pool's. */
bool pools_await(const struct pool *pool);

/* Returns the pool whose reservation contains the address, or NULL. */
struct pool *pools_of(uint64_t address);

/* Call when a second context exists or a card reaches another card's memory: no event of one context covers
 * all work any more. Disables joins and the use of stream order for good, and waits for blocks that were
 * handed out relying on either. */
void pools_distrust(void);

/* Call before a stream is made to wait for a flag in memory. Another stream's later work may set it, so a
 * join could deadlock: disables joins and the use of stream order for good, and closes open epochs, so that
 * memory freed before need not wait for the flag. From then on an allocation waits only briefly for freed
 * memory's work. */
void pools_before_flag(void);

/* Call before and after the program's own wait for all work of a context (NULL: the current one). If the wait
 * succeeds, everything freed before it began is done. */
struct pools_wait {
    struct pool *pool; /* NULL: the context has no pool */
    uint64_t epoch;
};
struct pools_wait pools_before_wait(CUcontext context);
void pools_after_wait(const struct pools_wait *wait, bool success);

/* Call around the destruction of a context. No thread visits its pool between begin and end or abort, because
 * the driver does not tolerate use of a context that is being destroyed. */
void pools_context_end_begin(CUcontext context);
void pools_context_end_abort(CUcontext context);
void pools_context_end(CUcontext context);
/* Call after a green context is destroyed: another context may get its handle. */
void pools_forget_green(void);

/* Forgets all pools, in the child of a fork. */
void pools_after_fork(void);

/* Gives idle memory of a card back to the driver, `bytes` or more if there is so much. Returns how much. */
uint64_t pools_trim(CUdevice ordinal, uint64_t bytes);

/* Returns how much pools_trim could give back, if need be after a wait for work. */
uint64_t pools_reclaimable(CUdevice ordinal);

/* Returns the bytes that our pools and the driver's hold on a card and the program has not allocated,
 * including memory that still has work on it. */
uint64_t pools_idle_on(CUdevice ordinal);

/* Calls `visit` for every pool whose context is not ending, with registry_lock held. */
void pools_each(void (*visit)(struct pool *pool, void *argument), void *argument);
/* Adds up what `of` returns for those of one card, until it is `wanted`. */
uint64_t pools_sum(CUdevice ordinal, uint64_t wanted, uint64_t (*of)(struct pool *pool, uint64_t missing));
/* The same without the lock, for visits that wait for work. Only the end of the context waits for them. */
void pools_each_waiting(void (*visit)(struct pool *pool, void *argument), void *argument);

/* Logs the figures of each pool at level info. Called in an exit handler. */
void pools_report(void);

#endif
