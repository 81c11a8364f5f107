/* sim_graph: CUDA graphs: nodes of work with dependencies. See sim_graph.h. */
#include "tools/simgpu/engine/sim_graph.h"

#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"

#include <stdlib.h>
#include <string.h>

/* ---- graphs ---- */

struct CUgraph_st *sim_graph_new(void)
{
    struct CUgraph_st *graph = calloc(1, sizeof(*graph));

    if (!graph || !sim_object_add(graph, OBJECT_GRAPH)) {
        free(graph);
        return NULL;
    }
    sim_list_init(&graph->nodes);
    return graph;
}

static void free_node(struct CUgraphNode_st *node)
{
    sim_object_remove(node);
    sim_list_remove(&node->link);
    sim_nodes_clear(&node->after);
    sim_work_delete(node->work);
    if (node->child)
        sim_graph_delete(node->child);
    if (node->memory)
        node->count->drop(node);
    free(node);
}

void sim_graph_delete(struct CUgraph_st *graph)
{
    sim_object_remove(graph);
    while (!sim_list_empty(&graph->nodes))
        free_node(LIST_ITEM(graph->nodes.next, struct CUgraphNode_st, link));
    free(graph);
}

struct CUgraphNode_st *sim_graph_add(struct CUgraph_st *graph, CUgraphNodeType type, struct sim_work *work,
                                     const struct sim_nodes *after)
{
    struct CUgraphNode_st *node = calloc(1, sizeof(*node));

    if (!node) {
        sim_work_delete(work);
        return NULL;
    }
    node->graph = graph;
    node->type = type;
    node->work = work;
    sim_list_init(&node->link);
    if (!sim_nodes_add_all(&node->after, after) || !sim_object_add(node, OBJECT_NODE)) {
        free_node(node);
        return NULL;
    }
    sim_list_append(&graph->nodes, &node->link);
    return node;
}

static struct CUgraphNode_st *node_of(struct sim_link *link)
{
    return LIST_ITEM(link, struct CUgraphNode_st, link);
}

static void mark_before(const struct sim_nodes *from)
{
    size_t i;

    for (i = 0; i < from->count; i++)
        if (!from->items[i]->mark) {
            from->items[i]->mark = 1;
            mark_before(&from->items[i]->after);
        }
}

bool sim_graph_reaches(struct CUgraph_st *graph, const struct sim_nodes *from, const struct sim_nodes *wanted)
{
    struct sim_link *at;
    size_t i;

    for (at = graph->nodes.next; at != &graph->nodes; at = at->next)
        node_of(at)->mark = 0;
    mark_before(from);
    for (i = 0; i < wanted->count; i++)
        if (!wanted->items[i]->mark)
            return false;
    return true;
}

/* ---- copies ---- */

static struct CUgraphNode_st *copy_of(const struct CUgraphNode_st *wanted, struct CUgraph_st *from,
                                      struct CUgraph_st *to)
{
    struct sim_link *a, *b = to->nodes.next;

    for (a = from->nodes.next; a != &from->nodes; a = a->next, b = b->next)
        if (node_of(a) == wanted)
            return node_of(b);
    return NULL;
}

static struct CUgraph_st *clone_graph(struct CUgraph_st *graph);

/* Copies a node without its dependencies, which are set when every node has a copy. */
static bool clone_node(struct CUgraph_st *to, const struct CUgraphNode_st *node)
{
    struct sim_work *work = node->work ? sim_work_clone(node->work) : NULL;
    struct CUgraphNode_st *copy;

    if (node->work && !work)
        return false;
    copy = sim_graph_add(to, node->type, work, &(struct sim_nodes){NULL, 0});
    if (!copy)
        return false;
    copy->memory = node->memory;
    copy->count = node->count;
    copy->bytes = node->bytes;
    if (copy->memory)
        copy->count->hold(copy->memory);
    copy->child = node->child ? clone_graph(node->child) : NULL;
    return !node->child || copy->child;
}

static struct CUgraph_st *clone_graph(struct CUgraph_st *graph)
{
    struct CUgraph_st *to = sim_graph_new();
    struct sim_link *a, *b;
    bool good = to != NULL;
    size_t i;

    for (a = graph->nodes.next; good && a != &graph->nodes; a = a->next)
        good = clone_node(to, node_of(a));
    if (good)
        for (a = graph->nodes.next, b = to->nodes.next; a != &graph->nodes; a = a->next, b = b->next)
            for (i = 0; good && i < node_of(a)->after.count; i++)
                good = sim_nodes_add(&node_of(b)->after, copy_of(node_of(a)->after.items[i], graph, to));
    if (!good && to)
        sim_graph_delete(to);
    return good ? to : NULL;
}

