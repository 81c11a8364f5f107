/* The hooks on contexts: a context has bytes of its own, and its end is the end of the memory in it. */
#include "hooks.h"
#include "library.h"
#include "route.h"

/* What every hook that makes a context does first. */
static CUresult making(CUdevice ordinal)
{
    return library_mode() == LIBRARY_REFUSE ? CUDA_ERROR_NOT_PERMITTED : route_context_making(ordinal);
}

/* Takes a context that does not fit the limit back. */
static CUresult made(CUresult result, CUcontext *context, CUdevice ordinal)
{
    if (result != CUDA_SUCCESS)
        return result;
    result = route_context_made(ordinal);
    if (result != CUDA_SUCCESS) {
        driver.cuCtxDestroy_v2(*context);
        *context = NULL;
    }
    return result;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    CUresult result = making(ordinal);

    return result != CUDA_SUCCESS ? result : made(driver.cuCtxCreate_v2(context, flags, ordinal), context, ordinal);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags,
                        CUdevice ordinal)
{
    CUresult result = making(ordinal);

    return result != CUDA_SUCCESS
               ? result
               : made(driver.cuCtxCreate_v3(context, affinity, count, flags, ordinal), context, ordinal);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags, CUdevice ordinal)
{
    CUresult result = making(ordinal);

    return result != CUDA_SUCCESS ? result
                                  : made(driver.cuCtxCreate_v4(context, parameters, flags, ordinal), context, ordinal);
}

static CUresult ended(CUresult result, CUcontext context)
{
    if (result == CUDA_SUCCESS)
        route_context_ended(context);
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return ended(driver.cuCtxDestroy(context), context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return ended(driver.cuCtxDestroy_v2(context), context);
}

static bool primary_is_active(CUdevice ordinal)
{
    unsigned int flags;
    int active = 1;

    return driver.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || active;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    struct device *device = route_active() ? device_get(ordinal) : NULL;
    /* Retained again it costs nothing more. */
    const bool fresh = !device || !primary_is_active(ordinal);
    CUresult result = fresh ? making(ordinal) : CUDA_SUCCESS;

    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuDevicePrimaryCtxRetain(context, ordinal);
    if (result != CUDA_SUCCESS || !device)
        return result;
    result = fresh ? route_context_made(ordinal) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        driver.cuDevicePrimaryCtxRelease_v2(ordinal);
    else
        atomic_store(&device->primary, (void *)*context);
    return result;
}

/* After a release or a reset: if the context is gone, so is what was in it. */
static CUresult primary_ended(CUresult result, CUdevice ordinal, bool reset)
{
    struct device *device = result == CUDA_SUCCESS && route_active() ? device_get(ordinal) : NULL;

    if (device && (reset || !primary_is_active(ordinal)))
        route_context_ended(atomic_load(&device->primary));
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    return primary_ended(driver.cuDevicePrimaryCtxRelease(ordinal), ordinal, false);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    return primary_ended(driver.cuDevicePrimaryCtxRelease_v2(ordinal), ordinal, false);
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    return primary_ended(driver.cuDevicePrimaryCtxReset(ordinal), ordinal, true);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    return primary_ended(driver.cuDevicePrimaryCtxReset_v2(ordinal), ordinal, true);
}
