/* route: decides whether a call is counted, passed on or refused, and rolls back when the driver refuses.
 *
 * A hook that takes memory is: route_enter, the driver's own call, route_leave. cuMemAlloc and cuMemFree go
 * to the pool first (route_pool.c). Owns no lock.
 */
#ifndef GPUCAP_ROUTE_H
#define GPUCAP_ROUTE_H

#include "interpose/account/blocks.h"
#include "interpose/account/device.h"
#include "interpose/account/drivers_pools.h"

/* A request between its grant and the driver's answer. */
struct route_ticket {
    struct device *device; /* NULL: not counted */
    uint64_t bytes;
    enum blocks_kind kind;
    struct drivers_pool *pool; /* of BLOCKS_ASYNC: where it comes from */
    uint64_t reserved;         /* what that pool held before the driver's call; 0 if promised */
    bool promised;             /* by account_promise */
};

/* True if limits hold or memory is pooled in this process. */
bool route_active(void);
/* True if any card may be limited. */
bool route_limited(void);

/* Asks whether `bytes` may be taken on the card of the current context. CUDA_SUCCESS: call the driver, then
 * route_leave. Anything else is the answer for the program. */
CUresult route_enter(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes);
/* The same on a given card. */
CUresult route_enter_on(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes, CUdevice ordinal);
/* The same for a stream-ordered allocation, which may come out of what a pool holds already. It is charged to
 * the card of the pool, or of the stream. pool NULL: the current pool of the stream's card. */
CUresult route_enter_async(struct route_ticket *ticket, uint64_t bytes, CUmemoryPool pool, CUstream stream);

/* Books the driver's answer and returns it. `key` is the address or handle it gave. */
CUresult route_leave(struct route_ticket *ticket, CUresult result, uint64_t key);

/* A ticket of a stream-ordered request. If the thread is cancelled in the driver's call, the promise is taken
 * back while its stack unwinds: to disable cancellation, as the other requests do, costs a tenth of the call.
 */
#define ROUTE_ASYNC_TICKET(name) struct route_ticket name __attribute__((cleanup(route_abandon)))
void route_abandon(struct route_ticket *ticket);

/* Gives back what our pools keep idle on a card (ROUTE_CURRENT: the one of the current context), unless
 * `bytes` (0: not known) could not be had even then. True if any thread has given memory back since `before`.
 */
#define ROUTE_CURRENT (-1)
uint64_t route_given_back(void);
bool route_give_up_cache(CUdevice ordinal, uint64_t bytes, uint64_t before);

/* A driver call that takes `bytes` of a card; once more if the card was full of what our pools only keep. */
#define ROUTE_TRY(call, ordinal, bytes)                                                                      \
    ({                                                                                                       \
        const uint64_t before_ = route_given_back();                                                         \
        CUresult tried_ = (call);                                                                            \
        if (tried_ == CUDA_ERROR_OUT_OF_MEMORY && route_give_up_cache(ordinal, bytes, before_))              \
            tried_ = (call);                                                                                 \
        tried_;                                                                                              \
    })

/* Around a free: route_free_begin takes the block out of the books, so that a new block at the same address
 * cannot be confused with it, and route_free_end puts it back if the driver refuses. */
struct route_release {
    bool known;
    struct block block;
};
struct route_release route_free_begin(enum blocks_kind kind, uint64_t key);
CUresult route_free_end(const struct route_release *release, CUresult result);

/* ---- growth of the driver itself: a context, code, streams, stacks ---- */

struct route_growth {
    struct device *device; /* NULL: not counted */
    uint64_t bytes;
};

/* Asks whether the driver may grow by about `bytes` on the current card; 0: not known. CUDA_SUCCESS: call it,
 * then route_grow_end. */
CUresult route_grow_begin(struct route_growth *growth, uint64_t bytes);
/* By a context on a card. */
CUresult route_grow_context_begin(struct route_growth *growth, CUdevice ordinal);
/* By more stack per thread in the current context: the driver keeps room for every thread that can be
 * resident. */
CUresult route_grow_stack_begin(struct route_growth *growth, uint64_t bytes_per_thread);
void route_grow_end(const struct route_growth *growth);

#define ROUTE_STACK 1024 /* bytes of stack per thread that a fresh context has room for (CUDA's default) */

/* The same in parts, for memory of graphs, whose need changes when memory is given back. `borrow`: also with
 * memory of the job's other processes. True: call the driver, then route_grow_graph_end. */
bool route_grow_graph_begin(struct route_growth *growth, CUdevice ordinal, uint64_t bytes, bool borrow);
void route_grow_graph_end(const struct route_growth *growth);
/* Makes room for `bytes` of growth on a card: gives back idle memory, and waits for freed memory's work if
 * that can be enough. False: it cannot. */
bool route_make_room(CUdevice ordinal, uint64_t bytes);
/* The driver may have grown on a card, whatever was asked. */
void route_touch(CUdevice ordinal);
/* Waits until a stream has done its work, but not long: it may be waiting for the calling thread. */
void route_await_stream(CUstream stream);

/* ---- contexts ---- */

/* A context has been made: counts its own bytes. Not CUDA_SUCCESS if they do not fit the limit. */
CUresult route_context_made(CUdevice ordinal, CUcontext context);
/* The driver has not made the context that route_grow_context_begin was called for. */
void route_context_failed(CUdevice ordinal);
/* Around the end of a context and of the memory in it. */
void route_context_end_begin(CUcontext context);
void route_context_end_abort(CUcontext context);
void route_context_end(CUcontext context);

/* Another limit for a card, within the administrator's; false if that is not possible. What is idle above it
 * goes back to the driver, what is in use stays. */
bool route_set_limit(struct device *device, uint64_t bytes);

/* ---- the pool (route_pool.c) ---- */

/* cuMemAlloc and cuMemFree through the pool. False: not the pool's affair, go on with the driver's own. */
bool route_pool_alloc(CUdeviceptr *address, size_t bytes, CUresult *result);
bool route_pool_free(CUdeviceptr address, CUresult *result);
/* The same for a free that is ordered by a stream and does not wait. */
bool route_pool_free_async(CUdeviceptr address, CUstream stream, CUresult *result);

/* What our pools and the driver's hold on a card and the program does not, usable now or when work has ended.
 */
uint64_t route_idle_on(CUdevice ordinal);

/* Makes room on a card: gives back idle memory of at least `bytes`, or of what is `missing`, and waits for
 * freed memory's work if that can be enough. True if anything was given back. */
bool route_make_room_for(CUdevice ordinal, uint64_t bytes,
                         uint64_t (*missing)(struct account *account, uint64_t need));

#endif
