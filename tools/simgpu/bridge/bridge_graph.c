/* bridge_graph: entry points for stream capture and graphs. Only checks arguments; see
 * engine/sim_capture_calls.h, sim_graph.h.
 */
#include "tools/simgpu/engine/sim_graph.h"

#include "tools/simgpu/bridge/bridge_per_thread.h"

#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_capture_calls.h"
#include "tools/simgpu/engine/sim_graph_memory.h"

#include <string.h>

/* ---- capture ---- */

PAIR(cuStreamBeginCapture, (CUstream stream),
     sim_capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0))
PAIR(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode),
     sim_capture_begin(stream, mode, NULL, NULL, 0))

static CUresult begin_to_graph(CUstream stream, CUgraph graph, const CUgraphNode *after, size_t count,
                               CUstreamCaptureMode mode)
{
    return graph ? sim_capture_begin(stream, mode, graph, after, count) : CUDA_ERROR_INVALID_VALUE;
}

PAIR(cuStreamBeginCaptureToGraph,
     (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,
      CUstreamCaptureMode mode),
     ((void)edges, begin_to_graph(stream, graph, after, count, mode)))
PAIR(cuStreamEndCapture, (CUstream stream, CUgraph *out), sim_capture_end(stream, out))
PAIR(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status),
     sim_capture_status(stream, status, NULL, NULL, NULL, NULL))
PAIR(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
     sim_capture_status(stream, status, id, NULL, NULL, NULL))
PAIR(cuStreamGetCaptureInfo_v2,
     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **after, size_t *count),
     sim_capture_status(stream, status, id, graph, after, count))

static CUresult info_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                        const CUgraphNode **after, const CUgraphEdgeData **edges, size_t *count)
{
    if (edges)
        *edges = NULL; /* edges have no data in simgpu */
    return sim_capture_status(stream, status, id, graph, after, count);
}

PAIR(cuStreamGetCaptureInfo_v3,
     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **after, const CUgraphEdgeData **edges, size_t *count),
     info_v3(stream, status, id, graph, after, edges, count))
PAIR(cuStreamUpdateCaptureDependencies,
     (CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags),
     sim_capture_update(stream, nodes, count, flags))
PAIR(cuStreamUpdateCaptureDependencies_v2,
     (CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count, unsigned int flags),
     ((void)edges, sim_capture_update(stream, nodes, count, flags)))

SINGLE(cuThreadExchangeStreamCaptureMode, sim_capture_exchange_mode(mode), CUstreamCaptureMode *mode)

/* ---- queries ---- */

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return CALL(cuGraphGetNodes, sim_graph_get_nodes(graph, nodes, count, false));
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return CALL(cuGraphGetRootNodes, sim_graph_get_nodes(graph, nodes, count, true));
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return CALL(cuGraphGetEdges, sim_graph_get_edges(graph, from, to, count));
}

/* Edges have no data in simgpu: zeroes the entries that the program has room for, which is the default. */
static void clear_edges(CUgraphEdgeData *edges, size_t room, const size_t *count)
{
    if (edges && count)
        memset(edges, 0, (room < *count ? room : *count) * sizeof(*edges));
}

static CUresult edges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
                         size_t *count)
{
    size_t room = count ? *count : 0;
    CUresult result = sim_graph_get_edges(graph, from, to, count);

    clear_edges(edges, room, count);
    return result;
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
                            size_t *count)
{
    return CALL(cuGraphGetEdges_v2, edges_v2(graph, from, to, edges, count));
}

SINGLE(cuGraphNodeGetType, sim_graph_node_type(node, out), CUgraphNode node, CUgraphNodeType *out)

static CUresult kernel_params_v1(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *out)
{
    CUDA_KERNEL_NODE_PARAMS params;
    CUresult result = out ? sim_graph_kernel_params(node, &params) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        *out = (CUDA_KERNEL_NODE_PARAMS_v1){.func = params.func ? params.func : (CUfunction)params.kern,
                                            .gridDimX = params.gridDimX,
                                            .gridDimY = params.gridDimY,
                                            .gridDimZ = params.gridDimZ,
                                            .blockDimX = params.blockDimX,
                                            .blockDimY = params.blockDimY,
                                            .blockDimZ = params.blockDimZ,
                                            .kernelParams = params.kernelParams};
    return result;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    return CALL(cuGraphKernelNodeGetParams, kernel_params_v1(node, params));
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    return CALL(cuGraphKernelNodeGetParams_v2, sim_graph_kernel_params(node, params));
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    return CALL(cuGraphMemAllocNodeGetParams, sim_graph_memory_alloc_params(node, params));
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
    return CALL(cuGraphMemFreeNodeGetParams, sim_graph_memory_free_params(node, address));
}

SINGLE(cuGraphChildGraphNodeGetGraph, sim_graph_child(node, out), CUgraphNode node, CUgraph *out)

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    return CALL(cuDeviceGetGraphMemAttribute, sim_graph_memory_attribute(device, attribute, value));
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    return CALL(cuDeviceSetGraphMemAttribute, sim_graph_memory_set_attribute(device, attribute, value));
}

SINGLE(cuDeviceGraphMemTrim, sim_graph_memory_trim(device), CUdevice device)

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return CALL(cuGraphNodeGetDependencies, sim_graph_get_after(node, nodes, count));
}

static CUresult after_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
    size_t room = count ? *count : 0;
    CUresult result = sim_graph_get_after(node, nodes, count);

    clear_edges(edges, room, count);
    return result;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges,
                                       size_t *count)
{
    return CALL(cuGraphNodeGetDependencies_v2, after_v2(node, nodes, edges, count));
}

/* ---- instantiating and launching ---- */

CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t log_size)
{
    (void)error, (void)log, (void)log_size;
    return CALL(cuGraphInstantiate, sim_graph_instantiate(out, graph, 0, NULL));
}

CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log,
                               size_t log_size)
{
    (void)error, (void)log, (void)log_size;
    return CALL(cuGraphInstantiate_v2, sim_graph_instantiate(out, graph, 0, NULL));
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    return CALL(cuGraphInstantiateWithFlags, sim_graph_instantiate(out, graph, flags, NULL));
}

static CUresult instantiate_with(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult result = params ? sim_graph_instantiate(out, graph, params->flags, params->hUploadStream)
                             : CUDA_ERROR_INVALID_VALUE;

    if (params) {
        params->hErrNode_out = NULL;
        params->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    }
    return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return CALL(cuGraphInstantiateWithParams, instantiate_with(out, graph, params));
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return CALL(cuGraphInstantiateWithParams_ptsz, instantiate_with(out, graph, params));
}

PAIR(cuGraphLaunch, (CUgraphExec exec, CUstream stream), sim_graph_launch(exec, stream))
PAIR(cuGraphUpload, (CUgraphExec exec, CUstream stream), sim_graph_upload(exec, stream))

SINGLE(cuGraphExecDestroy, sim_graph_exec_destroy(exec), CUgraphExec exec)

static CUresult update_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    CUresult result = sim_graph_exec_update(exec, graph);

    if (info)
        *info = (CUgraphExecUpdateResultInfo){.result = result == CUDA_SUCCESS
                                                            ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                            : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
    return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    return CALL(cuGraphExecUpdate_v2, update_v2(exec, graph, info));
}
