/* cudart_launch: kernel launches. Compiled twice (cudart_runtime.h). No lock.
 */
#include "tools/simgpu/cudart/cudart_registry.h"

#include <vector_types.h>

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define __cudaLaunchKernel __cudaLaunchKernel_ptsz
#endif

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                               cudaStream_t stream);

static CUresult launch(const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                       cudaStream_t stream)
{
    CUkernel kernel;
    CUresult result = cudart_registry_kernel(function, &kernel);
    if (result)
        return result;
    result = DRV(cuLaunchKernel)((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                 (unsigned)shared_bytes, stream, args, NULL);
    /* The runtime has a code of its own for an invalid grid or block. */
    return result == CUDA_ERROR_INVALID_VALUE ? (CUresult)cudaErrorInvalidConfiguration : result;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                             cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(launch(function, grid, block, args, shared_bytes, stream));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                               cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(launch(kernel, grid, block, args, shared_bytes, stream));
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **args,
                                        size_t shared_bytes, cudaStream_t stream)
{
    CUkernel kernel;
    return CUDART_IN_CONTEXT(cudart_registry_kernel(function, &kernel)
                                 ?: DRV(cuLaunchCooperativeKernel)((CUfunction)kernel, grid.x, grid.y, grid.z,
                                                                   block.x, block.y, block.z,
                                                                   (unsigned)shared_bytes, stream, args));
}

/* Launch attributes are ignored: they are hints for hardware. */
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **args)
{
    if (!config)
        return cudart_end(cudaErrorInvalidConfiguration);
    return cudaLaunchKernel(function, config->gridDim, config->blockDim, args, config->dynamicSmemBytes,
                            config->stream);
}
