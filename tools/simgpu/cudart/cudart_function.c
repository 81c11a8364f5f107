/* cudart_function: attributes and occupancy of registered kernels. No lock. */
#include "tools/simgpu/cudart/cudart_registry.h"

#include <string.h>

static CUresult ask(CUfunction f, CUfunction_attribute attribute, int *out)
{
    *out = 0;
    return DRV(cuFuncGetAttribute)(out, attribute, f);
}

static CUresult attributes(struct cudaFuncAttributes *out, const void *function)
{
    CUfunction f;
    int shared_bytes = 0, constant = 0, local = 0;
    CUresult result = cudart_registry_function(function, &f);
    if (result)
        return result;
    memset(out, 0, sizeof(*out));
    result = ask(f, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &out->maxThreadsPerBlock)
                 ?: ask(f, CU_FUNC_ATTRIBUTE_NUM_REGS, &out->numRegs)
                 ?: ask(f, CU_FUNC_ATTRIBUTE_PTX_VERSION, &out->ptxVersion)
                 ?: ask(f, CU_FUNC_ATTRIBUTE_BINARY_VERSION, &out->binaryVersion)
                 ?: ask(f, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &shared_bytes)
                 ?: ask(f, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &constant)
                 ?: ask(f, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &local)
                 ?: ask(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &out->maxDynamicSharedSizeBytes);
    out->sharedSizeBytes = (size_t)shared_bytes;
    out->constSizeBytes = (size_t)constant;
    out->localSizeBytes = (size_t)local;
    return result;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function)
{
    return out ? CUDART_IN_CONTEXT(attributes(out, function)) : cudart_end(cudaErrorInvalidValue);
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    CUfunction f;
    return CUDART_IN_CONTEXT(cudart_registry_function(function, &f)
                                 ?: DRV(cuFuncSetAttribute)(f, (CUfunction_attribute)attribute, value));
}

cudaError_t cudaFuncSetCacheConfig(const void *function, enum cudaFuncCache config)
{
    CUfunction f;
    (void)config; /* a hint: simgpu has no cache */
    return CUDART_IN_CONTEXT(cudart_registry_function(function, &f));
}

cudaError_t cudaFuncGetParamInfo(const void *function, size_t index, size_t *offset, size_t *size)
{
    CUfunction f;
    return CUDART_IN_CONTEXT(cudart_registry_function(function, &f)
                                 ?: DRV(cuFuncGetParamInfo)(f, index, offset, size));
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *out, const void *function)
{
    return CUDART_IN_CONTEXT(cudart_registry_function(function, (CUfunction *)out));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function,
                                                                   int block_size, size_t shared_bytes,
                                                                   unsigned int flags)
{
    CUfunction f;
    return CUDART_IN_CONTEXT(cudart_registry_function(function, &f)
                                 ?: DRV(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(
                                        blocks, f, block_size, shared_bytes, flags));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int block_size,
                                                          size_t shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_bytes,
                                                                  0);
}
