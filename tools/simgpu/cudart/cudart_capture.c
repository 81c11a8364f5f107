/* cudart_capture: captures a stream into a graph, and launches graphs. Compiled twice (cudart_runtime.h). No
 * lock. */
#include "tools/simgpu/cudart/cudart_runtime.h"

_Static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData), "one layout for both");
_Static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS),
               "one layout for both");

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamBeginCapture)(stream, (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamEndCapture)(stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamIsCapturing)(stream, (CUstreamCaptureStatus *)status));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges,
                                     size_t *count)
{
    return CUDART_IN_CONTEXT(DRV(cuStreamGetCaptureInfo)(stream, (CUstreamCaptureStatus *)status,
                                                         (cuuint64_t *)id, graph, dependencies,
                                                         (const CUgraphEdgeData **)edges, count));
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *params)
{
    return CUDART_IN_CONTEXT(
        DRV(cuGraphInstantiateWithParams)(exec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)params));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphUpload)(exec, stream));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphLaunch)(exec, stream));
}
