/* graph: pieces of work and what they depend on. See graph.h. */
#include "tools/simgpu/engine/sim_graph.h"

#include "tools/simgpu/engine/sim_graph_memory.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"

#include <stdlib.h>
#include <string.h>

/* ---- sets of nodes ---- */

bool nodes_contain(const struct nodes *set, const struct CUgraphNode_st *node)
{
    size_t i;

    for (i = 0; i < set->count; i++)
        if (set->items[i] == node)
            return true;
    return false;
}

bool nodes_add(struct nodes *set, struct CUgraphNode_st *node)
{
    struct CUgraphNode_st **items;

    if (nodes_contain(set, node))
        return true;
    items = realloc(set->items, (set->count + 1) * sizeof(*items));
    if (!items)
        return false;
    items[set->count++] = node;
    set->items = items;
    return true;
}

bool nodes_add_all(struct nodes *set, const struct nodes *other)
{
    size_t i;

    for (i = 0; i < other->count; i++)
        if (!nodes_add(set, other->items[i]))
            return false;
    return true;
}

void nodes_clear(struct nodes *set)
{
    free(set->items);
    *set = (struct nodes){NULL, 0};
}

/* ---- graphs ---- */

struct CUgraph_st *graph_new(void)
{
    struct CUgraph_st *graph = calloc(1, sizeof(*graph));

    if (!graph || !object_add(graph, OBJECT_GRAPH)) {
        free(graph);
        return NULL;
    }
    list_init(&graph->nodes);
    return graph;
}

static void free_node(struct CUgraphNode_st *node)
{
    object_remove(node);
    list_remove(&node->link);
    nodes_clear(&node->after);
    work_delete(node->work);
    if (node->child)
        graph_delete(node->child);
    if (node->memory)
        graph_memory_drop(node);
    free(node);
}

void graph_delete(struct CUgraph_st *graph)
{
    object_remove(graph);
    while (!list_empty(&graph->nodes))
        free_node(LIST_ITEM(graph->nodes.next, struct CUgraphNode_st, link));
    free(graph);
}

struct CUgraphNode_st *graph_add(struct CUgraph_st *graph, CUgraphNodeType type, struct work *work,
                                 const struct nodes *after)
{
    struct CUgraphNode_st *node = calloc(1, sizeof(*node));

    if (!node) {
        work_delete(work);
        return NULL;
    }
    node->graph = graph;
    node->type = type;
    node->work = work;
    list_init(&node->link);
    if (!nodes_add_all(&node->after, after) || !object_add(node, OBJECT_NODE)) {
        free_node(node);
        return NULL;
    }
    list_append(&graph->nodes, &node->link);
    return node;
}

static struct CUgraphNode_st *node_of(struct link *link)
{
    return LIST_ITEM(link, struct CUgraphNode_st, link);
}

static void mark_all(struct CUgraph_st *graph, unsigned int mark)
{
    struct link *at;

    for (at = graph->nodes.next; at != &graph->nodes; at = at->next)
        node_of(at)->mark = mark;
}

static void mark_before(const struct nodes *from)
{
    size_t i;

    for (i = 0; i < from->count; i++)
        if (!from->items[i]->mark) {
            from->items[i]->mark = 1;
            mark_before(&from->items[i]->after);
        }
}

bool graph_reaches(struct CUgraph_st *graph, const struct nodes *from, const struct nodes *wanted)
{
    size_t i;

    mark_all(graph, 0);
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
    struct link *a, *b = to->nodes.next;

    for (a = from->nodes.next; a != &from->nodes; a = a->next, b = b->next)
        if (node_of(a) == wanted)
            return node_of(b);
    return NULL;
}

static struct CUgraph_st *clone_graph(struct CUgraph_st *graph);

/* Dependencies are filled in afterwards, when every node has its copy. */
static bool clone_node(struct CUgraph_st *to, const struct CUgraphNode_st *node)
{
    struct work *work = node->work ? work_clone(node->work) : NULL;
    struct CUgraphNode_st *copy;

    if (node->work && !work)
        return false;
    copy = graph_add(to, node->type, work, &(struct nodes){NULL, 0});
    if (!copy)
        return false;
    copy->memory = node->memory;
    copy->bytes = node->bytes;
    if (copy->memory)
        graph_memory_hold(copy->memory);
    copy->child = node->child ? clone_graph(node->child) : NULL;
    return !node->child || copy->child;
}

static struct CUgraph_st *clone_graph(struct CUgraph_st *graph)
{
    struct CUgraph_st *to = graph_new();
    struct link *a, *b;
    bool good = to != NULL;
    size_t i;

    for (a = graph->nodes.next; good && a != &graph->nodes; a = a->next)
        good = clone_node(to, node_of(a));
    if (good)
        for (a = graph->nodes.next, b = to->nodes.next; a != &graph->nodes; a = a->next, b = b->next)
            for (i = 0; good && i < node_of(a)->after.count; i++)
                good = nodes_add(&node_of(b)->after, copy_of(node_of(a)->after.items[i], graph, to));
    if (!good && to)
        graph_delete(to);
    return good ? to : NULL;
}

CUresult graph_clone(CUgraph *out, CUgraph graph)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    lock_take();
    if (out && object_is(graph, OBJECT_GRAPH)) {
        *out = clone_graph(graph);
        result = *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    lock_drop();
    return result;
}

