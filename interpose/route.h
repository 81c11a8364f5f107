/* route: the only place that decides whether a call is counted, passed on or refused, and that rolls back.
 *
 * A hook that takes memory is: route_enter, the driver's own call, route_leave. Owns no lock.
 */
#ifndef GPUCAP_ROUTE_H
#define GPUCAP_ROUTE_H

#include "blocks.h"
#include "device.h"

/* A request between its grant and the driver's answer. */
struct route_ticket {
    struct device *device; /* NULL: not counted */
    uint64_t bytes;
    enum blocks_kind kind;
};

/* May `bytes` be taken on the card of the current context? CUDA_SUCCESS: call the driver, then route_leave.
 * Anything else is the answer for the program. */
CUresult route_enter(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes);
/* The same on a given card. */
CUresult route_enter_on(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes, CUdevice ordinal);
/* The same for a stream-ordered allocation, which may come out of what a pool holds already. NULL: the
 * current pool. */
CUresult route_enter_async(struct route_ticket *ticket, uint64_t bytes, CUmemoryPool pool, CUstream stream);

/* Lets go of everything that our pools keep idle on a card (ROUTE_CURRENT: the one of the current context).
 * True if anything has been let go since `before`, by whomever: another thread may have been on its way. */
#define ROUTE_CURRENT (-1)
uint64_t route_given_back(void);
bool route_give_up_cache(CUdevice ordinal, uint64_t before);

/* Another limit for a card, within the administrator's; false if that is not possible. What is idle above it
 * goes back to the driver, what is in use stays. */
bool route_set_limit(struct device *device, uint64_t bytes);

/* A driver call that takes memory of a card; once more if the card was full of what our pools only keep. */
#define ROUTE_TRY(call, ordinal)                                                                             \
    ({                                                                                                       \
        const uint64_t before_ = route_given_back();                                                         \
        CUresult tried_ = (call);                                                                            \
        if (tried_ == CUDA_ERROR_OUT_OF_MEMORY && route_give_up_cache(ordinal, before_))                     \
            tried_ = (call);                                                                                 \
        tried_;                                                                                              \
    })

/* Books the driver's answer and returns it. `key` is the address or handle it gave. */
CUresult route_leave(const struct route_ticket *ticket, CUresult result, uint64_t key);

/* A free: takes the block out of the books, so that a new block at the same address cannot be confused with
 * it, and route_freed puts it back if the driver refuses. */
struct route_release {
    bool known;
    struct block block;
};
struct route_release route_free(enum blocks_kind kind, uint64_t key);
CUresult route_freed(const struct route_release *release, CUresult result);

/* The driver is about to grow by itself: a context, code, streams, stacks. CUDA_SUCCESS: call it, then
 * route_grown. */
struct route_growth {
    struct device *device; /* NULL: not counted */
    uint64_t bytes;
};
/* By about `bytes` on the current card; 0: nobody knows. */
CUresult route_grow(struct route_growth *growth, uint64_t bytes);
/* By more stack per thread: the driver keeps room for every thread that can be resident. */
CUresult route_grow_stack(struct route_growth *growth, uint64_t bytes_per_thread);
/* By a context on a card. */
CUresult route_grow_context(struct route_growth *growth, CUdevice ordinal);
void route_grown(const struct route_growth *growth);

/* The same in parts, for a caller whose question changes when memory is let go. By `bytes` on a card, of what
 * is free now; true: call the driver, then route_grown. */
bool route_try_grow(struct route_growth *growth, CUdevice ordinal, uint64_t bytes);
/* Lets go of what is held and not used on a card; not of what graphs have. */
void route_make_room(CUdevice ordinal, uint64_t bytes);
/* The driver may have grown on a card, whatever was asked. */
void route_touch(CUdevice ordinal);

/* A context has been made: counts its own bytes. Not CUDA_SUCCESS if they do not fit the limit. */
CUresult route_context_made(CUdevice ordinal, CUcontext context);
/* A context is about to end; then, whether it has, and the memory in it. */
void route_context_ending(CUcontext context);
void route_context_stays(CUcontext context);
void route_context_ended(const void *context);

/* cuMemAlloc and cuMemFree through the pool. False: this one is not the pool's, go on with the driver's own.
 */
bool route_pool_alloc(CUdeviceptr *address, size_t bytes, CUresult *result);
bool route_pool_free(CUdeviceptr address, CUresult *result);
/* The same for a free that is ordered by a stream and does not wait. */
bool route_pool_free_async(CUdeviceptr address, CUstream stream, CUresult *result);

/* True if the calling program runs under a limit at all. */
bool route_active(void);

#endif
