/* sim_graph_memory: the memory of allocation nodes. See sim_graph_memory.h. */
#include "tools/simgpu/engine/sim_graph_memory.h"

#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_va.h"

#include <stdlib.h>
#include <sys/mman.h>

static struct sim_link memories = {&memories, &memories};

static struct sim_graph_memory *of_link(struct sim_link *link)
{
    return LIST_ITEM(link, struct sim_graph_memory, link);
}

static struct sim_graph_pool *pool_of(const struct sim_graph_memory *memory)
{
    return &sim_device_get(memory->block->device)->graphs;
}

/* ---- mapping memory ---- */

static CUresult take(struct sim_graph_memory *memory)
{
    struct sim_graph_pool *pool = pool_of(memory);
    const uint64_t size = memory->block->extent, kept = pool->idle < size ? pool->idle : size;
    CUresult result;

    /* Reserved bytes stay charged, so that another process never sees the card's use drop for a moment. */
    result = sim_phys_create_paid(memory->block->device, size, kept, &memory->phys);
    if (result == CUDA_SUCCESS)
        pool->idle -= kept;
    if (result == CUDA_SUCCESS &&
        !sim_va_back(memory->block->range.start, memory->phys, PROT_READ | PROT_WRITE)) {
        sim_phys_drop(memory->phys);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        memory->phys = NULL;
        return result;
    }
    pool->used += size;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (pool->used + pool->idle > pool->reserved_high)
        pool->reserved_high = pool->used + pool->idle;
    return CUDA_SUCCESS;
}

/* Unmaps and frees the memory. With `keep` its bytes stay charged, as reserved for other graphs. */
static void give(struct sim_graph_memory *memory, bool keep)
{
    struct sim_graph_pool *pool = pool_of(memory);
    const uint64_t size = memory->block->extent;

    if (!memory->phys)
        return;
    sim_va_unback(memory->block->range.start, size);
    if (keep)
        sim_phys_drop_paid(memory->phys);
    else
        sim_phys_drop(memory->phys);
    memory->phys = NULL;
    pool->used -= size;
    pool->idle += keep ? size : 0;
}

static void end(struct sim_graph_memory *memory)
{
    give(memory, true);
    sim_va_release(memory->block->range.start, memory->block->extent);
    sim_block_withdraw(memory->block);
    sim_block_delete(memory->block);
    sim_ops_clear(&memory->busy);
    sim_list_remove(&memory->link);
    free(memory);
}

static bool at_rest(const struct sim_graph_memory *memory)
{
    return !memory->live && sim_ops_done(&memory->busy);
}

void sim_graph_memory_settle(void)
{
    struct sim_link *at, *next;

    for (at = memories.next; at != &memories; at = next) {
        next = at->next;
        if (of_link(at)->refs == 0 && at_rest(of_link(at)))
            end(of_link(at));
    }
}

static void hold(struct sim_graph_memory *memory)
{
    memory->refs++;
}

/* Memory that a graph has left allocated, or that work still uses, outlives the graph. */
static void drop(const struct CUgraphNode_st *node)
{
    struct sim_graph_memory *memory = node->memory;

    if (memory->owner == node->graph)
        memory->owner = NULL;
    if (memory->freed_by == node)
        memory->freed_by = NULL;
    if (--memory->refs == 0 && at_rest(memory))
        end(memory);
}

static const struct sim_memory_count counting = {hold, drop};

static void trim(CUdevice device)
{
    struct sim_graph_pool *pool = &sim_device_get(device)->graphs;
    struct sim_link *at;

    sim_graph_memory_settle();
    for (at = memories.next; at != &memories; at = at->next)
        if (of_link(at)->block->device == device && at_rest(of_link(at)))
            give(of_link(at), false);
    sim_card_uncharge(sim_device_get(device)->card, pool->idle);
    pool->idle = 0;
}

void sim_graph_memory_end_context(const struct CUctx_st *context)
{
    struct sim_link *at;

    for (at = memories.next; at != &memories; at = at->next)
        if (of_link(at)->block->context == context) {
            of_link(at)->live = false;
            sim_ops_clear(&of_link(at)->busy);
            of_link(at)->block->context = NULL;
        }
}