/* ---- the driver's calls ---- */

CUresult graph_create(CUgraph *out, unsigned int flags)
{
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    *out = graph_new();
    lock_drop();
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult graph_destroy(CUgraph graph)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    lock_take();
    if (object_is(graph, OBJECT_GRAPH)) {
        graph_delete(graph);
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

bool graph_valid_after(const struct CUgraph_st *graph, const CUgraphNode *after, size_t count)
{
    size_t i;

    if (count > 0 && !after)
        return false;
    for (i = 0; i < count; i++)
        if (!object_is(after[i], OBJECT_NODE) || after[i]->graph != graph)
            return false;
    return true;
}

static CUresult add_checked(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                            CUgraphNodeType type, struct work *work)
{
    struct nodes set = {(struct CUgraphNode_st **)(uintptr_t)after, count};

    if (!out || !object_is(graph, OBJECT_GRAPH) || !graph_valid_after(graph, after, count)) {
        work_delete(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = graph_add(graph, type, work, &set);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult graph_add_work(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                        CUgraphNodeType type, struct work *work)
{
    CUresult result;

    lock_take();
    result = add_checked(out, graph, after, count, type, work);
    lock_drop();
    return result;
}

CUresult graph_add_child(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                         CUgraph child)
{
    struct CUgraph_st *copy;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    lock_take();
    if (object_is(child, OBJECT_GRAPH)) {
        copy = clone_graph(child);
        result = copy ? add_checked(out, graph, after, count, CU_GRAPH_NODE_TYPE_GRAPH, NULL)
                      : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            (*out)->child = copy;
        else if (copy)
            graph_delete(copy);
    }
    lock_drop();
    return result;
}

static void forget_node(struct CUgraph_st *graph, const struct CUgraphNode_st *node)
{
    struct link *at;
    size_t i;

    for (at = graph->nodes.next; at != &graph->nodes; at = at->next) {
        struct nodes *after = &node_of(at)->after;

        for (i = 0; i < after->count; i++)
            if (after->items[i] == node)
                after->items[i--] = after->items[--after->count];
    }
}

CUresult graph_destroy_node(CUgraphNode node)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    lock_take();
    if (object_is(node, OBJECT_NODE)) {
        forget_node(node->graph, node);
        free_node(node);
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

CUresult graph_get_nodes(CUgraph graph, CUgraphNode *out, size_t *count, bool roots_only)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct link *at;
    size_t found = 0;

    lock_take();
    if (count && object_is(graph, OBJECT_GRAPH)) {
        for (at = graph->nodes.next; at != &graph->nodes; at = at->next) {
            if (roots_only && node_of(at)->after.count)
                continue;
            if (out && found < *count)
                out[found] = node_of(at);
            found++;
        }
        *count = found;
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

CUresult graph_get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct link *at;
    size_t found = 0, i;

    lock_take();
    if (count && object_is(graph, OBJECT_GRAPH)) {
        for (at = graph->nodes.next; at != &graph->nodes; at = at->next)
            for (i = 0; i < node_of(at)->after.count; i++, found++)
                if (from && to && found < *count) {
                    from[found] = node_of(at)->after.items[i];
                    to[found] = node_of(at);
                }
        *count = found;
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

CUresult graph_get_after(CUgraphNode node, CUgraphNode *out, size_t *count)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    size_t i;

    lock_take();
    if (count && object_is(node, OBJECT_NODE)) {
        for (i = 0; out && i < node->after.count && i < *count; i++)
            out[i] = node->after.items[i];
        *count = node->after.count;
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

CUresult graph_node_type(CUgraphNode node, CUgraphNodeType *out)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    lock_take();
    if (out && object_is(node, OBJECT_NODE)) {
        *out = node->type;
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

CUresult graph_child(CUgraphNode node, CUgraph *out)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    lock_take();
    if (out && object_is(node, OBJECT_NODE) && node->child) {
        *out = node->child;
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

CUresult graph_kernel_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *out)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    lock_take();
    if (out && object_is(node, OBJECT_NODE) && node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const struct work_kernel *kernel = &node->work->kernel;
        const bool by_kernel = object_is(kernel->handle, OBJECT_KERNEL);

        *out = (CUDA_KERNEL_NODE_PARAMS){.func = by_kernel ? NULL : kernel->handle,
                                         .kern = by_kernel ? (CUkernel)kernel->handle : NULL,
                                         .gridDimX = kernel->grid.x,
                                         .gridDimY = kernel->grid.y,
                                         .gridDimZ = kernel->grid.z,
                                         .blockDimX = kernel->block.x,
                                         .blockDimY = kernel->block.y,
                                         .blockDimZ = kernel->block.z,
                                         .kernelParams = node->work->owned};
        result = CUDA_SUCCESS;
    }
    lock_drop();
    return result;
}

CUresult graph_add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    size_t i;

    lock_take();
    if (!object_is(graph, OBJECT_GRAPH) || !graph_valid_after(graph, from, count) ||
        !graph_valid_after(graph, to, count))
        result = CUDA_ERROR_INVALID_VALUE;
    for (i = 0; result == CUDA_SUCCESS && i < count; i++)
        if (!nodes_add(&to[i]->after, from[i]))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    lock_drop();
    return result;
}
