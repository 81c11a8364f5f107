/* cudart_graph: builds, queries and destroys graphs: the functions without a stream. No lock. */
#include "tools/simgpu/cudart/cudart_copy_shape.h"

_Static_assert(sizeof(struct cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS), "one layout for both");
_Static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo),
               "one layout for both");

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphCreate)(graph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphDestroy)(graph));
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t graph)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphClone)(clone, graph));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphGetNodes)(graph, nodes, count));
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphGetRootNodes)(graph, nodes, count));
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphNodeGetType)(node, (CUgraphNodeType *)type));
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphDestroyNode)(node));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                  size_t count)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphAddEmptyNode)(node, graph, after, count));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                       size_t count, cudaGraph_t child)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphAddChildGraphNode)(node, graph, after, count, child));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                 size_t count, const struct cudaHostNodeParams *params)
{
    if (!params)
        return cudart_end(cudaErrorInvalidValue);
    CUDA_HOST_NODE_PARAMS native = {.fn = params->fn, .userData = params->userData};
    return CUDART_IN_CONTEXT(DRV(cuGraphAddHostNode)(node, graph, after, count, &native));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                   size_t count, const struct cudaMemsetParams *params)
{
    CUcontext context = NULL;
    return CUDART_IN_CONTEXT(DRV(cuCtxGetCurrent)(&context)
                                 ?: DRV(cuGraphAddMemsetNode)(node, graph, after, count,
                                                              (const CUDA_MEMSET_NODE_PARAMS *)params,
                                                              context));
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                   size_t count, const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D shape;
    CUcontext context = NULL;
    if (!params)
        return cudart_end(cudaErrorInvalidValue);
    return CUDART_IN_CONTEXT(DRV(cuCtxGetCurrent)(&context) ?: cudart_copy_shape_3d(&shape, params)
                                 ?: DRV(cuGraphAddMemcpyNode)(node, graph, after, count, &shape, context));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                     size_t count, void *to, const void *from, size_t size,
                                     enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms row = {
        .srcPtr = {.ptr = (void *)(uintptr_t)from, .pitch = size, .xsize = size, .ysize = 1},
        .dstPtr = {.ptr = to, .pitch = size, .xsize = size, .ysize = 1},
        .extent = {.width = size, .height = 1, .depth = 1},
        .kind = kind,
    };
    return cudaGraphAddMemcpyNode(node, graph, after, count, &row);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphInstantiateWithFlags)(exec, graph, flags));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphExecUpdate)(exec, graph, (CUgraphExecUpdateResultInfo *)info));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return CUDART_IN_CONTEXT(DRV(cuGraphExecDestroy)(exec));
}