/* ---- nodes ---- */

static struct sim_graph_memory *new_memory(const struct CUgraph_st *graph, struct CUctx_st *context,
                                           CUdevice device, size_t size)
{
    struct sim_graph_memory *memory = calloc(1, sizeof(*memory));
    struct sim_block *block = sim_block_new(BLOCK_POOLED, context, device);

    if (!memory || !block)
        goto fail;
    block->range.size = size;
    block->extent = sim_phys_round(size);
    block->range.start = block->extent ? sim_va_reserve(block->extent, 0, 0) : 0;
    if (!block->range.start)
        goto fail;
    if (!sim_block_publish(block)) {
        sim_va_release(block->range.start, block->extent);
        goto fail;
    }
    sim_list_remove(&block->link); /* owned by the graph, not by the context */
    block->graph = memory;
    memory->block = block;
    memory->owner = graph;
    sim_list_append(&memories, &memory->link);
    return memory;
fail:
    if (block)
        sim_block_delete(block);
    free(memory);
    return NULL;
}

/* Finds addresses, large enough and not taken since, whose free the new node depends on. */
static struct sim_graph_memory *freed_before(struct CUgraph_st *graph, const struct sim_nodes *after,
                                             CUdevice device, size_t size)
{
    struct sim_link *at;

    for (at = graph->nodes.next; at != &graph->nodes; at = at->next) {
        struct CUgraphNode_st *node = LIST_ITEM(at, struct CUgraphNode_st, link);
        struct sim_graph_memory *memory = node->memory;

        if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && memory->freed_by == node && memory->owner == graph &&
            memory->block->device == device && memory->block->range.size >= size &&
            sim_graph_reaches(graph, after, &(struct sim_nodes){&node, 1}))
            return memory;
    }
    return NULL;
}

static struct CUgraphNode_st *add_node(struct CUgraph_st *graph, const struct sim_nodes *after,
                                       CUgraphNodeType type, struct sim_graph_memory *memory, size_t size)
{
    struct CUgraphNode_st *node = sim_graph_add(graph, type, NULL, after);

    if (!node)
        return NULL;
    hold(memory);
    node->memory = memory;
    node->count = &counting;
    node->bytes = size;
    return node;
}

CUresult sim_graph_memory_add(struct CUgraph_st *graph, const struct sim_nodes *after,
                              struct CUctx_st *context, CUdevice device, size_t size,
                              struct CUgraphNode_st **out)
{
    struct sim_graph_memory *memory = freed_before(graph, after, device, size);

    if (!memory)
        memory = new_memory(graph, context, device, size);
    *out = memory ? add_node(graph, after, CU_GRAPH_NODE_TYPE_MEM_ALLOC, memory, size) : NULL;
    if (*out)
        memory->freed_by = NULL;
    else
        sim_graph_memory_settle();
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_graph_memory_add_free(struct CUgraph_st *graph, const struct sim_nodes *after,
                                   CUdeviceptr address, struct CUgraphNode_st **out)
{
    struct sim_block *block = sim_block_find(address);

    if (!block || block->range.start != address || !block->graph || block->graph->freed_by)
        return CUDA_ERROR_INVALID_VALUE;
    *out = add_node(graph, after, CU_GRAPH_NODE_TYPE_MEM_FREE, block->graph, 0);
    if (!*out)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (block->graph->owner == graph)
        block->graph->freed_by = *out;
    return CUDA_SUCCESS;
}

/* ---- launches ---- */

static void give_back_from(const struct sim_nodes *order, const bool *fresh)
{
    size_t i;

    for (i = 0; i < order->count; i++)
        if (fresh[i])
            give(order->items[i]->memory, false);
}

static CUresult back_all(const struct sim_nodes *order, bool *fresh)
{
    CUresult result = CUDA_SUCCESS;
    size_t i;

    for (i = 0; i < order->count; i++)
        fresh[i] = false;
    for (i = 0; result == CUDA_SUCCESS && i < order->count; i++) {
        const struct CUgraphNode_st *node = order->items[i];

        if (node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->memory->phys)
            continue;
        result = take(node->memory);
        fresh[i] = result == CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS)
        give_back_from(order, fresh);
    return result;
}

CUresult sim_graph_memory_back(const struct sim_nodes *order, bool auto_free)
{
    bool *fresh = calloc(order->count + 1, sizeof(*fresh));
    CUresult result;
    CUdevice device;
    size_t i;

    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = CUDA_SUCCESS;
    for (i = 0; i < order->count; i++)
        if (order->items[i]->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && order->items[i]->memory->live &&
            !auto_free)
            result = CUDA_ERROR_INVALID_VALUE; /* documented at cuGraphLaunch */
    if (result == CUDA_SUCCESS)
        result = back_all(order, fresh);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        for (device = 0; device < sim_device_count(); device++)
            trim(device);
        result = back_all(order, fresh);
    }
    free(fresh);
    return result;
}