CUresult sim_graph_clone(CUgraph *out, CUgraph graph)
{
    SIM_LOCKED();
    if (!out || !sim_object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    *out = clone_graph(graph);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- the driver's calls ---- */

CUresult sim_graph_create(CUgraph *out, unsigned int flags)
{
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    *out = sim_graph_new();
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_graph_destroy(CUgraph graph)
{
    SIM_LOCKED();
    if (!sim_object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_delete(graph);
    return CUDA_SUCCESS;
}

bool sim_graph_valid_after(const struct CUgraph_st *graph, const CUgraphNode *after, size_t count)
{
    size_t i;

    if (count > 0 && !after)
        return false;
    for (i = 0; i < count; i++)
        if (!sim_object_is(after[i], OBJECT_NODE) || after[i]->graph != graph)
            return false;
    return true;
}

static CUresult add_checked(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                            CUgraphNodeType type, struct sim_work *work)
{
    struct sim_nodes set = {(struct CUgraphNode_st **)(uintptr_t)after, count};

    if (!out || !sim_object_is(graph, OBJECT_GRAPH) || !sim_graph_valid_after(graph, after, count)) {
        sim_work_delete(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = sim_graph_add(graph, type, work, &set);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_graph_add_work(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                            CUgraphNodeType type, struct sim_work *work)
{
    SIM_LOCKED();
    return add_checked(out, graph, after, count, type, work);
}

CUresult sim_graph_add_child(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                             CUgraph child)
{
    struct CUgraph_st *copy;
    CUresult result;

    SIM_LOCKED();
    if (!sim_object_is(child, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    copy = clone_graph(child);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = add_checked(out, graph, after, count, CU_GRAPH_NODE_TYPE_GRAPH, NULL);
    if (result == CUDA_SUCCESS)
        (*out)->child = copy;
    else
        sim_graph_delete(copy);
    return result;
}

static void forget_node(struct CUgraph_st *graph, const struct CUgraphNode_st *node)
{
    struct sim_link *at;
    size_t i;

    for (at = graph->nodes.next; at != &graph->nodes; at = at->next) {
        struct sim_nodes *after = &node_of(at)->after;

        for (i = 0; i < after->count; i++)
            if (after->items[i] == node)
                after->items[i--] = after->items[--after->count];
    }
}

CUresult sim_graph_destroy_node(CUgraphNode node)
{
    SIM_LOCKED();
    if (!sim_object_is(node, OBJECT_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    forget_node(node->graph, node);
    free_node(node);
    return CUDA_SUCCESS;
}

CUresult sim_graph_get_nodes(CUgraph graph, CUgraphNode *out, size_t *count, bool roots_only)
{
    struct sim_link *at;
    size_t found = 0;

    SIM_LOCKED();
    if (!count || !sim_object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    for (at = graph->nodes.next; at != &graph->nodes; at = at->next) {
        if (roots_only && node_of(at)->after.count)
            continue;
        if (out && found < *count)
            out[found] = node_of(at);
        found++;
    }
    *count = found;
    return CUDA_SUCCESS;
}

CUresult sim_graph_get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    struct sim_link *at;
    size_t found = 0, i;

    SIM_LOCKED();
    if (!count || !sim_object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    for (at = graph->nodes.next; at != &graph->nodes; at = at->next)
        for (i = 0; i < node_of(at)->after.count; i++, found++)
            if (from && to && found < *count) {
                from[found] = node_of(at)->after.items[i];
                to[found] = node_of(at);
            }
    *count = found;
    return CUDA_SUCCESS;
}

CUresult sim_graph_get_after(CUgraphNode node, CUgraphNode *out, size_t *count)
{
    size_t i;

    SIM_LOCKED();
    if (!count || !sim_object_is(node, OBJECT_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; out && i < node->after.count && i < *count; i++)
        out[i] = node->after.items[i];
    *count = node->after.count;
    return CUDA_SUCCESS;
}

CUresult sim_graph_node_type(CUgraphNode node, CUgraphNodeType *out)
{
    SIM_LOCKED();
    if (!out || !sim_object_is(node, OBJECT_NODE))
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->type;
    return CUDA_SUCCESS;
}

CUresult sim_graph_child(CUgraphNode node, CUgraph *out)
{
    SIM_LOCKED();
    if (!out || !sim_object_is(node, OBJECT_NODE) || !node->child)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->child;
    return CUDA_SUCCESS;
}

CUresult sim_graph_kernel_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *out)
{
    const struct sim_work_kernel *kernel;
    bool by_kernel;

    SIM_LOCKED();
    if (!out || !sim_object_is(node, OBJECT_NODE) || node->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    kernel = &node->work->kernel;
    by_kernel = sim_object_is(kernel->handle, OBJECT_KERNEL);
    *out = (CUDA_KERNEL_NODE_PARAMS){.func = by_kernel ? NULL : kernel->handle,
                                     .kern = by_kernel ? (CUkernel)kernel->handle : NULL,
                                     .gridDimX = kernel->grid.x,
                                     .gridDimY = kernel->grid.y,
                                     .gridDimZ = kernel->grid.z,
                                     .blockDimX = kernel->block.x,
                                     .blockDimY = kernel->block.y,
                                     .blockDimZ = kernel->block.z,
                                     .kernelParams = node->work->owned};
    return CUDA_SUCCESS;
}

CUresult sim_graph_add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    size_t i;

    SIM_LOCKED();
    if (!sim_object_is(graph, OBJECT_GRAPH) || !sim_graph_valid_after(graph, from, count) ||
        !sim_graph_valid_after(graph, to, count))
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < count; i++)
        if (!sim_nodes_add(&to[i]->after, from[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}
