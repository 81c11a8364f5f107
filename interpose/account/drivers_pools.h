/* drivers_pools: the driver's own stream-ordered memory pools, as far as the program has used them, and what
 * they hold. Asking a pool costs 25 ns (measured, H200), so its growth is known right after each request.
 *
 * Owns one lock, held for a few instructions.
 */
#ifndef GPUCAP_DRIVERS_POOLS_H
#define GPUCAP_DRIVERS_POOLS_H

#include <stdint.h>

#include "interpose/driver/driver.h"

struct drivers_pool;

/* The pool, which serves the card `ordinal`, in the table; NULL: it is full, and what the pool holds is not
 * known. */
struct drivers_pool *drivers_pools_find(CUmemoryPool pool, CUdevice ordinal);
/* The card of a pool. */
#define DRIVERS_POOLS_UNKNOWN (-1) /* the pool is not in the table */
#define DRIVERS_POOLS_HOST    (-2) /* its memory is the host's */
CUdevice drivers_pools_card(CUmemoryPool pool);

/* By how much the pool has grown since this was last asked; 0 if it has shrunk. */
uint64_t drivers_pools_growth(struct drivers_pool *pool);
/* Notes what the pools of a card have given back, so that taking it again is growth. */
void drivers_pools_look_again(CUdevice ordinal);
/* What the pool holds now. */
uint64_t drivers_pools_reserved(struct drivers_pool *pool);
/* What the pool holds and the program has not: freed, perhaps with work still under way on it. */
uint64_t drivers_pools_idle(struct drivers_pool *pool);

/* Gives back what the pools of a card hold idle and at rest. True if there was something idle. */
bool drivers_pools_trim(CUdevice ordinal);
/* What they hold idle, at rest or not. */
uint64_t drivers_pools_idle_on(CUdevice ordinal);
/* What the driver holds for this process in them, and for graphs. */
uint64_t drivers_pools_held(CUdevice ordinal);

/* The pool is gone. */
void drivers_pools_forget(CUmemoryPool pool);

#endif
