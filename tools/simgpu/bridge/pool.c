/* pool: entry points of stream-ordered memory. See engine/pool.h. */
#include "../engine/pool.h"

#include "call.h"
#include "per_thread.h"

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
    return CALL(cuMemPoolCreate, pool_create(out, props));
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    return CALL(cuMemPoolDestroy, pool_destroy(pool));
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    return CALL(cuMemPoolTrimTo, pool_trim(pool, keep));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    return CALL(cuMemPoolSetAttribute, pool_set_attribute(pool, attribute, value));
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    return CALL(cuMemPoolGetAttribute, pool_get_attribute(pool, attribute, value));
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count)
{
    return CALL(cuMemPoolSetAccess, pool_set_access(pool, list, count));
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    return CALL(cuMemPoolGetAccess, pool_get_access(flags, pool, location));
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
    return CALL(cuDeviceGetDefaultMemPool, pool_default(out, device));
}

CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
    return CALL(cuDeviceGetMemPool, pool_current(out, device));
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    return CALL(cuDeviceSetMemPool, pool_set_current(device, pool));
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
    return CALL(cuMemAllocAsync, pool_alloc_default(out, size, stream));
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t size, CUstream stream)
{
    return CALL(cuMemAllocAsync_ptsz, pool_alloc_default(out, size, per_thread(stream)));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
    return CALL(cuMemAllocFromPoolAsync, pool_alloc(out, size, pool, stream));
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
    return CALL(cuMemAllocFromPoolAsync_ptsz, pool_alloc(out, size, pool, per_thread(stream)));
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return CALL(cuMemFreeAsync, pool_free(address, stream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return CALL(cuMemFreeAsync_ptsz, pool_free(address, per_thread(stream)));
}
