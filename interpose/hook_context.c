/* The hooks on contexts: a context has bytes of its own, and its end is the end of the memory in it. */
#include "hooks.h"
#include "library.h"
#include "route.h"

/* Runs a call that makes a context: room for it first, and if what was made does not fit the limit, it is
 * taken back. */
#define MAKING(call, undo, ordinal)                                                                          \
    ({                                                                                                       \
        struct route_growth growth_;                                                                         \
        CUresult result_ = library_mode() == LIBRARY_REFUSE ? CUDA_ERROR_NOT_PERMITTED                       \
                                                            : route_grow_context(&growth_, ordinal);         \
        if (result_ == CUDA_SUCCESS) {                                                                       \
            result_ = ROUTE_TRY(call, ordinal);                                                              \
            route_grown(&growth_);                                                                           \
            if (result_ == CUDA_SUCCESS &&                                                                   \
                (result_ = route_context_made(ordinal, *context)) != CUDA_SUCCESS)                           \
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

static CUresult ended(CUresult result, CUcontext context)
{
    if (result == CUDA_SUCCESS)
        route_context_ended(context);
    else
        route_context_stays(context);
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    route_context_ending(context);
    return ended(driver.cuCtxDestroy(context), context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    route_context_ending(context);
    return ended(driver.cuCtxDestroy_v2(context), context);
}

static bool primary_is_active(CUdevice ordinal)
{
    unsigned int flags;
    int active = 1;

    return driver.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || active;
}

/* The primary context of each card, once retained: its end is told by the card alone. */
static _Atomic(CUcontext) primaries[DEVICE_MAX];

static _Atomic(CUcontext) *primary_of(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < DEVICE_MAX ? &primaries[ordinal] : NULL;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    CUresult result;

    /* Retained again it costs nothing more. */
    if (!route_active() || primary_is_active(ordinal))
        result = library_mode() == LIBRARY_REFUSE ? CUDA_ERROR_NOT_PERMITTED
                                                  : driver.cuDevicePrimaryCtxRetain(context, ordinal);
    else
        result = MAKING(driver.cuDevicePrimaryCtxRetain(context, ordinal),
                        driver.cuDevicePrimaryCtxRelease_v2(ordinal), ordinal);
    /* Another thread may have made it while we asked for room for a second one. */
    if (result == CUDA_ERROR_OUT_OF_MEMORY && route_active() && primary_is_active(ordinal))
        result = driver.cuDevicePrimaryCtxRetain(context, ordinal);
    if (result == CUDA_SUCCESS && primary_of(ordinal))
        atomic_store(primary_of(ordinal), *context);
    return result;
}

static CUcontext primary(CUdevice ordinal)
{
    return primary_of(ordinal) ? atomic_load(primary_of(ordinal)) : NULL;
}

/* A release may be the last one. */
static void primary_ending(CUdevice ordinal)
{
    route_context_ending(primary(ordinal));
}

/* After a release or a reset: if the context is gone, so is what was in it. */
static CUresult primary_ended(CUresult result, CUdevice ordinal, bool reset)
{
    if (result == CUDA_SUCCESS && route_active() && primary(ordinal) &&
        (reset || !primary_is_active(ordinal)))
        route_context_ended(primary(ordinal));
    else
        route_context_stays(primary(ordinal));
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    primary_ending(ordinal);
    return primary_ended(driver.cuDevicePrimaryCtxRelease(ordinal), ordinal, false);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    primary_ending(ordinal);
    return primary_ended(driver.cuDevicePrimaryCtxRelease_v2(ordinal), ordinal, false);
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    primary_ending(ordinal);
    return primary_ended(driver.cuDevicePrimaryCtxReset(ordinal), ordinal, true);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    primary_ending(ordinal);
    return primary_ended(driver.cuDevicePrimaryCtxReset_v2(ordinal), ordinal, true);
}
