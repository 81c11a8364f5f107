/* cudart_stream_order: functions that take a stream: waits, queries, events, host functions. Compiled twice
 * (cudart_runtime.h). No lock. */
#include "tools/simgpu/cudart/cudart_runtime.h"

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamQuery)(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamSynchronize)(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamWaitEvent)(stream, event, flags));
}

/* The callback gets the driver's error code, which is the same number. */
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data,
                                  unsigned int flags)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamAddCallback)(stream, (CUstreamCallback)callback, data, flags));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    return CUDART_IN_CONTEXT(DRV(cuLaunchHostFunc)(stream, function, data));
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *p, size_t size, unsigned int flags)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamAttachMemAsync)(stream, cudart_address(p), size, flags));
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamGetFlags)(stream, flags));
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamGetPriority)(stream, priority));
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamGetId)(stream, id));
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamGetDevice)(stream, device));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(DRV(cuEventRecord)(event, stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    return CUDART_IN_CONTEXT(DRV(cuEventRecordWithFlags)(event, stream, flags));
}
