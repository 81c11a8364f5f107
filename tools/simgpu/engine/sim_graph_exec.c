/* sim_graph_exec: executable graphs: a private copy of a graph, sorted by dependencies. See sim_graph.h. */
#include "tools/simgpu/engine/sim_graph.h"

#include "tools/simgpu/engine/sim_graph_memory.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_stream.h"
#include "tools/simgpu/engine/sim_stream_work.h"

#include <stdlib.h>

enum { MARK_NEW, MARK_OPEN, MARK_DONE };

struct CUgraphExec_st {
    struct CUgraph_st *graph;
    struct sim_nodes order;
    bool has_memory; /* has nodes that allocate or free */
    bool auto_free;  /* CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH */
};

static void count_nodes(struct CUgraph_st *graph, size_t *count)
{
    struct sim_link *at;

    for (at = graph->nodes.next; at != &graph->nodes; at = at->next) {
        struct CUgraphNode_st *node = LIST_ITEM(at, struct CUgraphNode_st, link);

        node->mark = MARK_NEW;
        (*count)++;
        if (node->child)
            count_nodes(node->child, count);
    }
}

static bool order_graph(struct CUgraph_st *graph, struct sim_nodes *order);

/* Appends a node to the order, behind all that it depends on. Returns false for a cycle. */
static bool order_node(struct CUgraphNode_st *node, struct sim_nodes *order)
{
    size_t i;

    if (node->mark != MARK_NEW)
        return node->mark == MARK_DONE;
    node->mark = MARK_OPEN;
    for (i = 0; i < node->after.count; i++)
        if (!order_node(node->after.items[i], order))
            return false;
    if (node->child && !order_graph(node->child, order))
        return false;
    node->mark = MARK_DONE;
    order->items[order->count++] = node;
    return true;
}

static bool order_graph(struct CUgraph_st *graph, struct sim_nodes *order)
{
    struct sim_link *at;

    for (at = graph->nodes.next; at != &graph->nodes; at = at->next)
        if (!order_node(LIST_ITEM(at, struct CUgraphNode_st, link), order))
            return false;
    return true;
}

static CUresult fill(struct CUgraphExec_st *exec, struct CUgraph_st *copy)
{
    size_t count = 0, i;

    count_nodes(copy, &count);
    exec->graph = copy;
    exec->order.items = malloc((count + 1) * sizeof(*exec->order.items));
    if (!exec->order.items)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!order_graph(copy, &exec->order))
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < exec->order.count; i++)
        exec->has_memory |= exec->order.items[i]->memory != NULL;
    return CUDA_SUCCESS;
}

static void free_exec(struct CUgraphExec_st *exec)
{
    sim_nodes_clear(&exec->order);
    sim_graph_delete(exec->graph);
    free(exec);
}

CUresult sim_graph_instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags, CUstream handle)
{
    struct CUstream_st *stream;
    struct CUgraphExec_st *exec;
    struct CUgraph_st *copy;
    CUresult result;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_graph_clone(&copy, graph));
    SIM_LOCKED();
    exec = calloc(1, sizeof(*exec));
    if (!exec) {
        sim_graph_delete(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = fill(exec, copy);
    exec->auto_free = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    if (result == CUDA_SUCCESS && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)) {
        result = sim_stream_find(handle, &stream);
        if (result == CUDA_SUCCESS)
            result = sim_graph_memory_back(&exec->order, true);
    }
    if (result == CUDA_SUCCESS && !sim_object_add(exec, OBJECT_EXEC))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *out = exec;
    else
        free_exec(exec);
    return result;
}

CUresult sim_graph_launch(CUgraphExec exec, CUstream handle)
{
    struct CUstream_st *stream;
    size_t i;

    SIM_LOCKED();
    if (!sim_object_is(exec, OBJECT_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_stream_find(handle, &stream));
    if (exec->has_memory && stream->capture)
        return CUDA_ERROR_NOT_SUPPORTED; /* it would become a child graph, which may not have memory nodes */
    if (exec->has_memory)
        SIM_TRY(sim_graph_memory_back(&exec->order, exec->auto_free));
    for (i = 0; i < exec->order.count; i++)
        if (exec->order.items[i]->work)
            SIM_TRY(sim_stream_submit(stream, sim_work_clone(exec->order.items[i]->work), false));
    if (exec->has_memory)
        sim_graph_memory_launched(&exec->order, stream);
    return CUDA_SUCCESS;
}

CUresult sim_graph_upload(CUgraphExec exec, CUstream handle)
{
    struct CUstream_st *stream;

    SIM_LOCKED();
    if (!sim_object_is(exec, OBJECT_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_stream_find(handle, &stream));
    return exec->has_memory ? sim_graph_memory_back(&exec->order, true) : CUDA_SUCCESS;
}

CUresult sim_graph_exec_destroy(CUgraphExec exec)
{
    SIM_LOCKED();
    if (!sim_object_is(exec, OBJECT_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    sim_object_remove(exec);
    free_exec(exec);
    return CUDA_SUCCESS;
}

/* Do two graphs differ only in the parameters of their nodes? An update may change nothing else. */
static bool same_shape(const struct sim_nodes *a, const struct sim_nodes *b)
{
    size_t i;

    if (a->count != b->count)
        return false;
    for (i = 0; i < a->count; i++)
        if (a->items[i]->type != b->items[i]->type || a->items[i]->after.count != b->items[i]->after.count)
            return false;
    return true;
}

CUresult sim_graph_exec_update(CUgraphExec exec, CUgraph graph)
{
    CUgraphExec fresh;
    CUresult result = sim_graph_instantiate(&fresh, graph, 0, NULL);

    if (result != CUDA_SUCCESS)
        return result;
    sim_lock_take();
    if (!sim_object_is(exec, OBJECT_EXEC)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (!same_shape(&exec->order, &fresh->order)) {
        result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    } else {
        struct CUgraphExec_st old = *exec;

        *exec = *fresh;
        exec->auto_free = old.auto_free;
        *fresh = old;
    }
    sim_lock_drop();
    sim_graph_exec_destroy(fresh);
    return result;
}
