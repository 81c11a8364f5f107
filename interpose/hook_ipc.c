/* The hooks on memory between processes: pooled blocks take our way (ipc.h), everything else the driver's. */
#include <errno.h>

#include "hooks.h"
#include "ipc.h"
#include "pointer.h"

static CUresult code_of(int rc)
{
    switch (rc) {
    case 0:
        return CUDA_SUCCESS;
    case -EXDEV:
        return CUDA_ERROR_INVALID_CONTEXT; /* a process cannot open its own handle (measured) */
    case -ENODEV:
        return CUDA_ERROR_INVALID_DEVICE;
    case -ENOTSUP:
        return CUDA_ERROR_NOT_SUPPORTED;
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case -EIO:
        return CUDA_ERROR_MAP_FAILED;
    case -EMFILE:
    case -ENFILE:
        return CUDA_ERROR_OPERATING_SYSTEM;
    default:
        return CUDA_ERROR_INVALID_VALUE; /* freed, or its process is gone (measured) */
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

/* True if the call is for us. The driver says what is wrong with its other arguments. */
static bool is_for_us(const CUdeviceptr *address, const CUipcMemHandle *handle, unsigned int flags)
{
    return address && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS && ipc_is_ours(handle) && current();
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    if (is_for_us(address, &handle, flags))
        return code_of(ipc_open(&handle, current(), address));
    return driver.cuIpcOpenMemHandle(address, handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    if (is_for_us(address, &handle, flags))
        return code_of(ipc_open(&handle, current(), address));
    return driver.cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    if (current() && ipc_close(address) == 0)
        return CUDA_SUCCESS;
    return driver.cuIpcCloseMemHandle(address);
}
