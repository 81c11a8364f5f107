/* route: see route.h. Requests and frees; what the driver takes for itself is in route_grow.c, pooled memory
 * in route_pool.c. */
#include "interpose/route.h"

#include <errno.h>

#include "interpose/account/mappings.h"
#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/library.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/refusal.h"
#include "interpose/settings/log.h"

#define STREAM_WAIT_NS  UINT64_C(100000000) /* wait for what a stream has freed, before a refusal */
#define STREAM_PAUSE_NS 50000

bool route_active(void)
{
    return library_mode() == LIBRARY_ON;
}

bool route_limited(void)
{
    return library_limited && route_active();
}

/* ---- refusals ---- */

/* Has the driver refuse a request that cannot be met. A program that may not allocate at all (no context, a
 * capture, a sticky error) gets exactly the error that it would get without us. */
static CUresult native_refusal(enum blocks_kind kind)
{
    /* Handles need no context, and a capture elsewhere forbids neither handles nor pools. */
    const bool always = kind == BLOCKS_HANDLE || kind == BLOCKS_ASYNC;
    const CUresult result = always ? CUDA_SUCCESS : driver_may_allocate();

    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static CUresult refuse(struct device *device, enum blocks_kind kind, uint64_t bytes)
{
    const CUresult result = native_refusal(kind);

    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        refusal_say(device, kind == BLOCKS_ASYNC ? REFUSAL_ASYNC : REFUSAL_PROGRAM, bytes);
    return result;
}

CUresult route_refuse_unknown(enum blocks_kind kind)
{
    LOG_ERROR_ONCE(
        "the driver does not report the card of a request: refused, because its limit cannot be enforced");
    return native_refusal(kind);
}

/* ---- making room ---- */

struct room {
    CUdevice ordinal;
    uint64_t wanted, given;
};

/* Waits for the work on memory freed in a pool, oldest first, and gives the memory back. Waits for nothing
 * later, which may never end by itself. */
static void give_back_behind_work(struct pool *pool, void *argument)
{
    struct room *room = argument;
    const uint64_t now = atomic_load(&pool->fence.open); /* what is freed later does not count */
    bool more = pool->ordinal == room->ordinal;

    while (more && room->given < room->wanted && !fence_done(&pool->fence, now) &&
           pool_wait(pool, &more) == 0)
        room->given += pools_trim(room->ordinal, room->wanted - room->given);
}

/* Gives idle memory of our pools back to the driver. If that is not enough, waits for work on freed memory,
 * in this context first. Returns how much was given back. */
static uint64_t give_back(CUdevice ordinal, uint64_t bytes)
{
    struct room room = {.ordinal = ordinal, .wanted = bytes, .given = pools_trim(ordinal, bytes)};
    struct pool *here = pools_current_if_open();

    if (here)
        give_back_behind_work(here, &room);
    if (room.given < bytes)
        pools_each_waiting(give_back_behind_work, &room);
    return room.given;
}

bool route_make_room_for(CUdevice ordinal, uint64_t bytes,
                         uint64_t (*missing)(struct account *account, uint64_t need))
{
    struct device *device = device_get(ordinal);
    const uint64_t need = limit_round(bytes), more = device ? missing(&device->account, need) : 0;
    const uint64_t wanted = more > need ? more : need;
    /* A request that cannot be met must not drain the pools, and waits for nothing. */
    if (device && more > pools_idle_on(ordinal))
        return false;
    const bool ours = give_back(ordinal, wanted) != 0;

    return drivers_pools_trim(ordinal) || ours;
}

bool route_make_room(CUdevice ordinal, uint64_t bytes)
{
    return route_make_room_for(ordinal, bytes, account_short_to_grow);
}

uint64_t route_given_back(void)
{
    return atomic_load_explicit(&pool_given_back, memory_order_relaxed);
}

/* Gives back all idle memory on a card, unless the card could not serve `bytes` even then. Returns true if
 * any thread has given memory back since `before`. */
static bool give_up_cache(CUdevice ordinal, uint64_t bytes, uint64_t before)
{
    size_t free_bytes, total;
    /* Read before the free memory: the helper thread may be giving idle memory back just now. */
    const uint64_t idle = pools_idle_on(ordinal);

    if (bytes && driver.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS && bytes > free_bytes + idle)
        return route_given_back() != before;
    give_back(ordinal, UINT64_MAX);
    return drivers_pools_trim(ordinal) || route_given_back() != before;
}

bool route_retry(struct route_attempt *attempt)
{
    CUdevice ordinal = attempt->ordinal;

    if (!route_active() || (ordinal == ROUTE_CURRENT && driver.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS))
        return false;
    if (attempt->ways == 0) {
        attempt->ways = 1;
        if (give_up_cache(ordinal, attempt->bytes, attempt->before))
            return true;
    }
    if ((attempt->ways++ > ROUTE_TRIES || !lend_on_card(ordinal, attempt->bytes)) &&
        !lend_wait_on_card(&attempt->wait, ordinal, attempt->bytes))
        return false;
    give_up_cache(ordinal, attempt->bytes, attempt->before); /* together it may be enough now */
    return true;
}

void route_await_stream(CUstream stream)
{
    const uint64_t until = clock_ns() + STREAM_WAIT_NS;

    while (!capture_any() && driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY && clock_ns() < until)
        clock_sleep(STREAM_PAUSE_NS);
}

/* ---- requests ---- */

/* Grants a ticket that has all but its card. `asked`: see grant_async_at_limit. */
static bool grant(struct route_ticket *ticket, struct device *device, uint64_t asked)
{
    (void)asked;
    if (blocks_reserve())
        return false;
    if (account_take(&device->account, ticket->bytes)) {
        ticket->device = device;
        lock_disable_cancel(); /* until route_leave: the bytes would stay in flight for ever */
        return true;
    }
    blocks_cancel();
    return false;
}

static CUresult begin_ticket(struct route_ticket *ticket)
{
    ticket->device = ticket->beside = NULL;
    return library_mode() == LIBRARY_REFUSE ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

/* Grants with memory borrowed from the job, as long as others give some: with it our own may be enough. Else
 * refuses. */
static CUresult borrow(struct route_ticket *ticket, struct device *device, uint64_t asked,
                       bool (*grant_now)(struct route_ticket *, struct device *, uint64_t asked))
{
    struct loan loan = {.device = device, .need = ticket->bytes, .missing = account_short_to_take};
    bool granted = false;

    while (!granted && lend_more(&loan))
        granted = grant_now(ticket, device, asked) ||
                  (route_make_room_for(device->ordinal, loan.need, loan.missing) &&
                   grant_now(ticket, device, asked));
    lend_end(&loan);
    return granted ? CUDA_SUCCESS : refuse(device, ticket->kind, asked);
}

/* Admits a request without a limit beside what is kept for other jobs; all idle memory goes back first. */
static CUresult enter_beside(struct route_ticket *ticket, struct device *device, enum blocks_kind kind,
                             uint64_t bytes)
{
    const uint64_t need = limit_round(bytes);
    struct route_attempt attempt = {.ordinal = device->ordinal, .bytes = bytes, .before = route_given_back()};

    do {
        if (device_admit(device, need)) {
            ticket->beside = device;
            ticket->bytes = need;
            lock_disable_cancel(); /* until route_leave: the claim would stay */
            return CUDA_SUCCESS;
        }
    } while (route_retry(&attempt));
    const CUresult result = native_refusal(kind);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        refusal_say_kept(device, bytes);
    return result;
}

/* Counts a request for a limited card. */
static CUresult enter_limited(struct route_ticket *ticket, struct device *device, enum blocks_kind kind,
                              uint64_t bytes)
{
    *ticket = (struct route_ticket){.bytes = limit_round(bytes), .kind = kind};
    for (int i = 0; i < ROUTE_TRIES; i++) {
        const uint64_t before = route_given_back();

        if (grant(ticket, device, bytes))
            return CUDA_SUCCESS;
        /* Another thread may just have given back what was missing. */
        if (!route_make_room_for(device->ordinal, bytes, account_short_to_take) &&
            route_given_back() == before)
            break;
    }
    return borrow(ticket, device, bytes, grant);
}

/* Counts a request for a card (NULL: the current context's), if the driver could grant it. */
static CUresult enter(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes,
                      const CUdevice *ordinal)
{
    const CUresult result = begin_ticket(ticket);
    struct device *device;

    if (result != CUDA_SUCCESS || !route_active())
        return result;
    const int rc = ordinal ? device_find(*ordinal, &device) : device_find_current(&device);
    if (rc == -ENXIO)
        return CUDA_SUCCESS; /* the driver's own call returns the error */
    if (rc)
        return route_refuse_unknown(kind);
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (device) {
        if (ordinal) /* others of the job wait for each process that holds memory */
            lend_listen(device);
        return enter_limited(ticket, device, kind, bytes);
    }
    struct device *guarded = ordinal ? device_guarded(*ordinal) : device_guarded_current();
    return guarded ? enter_beside(ticket, guarded, kind, bytes) : CUDA_SUCCESS;
}

CUresult route_enter(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes)
{
    return enter(ticket, kind, bytes, NULL);
}

CUresult route_enter_on(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes, CUdevice ordinal)
{
    return bytes ? enter(ticket, kind, bytes, &ordinal) : begin_ticket(ticket);
}

/* Returns by how much the driver's pool has grown, as seen by this request or by any query of the pool.
 * Growth caused by another thread may be counted twice until the next measurement. */
static uint64_t growth_of(const struct route_ticket *ticket)
{
    const uint64_t seen = drivers_pools_growth(ticket->pool, false);
    const uint64_t now = drivers_pools_reserved(ticket->pool);
    const uint64_t here = now > ticket->reserved ? now - ticket->reserved : 0;

    return here > seen ? here : seen;
}

/* Settles a request with the driver's answer. */
static void settle(const struct route_ticket *ticket, bool success, uint64_t key)
{
    struct block block = {.key = key, .bytes = ticket->bytes, .kind = ticket->kind};
    struct account *account = &ticket->device->account;

    if (ticket->kind == BLOCKS_ASYNC) {
        account_settle_pooled(account, ticket->bytes, growth_of(ticket));
        return;
    }
    if (success) {
        CUcontext context = NULL;

        if (ticket->kind != BLOCKS_HANDLE && driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
            driver.cuCtxGetCurrent(&context); /* again: a failure may pass */
        block.context =
            (void *)(context ? pools_owner_if_green(context) : NULL); /* it outlives a green context */
        block.device = ticket->device->ordinal;
        blocks_add(&block);
    } else {
        blocks_cancel();
    }
    account_settle(account, ticket->bytes, success, ticket->kind == BLOCKS_MANAGED);
    if (!success)
        lend_freed(ticket->device);
}

static void settle_promise(struct route_ticket *ticket)
{
    ticket->excludes = capture_exclude();
    const uint64_t growth = drivers_pools_growth(ticket->pool, ticket->excludes);

    if (ticket->excludes)
        capture_admit();
    ticket->promised = ticket->excludes = false;
    account_settle_promise(&ticket->device->account, ticket->bytes, growth);
}

void route_leave(struct route_ticket *ticket, CUresult result, uint64_t key)
{
    if (__builtin_expect(ticket->beside != NULL, 0)) {
        device_end_admission(ticket->beside, ticket->bytes);
        ticket->beside = NULL;
        lock_restore_cancel();
    }
    if (!ticket->device)
        return;
    if (ticket->promised) {
        settle_promise(ticket);
    } else {
        settle(ticket, result == CUDA_SUCCESS, key);
        lock_restore_cancel();
    }
}

void route_take_promise_back(struct route_ticket *ticket)
{
    if (ticket->excludes)
        capture_admit();
    account_touch(&ticket->device->account); /* the driver may have granted it */
    account_forget_promise(&ticket->device->account, ticket->bytes);
}

/* ---- stream-ordered requests ---- */

/* The card and the driver's pool that a stream-ordered request takes from. */
struct source {
    struct device *device;
    struct drivers_pool *pool;
};

/* The card of a stream, for drivers before 12.8. */
static CUresult card_by_context(CUstream stream, CUdevice *ordinal)
{
    CUcontext context;
    CUresult result = driver.cuStreamGetCtx(stream, &context);

    if (result != CUDA_SUCCESS || (result = driver.cuCtxPushCurrent_v2(context)) != CUDA_SUCCESS)
        return result;
    result = driver.cuCtxGetDevice(ordinal);
    driver.cuCtxPopCurrent_v2(&context);
    return result;
}

/* Writes the card of a stream. Returns 0, -ENXIO if the driver's own call will return an error, -ENODEV if
 * the driver cannot name the card. The default streams belong to the current context. */
static int card_of_stream(CUstream stream, CUdevice *ordinal)
{
    if (device_only(ordinal))
        return 0;
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return driver_current_card(ordinal);
    CUresult result = driver.cuStreamGetDevice(stream, ordinal);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        result = card_by_context(stream, ordinal);
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE)
        return -ENXIO;
    return result == CUDA_SUCCESS ? 0 : -ENODEV;
}

/* Writes the card of a request, or DRIVERS_POOLS_HOST. Returns as card_of_stream does. */
static int card_of_request(CUmemoryPool pool, CUstream stream, CUdevice *ordinal)
{
    *ordinal = pool ? drivers_pools_card(pool) : DRIVERS_POOLS_UNKNOWN;
    return *ordinal == DRIVERS_POOLS_UNKNOWN ? card_of_stream(stream, ordinal) : 0;
}

/* Returns the driver's pool that serves a request on a card, or NULL if it is not known. */
static struct drivers_pool *pool_of_request(CUmemoryPool pool, CUdevice ordinal)
{
    return pool ? drivers_pools_find(pool, ordinal) : drivers_pools_current(ordinal);
}

/* Finds card and pool of a request. Returns 0 (device NULL: not limited), -ENXIO if the driver's own call
 * will return an error, -ENODEV if the card is not known. */
static int find_source(CUmemoryPool pool, CUstream stream, struct source *source)
{
    CUdevice ordinal;
    int rc = card_of_request(pool, stream, &ordinal);

    source->device = NULL;
    if (rc == 0 && ordinal != DRIVERS_POOLS_HOST)
        rc = device_find(ordinal, &source->device);
    if (rc || !source->device)
        return rc;
    source->pool = pool_of_request(pool, ordinal);
    return source->pool ? 0 : -ENODEV;
}

static bool grant_async(struct route_ticket *ticket, struct device *device,
                        bool (*take)(struct account *account, uint64_t bytes))
{
    if (!take(&device->account, ticket->bytes))
        return false;
    ticket->device = device;
    lock_disable_cancel(); /* until route_leave */
    ticket->reserved = drivers_pools_reserved(ticket->pool);
    return true;
}

/* Grants at the limit. A pool that holds enough idle bytes may serve the request without growing; if it must
 * grow, the reserve has room for that. It is trusted no further: holding bytes does not mean that it can use
 * them, and the driver makes one block of idle pieces only on a full card. */
static bool grant_async_at_limit(struct route_ticket *ticket, struct device *device, uint64_t asked)
{
    return (drivers_pools_idle(ticket->pool) >= asked && grant_async(ticket, device, account_grow_begin)) ||
           grant_async(ticket, device, account_take);
}

/* Makes room at the limit: gives back our idle memory, trims the driver's pools, asks others of the job. */
static CUresult enter_async_at_limit(struct route_ticket *ticket, struct device *device, uint64_t bytes,
                                     CUstream stream)
{
    const uint64_t before = route_given_back();

    if (grant_async_at_limit(ticket, device, bytes))
        return CUDA_SUCCESS;
    if (route_make_room_for(device->ordinal, ticket->bytes, account_short_to_take) ||
        route_given_back() != before) {
        if (grant_async_at_limit(ticket, device, bytes))
            return CUDA_SUCCESS;
        /* What this stream has freed can be given back once its work is done. */
        route_await_stream(stream);
        drivers_pools_trim(device->ordinal);
        if (grant_async_at_limit(ticket, device, bytes))
            return CUDA_SUCCESS;
    }
    return borrow(ticket, device, bytes, grant_async_at_limit);
}

/* The same for a process without a limit on the card of `pool` or `stream`. A pool that holds enough idle
 * memory need not grow. */
static CUresult enter_async_beside(struct route_ticket *ticket, uint64_t bytes, CUmemoryPool pool,
                                   CUstream stream)
{
    struct device *device;
    CUdevice ordinal;

    if (!device_any_guarded() || capture_takes(stream) || card_of_request(pool, stream, &ordinal) ||
        !(device = device_guarded(ordinal)))
        return CUDA_SUCCESS;
    struct drivers_pool *known = pool_of_request(pool, ordinal);
    if (known && drivers_pools_idle(known) >= bytes)
        return CUDA_SUCCESS;
    return enter_beside(ticket, device, BLOCKS_ASYNC, bytes);
}

CUresult route_enter_async(struct route_ticket *ticket, uint64_t bytes, CUmemoryPool pool, CUstream stream)
{
    const CUresult result = begin_ticket(ticket);
    struct source source;

    if (result != CUDA_SUCCESS || bytes == 0)
        return result;
    if (!route_limited())
        return enter_async_beside(ticket, bytes, pool, stream);
    /* In a capture the call allocates nothing: it adds a node to a graph. */
    if (capture_takes(stream))
        return CUDA_SUCCESS;
    switch (find_source(pool, stream, &source)) {
    case 0:
        break;
    case -ENXIO:
        return CUDA_SUCCESS;
    default:
        return route_refuse_unknown(BLOCKS_ASYNC);
    }
    if (!source.device)
        return enter_async_beside(ticket, bytes, pool, stream);
    const uint64_t step = limit_round_step(bytes);
    if (account_promise(&source.device->account, step)) {
        *ticket = (struct route_ticket){.device = source.device,
                                        .bytes = step,
                                        .kind = BLOCKS_ASYNC,
                                        .pool = source.pool,
                                        .promised = true};
        return CUDA_SUCCESS;
    }
    *ticket = (struct route_ticket){.bytes = step, .kind = BLOCKS_ASYNC, .pool = source.pool};
    if (grant_async(ticket, source.device, account_take))
        return CUDA_SUCCESS;
    return enter_async_at_limit(ticket, source.device, bytes, stream);
}

/* ---- frees ---- */

/* Takes a block out of the table. Returns false if it is not there. */
static bool take_out(enum blocks_kind kind, uint64_t key, struct block *block)
{
    if (!key || !blocks_count() || !route_active() || !blocks_take(kind, key, block))
        return false;
    lock_disable_cancel(); /* until route_free_end: the block is in no table */
    return true;
}

struct route_release route_free_begin(enum blocks_kind kind, uint64_t key)
{
    struct block block;

    if (take_out(kind, key, &block))
        return (struct route_release){.known = true, .block = block};
    return (struct route_release){.pooled = kind == BLOCKS_LINEAR ? drivers_pools_free_begin(key)
                                                                  : (struct drivers_pools_block){.bytes = 0}};
}

struct route_release route_free_at_once_begin(uint64_t address)
{
    struct block block;

    if (take_out(BLOCKS_LINEAR, address, &block))
        return (struct route_release){.known = true, .block = block};
    return (struct route_release){.pooled = drivers_pools_free_at_once_begin(address)};
}

void route_uncharge(const struct block *block)
{
    struct device *device = device_get(block->device);

    if (!device)
        return;
    account_give(&device->account, block->bytes, block->kind == BLOCKS_MANAGED);
    lend_freed(device);
}

/* Takes a freed block off the account, unless it is a handle that is held or mapped. */
static void forget_block(struct block block)
{
    if (block.kind == BLOCKS_HANDLE && block.holds) {
        block.holds--;
        blocks_add(&block);
        return;
    }
    blocks_cancel();
    if (block.kind != BLOCKS_HANDLE || !mappings_keep(&block))
        route_uncharge(&block);
}

CUresult route_free_end(const struct route_release *release, CUresult result)
{
    if (!release->known) { /* stream-ordered memory, or a graph's */
        if (result == CUDA_SUCCESS && release->pooled.bytes)
            drivers_pools_free_end(&release->pooled);
        if (result == CUDA_SUCCESS)
            lend_freed_somewhere();
        return result;
    }
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED)
        forget_block(release->block);
    else
        blocks_add(&release->block);
    lock_restore_cancel();
    return result;
}

/* ---- mappings of the program's own ---- */

void route_mapped(uint64_t address, uint64_t handle)
{
    if (route_limited())
        mappings_add(address, handle);
}

void route_unmapped(uint64_t address, uint64_t bytes)
{
    struct block gone;

    while (route_limited() && mappings_remove(address, bytes, &gone))
        route_uncharge(&gone);
}

void route_retained(uint64_t handle)
{
    struct block block;

    if (!route_limited() || blocks_hold(handle) || blocks_reserve())
        return;
    if (mappings_take_back(handle, &block))
        blocks_add(&block);
    else
        blocks_cancel();
}
