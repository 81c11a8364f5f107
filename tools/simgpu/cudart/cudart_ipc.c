/* cudart_ipc: memory and events shared with another process. The handles are the driver's, byte for byte. No
 * lock.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

#include <string.h>

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle), "one handle for both");
_Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle), "one handle for both");

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p)
{
    return CUDART_IN_CONTEXT(DRV(cuIpcGetMemHandle)((CUipcMemHandle *)handle, cudart_address(p)));
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned int flags)
{
    CUdeviceptr address = 0;
    CUipcMemHandle native;
    if (!out)
        return cudart_end(cudaErrorInvalidValue);
    memcpy(&native, &handle, sizeof(native));
    cudaError_t error = CUDART_IN_CONTEXT(DRV(cuIpcOpenMemHandle)(&address, native, flags));
    if (!error)
        *out = cudart_pointer(address);
    return error;
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
    return CUDART_IN_CONTEXT(DRV(cuIpcCloseMemHandle)(cudart_address(p)));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    return CUDART_IN_CONTEXT(DRV(cuIpcGetEventHandle)((CUipcEventHandle *)handle, event));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CUipcEventHandle native;
    memcpy(&native, &handle, sizeof(native));
    return CUDART_IN_CONTEXT(DRV(cuIpcOpenEventHandle)(event, native));
}
