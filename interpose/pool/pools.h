/* pools: the pool of each context, and of each address.
 *
 * A green context has no pool: its memory is the primary context's, natively too. Owns registry_lock, held
 * while a pool is opened, closed or visited, and never while work is waited for.
 */
#ifndef GPUCAP_POOLS_H
#define GPUCAP_POOLS_H

#include "interpose/pool/pool.h"
#include "interpose/settings/options.h"

#define POOLS_MAX 64

void pools_setup(const struct options *options);

/* The context whose pool serves this one, which is current: of a green one, the primary one behind it. */
CUcontext pools_owner(CUcontext context);

/* The pool of the calling thread's context, opened at the first call. NULL: no context, no pooling, or a card
 * that cannot do it. */
struct pool *pools_current(void);
/* The same if it is open. */
struct pool *pools_open_here(void);

/* After pool_alloc has failed: true if other threads' requests were between grant and answer, and may have
 * been the reason. Waits for one of them; not with a lock, as they may need the pool's. */
bool pools_await(const struct pool *pool);

/* The pool whose address space holds the address, or NULL. */
struct pool *pools_of(uint64_t address);

/* Another context exists, or a card reaches the memory of another: no event of one context covers all work
 * any more. Ends joins and the order of one stream, and waits for blocks that were handed out in such an
 * order. */
void pools_not_alone(void);

/* Call before a stream is made to wait for a flag in memory. Another stream's later work may set it, so a
 * join could deadlock: ends joins, and closes open epochs, so that what was freed before need not wait for
 * the flag. From then on a request waits only for a moment for freed memory's work. */
void pools_before_flag(void);

/* Around the program's own wait for all work of a context (NULL: the current one): what was freed before it
 * began is free when it has ended well. */
struct pools_wait {
    struct pool *pool; /* NULL: there is none */
    uint64_t epoch;
};
struct pools_wait pools_before_wait(CUcontext context);
void pools_after_wait(const struct pools_wait *wait, bool success);

/* Around the end of a context: between begin and end or abort its pool is not visited, because the driver
 * does not bear a context that comes into use while it is destroyed. */
void pools_context_end_begin(CUcontext context);
void pools_context_end_abort(CUcontext context);
void pools_context_end(CUcontext context);
/* A green context is gone: another one may get its handle. */
void pools_forget_green(void);

/* A child after fork: there are no pools here. */
void pools_after_fork(void);

/* Gives idle memory of a card back to the driver: at least `bytes` if there is that much. Returns how much.
 */
uint64_t pools_trim(CUdevice ordinal, uint64_t bytes);

/* What pools_trim could give back at once. */
uint64_t pools_reclaimable(CUdevice ordinal);

/* What the card's pools hold beyond the program's blocks, whether or not it can be given back at once. */
uint64_t pools_not_live(CUdevice ordinal);

/* Visits every pool whose context is not ending. */
void pools_each(void (*visit)(struct pool *pool, void *argument), void *argument);
/* The same for visits that wait for work: only the end of the pool's context waits for such a visit. */
void pools_each_waiting(void (*visit)(struct pool *pool, void *argument), void *argument);

/* In an exit handler: says on stderr, at level info, what each pool did. */
void pools_report(void);

#endif
