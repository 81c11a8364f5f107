/* Hooks on contexts. A context takes memory itself, its end ends the memory in it, and a wait for all its
 * work completes what freed blocks wait for. */
#include <pthread.h>

#include "interpose/account/known_kernels.h"
#include "interpose/base/lock.h"
#include "interpose/hook/hooks.h"
#include "interpose/library.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/route.h"

/* Runs a call that makes a context: asks for room first, and undoes it if the context does not fit. */
#define MAKING(call, undo, ordinal)                                                                          \
    ({                                                                                                       \
        struct route_growth growth_;                                                                         \
        CUresult result_ = library_mode() == LIBRARY_REFUSE ? CUDA_ERROR_NOT_PERMITTED                       \
                                                            : route_grow_context_begin(&growth_, ordinal);   \
        if (result_ == CUDA_SUCCESS) {                                                                       \
            result_ = ROUTE_TRY(call, ordinal, 0);                                                           \
            route_grow_context_end(&growth_, ordinal, result_ == CUDA_SUCCESS ? *context : NULL);            \
            if (result_ != CUDA_SUCCESS)                                                                     \
                route_context_failed(ordinal);                                                               \
            else if ((result_ = route_context_made(ordinal, *context)) != CUDA_SUCCESS)                      \
                undo;                                                                                        \
        }                                                                                                    \
        result_;                                                                                             \
    })

static void take_back(CUcontext *context)
{
    driver.cuCtxDestroy_v2(*context);
    *context = NULL;
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    return MAKING(driver.cuCtxCreate(context, flags, ordinal), take_back(context), ordinal);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    return MAKING(driver.cuCtxCreate_v2(context, flags, ordinal), take_back(context), ordinal);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags,
                        CUdevice ordinal)
{
    return MAKING(driver.cuCtxCreate_v3(context, affinity, count, flags, ordinal), take_back(context),
                  ordinal);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags,
                        CUdevice ordinal)
{
    return MAKING(driver.cuCtxCreate_v4(context, parameters, flags, ordinal), take_back(context), ordinal);
}

/* Until end_told: if the thread were cancelled in the driver's call, which waits for work, the context would
 * count as ending for ever. */
static void end_begin(CUcontext context)
{
    lock_disable_cancel();
    route_context_end_begin(context);
}

static CUresult end_told(CUresult result, CUcontext context, bool is_over)
{
    if (is_over)
        route_context_end(context);
    else
        route_context_end_abort(context);
    lock_restore_cancel();
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    end_begin(context);
    const CUresult result = driver.cuCtxDestroy(context);
    return end_told(result, context, result == CUDA_SUCCESS);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    end_begin(context);
    const CUresult result = driver.cuCtxDestroy_v2(context);
    return end_told(result, context, result == CUDA_SUCCESS);
}

#define WAITING(context, call)                                                                               \
    ({                                                                                                       \
        const struct pools_wait wait_ =                                                                      \
            route_active() ? pools_before_wait(context) : (struct pools_wait){0};                            \
        CUresult result_ = (call);                                                                           \
        pools_after_wait(&wait_, result_ == CUDA_SUCCESS);                                                   \
        result_;                                                                                             \
    })

CUresult cuCtxSynchronize(void)
{
    return WAITING(NULL, driver.cuCtxSynchronize());
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
    return WAITING(context, driver.cuCtxSynchronize_v2(context));
}

/* Returns true if a detach has ended the context. A detach ends a context that has no other attachment, and
 * pops it from the thread's stack. A context that it does not end stays current (measured), but so does one
 * that it ends and that was on the stack twice. */
