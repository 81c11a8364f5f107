/* cudart_pool: memory pools: the functions without a stream. The runtime's structures have the driver's
 * layout, which is asserted here. No lock. */
#include "tools/simgpu/cudart/cudart_runtime.h"

_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "one layout for both");
_Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc), "one layout for both");
_Static_assert(sizeof(struct cudaMemLocation) == sizeof(CUmemLocation), "one layout for both");
_Static_assert(sizeof(struct cudaMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData),
               "one layout for both");

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
    return CUDART_IN_CONTEXT(DRV(cuMemPoolCreate)(pool, (const CUmemPoolProps *)props));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    return CUDART_IN_CONTEXT(DRV(cuMemPoolDestroy)(pool));
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    return CUDART_IN_CONTEXT(DRV(cuMemPoolTrimTo)(pool, keep));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    return CUDART_IN_CONTEXT(DRV(cuMemPoolSetAttribute)(pool, (CUmemPool_attribute)attribute, value));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    return CUDART_IN_CONTEXT(DRV(cuMemPoolGetAttribute)(pool, (CUmemPool_attribute)attribute, value));
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count)
{
    return CUDART_IN_CONTEXT(DRV(cuMemPoolSetAccess)(pool, (const CUmemAccessDesc *)list, count));
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool,
                                 struct cudaMemLocation *where)
{
    return CUDART_IN_CONTEXT(
        DRV(cuMemPoolGetAccess)((CUmemAccess_flags *)flags, pool, (CUmemLocation *)where));
}

cudaError_t cudaMemPoolExportToShareableHandle(void *handle, cudaMemPool_t pool,
                                               enum cudaMemAllocationHandleType type, unsigned int flags)
{
    return CUDART_IN_CONTEXT(
        DRV(cuMemPoolExportToShareableHandle)(handle, pool, (CUmemAllocationHandleType)type, flags));
}

cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t *pool, void *handle,
                                                 enum cudaMemAllocationHandleType type, unsigned int flags)
{
    return CUDART_IN_CONTEXT(
        DRV(cuMemPoolImportFromShareableHandle)(pool, handle, (CUmemAllocationHandleType)type, flags));
}

cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData *data, void *p)
{
    return CUDART_IN_CONTEXT(DRV(cuMemPoolExportPointer)((CUmemPoolPtrExportData *)data, cudart_address(p)));
}

cudaError_t cudaMemPoolImportPointer(void **out, cudaMemPool_t pool, struct cudaMemPoolPtrExportData *data)
{
    CUdeviceptr address = 0;
    if (!out)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error =
        CUDART_IN_CONTEXT(DRV(cuMemPoolImportPointer)(&address, pool, (CUmemPoolPtrExportData *)data));
    if (!error)
        *out = cudart_pointer(address);
    return error;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    CUdevice handle;
    return CUDART_WITH_DRIVER(cudart_device_handle(device, &handle)
                                  ?: DRV(cuDeviceGetDefaultMemPool)(pool, handle));
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device)
{
    CUdevice handle;
    return CUDART_WITH_DRIVER(cudart_device_handle(device, &handle) ?: DRV(cuDeviceGetMemPool)(pool, handle));
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
    CUdevice handle;
    return CUDART_WITH_DRIVER(cudart_device_handle(device, &handle) ?: DRV(cuDeviceSetMemPool)(handle, pool));
}
