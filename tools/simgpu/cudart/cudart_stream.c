/* cudart_stream: creates and destroys streams and events, and the event functions without a stream. No lock.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

#include <cuda_profiler_api.h>

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamCreateWithPriority)(stream, flags, priority));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamDestroy)(stream));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    return CUDART_IN_CONTEXT(DRV(cuThreadExchangeStreamCaptureMode)((CUstreamCaptureMode *)mode));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    return CUDART_IN_CONTEXT(DRV(cuEventCreate)(event, flags));
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return CUDART_IN_CONTEXT(DRV(cuEventDestroy)(event));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return CUDART_IN_CONTEXT(DRV(cuEventQuery)(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return CUDART_IN_CONTEXT(DRV(cuEventSynchronize)(event));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    return CUDART_IN_CONTEXT(DRV(cuEventElapsedTime)(ms, start, end));
}

/* simgpu has no profiler. */
cudaError_t cudaProfilerStart(void)
{
    return CUDART_IN_CONTEXT(CUDA_SUCCESS);
}

cudaError_t cudaProfilerStop(void)
{
    return CUDART_IN_CONTEXT(CUDA_SUCCESS);
}
