/* cudart_memory: cudaMalloc and the other allocations that are not stream-ordered. No lock: the driver has
 * the state. */
#include "tools/simgpu/cudart/cudart_runtime.h"

#include <string.h>

/* A size of 0 is a success without memory, although the driver refuses it. */
cudaError_t cudaMalloc(void **out, size_t size)
{
    CUdeviceptr address = 0;
    if (!out)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_IN_CONTEXT(size ? DRV(cuMemAlloc)(&address, size) : CUDA_SUCCESS);
    *out = cudart_pointer(error ? 0 : address);
    return error;
}

cudaError_t cudaFree(void *p)
{
    return CUDART_IN_CONTEXT(p ? DRV(cuMemFree)(cudart_address(p)) : CUDA_SUCCESS);
}

/* The runtime always asks the driver for a pitch for elements of 4 bytes. */
static CUresult pitched(CUdeviceptr *address, size_t *pitch, size_t width, size_t height)
{
    const unsigned element = 4;
    if (!width || !height)
        return CUDA_SUCCESS;
    return DRV(cuMemAllocPitch)(address, pitch, width, height, element);
}

cudaError_t cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr address = 0;
    size_t got = 0;
    if (!out || !pitch)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_IN_CONTEXT(pitched(&address, &got, width, height));
    if (!error) {
        *out = cudart_pointer(address);
        *pitch = got;
    }
    return error;
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *out, struct cudaExtent extent)
{
    CUdeviceptr address = 0;
    size_t rows, pitch = 0;
    if (!out || __builtin_mul_overflow(extent.height, extent.depth, &rows))
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_IN_CONTEXT(pitched(&address, &pitch, extent.width, rows));
    if (!error)
        *out = (struct cudaPitchedPtr){
            .ptr = cudart_pointer(address), .pitch = pitch, .xsize = extent.width, .ysize = extent.height};
    return error;
}

cudaError_t cudaMallocManaged(void **out, size_t size, unsigned int flags)
{
    CUdeviceptr address = 0;
    if (!out || !size)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_IN_CONTEXT(DRV(cuMemAllocManaged)(&address, size, flags));
    if (!error)
        *out = cudart_pointer(address);
    return error;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    return CUDART_IN_CONTEXT(DRV(cuMemGetInfo)(free_bytes, total));
}

cudaError_t cudaHostAlloc(void **out, size_t size, unsigned int flags)
{
    void *p = NULL;
    if (!out)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_IN_CONTEXT(size ? DRV(cuMemHostAlloc)(&p, size, flags) : CUDA_SUCCESS);
    if (!error)
        *out = p;
    return error;
}

cudaError_t cudaMallocHost(void **out, size_t size)
{
    return cudaHostAlloc(out, size, cudaHostAllocPortable | cudaHostAllocMapped);
}

cudaError_t cudaFreeHost(void *p)
{
    return CUDART_IN_CONTEXT(p ? DRV(cuMemFreeHost)(p) : CUDA_SUCCESS);
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned int flags)
{
    return CUDART_IN_CONTEXT(DRV(cuMemHostRegister)(p, size, flags));
}

cudaError_t cudaHostUnregister(void *p)
{
    return CUDART_IN_CONTEXT(DRV(cuMemHostUnregister)(p));
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int flags)
{
    CUdeviceptr address = 0;
    if (!device)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_IN_CONTEXT(DRV(cuMemHostGetDevicePointer)(&address, host, flags));
    *device = cudart_pointer(error ? 0 : address);
    return error;
}

cudaError_t cudaHostGetFlags(unsigned int *flags, void *host)
{
    return CUDART_IN_CONTEXT(DRV(cuMemHostGetFlags)(flags, host));
}

static CUmemLocation location_of(struct cudaMemLocation location)
{
    return (CUmemLocation){.type = (CUmemLocationType)location.type, .id = location.id};
}

cudaError_t cudaMemAdvise(const void *p, size_t size, enum cudaMemoryAdvise advice,
                          struct cudaMemLocation where)
{
    return CUDART_IN_CONTEXT(
        DRV(cuMemAdvise)(cudart_address(p), size, (CUmem_advise)advice, location_of(where)));
}

cudaError_t cudaMemRangeGetAttribute(void *data, size_t data_size, enum cudaMemRangeAttribute attribute,
                                     const void *p, size_t size)
{
    return CUDART_IN_CONTEXT(DRV(cuMemRangeGetAttribute)(data, data_size, (CUmem_range_attribute)attribute,
                                                         cudart_address(p), size));
}

cudaError_t cudaMemRangeGetAttributes(void **data, size_t *data_sizes, enum cudaMemRangeAttribute *attributes,
                                      size_t count, const void *p, size_t size)
{
    return CUDART_IN_CONTEXT(DRV(cuMemRangeGetAttributes)(
        data, data_sizes, (CUmem_range_attribute *)attributes, count, cudart_address(p), size));
}