static void note_work(struct sim_graph_memory *memory, struct CUstream_st *stream)
{
    struct sim_ops pending;

    if (!sim_stream_pending(stream, &pending))
        return;
    sim_ops_join(&memory->busy, &pending);
    sim_ops_clear(&pending);
}

void sim_graph_memory_launched(const struct sim_nodes *order, struct CUstream_st *stream)
{
    size_t i;

    for (i = 0; i < order->count; i++) {
        const struct CUgraphNode_st *node = order->items[i];

        if (!node->memory)
            continue;
        node->memory->live = node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        note_work(node->memory, stream);
    }
}

void sim_graph_memory_free(struct sim_graph_memory *memory, struct CUstream_st *stream)
{
    memory->live = false;
    if (stream)
        note_work(memory, stream);
    sim_graph_memory_settle();
}

/* ---- the driver's calls ---- */

static bool valid(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count)
{
    return out && sim_object_is(graph, OBJECT_GRAPH) && sim_graph_valid_after(graph, after, count);
}

CUresult sim_graph_memory_alloc_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                     CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    struct sim_nodes set = {(struct CUgraphNode_st **)(uintptr_t)after, count};
    struct CUctx_st *context;

    if (!params || params->bytesize == 0 || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !sim_device_get(params->poolProps.location.id))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    if (!valid(out, graph, after, count))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_graph_memory_add(graph, &set, context, params->poolProps.location.id, params->bytesize, out));
    params->dptr = (*out)->memory->block->range.start;
    return CUDA_SUCCESS;
}

CUresult sim_graph_memory_free_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                    CUdeviceptr address)
{
    struct sim_nodes set = {(struct CUgraphNode_st **)(uintptr_t)after, count};

    SIM_LOCKED();
    if (!valid(out, graph, after, count))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_graph_memory_add_free(graph, &set, address, out);
}

CUresult sim_graph_memory_alloc_params(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    SIM_LOCKED();
    if (!params || !sim_object_is(node, OBJECT_NODE) || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *params = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, node->memory->block->device}},
        .bytesize = node->bytes,
        .dptr = node->memory->block->range.start};
    return CUDA_SUCCESS;
}

CUresult sim_graph_memory_free_params(CUgraphNode node, CUdeviceptr *address)
{
    SIM_LOCKED();
    if (!address || !sim_object_is(node, OBJECT_NODE) || node->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *address = node->memory->block->range.start;
    return CUDA_SUCCESS;
}

CUresult sim_graph_memory_attribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    const struct sim_graph_pool *pool;
    cuuint64_t *out = value;

    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    sim_graph_memory_settle();
    pool = &sim_device_get(device)->graphs;
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *out = pool->used;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *out = pool->used_high;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *out = pool->used + pool->idle;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *out = pool->reserved_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_graph_memory_set_attribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    struct sim_graph_pool *pool;

    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || *(cuuint64_t *)value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    pool = &sim_device_get(device)->graphs;
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        pool->used_high = pool->used;
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        pool->reserved_high = pool->used + pool->idle;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult sim_graph_memory_trim(CUdevice device)
{
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_LOCKED();
    trim(device);
    return CUDA_SUCCESS;
}
