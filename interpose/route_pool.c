/* route_pool: cuMemAlloc and cuMemFree through the pool. See route.h. */
#include "interpose/route.h"

#include <errno.h>

#include "interpose/base/lock.h"
#include "interpose/library.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/decay.h"
#include "interpose/pool/pools.h"
#include "interpose/refusal.h"
#include "interpose/route_fill.h"
#include "interpose/see/events.h"
#include "interpose/settings/log.h"
#include "interpose/share/ipc.h"

/* ---- allocation ---- */

/* Asks the driver whether a capture forbids memory calls, and returns its error. A refused call invalidates
 * the capture, as natively. */
static CUresult ask_about_capture(void)
{
    return capture_any() ? driver_may_allocate() : CUDA_SUCCESS;
}

/* Has the driver refuse, so that it also does to *address what it does at a refusal. */
static CUresult refuse(const struct pool *pool, CUdeviceptr *address, uint64_t bytes)
{
    const CUresult result = driver.cuMemAlloc_v2(address, NEVER_FITS);
    struct device *device = pool->budget.owner, *guarded = device ? NULL : device_guarded(pool->ordinal);
    char asked[SIZE_TEXT];

    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        return result; /* an earlier error of the context, for example */
    if (device) {
        refusal_say(device, REFUSAL_PROGRAM, bytes);
    } else if (guarded) {
        refusal_say_kept(guarded, bytes);
    } else {
        refusal_note_full(pool->ordinal, bytes);
        log_info("out of memory on device %d: asked for %s", pool->ordinal, size_format(bytes, asked));
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static int alloc(struct pool *pool, uint64_t bytes, uint64_t *start)
{
    int rc;

    do
        rc = pool_alloc(pool, bytes, start);
    while (rc && pools_await(pool));
    return rc;
}

/* Returns false if even all idle memory of the card would not be enough; then it is kept. */
static bool may_be_met(const struct pool *pool, uint64_t bytes)
{
    bool may;

    do {
        const uint64_t held = pools_idle_on(pool->ordinal);

        may = bytes <= held || pool->budget.fits(pool->budget.owner, bytes - held);
    } while (!may && pools_await(pool));
    return may;
}

/* Allocates after making room on the card: other contexts and the driver's pools may have idle memory there,
 * or have given it back since `before`. The pool itself has already waited for its own idle memory where that
 * could help. */
static int alloc_beside_others(struct pool *pool, uint64_t bytes, uint64_t *start, uint64_t before)
{
    const bool any =
        may_be_met(pool, bytes) && route_make_room_for(pool->ordinal, bytes, account_short_to_take);

    return any || route_given_back() != before ? alloc(pool, bytes, start) : -ENOMEM;
}

/* Allocates with memory borrowed from the job's other processes, as long as they give some. */
static int alloc_borrowed(struct pool *pool, uint64_t bytes, uint64_t *start)
{
    struct loan loan = {
        .device = pool->budget.owner, .need = limit_round(bytes), .missing = account_short_to_take};
    int rc = -ENOMEM;

    while (rc && lend_more(&loan))
        rc = alloc(pool, bytes, start);
    lend_end(&loan);
    return rc;
}

/* Allocates on a full card with idle memory of all other processes there, or waits until they free some. */
static int alloc_on_full_card(struct pool *pool, uint64_t bytes, uint64_t *start)
{
    struct device *device = pool->budget.owner;
    struct lend_wait wait = {0};
    int rc = -ENOMEM;

    /* At a limit, the card's free memory is of no use. */
    for (int i = 0; rc && (!device || account_short_to_take(&device->account, limit_round(bytes)) == 0) &&
                    ((i < ROUTE_TRIES && lend_on_card(pool->ordinal, bytes)) ||
                     lend_wait_on_card(&wait, pool->ordinal, bytes));
         i++)
        rc = alloc(pool, bytes, start);
    return rc;
}

/* Sets the bytes of a new block. Frees it again if that fails. */
static CUresult hand_out_filled(struct pool *pool, CUdeviceptr *address, size_t bytes, unsigned char value)
{
    const CUresult result = fill_block(pool, *address, bytes, value);

    if (result != CUDA_SUCCESS) {
        pool_free(pool, *address, false);
        *address = 0; /* as the driver leaves it */
    }
    return result;
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
        alloc_borrowed(pool, bytes, &start) && alloc_on_full_card(pool, bytes, &start)) {
        *result = refuse(pool, address, bytes);
        return true;
    }
    *address = start;
    const struct options *options = library_options();
    if (options->zero || options->fill)
        *result = hand_out_filled(pool, address, bytes, options->zero ? 0 : FILL_FRESH);
    return true;
}

/* ---- release ---- */

/* A block that is to be freed. */
struct freed {
    struct pool *pool;
    CUdeviceptr address;
};

/* Checks a block before a strict free waits: a free of anything else must not wait. */
static CUresult check_block(void *argument)
{
    const struct freed *freed = argument;

    return pool_has_block(freed->pool, freed->address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Frees a block, for a recording in the order of `stream`. `done`: no work is left on it. */
static CUresult give(struct pool *pool, CUdeviceptr address, CUstream stream, bool done)
{
    events_note_free(RECORDING_MALLOC, address, stream);
    return pool_free(pool, address, done) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Frees with fill = on, and what only the pool's lock can tell to be a block. */
__attribute__((noinline)) static CUresult free_checked(struct pool *pool, CUdeviceptr address, bool fill)
{
    struct freed freed = {pool, address};
    const struct fence_check check = {check_block, &freed};

    lock_disable_cancel(); /* once for all locks taken below: that costs more than they do */
    CUresult result = fence_pass(&pool->fence, &check);
    if (result == CUDA_SUCCESS)
        result = give(pool, address, NULL, !fill || fill_freed(pool, address));
    lock_restore_cancel();
    return result;
}

static CUresult free_strict(struct pool *pool, CUdeviceptr address, bool fill)
{
    if (fill || !pool_knows_block(pool, address))
        return free_checked(pool, address, fill);
    const CUresult result = fence_pass(&pool->fence, NULL);
    return result == CUDA_SUCCESS ? give(pool, address, NULL, true) : result;
}

static CUresult free_deferred(struct pool *pool, CUdeviceptr address)
{
    if (capture_any()) {
        const CUresult result =
            pool_has_block(pool, address) ? ask_about_capture() : CUDA_ERROR_INVALID_VALUE;

        if (result != CUDA_SUCCESS)
            return result;
    }
    return give(pool, address, NULL, false);
}

static void after_free(struct pool *pool, CUdeviceptr address, const struct options *options)
{
    if (__builtin_expect(pool_freed_pinned, 0)) {
        pool_freed_pinned = false;
        ipc_freed(pool, address);
    }
    if (options->decay == 0)
        pool_trim(pool, UINT64_MAX);
    else
        decay_wake();
    lend_freed(pool->budget.owner);
}

static inline struct pool *pool_with(CUdeviceptr address)
{
    return address && route_active() ? pools_of(address) : NULL;
}

bool route_pool_free(CUdeviceptr address, CUresult *result)
{
    struct pool *pool = pool_with(address);

    if (!pool)
        return false;
    const struct options *options = library_options();
    *result = options->deferred ? free_deferred(pool, address) : free_strict(pool, address, options->fill);
    after_free(pool, address, options);
    return true;
}

static bool is_stream_of(const struct pool *pool, CUstream stream, CUcontext context)
{
    CUcontext primary = NULL;
    CUgreenCtx green = NULL;

    return context == pool->context || (driver.cuStreamGetCtx_v2(stream, &primary, &green) == CUDA_SUCCESS &&
                                        green && primary == pool->context);
}

/* Orders a free behind `stream`. Returns the driver's error for an invalid stream. Waits for a stream of
 * another context, because no event of the block's own context covers its work. */
static CUresult follow(struct pool *pool, CUdeviceptr address, CUstream stream)
{
    CUcontext context = NULL;
    const CUresult result = driver.cuStreamGetCtx(stream, &context);

    if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT)
        return result;
    if (!is_stream_of(pool, stream, context))
        return capture_wait_stream(stream);
    if (library_options()->fill)
        fill_freed_behind(pool, address, stream);
    return CUDA_SUCCESS;
}

bool route_pool_free_async(CUdeviceptr address, CUstream stream, CUresult *result)
{
    struct pool *pool = pool_with(address);

    /* A graph frees only what a graph has allocated: the driver itself reports an error for other blocks. */
    if (!pool || capture_takes(stream))
        return false;
    *result = follow(pool, address, stream);
    if (*result == CUDA_SUCCESS) {
        *result = give(pool, address, stream, false);
        after_free(pool, address, library_options());
        if (!library_options()->deferred)
            pool_poll(pool); /* closes the epoch: the block must not wait for work that comes later */
    }
    return true;
}
