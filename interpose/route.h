/* route: decides whether a call is counted, passed on or refused, and rolls back when the driver refuses.
 *
 * A hook that takes memory is: route_enter, the driver's own call, route_leave. cuMemAlloc and cuMemFree go
 * to the pool first (route_pool.c). The functions route_grow_* ask for what the driver takes for itself
 * (route_grow.c). Owns no lock.
 */
#ifndef GPUCAP_ROUTE_H
#define GPUCAP_ROUTE_H

#include "interpose/account/blocks.h"
#include "interpose/account/device.h"
#include "interpose/account/drivers_pools.h"
#include "interpose/lend.h"

#define ROUTE_CURRENT (-1) /* instead of a card's number: the current context's card */

/* A request between its grant and the driver's answer. */
struct route_ticket {
    struct device *device; /* NULL: not counted */
    uint64_t bytes;
    enum blocks_kind kind;
    struct drivers_pool *pool; /* for BLOCKS_ASYNC: the driver's pool that serves it */
    uint64_t reserved;         /* bytes that pool held before the driver's call; 0 if promised */
    bool promised;             /* granted by account_promise */
    bool excludes;             /* between capture_exclude and capture_admit; only if promised */
    struct device *beside;     /* without a limit: the card on which device_admit has admitted it, or NULL */
};

/* Returns true if limits are enforced or memory is pooled in this process. */
bool route_active(void);
/* Returns true if any card may be limited. */
bool route_limited(void);

/* Asks the account of the current context's card for `bytes`. CUDA_SUCCESS: call the driver, then
 * route_leave. Any other result is the answer for the program. */
CUresult route_enter(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes);
/* The same on the card `ordinal`. */
CUresult route_enter_on(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes, CUdevice ordinal);
/* The same for a stream-ordered allocation, which the driver's pool may serve from memory that it holds. It
 * is charged to the card of the pool or of the stream. pool NULL: the current pool of the stream's card. */
CUresult route_enter_async(struct route_ticket *ticket, uint64_t bytes, CUmemoryPool pool, CUstream stream);

/* Settles the request with the driver's answer. `key`: the address or handle, if any. */
void route_leave(struct route_ticket *ticket, CUresult result, uint64_t key);

/* Returns the card that a request is counted on, or ROUTE_CURRENT. */
static inline CUdevice route_card_of(const struct route_ticket *ticket)
{
    return ticket->device ? ticket->device->ordinal : ROUTE_CURRENT;
}

/* Declares the ticket of a stream-ordered request. If the thread is cancelled in the driver's call, unwinding
 * its stack takes the promise back. The other requests disable cancellation instead, which would cost a tenth
 * of this call. */
#define ROUTE_ASYNC_TICKET(name)                                                                             \
    struct route_ticket name __attribute__((cleanup(route_abandon)));                                        \
    name.promised = false
void route_take_promise_back(struct route_ticket *ticket);
static inline void route_abandon(struct route_ticket *ticket)
{
    if (__builtin_expect(ticket->promised, 0))
        route_take_promise_back(ticket);
}

/* Returns how much memory the pools of this process have ever given back. */
uint64_t route_given_back(void);

/* A driver call that takes memory of a card and is made again if the card is full. */
struct route_attempt {
    CUdevice ordinal; /* or ROUTE_CURRENT */
    uint64_t bytes;   /* 0: not known */
    uint64_t before;  /* route_given_back before the first call */
    int ways;         /* of making room that were tried */
    struct lend_wait wait;
};

/* Makes room after the driver has refused. First gives back all idle memory of this process, unless the card
 * could not serve the request even then. Later asks other processes on the card for theirs, and at last waits
 * as the option `wait` says. Returns true if the call is worth making again. */
bool route_retry(struct route_attempt *attempt);

/* Makes a driver call that takes `bytes` of a card. If the card is full, makes room and calls again. */
#define ROUTE_TRY(call, ordinal, bytes)                                                                      \
    ({                                                                                                       \
        struct route_attempt attempt_ = {ordinal, bytes, route_given_back(), 0, {0, 0, 0}};                  \
        CUresult tried_;                                                                                     \
        do                                                                                                   \
            tried_ = (call);                                                                                 \
        while (tried_ == CUDA_ERROR_OUT_OF_MEMORY && route_retry(&attempt_));                                \
        tried_;                                                                                              \
    })

/* The same for a call that seldom takes memory: costs nothing unless the card is full. `call` is made on the
 * current context's card. */
#define ROUTE_TRY_SELDOM(call)                                                                               \
    ({                                                                                                       \
        CUresult seldom_ = (call);                                                                           \
        if (__builtin_expect(seldom_ == CUDA_ERROR_OUT_OF_MEMORY, 0)) {                                      \
            struct route_attempt attempt_ = {ROUTE_CURRENT, 0, route_given_back(), 0, {0, 0, 0}};            \
            while (seldom_ == CUDA_ERROR_OUT_OF_MEMORY && route_retry(&attempt_))                            \
                seldom_ = (call);                                                                            \
        }                                                                                                    \
        seldom_;                                                                                             \
    })

/* Around a free. route_free_begin takes the block out of the table, so that a new block at the same address
 * is not mistaken for it. route_free_end puts it back if the driver refuses. */
