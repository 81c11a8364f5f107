/* route: see route.h. */
#include "route.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "capture.h"
#include "clock.h"
#include "ipc.h"
#include "decay.h"
#include "library.h"
#include "log.h"
#include "pools.h"

#define GROWTH_UNKNOWN LIMIT_PAGE
#define CAPTURE_MS     1000 /* for which an allocation waits before it is refused for a capture's sake */

bool route_active(void)
{
    return library_mode() == LIBRARY_ON;
}

/* The driver itself says no: to a request that cannot be met. So a program that may not allocate at all (no
 * context, capture under way, an earlier error that sticks) hears exactly what it would have heard without
 * us. */
static CUresult refuse(const struct device *device, enum blocks_kind kind, uint64_t bytes)
{
    /* Handles need no context, and neither they nor pools mind a capture elsewhere. */
    const bool own_rules = kind == BLOCKS_HANDLE || kind == BLOCKS_ASYNC;
    CUdeviceptr address = 0;
    CUresult result = own_rules ? CUDA_ERROR_OUT_OF_MEMORY : driver.cuMemAlloc_v2(&address, NEVER_FITS);
    char asked[SIZE_TEXT], limit[SIZE_TEXT];

    if (result == CUDA_SUCCESS)
        driver.cuMemFree_v2(address);
    log_info("out of memory on device %d: asked for %s, limit %s", device->ordinal, size_format(bytes, asked),
             size_format(device->limit, limit));
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* What a stream-ordered pool of the driver (*pool; NULL: the card's current one) caches. */
static uint64_t cached_by(CUdevice ordinal, CUmemoryPool *pool)
{
    cuuint64_t held = 0, used = 0;

    if ((!*pool && driver.cuDeviceGetMemPool(pool, ordinal) != CUDA_SUCCESS) ||
        driver.cuMemPoolGetAttribute(*pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held) != CUDA_SUCCESS ||
        driver.cuMemPoolGetAttribute(*pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) != CUDA_SUCCESS)
        return 0;
    return held > used ? held - used : 0;
}

/* Lets such a pool give that back. True if there was something. */
static bool trim_pool(CUdevice ordinal, CUmemoryPool pool)
{
    return cached_by(ordinal, &pool) && driver.cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS;
}

/* Without a word to the program: true if it was granted. `grant` is account_take, or account_grow, which may
 * use the reserve. */
static bool try_grant(struct route_ticket *ticket, struct device *device, enum blocks_kind kind,
                      uint64_t bytes, bool (*grant)(struct account *account, uint64_t bytes))
{
    const uint64_t need = limit_round(bytes);

    if (blocks_reserve())
        return false;
    if (grant(&device->account, need)) {
        *ticket = (struct route_ticket){.device = device, .bytes = need, .kind = kind};
        return true;
    }
    blocks_cancel();
    return false;
}

static bool try_take(struct route_ticket *ticket, struct device *device, enum blocks_kind kind,
                     uint64_t bytes)
{
    return try_grant(ticket, device, kind, bytes, account_take);
}

struct room {
    CUdevice ordinal;
    uint64_t wanted, given;
};

/* Waits for the work that memory freed in a context is behind, oldest first and nothing else: later work may
 * never end by itself. */
static void let_go_behind_work(struct pool *pool, void *argument)
{
    struct room *room = argument;
    const uint64_t now = atomic_load(&pool->fence.open); /* what is freed later does not count */
    bool more = pool->ordinal == room->ordinal;
    CUcontext context;

    if (!more || room->given >= room->wanted || driver.cuCtxPushCurrent_v2(pool->context) != CUDA_SUCCESS)
        return;
    while (more && room->given < room->wanted && !fence_done(&pool->fence, now) &&
           pool_wait(pool, &more) == 0)
        room->given += pools_trim(room->ordinal, room->wanted - room->given);
    driver.cuCtxPopCurrent_v2(&context);
}

/* Gives idle memory of our pools back to the driver. If that is not enough, what waits for work is waited
 * for (`patient`), in this context first. Returns how much. */
static uint64_t let_go(CUdevice ordinal, uint64_t bytes, bool patient)
{
    struct room room = {.ordinal = ordinal, .wanted = bytes, .given = pools_trim(ordinal, bytes)};
    struct pool *here = patient ? pools_open_here() : NULL;

    if (here)
        let_go_behind_work(here, &room);
    if (patient && room.given < bytes)
        pools_each_waiting(let_go_behind_work, &room);
    return room.given;
}

/* Lets go of what is held and not used on the card: of `bytes`, or more if more is missing. True if that was
 * anything: of what another thread lets go meanwhile this one does not know. */
static bool make_room(CUdevice ordinal, uint64_t bytes,
                      uint64_t (*missing)(struct account *account, uint64_t need))
{
    struct device *device = device_get(ordinal);
    const uint64_t need = limit_round(bytes), more = device ? missing(&device->account, need) : 0;
    const bool hopeless = device && need > atomic_load(&device->limit);
    const bool ours = let_go(ordinal, more > need ? more : need, !hopeless) != 0;

    return trim_pool(ordinal, NULL) || ours;
}

static CUresult take(struct route_ticket *ticket, struct device *device, enum blocks_kind kind,
                     uint64_t bytes)
{
    if (try_take(ticket, device, kind, bytes))
        return CUDA_SUCCESS;
    make_room(device->ordinal, bytes, account_short_to_take);
    return try_take(ticket, device, kind, bytes) ? CUDA_SUCCESS : refuse(device, kind, bytes);
}

/* A request is counted if limits hold, it is for a limited card and it is one the driver could grant. */
static CUresult enter(struct route_ticket *ticket, struct device *device, enum blocks_kind kind,
                      uint64_t bytes)
{
    if (!device || bytes == 0)
        return CUDA_SUCCESS;
    return take(ticket, device, kind, bytes);
}

static CUresult first_word(struct route_ticket *ticket)
{
    ticket->device = NULL;
    return library_mode() == LIBRARY_REFUSE ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult route_enter(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes)
{
    CUresult result = first_word(ticket);

    if (result != CUDA_SUCCESS || !route_active())
        return result;
    return enter(ticket, device_current(), kind, bytes);
}

CUresult route_enter_on(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes, CUdevice ordinal)
{
    CUresult result = first_word(ticket);

    if (result != CUDA_SUCCESS || !route_active())
        return result;
    return enter(ticket, device_get(ordinal), kind, bytes);
}

CUresult route_enter_async(struct route_ticket *ticket, uint64_t bytes, CUmemoryPool pool, CUstream stream)
{
    CUresult result = first_word(ticket);
    CUmemoryPool from = pool;
    struct device *device;

    if (result != CUDA_SUCCESS || !route_active() || bytes == 0 || !(device = device_current()))
        return result;
    /* In a capture nothing is allocated now: the call adds a node to a graph. */
    if (capture_takes(stream))
        return CUDA_SUCCESS;
    const uint64_t step = limit_round_step(bytes);
    if (try_take(ticket, device, BLOCKS_ASYNC, step))
        return CUDA_SUCCESS;
    /* The pool has the bytes, most likely, and will not grow. If it does, the reserve has room for it. */
    if (cached_by(device->ordinal, &from) >= bytes &&
        try_grant(ticket, device, BLOCKS_ASYNC, step, account_grow))
        return CUDA_SUCCESS;
    /* At the limit: what this stream has freed is the pool's again when its work is done, and then the pool
     * can let go of it. Never trusted to have enough instead: that it holds bytes does not mean that it can
     * use them. */
    if (!capture_any() && driver.cuStreamSynchronize(stream) == CUDA_SUCCESS)
        trim_pool(device->ordinal, pool);
    return take(ticket, device, BLOCKS_ASYNC, step);
}

bool route_set_limit(struct device *device, uint64_t bytes)
{
    if (!device_set_limit(device, bytes))
        return false;
    account_view(&device->account); /* measures */
    const uint64_t missing = account_short_to_take(&device->account, 0);
    if (missing && pools_trim(device->ordinal, missing) < missing)
        trim_pool(device->ordinal, NULL);
    return true;
}

uint64_t route_given_back(void)
{
    return atomic_load_explicit(&pool_given_back, memory_order_relaxed);
}

bool route_give_up_cache(CUdevice ordinal, uint64_t before)
{
    if (!route_active() || (ordinal == ROUTE_CURRENT && driver.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS))
        return false;
    let_go(ordinal, UINT64_MAX, true);
    return route_given_back() != before;
}

CUresult route_leave(const struct route_ticket *ticket, CUresult result, uint64_t key)
{
    struct block block = {.key = key, .bytes = ticket->bytes, .kind = ticket->kind};
    const bool success = result == CUDA_SUCCESS;

    if (!ticket->device)
        return result;
    /* A pool's growth stays with the pool, whatever becomes of the block: the next measurement has it. */
    const bool counted = success && ticket->kind != BLOCKS_ASYNC;
    if (counted) {
        CUcontext context = NULL;

        if (ticket->kind != BLOCKS_HANDLE)
            driver.cuCtxGetCurrent(&context);
        block.context = (void *)context;
        block.device = ticket->device->ordinal;
        blocks_add(&block);
    } else {
        blocks_cancel();
    }
    account_settle(&ticket->device->account, ticket->bytes, success, ticket->kind == BLOCKS_MANAGED);
    if (success && !counted) {
        account_give(&ticket->device->account, ticket->bytes, false);
        account_touch(&ticket->device->account);
    }
    return result;
}

struct route_release route_free(enum blocks_kind kind, uint64_t key)
{
    struct route_release release = {.known = false};

    if (route_active() && key)
        release.known = blocks_take(kind, key, &release.block);
    return release;
}

static void give_back(const struct block *block)
{
    struct device *device = device_get(block->device);

    if (device)
        account_give(&device->account, block->bytes, block->kind == BLOCKS_MANAGED);
}

CUresult route_freed(const struct route_release *release, CUresult result)
{
    if (!release->known)
        return result;
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) {
        blocks_cancel();
        give_back(&release->block);
    } else {
        blocks_add(&release->block);
    }
    return result;
}

/* All that is used on the card, by whomever; the largest number if that cannot be told. */
static uint64_t card_used(CUcontext context)
{
    size_t free_bytes, total;
    uint64_t used = UINT64_MAX;

    if (driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return used;
    if (driver.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS && free_bytes <= total)
        used = total - free_bytes;
    driver.cuCtxPopCurrent_v2(&context);
    return used;
}

/* A context that was alone when it was made, while it lives. Once another has been made beside it nothing is
 * trusted again. */
static _Atomic(CUcontext) only_context;

CUresult route_context_made(CUdevice ordinal, CUcontext context)
{
    struct device *device;
    CUcontext before = NULL;
    uint64_t none = 0, used;

    if (!route_active())
        return CUDA_SUCCESS;
    if (!atomic_compare_exchange_strong(&only_context, &before, context) && before != context)
        pools_not_alone();
    if (!(device = device_get(ordinal)))
        return CUDA_SUCCESS;
    account_touch(&device->account);
    used = card_used(context);
    if (used > device->limit)
        used = account_view(&device->account).used;
    if (used > device->limit) {
        char bytes[SIZE_TEXT], limit[SIZE_TEXT];

        log_error("the CUDA context on device %d makes this process use %s, and its limit is %s: raise max",
                  ordinal, size_format(used, bytes), size_format(device->limit, limit));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (used > ACCOUNT_CONTEXT_GUESS) /* others are on the card */
        used = ACCOUNT_CONTEXT_GUESS;
    atomic_compare_exchange_strong(&device->context_bytes, &none, used);
    return CUDA_SUCCESS;
}

/* A new context starts with a small stack again. */
static void forget_growth(struct device *device)
{
    atomic_store(&device->context_bytes, 0);
    atomic_store(&device->stack_bytes, DEVICE_STACK);
    account_touch(&device->account);
}

void route_context_ending(CUcontext context)
{
    if (route_active() && context) {
        ipc_exports_ending(context, true);
        ipc_imports_ending(context, true);
        pools_context_ending(context, true);
    }
}

void route_context_stays(CUcontext context)
{
    if (route_active() && context) {
        pools_context_ending(context, false);
        ipc_imports_ending(context, false);
        ipc_exports_ending(context, false);
    }
}

void route_context_ended(const void *context)
{
    CUcontext ended = (CUcontext)context;
    struct block block;

    if (!route_active())
        return;
    atomic_compare_exchange_strong(&only_context, &ended, NULL);
    while (context && blocks_take_of_context(context, &block))
        give_back(&block);
    device_each(forget_growth);
    capture_context_ended((CUcontext)context);
    ipc_exports_end((CUcontext)context);
    ipc_imports_end((CUcontext)context);
    pools_context_ended((CUcontext)context);
}

static CUresult grow(struct route_growth *growth, struct device *device, uint64_t bytes)
{
    growth->device = NULL;
    if (!device || bytes == 0)
        return CUDA_SUCCESS;
    bool fits = account_grow(&device->account, bytes);
    if (!fits) {
        make_room(device->ordinal, bytes, account_short_to_grow);
        fits = account_grow(&device->account, bytes);
    }
    if (fits) {
        *growth = (struct route_growth){device, bytes};
        return CUDA_SUCCESS;
    }
    char more[SIZE_TEXT], limit[SIZE_TEXT];
    log_info("out of memory on device %d: the driver needs %s for itself, limit %s", device->ordinal,
             size_format(bytes, more), size_format(device->limit, limit));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult route_grow(struct route_growth *growth, uint64_t bytes)
{
    return grow(growth, route_active() ? device_current() : NULL, bytes ? bytes : GROWTH_UNKNOWN);
}

CUresult route_grow_context(struct route_growth *growth, CUdevice ordinal)
{
    struct device *device = route_active() ? device_get(ordinal) : NULL;

    /* Until one has been made, nobody knows what it takes: then it is made, measured and, if need be, taken
     * back. */
    return grow(growth, device, device ? atomic_load(&device->context_bytes) : 0);
}

CUresult route_grow_stack(struct route_growth *growth, uint64_t bytes_per_thread)
{
    struct device *device = route_active() ? device_current() : NULL;
    uint64_t before, need;

    growth->device = NULL;
    if (!device || bytes_per_thread <= (before = atomic_load(&device->stack_bytes)))
        return CUDA_SUCCESS;
    if (__builtin_mul_overflow(bytes_per_thread - before, device->threads, &need))
        need = UINT64_MAX;
    CUresult result = grow(growth, device, need);
    if (result == CUDA_SUCCESS)
        atomic_store(&device->stack_bytes, bytes_per_thread);
    return result;
}

void route_grown(const struct route_growth *growth)
{
    if (growth->device)
        account_grown(&growth->device->account, growth->bytes);
}

bool route_try_grow(struct route_growth *growth, CUdevice ordinal, uint64_t bytes)
{
    struct device *device = device_get(ordinal);

    growth->device = NULL;
    if (!device || bytes == 0)
        return true;
    if (!account_grow(&device->account, bytes))
        return false;
    *growth = (struct route_growth){device, bytes};
    return true;
}

void route_make_room(CUdevice ordinal, uint64_t bytes)
{
    make_room(ordinal, bytes, account_short_to_grow);
}

void route_touch(CUdevice ordinal)
{
    struct device *device = device_get(ordinal);

    if (device)
        account_touch(&device->account);
}

/* ---- the pool ---- */

/* In a capture the driver decides whether memory calls are allowed, and a refusal ends the capture: it is
 * asked. */
static CUresult ask_about_capture(void)
{
    CUdeviceptr address;

    if (!capture_any())
        return CUDA_SUCCESS;
    CUresult result = driver.cuMemAlloc_v2(&address, NEVER_FITS);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

/* The driver says no, and to the program's own output, which a refusal changes. */
static CUresult refuse_pooled(const struct pool *pool, CUdeviceptr *address, uint64_t bytes)
{
    CUresult result = driver.cuMemAlloc_v2(address, NEVER_FITS);
    char asked[SIZE_TEXT];

    log_info("out of memory on device %d: asked for %s", pool->ordinal, size_format(bytes, asked));
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* The stream of our own that blocks are cleared on, made at its first use. */
static CUresult clearing_stream(struct pool *pool, CUstream *stream)
{
    struct route_growth growth;
    CUstream none = NULL;

    *stream = atomic_load(&pool->clearing);
    if (*stream)
        return CUDA_SUCCESS;
    CUresult result = route_grow(&growth, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    route_grown(&growth);
    if (result == CUDA_SUCCESS && !atomic_compare_exchange_strong(&pool->clearing, &none, *stream)) {
        driver.cuStreamDestroy_v2(*stream);
        *stream = none;
    }
    return result;
}

/* Clears a block on a stream of our own: it must wait for nobody's work and disturb no capture. */
static CUresult clear(struct pool *pool, uint64_t start, size_t bytes)
{
    CUstream stream;
    CUresult result = clearing_stream(pool, &stream);

    if (result == CUDA_SUCCESS)
        result = driver.cuMemsetD8Async(start, 0, bytes, stream);
    return result == CUDA_SUCCESS ? driver.cuStreamSynchronize(stream) : result;
}

/* What could not be cleared is not handed out. */
static CUresult hand_out_cleared(struct pool *pool, CUdeviceptr *address, size_t bytes)
{
    const CUresult result = clear(pool, *address, bytes);

    if (result != CUDA_SUCCESS) {
        pool_free(pool, *address, false);
        *address = 0; /* as the driver leaves it */
    }
    return result;
}

static int alloc(struct pool *pool, uint64_t bytes, uint64_t *start)
{
    int rc;

    do
        rc = pool_alloc(pool, bytes, start);
    while (rc && pools_await(pool));
    return rc;
}

/* False if a request cannot be met even by all that is held on the card and not used: then that is kept. */
static bool may_be_met(const struct pool *pool, uint64_t bytes)
{
    CUmemoryPool drivers = NULL;
    bool may;

    do {
        const uint64_t held = pools_not_live(pool->ordinal) + cached_by(pool->ordinal, &drivers);

        may = bytes <= held || pool->budget.fits(pool->budget.owner, bytes - held);
    } while (!may && pools_await(pool));
    return may;
}

/* Other contexts and the driver's own pool may have idle memory on the same card, or have had it given back
 * since `before`. For its own the pool has waited, where that could help. */
static int alloc_beside_others(struct pool *pool, uint64_t bytes, uint64_t *start, uint64_t before)
{
    const bool any = may_be_met(pool, bytes) && make_room(pool->ordinal, bytes, account_short_to_take);

    return any || route_given_back() != before ? alloc(pool, bytes, start) : -ENOMEM;
}

/* What is freed while a capture is open cannot be waited for before it ends, nor chunks be moved. Another
 * thread's may end soon, or has ended already; so this tries once more at least, and again as long as
 * captures come in between. */
static int alloc_between_captures(struct pool *pool, uint64_t bytes, uint64_t *start)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    const uint64_t until = clock_ms() + CAPTURE_MS;
    uint64_t begun = capture_elsewhere(fence_thread()), before;
    bool met = begun != 0;
    int rc = -ENOMEM;

    while (rc && met && pool_may_have(pool, bytes) && clock_ms() < until) {
        if (capture_any())
            nanosleep(&moment, NULL);
        met = capture_any();
        before = begun;
        rc = alloc(pool, bytes, start);
        begun = capture_elsewhere(fence_thread());
        met = met || begun != before;
    }
    return rc;
}

bool route_pool_alloc(CUdeviceptr *address, size_t bytes, CUresult *result)
{
    struct pool *pool = address && bytes && route_active() ? pools_current() : NULL;
    uint64_t start;

    if (!pool)
        return false;
    *result = ask_about_capture();
    if (*result != CUDA_SUCCESS)
        return true;
    const uint64_t before = route_given_back();
    if (alloc(pool, bytes, &start) && alloc_beside_others(pool, bytes, &start, before) &&
        alloc_between_captures(pool, bytes, &start)) {
        *result = refuse_pooled(pool, address, bytes);
        return true;
    }
    *address = start;
    if (library_options()->zero)
        *result = hand_out_cleared(pool, address, bytes);
    return true;
}

/* A free that must wait first: only for a block that is one. */
static CUresult free_after_wait(struct pool *pool, CUdeviceptr address)
{
    struct pool_block block;
    CUresult result;

    if (pool_block(pool, address, false, &block))
        return CUDA_ERROR_INVALID_VALUE;
    result = ask_about_capture();
    if (result != CUDA_SUCCESS)
        return result;
    /* Nothing can be waited for while a capture is open; then the fence decides when the block is free. */
    const bool waited =
        !library_options()->deferred && (fence_idle() || fence_wait_context(pool->context, &result));
    if (result != CUDA_SUCCESS)
        return result;
    return pool_free(pool, address, waited) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* `ordered`: by a stream. */
static inline void free_pooled(struct pool *pool, CUdeviceptr address, bool ordered, CUresult *result)
{
    const bool strict = !ordered && !library_options()->deferred;
    /* Asked once: another thread may work the moment after, and that is not this free's to wait for. */
    const bool idle = strict && fence_idle();
    if ((!ordered && capture_any()) || (strict && !idle))
        *result = free_after_wait(pool, address);
    else
        *result = pool_free(pool, address, idle) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (__builtin_expect(pool_freed_pinned, 0)) {
        pool_freed_pinned = false;
        ipc_freed(pool, address);
    }
    if (library_options()->decay == 0)
        pool_trim(pool, UINT64_MAX);
    else
        decay_wake();
}

static inline struct pool *pool_with(CUdeviceptr address)
{
    return address && route_active() ? pools_of(address) : NULL;
}

bool route_pool_free(CUdeviceptr address, CUresult *result)
{
    struct pool *pool = pool_with(address);

    if (pool)
        free_pooled(pool, address, false, result);
    return pool;
}

/* The driver says what is wrong with a stream. One of another context is waited for: what it has to do with
 * the block, no event of the block's own context is behind. */
static CUresult follow(const struct pool *pool, CUstream stream)
{
    CUcontext context = NULL;
    const CUresult result = driver.cuStreamGetCtx(stream, &context);

    if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT)
        return result;
    return context == pool->context ? CUDA_SUCCESS : capture_wait_stream(stream);
}

bool route_pool_free_async(CUdeviceptr address, CUstream stream, CUresult *result)
{
    struct pool *pool = pool_with(address);

    /* A graph frees only what a graph has allocated: what the driver thinks of other blocks, it says itself.
     */
    if (!pool || capture_takes(stream))
        return false;
    *result = follow(pool, stream);
    if (*result == CUDA_SUCCESS)
        free_pooled(pool, address, true, result);
    return true;
}
