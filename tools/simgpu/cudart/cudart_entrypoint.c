/* cudart_entrypoint: cudaGetDriverEntryPoint. Asks the driver's cuGetProcAddress, so that an interposer sees
 * the lookup. Compiled twice (cudart_runtime.h): cudaEnableDefault means the default stream that the program
 * was compiled for. No lock.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define DEFAULT_FLAGS CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
#else
#define DEFAULT_FLAGS CU_GET_PROC_ADDRESS_LEGACY_STREAM
#endif

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult result = cudart_load();
    if (!symbol || !function)
        return cudart_end(cudaErrorInvalidValue);
    *function = NULL;
    if (!result)
        result = DRV(cuGetProcAddress)(symbol, function, (int)version, flags ? flags : DEFAULT_FLAGS, &found);
    if (status)
        *status = (enum cudaDriverEntryPointQueryResult)found;
    /* "Not found" is reported in the status, not as an error. */
    return cudart_end(result == CUDA_ERROR_NOT_FOUND ? cudaSuccess : (int)result);
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status)
{
    return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION_13_0, flags, status);
}
