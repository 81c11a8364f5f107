/* bridge_legacy: entry points from before CUDA 4.0 that the driver still exports.
 *
 * Many take 32-bit addresses and sizes. No memory of simgpu has an address that fits into 32 bits, so that
 * allocations fail and every address is unknown. Sizes that do not fit are cut to the largest that does.
 */
#include "tools/simgpu/bridge/bridge_call.h"

#include "tools/simgpu/engine/sim_alloc_calls.h"
#include "tools/simgpu/engine/sim_context_life.h"
#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_event.h"
#include "tools/simgpu/engine/sim_stream_calls.h"

#include <limits.h>

static unsigned int fitting(size_t bytes)
{
    return bytes > UINT_MAX ? UINT_MAX : (unsigned int)bytes;
}

static CUresult alloc_small(const CUdeviceptr_v1 *out, unsigned int size)
{
    CUresult result = sim_context_check_current();

    if (result != CUDA_SUCCESS)
        return result;
    return !out || size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}

SINGLE(cuMemAlloc, alloc_small(out, size), CUdeviceptr_v1 *out, unsigned int size)

CUresult cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width, unsigned int height,
                         unsigned int element)
{
    (void)pitch, (void)element;
    return CALL(cuMemAllocPitch, alloc_small(out, width && height ? 1 : 0));
}

SINGLE(cuMemFree, sim_alloc_free(address), CUdeviceptr_v1 address)

static CUresult range(CUdeviceptr_v1 *base, unsigned int *size, CUdeviceptr_v1 address)
{
    CUdeviceptr found;
    size_t bytes;
    CUresult result = sim_alloc_range(&found, &bytes, address);

    if (result == CUDA_SUCCESS && base)
        *base = (CUdeviceptr_v1)found;
    if (result == CUDA_SUCCESS && size)
        *size = fitting(bytes);
    return result;
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *size, CUdeviceptr_v1 address)
{
    return CALL(cuMemGetAddressRange, range(base, size, address));
}

static CUresult info(unsigned int *free_bytes, unsigned int *total_bytes)
{
    size_t free_now, total;
    CUresult result = sim_alloc_info(&free_now, &total);

    if (result == CUDA_SUCCESS && free_bytes)
        *free_bytes = fitting(free_now);
    if (result == CUDA_SUCCESS && total_bytes)
        *total_bytes = fitting(total);
    return result;
}

SINGLE(cuMemGetInfo, info(free_bytes, total_bytes), unsigned int *free_bytes, unsigned int *total_bytes)

static CUresult total_of(unsigned int *bytes, CUdevice device)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = fitting(sim_device_info(device)->capacity);
    return CUDA_SUCCESS;
}

SINGLE(cuDeviceTotalMem, total_of(bytes, device), unsigned int *bytes, CUdevice device)

/* ---- aliases of newer entry points ---- */

CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice device)
{
    return CALL(cuCtxCreate, sim_context_create(out, flags, device));
}

SINGLE(cuCtxDestroy, sim_context_destroy(context), CUcontext context)
SINGLE(cuCtxPushCurrent, sim_context_push(context), CUcontext context)
SINGLE(cuCtxPopCurrent, sim_context_pop(out), CUcontext *out)
SINGLE(cuStreamDestroy, sim_stream_destroy(stream), CUstream stream)
SINGLE(cuEventDestroy, sim_event_destroy(event), CUevent event)
