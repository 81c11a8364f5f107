/* bridge_graph_build: entry points that make graphs and their nodes. Only checks arguments; see
 * engine/sim_graph.h. */
#include "tools/simgpu/engine/sim_graph.h"

#include "tools/simgpu/bridge/bridge_call.h"

#include "tools/simgpu/engine/sim_batch.h"
#include "tools/simgpu/engine/sim_copy.h"
#include "tools/simgpu/engine/sim_graph_memory.h"
#include "tools/simgpu/engine/sim_kernel.h"

SINGLE(cuGraphCreate, sim_graph_create(out, flags), CUgraph *out, unsigned int flags)
SINGLE(cuGraphDestroy, sim_graph_destroy(graph), CUgraph graph)
SINGLE(cuGraphClone, sim_graph_clone(out, graph), CUgraph *out, CUgraph graph)

CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count)
{
    return CALL(cuGraphAddEmptyNode,
                sim_graph_add_work(out, graph, after, count, CU_GRAPH_NODE_TYPE_EMPTY, NULL));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                  CUgraph child)
{
    return CALL(cuGraphAddChildGraphNode, sim_graph_add_child(out, graph, after, count, child));
}

static CUresult add_host(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                         const CUDA_HOST_NODE_PARAMS *params)
{
    struct sim_work *work;

    if (!params || !params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    work = sim_work_new(WORK_HOST);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->host.function = params->fn;
    work->host.data = params->userData;
    return sim_graph_add_work(out, graph, after, count, CU_GRAPH_NODE_TYPE_HOST, work);
}

CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                            const CUDA_HOST_NODE_PARAMS *params)
{
    return CALL(cuGraphAddHostNode, add_host(out, graph, after, count, params));
}

static CUresult add_copy(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                         const CUDA_MEMCPY3D *params)
{
    struct sim_work *work;
    CUresult result = sim_copy_3d_work(params, &work);

    return result ? result : sim_graph_add_work(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEMCPY, work);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_MEMCPY3D *params, CUcontext context)
{
    (void)context; /* addresses are the same in all contexts */
    return CALL(cuGraphAddMemcpyNode, add_copy(out, graph, after, count, params));
}

static CUresult add_fill(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                         const CUDA_MEMSET_NODE_PARAMS *params)
{
    struct sim_work *work;
    CUresult result = sim_copy_fill_work(params, &work);

    return result ? result : sim_graph_add_work(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEMSET, work);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    (void)context;
    return CALL(cuGraphAddMemsetNode, add_fill(out, graph, after, count, params));
}

static CUresult add_kernel(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                           const struct sim_kernel_launch *launch)
{
    struct sim_work *work;
    CUresult result = sim_kernel_work(launch, &work);

    return result ? result : sim_graph_add_work(out, graph, after, count, CU_GRAPH_NODE_TYPE_KERNEL, work);
}

/* All versions of the parameters have these fields. */
#define LAUNCH_OF(p, kernel)                                                                                 \
    (&(struct sim_kernel_launch){.function = kernel,                                                         \
                                 .grid = {(p)->gridDimX, (p)->gridDimY, (p)->gridDimZ},                      \
                                 .block = {(p)->blockDimX, (p)->blockDimY, (p)->blockDimZ},                  \
                                 .parameters = (p)->kernelParams,                                            \
                                 .extra = (p)->extra})
#define KERNEL_OF(p) ((p)->func ? (p)->func : (CUfunction)(p)->kern)

CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    return CALL(cuGraphAddKernelNode,
                params ? add_kernel(out, graph, after, count, LAUNCH_OF(params, params->func))
                       : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *params)
{
    return CALL(cuGraphAddKernelNode_v2,
                params ? add_kernel(out, graph, after, count, LAUNCH_OF(params, KERNEL_OF(params)))
                       : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    return CALL(cuGraphAddMemAllocNode, sim_graph_memory_alloc_node(out, graph, after, count, params));
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                               CUdeviceptr address)
{
    return CALL(cuGraphAddMemFreeNode, sim_graph_memory_free_node(out, graph, after, count, address));
}

static CUresult add_batch(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                          const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    struct sim_work *work;
    CUresult result = params ? sim_batch_work(params->paramArray, params->count, params->flags, &work)
                             : CUDA_ERROR_INVALID_VALUE;

    return result ? result
                  : sim_graph_add_work(out, graph, after, count, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, work);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    return CALL(cuGraphAddBatchMemOpNode, add_batch(out, graph, after, count, params));
}

static CUresult add_alloc(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                          CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params)
{
    CUDA_MEM_ALLOC_NODE_PARAMS_v1 first = {.poolProps = params->poolProps,
                                           .accessDescs = params->accessDescs,
                                           .accessDescCount = params->accessDescCount,
                                           .bytesize = params->bytesize};
    CUresult result = sim_graph_memory_alloc_node(out, graph, after, count, &first);

    params->dptr = first.dptr;
    return result;
}

/* Adds a node of any type that simgpu supports. */
static CUresult add_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                         CUgraphNodeParams *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return sim_graph_add_work(out, graph, after, count, CU_GRAPH_NODE_TYPE_EMPTY, NULL);
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return add_kernel(out, graph, after, count, LAUNCH_OF(&params->kernel, KERNEL_OF(&params->kernel)));
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return add_copy(out, graph, after, count, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return add_fill(out, graph, after, count,
                        &(CUDA_MEMSET_NODE_PARAMS){
                            .dst = params->memset.dst,
                            .pitch = params->memset.pitch,
                            .value = params->memset.value,
                            .elementSize = params->memset.elementSize,
                            .width = params->memset.width,
                            .height = params->memset.height,
                        });
    case CU_GRAPH_NODE_TYPE_HOST:
        return add_host(out, graph, after, count,
                        &(CUDA_HOST_NODE_PARAMS){params->host.fn, params->host.userData});
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return sim_graph_add_child(out, graph, after, count, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return add_alloc(out, graph, after, count, &params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return sim_graph_memory_free_node(out, graph, after, count, params->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return add_batch(out, graph, after, count,
                         &(CUDA_BATCH_MEM_OP_NODE_PARAMS){.ctx = params->memOp.ctx,
                                                          .count = params->memOp.count,
                                                          .paramArray = params->memOp.paramArray,
                                                          .flags = params->memOp.flags});
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                        CUgraphNodeParams *params)
{
    return CALL(cuGraphAddNode, add_node(out, graph, after, count, params));
}

CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    (void)edges; /* edges have no data in simgpu */
    return CALL(cuGraphAddNode_v2, add_node(out, graph, after, count, params));
}

SINGLE(cuGraphDestroyNode, sim_graph_destroy_node(node), CUgraphNode node)

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    return CALL(cuGraphAddDependencies, sim_graph_add_edges(graph, from, to, count));
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t count)
{
    (void)edges;
    return CALL(cuGraphAddDependencies_v2, sim_graph_add_edges(graph, from, to, count));
}
