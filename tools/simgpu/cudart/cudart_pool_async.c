/* cudart_pool_async: stream-ordered allocation. Compiled twice (cudart_runtime.h). No lock. */
#include "tools/simgpu/cudart/cudart_runtime.h"

static cudaError_t hand_out(void **out, CUdeviceptr address, cudaError_t error)
{
    *out = cudart_pointer(error ? 0 : address);
    return error;
}

/* As with cudaMalloc, a size of 0 is a success without memory. */
cudaError_t cudaMallocAsync(void **out, size_t size, cudaStream_t stream)
{
    CUdeviceptr address = 0;
    if (!out)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_IN_CONTEXT(size ? DRV(cuMemAllocAsync)(&address, size, stream) : CUDA_SUCCESS);
    return hand_out(out, address, error);
}

cudaError_t cudaMallocFromPoolAsync(void **out, size_t size, cudaMemPool_t pool, cudaStream_t stream)
{
    CUdeviceptr address = 0;
    if (!out)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error =
        CUDART_IN_CONTEXT(size ? DRV(cuMemAllocFromPoolAsync)(&address, size, pool, stream) : CUDA_SUCCESS);
    return hand_out(out, address, error);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(DRV(cuMemFreeAsync)(cudart_address(p), stream));
}

cudaError_t cudaMemPrefetchAsync(const void *p, size_t size, struct cudaMemLocation where, unsigned int flags,
                                 cudaStream_t stream)
{
    CUmemLocation native = {.type = (CUmemLocationType)where.type, .id = where.id};
    return CUDART_IN_CONTEXT(DRV(cuMemPrefetchAsync)(cudart_address(p), size, native, flags, stream));
}
