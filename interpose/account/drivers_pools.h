/* drivers_pools: the driver's own stream-ordered pools that the program has used, and what they hold. To ask
 * a pool costs 25 ns (measured, H200), so its growth is known right after each request.
 *
 * Figures of all pools of a card are asked for by any thread, and no pool is destroyed meanwhile.
 * Owns a lock that is held for a few instructions, and one that is shared while the driver is asked or trims.
 */
#ifndef GPUCAP_DRIVERS_POOLS_H
#define GPUCAP_DRIVERS_POOLS_H

#include <stdint.h>

#include "interpose/driver/driver.h"

struct drivers_pool;

/* Finds or adds a pool of the card. NULL: the table is full, and what the pool holds is not known. */
struct drivers_pool *drivers_pools_find(CUmemoryPool pool, CUdevice ordinal);
/* The same for the current pool of the card; also NULL if the driver does not name it. The driver is asked
 * once after each change. */
struct drivers_pool *drivers_pools_current(CUdevice ordinal);
/* Call before and after the driver may make another pool the current one of a card. */
void drivers_pools_current_changes(void);
/* From now on the driver is asked each time: a change may go unseen. */
void drivers_pools_ask_always(void);
/* Returns the card of a pool, or one of these: */
#define DRIVERS_POOLS_UNKNOWN (-1) /* the pool is not in the table */
#define DRIVERS_POOLS_HOST    (-2) /* its memory is the host's */
CUdevice drivers_pools_card(CUmemoryPool pool);

/* Returns by how much the pool has grown since the last call; 0 if it has shrunk. Two calls of the driver
 * cheaper with `no_capture`: none is open, nor can one begin before this returns. */
uint64_t drivers_pools_growth(struct drivers_pool *pool, bool no_capture);
/* Notes what the pools of a card have given back, so that taking it again counts as growth. */
void drivers_pools_look_again(CUdevice ordinal);
/* Returns the bytes that the pool holds. */
uint64_t drivers_pools_reserved(const struct drivers_pool *pool);
/* Returns the bytes that the pool holds and the program does not: freed, perhaps with work still on them. */
uint64_t drivers_pools_idle(const struct drivers_pool *pool);

/* Gives back what is idle in the pools of a card and has no work on it. Returns true if anything was idle. */
bool drivers_pools_trim(CUdevice ordinal);
/* The same, but returns how many bytes went back. Includes what the program gave back meanwhile, up to what
 * was idle. */
uint64_t drivers_pools_give(CUdevice ordinal);
/* Returns their idle bytes, with or without work on them. */
uint64_t drivers_pools_idle_on(CUdevice ordinal);
/* Returns what the driver holds for this process in these pools and for graphs. What destroyed pools held is
 * included until their blocks are freed. */
uint64_t drivers_pools_held(CUdevice ordinal);

/* A block of such a pool that is about to be freed. */
struct drivers_pools_block {
    CUmemoryPool pool; /* NULL: of a destroyed pool */
    CUdevice ordinal;
    uint64_t bytes; /* 0: there is nothing to note */
};
/* Looks at a block before a stream-ordered free. Costs one load while no destroyed pool has blocks. */
struct drivers_pools_block drivers_pools_free_begin(CUdeviceptr address);
/* The same before cuMemFree. Asks the driver if the program has used one of its pools. */
struct drivers_pools_block drivers_pools_free_at_once_begin(CUdeviceptr address);
/* Call after the free, if there are bytes. */
void drivers_pools_free_end(const struct drivers_pools_block *block);

/* Around the driver's call that destroys a pool: _begin removes it from the table and returns its card, and
 * no other thread looks at pools until _end, or until _abort puts the pool back because the driver has
 * refused.
 */
CUdevice drivers_pools_destroy_begin(CUmemoryPool pool);
void drivers_pools_destroy_end(void);
void drivers_pools_destroy_abort(CUmemoryPool pool, CUdevice ordinal);

#endif
