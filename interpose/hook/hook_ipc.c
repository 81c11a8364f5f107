/* Hooks on memory shared between processes: pooled blocks go through ipc.h, everything else to the driver. */
#include <errno.h>

#include "interpose/hook/hooks.h"
#include "interpose/hook/pointer.h"
#include "interpose/hook/seen.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/share/ipc.h"

static CUresult code_of(int rc)
{
    switch (rc) {
    case 0:
        return CUDA_SUCCESS;
    case -EXDEV:
        return CUDA_ERROR_INVALID_CONTEXT; /* a process cannot open its own handle (measured) */
    case -ECANCELED:
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    case -ENODEV:
        return CUDA_ERROR_INVALID_DEVICE;
    case -ENOTSUP:
        return CUDA_ERROR_NOT_SUPPORTED;
    case -ENOMEM:
    case -ENOSPC:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case -ETIMEDOUT:
        return CUDA_ERROR_TIMEOUT; /* the exporter is stopped; the driver has no code for that */
    case -EIO:
        return CUDA_ERROR_MAP_FAILED;
    case -ECONNREFUSED:
    case -ECONNRESET:
    case -EPIPE:
        return CUDA_ERROR_INVALID_HANDLE; /* the exporter has ended (measured) */
    case -EMFILE:
    case -ENFILE:
        return CUDA_ERROR_OPERATING_SYSTEM;
    default:
        return CUDA_ERROR_INVALID_VALUE; /* the block was freed (measured) */
    }
}

static CUcontext current(void)
{
    CUcontext context = NULL;

    return driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    struct pointer_block block;
    const enum pointer_place place = pointer_look(address, &block);

    if (place == POINTER_NOTHING)
        address = POINTER_NOWHERE;
    if (place != POINTER_BLOCK || !block.pool || !handle || !current())
        return driver.cuIpcGetMemHandle(handle, address);
    return code_of(ipc_export(block.pool, block.start, handle));
}

/* Returns true if the current context has ended: a thread keeps it after a reset. Nothing would unmap a block
 * that was opened in it. Beside a capture the driver is not asked: that might end the capture. */
static bool has_ended(void)
{
    return !capture_any() && driver_may_allocate() == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Opens a handle, ours or by the driver's `call`, which also reports errors in other arguments, and notes for
 * a recording what was opened. */
static CUresult open_handle(CUdeviceptr *address, const CUipcMemHandle *handle, unsigned int flags,
                            __typeof__(driver.cuIpcOpenMemHandle) call)
{
    CUcontext context = NULL;
    CUdeviceptr start;
    CUresult result;
    size_t bytes;

    if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !ipc_is_ours(handle) ||
        driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        result = call(address, *handle, flags);
    else if (!context)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (has_ended()) /* as natively (measured) */
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    else
        result = code_of(ipc_open(handle, pools_owner(context), address));
    if (events_are_on() && result == CUDA_SUCCESS &&
        cuMemGetAddressRange_v2(&start, &bytes, *address) == CUDA_SUCCESS)
        seen_note(result, RECORDING_IMPORT, ROUTE_CURRENT, *address, bytes, NULL);
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    OWNER_CALL();
    return open_handle(address, &handle, flags, driver.cuIpcOpenMemHandle);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    OWNER_CALL();
    return open_handle(address, &handle, flags, driver.cuIpcOpenMemHandle_v2);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    return SEEN_FREE(RECORDING_IMPORT, address, NULL,
                     current() && ipc_close(address) == 0 ? CUDA_SUCCESS
                                                          : driver.cuIpcCloseMemHandle(address));
}
