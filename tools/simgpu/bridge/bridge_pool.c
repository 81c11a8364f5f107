/* bridge_pool: entry points for stream-ordered memory. Only checks arguments; see engine/sim_pool.h. */
#include "tools/simgpu/engine/sim_pool.h"

#include "tools/simgpu/bridge/bridge_call.h"
#include "tools/simgpu/bridge/bridge_per_thread.h"

SINGLE(cuMemPoolCreate, sim_pool_create(out, props), CUmemoryPool *out, const CUmemPoolProps *props)
SINGLE(cuMemPoolDestroy, sim_pool_destroy(pool), CUmemoryPool pool)
SINGLE(cuMemPoolTrimTo, sim_pool_trim(pool, keep), CUmemoryPool pool, size_t keep)

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    return CALL(cuMemPoolSetAttribute, sim_pool_set_attribute(pool, attribute, value));
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    return CALL(cuMemPoolGetAttribute, sim_pool_get_attribute(pool, attribute, value));
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count)
{
    return CALL(cuMemPoolSetAccess, sim_pool_set_access(pool, list, count));
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    return CALL(cuMemPoolGetAccess, sim_pool_get_access(flags, pool, location));
}

SINGLE(cuDeviceGetDefaultMemPool, sim_pool_default(out, device), CUmemoryPool *out, CUdevice device)
SINGLE(cuDeviceGetMemPool, sim_pool_current(out, device), CUmemoryPool *out, CUdevice device)
SINGLE(cuDeviceSetMemPool, sim_pool_set_current(device, pool), CUdevice device, CUmemoryPool pool)

static bool on_host(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

/* simgpu has one pool of host memory, and none of managed memory. */
static CUresult check_location(const CUmemLocation *location, CUmemAllocationType type)
{
    if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE || on_host(location) ? CUDA_SUCCESS
                                                                              : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult default_at(CUmemoryPool *out, const CUmemLocation *location, CUmemAllocationType type)
{
    CUresult result = check_location(location, type);

    if (result)
        return result;
    return on_host(location) ? sim_pool_host(out) : sim_pool_default(out, location->id);
}

static CUresult current_at(CUmemoryPool *out, const CUmemLocation *location, CUmemAllocationType type)
{
    CUresult result = check_location(location, type);

    if (result)
        return result;
    return on_host(location) ? sim_pool_host(out) : sim_pool_current(out, location->id);
}

static CUresult set_current_at(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUresult result = check_location(location, type);

    if (result)
        return result;
    return on_host(location) ? CUDA_ERROR_NOT_SUPPORTED : sim_pool_set_current(location->id, pool);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
    return CALL(cuMemGetDefaultMemPool, default_at(out, location, type));
}

CUresult cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
    return CALL(cuMemGetMemPool, current_at(out, location, type));
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    return CALL(cuMemSetMemPool, set_current_at(location, type, pool));
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
    return CALL(cuMemAllocAsync, sim_pool_alloc_default(out, size, stream));
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t size, CUstream stream)
{
    return CALL(cuMemAllocAsync_ptsz, sim_pool_alloc_default(out, size, sim_per_thread(stream)));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
    return CALL(cuMemAllocFromPoolAsync, sim_pool_alloc(out, size, pool, stream));
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
    return CALL(cuMemAllocFromPoolAsync_ptsz, sim_pool_alloc(out, size, pool, sim_per_thread(stream)));
}

PAIR(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), sim_pool_free(address, stream))