struct route_release {
    bool known;
    struct block block;
    struct drivers_pools_block pooled; /* if the block is in no table */
};
struct route_release route_free_begin(enum blocks_kind kind, uint64_t key);
/* The same before cuMemFree. */
struct route_release route_free_at_once_begin(uint64_t address);
CUresult route_free_end(const struct route_release *release, CUresult result);

/* Call after the program's own cuMemMap, cuMemUnmap and cuMemRetainAllocationHandle: memory that is released
 * while it is mapped stays in the account until it is unmapped. */
void route_mapped(uint64_t address, uint64_t handle);
void route_unmapped(uint64_t address, uint64_t bytes);
void route_retained(uint64_t handle);

/* ---- growth of the driver itself: a context, code, streams, stacks ---- */

struct route_growth {
    struct device *device; /* NULL: not counted */
    uint64_t bytes;
    struct device *beside; /* without a limit: the card on which device_admit has admitted it, or NULL */
    uint64_t stack, stack_before; /* per thread; 0: it asks for no stack */
};

/* Asks whether the driver may grow by about `bytes` (0: not known) on the current card. CUDA_SUCCESS: make
 * the driver call, then route_grow_end. */
CUresult route_grow_begin(struct route_growth *growth, uint64_t bytes);
/* The same for a new context on a card. route_grow_context_end must follow, with the context or NULL. */
CUresult route_grow_context_begin(struct route_growth *growth, CUdevice ordinal);
void route_grow_context_end(const struct route_growth *growth, CUdevice ordinal, CUcontext context);
/* The same for more stack per thread in the current context: the driver keeps stack for every thread that can
 * be resident. A call that is refused leaves the context's stack as it was (measured), so route_grow_result
 * must follow. */
CUresult route_grow_stack_begin(struct route_growth *growth, uint64_t bytes_per_thread);
/* The same for a heap of the current context, which CU_LIMIT_MALLOC_HEAP_SIZE or CU_LIMIT_PRINTF_FIFO_SIZE
 * sets to `bytes`: only what is more than ever before counts. route_grow_heap_end or route_grow_abort must
 * follow. */
CUresult route_grow_heap_begin(struct route_growth *growth, CUlimit which, uint64_t bytes);
void route_grow_heap_end(const struct route_growth *growth, CUlimit which, uint64_t bytes);
void route_grow_end(const struct route_growth *growth);
/* In place of route_grow_end if the driver's call has failed: nothing stays in the account. */
void route_grow_abort(const struct route_growth *growth);
/* The one or the other, by the driver's result. */
void route_grow_result(const struct route_growth *growth, CUresult result);

#define ROUTE_STACK 1024 /* bytes of stack per thread that a fresh context has room for (CUDA's default) */

/* The same for the memory of graphs. Does not make room: the caller does, because trimming the memory of
 * graphs changes how much the launch needs. `borrow`: also borrows from the job's other processes. True: make
 * the driver call, then route_grow_graph_end. */
bool route_grow_graph_begin(struct route_growth *growth, CUdevice ordinal, uint64_t bytes, bool borrow);
void route_grow_graph_end(const struct route_growth *growth);
/* Makes room for `bytes` of growth on a card: gives idle memory back, and waits for the work on freed memory
 * if that can be enough. Returns true if anything was given back. */
bool route_make_room(CUdevice ordinal, uint64_t bytes);
/* Notes that the driver may have grown on a card: the next grant measures. */
void route_touch(CUdevice ordinal);
/* Waits for the work of a stream, 100 ms at most: the stream may be waiting for this thread. */
void route_await_stream(CUstream stream);

/* ---- contexts ---- */

/* Call after a context was made: charges it. Returns CUDA_ERROR_OUT_OF_MEMORY if that exceeds the limit. */
CUresult route_context_made(CUdevice ordinal, CUcontext context);
/* Call if the driver did not make the context after route_grow_context_begin. */
void route_context_failed(CUdevice ordinal);
/* Around the end of a context, which ends the memory in it. _abort: the driver has refused. */
void route_context_end_begin(CUcontext context);
void route_context_end_abort(CUcontext context);
void route_context_end(CUcontext context);

/* Changes the limit of a card, within the administrator's. Returns false if that is not possible. Idle memory
 * above the limit goes back to the driver; memory in use stays. */
bool route_set_limit(struct device *device, uint64_t bytes);

/* ---- the pool (route_pool.c) ---- */

/* cuMemAlloc and cuMemFree through the pool. Return false if the driver has to handle the call. */
bool route_pool_alloc(CUdeviceptr *address, size_t bytes, CUresult *result);
bool route_pool_free(CUdeviceptr address, CUresult *result);
/* The same for a free in the order of `stream`. Waits only for a stream of another context. */
bool route_pool_free_async(CUdeviceptr address, CUstream stream, CUresult *result);

/* Makes room on a card: gives back idle memory, at least `bytes` and at least what `missing` returns, and
 * waits for the work on freed memory. Does nothing if all idle memory would not be enough. Returns true if
 * anything was given back. */
bool route_make_room_for(CUdevice ordinal, uint64_t bytes,
                         uint64_t (*missing)(struct account *account, uint64_t need));

/* ---- between route.c and route_grow.c ---- */

#define ROUTE_TRIES 8 /* attempts to make room while others take and give back */

/* Refuses because limits were asked for and the driver cannot identify the card. */
CUresult route_refuse_unknown(enum blocks_kind kind);
/* Takes a freed block off its card's account. */
void route_uncharge(const struct block *block);

#endif
