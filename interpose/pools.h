/* pools: the pool of each context, and of each address.
 *
 * Owns registry_lock, held while a pool is opened, closed or visited, and never where work is waited for. A
 * pool that has been found stays valid while its context lives, which is what the driver asks of a program as
 * well.
 */
#ifndef GPUCAP_POOLS_H
#define GPUCAP_POOLS_H

#include "options.h"
#include "pool.h"

#define POOLS_MAX 64

void pools_setup(const struct options *options);

/* The pool of the calling thread's context, opened at the first call. NULL: no context, no pooling, or a card
 * that cannot do it. */
struct pool *pools_current(void);
/* The same if it is open. */
struct pool *pools_open_here(void);

/* After pool_alloc has failed: true if it may only have met others who were asking the driver. Waits for one
 * of them; not with a lock, as they may need the pool's. */
bool pools_await(const struct pool *pool);

/* The pool whose address space holds the address, or NULL. */
struct pool *pools_of(uint64_t address);

/* Another context is there, or a card reaches the memory of another: no event of one context covers all work
 * any more. */
void pools_not_alone(void);

/* A stream is about to wait for something that nobody else sees, perhaps for work that comes later on
 * another: that is never put behind it from now on, and what has been freed by now need not wait for it. */
void pools_before_await(void);

/* Around the program's own wait for all work of a context (NULL: the current one): what was freed before it
 * began is free when it has ended well. */
struct pools_wait {
    struct pool *pool; /* NULL: there is none */
    uint64_t epoch;
};
struct pools_wait pools_before_wait(CUcontext context);
void pools_after_wait(const struct pools_wait *wait, bool success);

/* A context is about to end, or has not ended after all: meanwhile nobody visits its pool. The driver does
 * not bear a context that comes into use while it is being destroyed. */
void pools_context_ending(CUcontext context, bool is_ending);
/* The context has ended. */
void pools_context_ended(CUcontext context);

/* A child after fork: there are no pools here. */
void pools_after_fork(void);

/* Gives idle memory of a card back to the driver: at least `bytes` if there is that much. Returns how much.
 */
uint64_t pools_trim(CUdevice ordinal, uint64_t bytes);

/* What pools_trim could give back at once. */
uint64_t pools_reclaimable(CUdevice ordinal);

/* What the card's pools hold beyond the program's blocks, whether or not it can be given back at once. */
uint64_t pools_not_live(CUdevice ordinal);

/* Visits every pool whose context stays. */
void pools_each(void (*visit)(struct pool *pool, void *argument), void *argument);
/* The same for visits that wait: nobody waits for them, but for those who end the pool's context. */
void pools_each_waiting(void (*visit)(struct pool *pool, void *argument), void *argument);

/* In an exit handler: says on stderr, at level info, what each pool did. */
void pools_report(void);

#endif