static bool is_gone(CUcontext context)
{
    CUcontext now = NULL;

    if (driver.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now != context)
        return true;
    return !capture_any() && driver_may_allocate() == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuCtxDetach(CUcontext context)
{
    end_begin(context);
    const CUresult result = driver.cuCtxDetach(context);
    return end_told(result, context, result == CUDA_SUCCESS && route_active() && is_gone(context));
}

static bool primary_is_active(CUdevice ordinal)
{
    unsigned int flags;
    int active = 1;

    return driver.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || active;
}

/* The primary context of each card. Only the card's state shows that it has ended, so no thread may retain it
 * between the driver's call and the query. */
struct primary {
    pthread_mutex_t lock; /* held while it is retained, released or reset; taken before all our other locks */
    CUcontext context;    /* NULL before it was first retained */
    uint64_t holds; /* at least how often it is retained: a release is not the last one if this exceeds 1 */
};

static struct primary primaries[DEVICE_MAX] = {
    [0 ... DEVICE_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER},
};

/* Locks the primary context of a card. Returns NULL if there is no such card or nothing is counted. */
static struct primary *primary_take(CUdevice ordinal)
{
    if (!route_active() || ordinal < 0 || ordinal >= DEVICE_MAX)
        return NULL;
    lock_mutex_take(&primaries[ordinal].lock);
    return &primaries[ordinal];
}

static CUresult primary_drop(struct primary *primary, CUresult result)
{
    if (primary)
        lock_mutex_release(&primary->lock);
    return result;
}

/* Call when a primary context that does not fit was released again. If the program has retained it before a
 * reset, the release has not ended it. */
static void end_unfit(CUdevice ordinal)
{
    if (primary_is_active(ordinal))
        driver.cuDevicePrimaryCtxReset_v2(ordinal);
}

/* Ends a primary context that does not fit, and leaves the program no handle of it. */
static void release_again(CUcontext *context, CUdevice ordinal)
{
    driver.cuDevicePrimaryCtxRelease_v2(ordinal);
    end_unfit(ordinal);
    *context = NULL;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    struct primary *primary = primary_take(ordinal);
    CUresult result;

    /* Retaining it again takes no more memory. */
    if (!route_active() || primary_is_active(ordinal))
        result = library_mode() == LIBRARY_REFUSE ? CUDA_ERROR_NOT_PERMITTED
                                                  : driver.cuDevicePrimaryCtxRetain(context, ordinal);
    else
        result = MAKING(driver.cuDevicePrimaryCtxRetain(context, ordinal), release_again(context, ordinal),
                        ordinal);
    if (result == CUDA_SUCCESS && primary) {
        primary->context = *context;
        primary->holds++;
    }
    return primary_drop(primary, result);
}

/* Call before a release that may be the last one. */
static struct primary *primary_release_begin(CUdevice ordinal)
{
    struct primary *primary = primary_take(ordinal);

    if (primary && primary->holds <= 1)
        route_context_end_begin(primary->context);
    return primary;
}

static CUresult primary_release_end(struct primary *primary, CUresult result, CUdevice ordinal)
{
    if (primary && result == CUDA_SUCCESS && !primary_is_active(ordinal))
        route_context_end(primary->context);
    else if (primary && primary->holds <= 1)
        route_context_end_abort(primary->context);
    if (primary && result == CUDA_SUCCESS && primary->holds)
        primary->holds--;
    return primary_drop(primary, result);
}

/* Returns the card of a green context, or -1. */
static CUdevice card_of_green(CUgreenCtx green)
{
    CUcontext context;
    CUdevice ordinal = -1;

    if (driver.cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS &&
        driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
        if (driver.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
            ordinal = -1;
        driver.cuCtxPopCurrent_v2(&context);
    }
    return ordinal;
}

/* Finds the primary context of a card; does not keep it retained. Returns the driver's result. */
static CUresult find_primary(CUdevice ordinal, CUcontext *context)
{
    CUcontext found = NULL;
    const CUresult result = driver.cuDevicePrimaryCtxRetain(&found, ordinal);

    if (result == CUDA_SUCCESS) {
        driver.cuDevicePrimaryCtxRelease_v2(ordinal);
        *context = found;
    }
    return result;
}

/* Ends a green context, and the primary one if it was made for it. */
static void destroy_unfit(CUgreenCtx green, CUdevice ordinal, bool made)
{
    driver.cuGreenCtxDestroy(green);
    if (made)
        end_unfit(ordinal);
}

/* A green context retains its card's primary context, and makes it if it does not exist. */
CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice ordinal,
                          unsigned int flags)
{
    pools_expect_green();
    struct primary *primary = primary_take(ordinal);
    struct route_growth growth = {.device = NULL};
    const bool makes = primary && !primary_is_active(ordinal);
    CUresult result = library_mode() == LIBRARY_REFUSE ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;

    if (result == CUDA_SUCCESS && makes)
        result = route_grow_context_begin(&growth, ordinal);
    if (result != CUDA_SUCCESS)
        return primary_drop(primary, result);
    result = ROUTE_TRY(driver.cuGreenCtxCreate(green, resources, ordinal, flags), ordinal, 0);
    if (result == CUDA_SUCCESS && primary) {
        result = find_primary(ordinal, &primary->context);
        if (result != CUDA_SUCCESS) /* its memory could not be counted */
            destroy_unfit(*green, ordinal, makes);
        else
            primary->holds++;
    }
    route_grow_context_end(&growth, ordinal, result == CUDA_SUCCESS && makes ? primary->context : NULL);
    if (result != CUDA_SUCCESS)
        route_context_failed(ordinal);
    if (result == CUDA_SUCCESS && makes &&
        (result = route_context_made(ordinal, primary->context)) != CUDA_SUCCESS) {
        destroy_unfit(*green, ordinal, makes);
        primary->holds--;
        *green = NULL;
    }
    return primary_drop(primary, result);
}

/* Returns the green context in which streams may be capturing, or NULL. */
static CUcontext capturing_green(CUgreenCtx green)
{
    CUcontext context;

    return capture_any() && driver.cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS ? context : NULL;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    const CUdevice ordinal = route_active() ? card_of_green(green) : -1;
    CUcontext captured = capturing_green(green);
    struct primary *primary = ordinal < 0 ? NULL : primary_release_begin(ordinal);
    known_kernels_forget();
    const CUresult result = driver.cuGreenCtxDestroy(green);

    /* The other answer means that it had ended with its primary context. */
    if (captured && (result == CUDA_SUCCESS || result == CUDA_ERROR_CONTEXT_IS_DESTROYED))
        capture_context_end(captured);
    pools_forget_green();
    return primary ? primary_release_end(primary, result, ordinal) : result;
}

static struct primary *primary_reset_begin(CUdevice ordinal)
{
    struct primary *primary = primary_take(ordinal);

    if (primary)
        route_context_end_begin(primary->context);
    return primary;
}

static CUresult primary_reset_end(struct primary *primary, CUresult result)
{
    if (primary && result == CUDA_SUCCESS) {
        if (primary->context)
            route_context_end(primary->context);
        primary->holds = 0;
    } else if (primary) {
        route_context_end_abort(primary->context);
    }
    return primary_drop(primary, result);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    struct primary *primary = primary_release_begin(ordinal);

    return primary_release_end(primary, driver.cuDevicePrimaryCtxRelease(ordinal), ordinal);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    struct primary *primary = primary_release_begin(ordinal);

    return primary_release_end(primary, driver.cuDevicePrimaryCtxRelease_v2(ordinal), ordinal);
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    struct primary *primary = primary_reset_begin(ordinal);

    return primary_reset_end(primary, driver.cuDevicePrimaryCtxReset(ordinal));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    struct primary *primary = primary_reset_begin(ordinal);

    return primary_reset_end(primary, driver.cuDevicePrimaryCtxReset_v2(ordinal));
}
