/* cudart_error: the last error of each thread, and the names and texts of all codes. Owns no lock: the state
 * is the thread's.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

#define UNKNOWN "unrecognized error code"

static __thread cudaError_t last_error;

cudaError_t cudart_end(int result)
{
    if (result)
        last_error = (cudaError_t)result;
    return (cudaError_t)result;
}

/* Without a driver these return its error on every call, as the real ones do. */
cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    if (!cudart_driver_version())
        return cudaErrorInsufficientDriver;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return cudart_driver_version() ? last_error : cudaErrorInsufficientDriver;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch ((int)error) {
#define ERROR(name, text)                                                                                    \
    case name:                                                                                               \
        return #name;
#include "tools/simgpu/cudart/errors.def"
#undef ERROR
    default:
        return UNKNOWN;
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch ((int)error) {
#define ERROR(name, text)                                                                                    \
    case name:                                                                                               \
        return text;
#include "tools/simgpu/cudart/errors.def"
#undef ERROR
    default:
        return UNKNOWN;
    }
}
