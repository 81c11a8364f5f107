/* cudart_device: attributes, limits, peers and addresses of a device. The attribute and limit numbers of the
 * runtime are those of the driver. No lock.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

#include <string.h>

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    CUdevice handle;
    if (!value)
        return cudart_end(cudaErrorInvalidValue);
    return CUDART_WITH_DRIVER(cudart_device_handle(device, &handle)
                                  ?: DRV(cuDeviceGetAttribute)(value, (CUdevice_attribute)attribute, handle));
}

cudaError_t cudaDeviceGetPCIBusId(char *bus_id, int length, int device)
{
    CUdevice handle;
    if (!bus_id || length <= 0)
        return cudart_end(cudaErrorInvalidValue);
    return CUDART_WITH_DRIVER(cudart_device_handle(device, &handle)
                                  ?: DRV(cuDeviceGetPCIBusId)(bus_id, length, handle));
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *bus_id)
{
    CUdevice handle = 0;
    if (!device || !bus_id)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_WITH_DRIVER(DRV(cuDeviceGetByPCIBusId)(&handle, bus_id));
    if (!error)
        *device = handle;
    return error;
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
    return CUDART_IN_CONTEXT(DRV(cuCtxGetLimit)(value, (CUlimit)limit));
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    return CUDART_IN_CONTEXT(DRV(cuCtxSetLimit)((CUlimit)limit, value));
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
    CUfunc_cache native = CU_FUNC_CACHE_PREFER_NONE;
    if (!config)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_IN_CONTEXT(DRV(cuCtxGetCacheConfig)(&native));
    if (!error)
        *config = (enum cudaFuncCache)native;
    return error;
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
    return CUDART_IN_CONTEXT(DRV(cuCtxSetCacheConfig)((CUfunc_cache)config));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return CUDART_IN_CONTEXT(DRV(cuCtxGetStreamPriorityRange)(least, greatest));
}

cudaError_t cudaCtxResetPersistingL2Cache(void)
{
    return CUDART_IN_CONTEXT(DRV(cuCtxResetPersistingL2Cache)());
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    CUdevice a, b;
    if (!can)
        return cudart_end(cudaErrorInvalidValue);
    return CUDART_WITH_DRIVER(cudart_device_handle(device, &a) ?: cudart_device_handle(peer, &b)
                                  ?: DRV(cuDeviceCanAccessPeer)(can, a, b));
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int source, int target)
{
    CUdevice a, b;
    if (!value)
        return cudart_end(cudaErrorInvalidValue);
    return CUDART_WITH_DRIVER(
        cudart_device_handle(source, &a) ?: cudart_device_handle(target, &b)
            ?: DRV(cuDeviceGetP2PAttribute)(value, (CUdevice_P2PAttribute)attribute, a, b));
}

/* Peer access is between contexts, so that the peer's primary context is made, as in the real runtime. */
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    CUcontext context;
    return CUDART_IN_CONTEXT(cudart_primary(peer, &context) ?: DRV(cuCtxEnablePeerAccess)(context, flags));
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    CUcontext context;
    return CUDART_IN_CONTEXT(cudart_primary(peer, &context) ?: DRV(cuCtxDisablePeerAccess)(context));
}

cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *wanted)
{
    if (!device || !wanted)
        return cudart_end(cudaErrorInvalidValue);
    int count;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (!error)
        *device = 0; /* any device will do: the cards differ only in size */
    return error;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    if (!version)
        return cudart_end(cudaErrorInvalidValue);
    *version = cudart_driver_version();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return cudart_end(cudaErrorInvalidValue);
    *version = CUDART_VERSION_13_0;
    return cudaSuccess;
}
