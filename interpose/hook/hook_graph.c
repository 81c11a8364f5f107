/* Hooks on graphs that allocate. Their memory is taken at a launch or an upload, so it is asked for here like
 * the growth of a context. Graphs without allocation nodes cost one load per launch. Owns no lock; graphs.c
 * decides what a launch may need. */
#include <stdlib.h>

#include "interpose/account/graphs.h"
#include "interpose/hook/growth.h"
#include "interpose/hook/hooks.h"
#include "interpose/hook/seen.h"
#include "interpose/hook/submit.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/pool/streams.h"
#include "interpose/refusal.h"
#include "interpose/route.h"
#include "interpose/settings/log.h"

/* ---- what a graph allocates, and its kernels' stacks ---- */

struct found {
    struct graphs_range *items;
    size_t count, capacity;
    uint64_t stack;  /* largest stack per thread of a kernel */
    CUresult result; /* why not everything could be listed */
};

static void look_at_kernel(struct found *found, CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS_v2 params = {.func = NULL};

    if (driver.cuGraphKernelNodeGetParams_v2(node, &params) != CUDA_SUCCESS)
        return;
    CUfunction kernel = params.func ? params.func : (CUfunction)params.kern;
    const uint64_t stack = kernel ? growth_stack_of(kernel) : 0;
    found->stack = stack > found->stack ? stack : found->stack;
}

static void note(struct found *found, const CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    const CUmemLocation *where = &params->poolProps.location;

    if (where->type != CU_MEM_LOCATION_TYPE_DEVICE || !(device_get(where->id) || device_guarded(where->id)))
        return;
    if (found->count == found->capacity) {
        const size_t capacity = found->capacity ? 2 * found->capacity : 16;
        struct graphs_range *larger = realloc(found->items, capacity * sizeof(*larger));

        if (!larger) {
            found->result = CUDA_ERROR_OUT_OF_MEMORY;
            return;
        }
        found->items = larger;
        found->capacity = capacity;
    }
    found->items[found->count++] = (struct graphs_range){where->id, params->dptr, params->bytesize};
}

static void walk(struct found *found, CUgraph graph);

static void look_at(struct found *found, CUgraphNode node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = 0};
    CUgraphNodeType type;
    CUgraph child;
    CUresult result = driver.cuGraphNodeGetType(node, &type);

    if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_KERNEL)
        look_at_kernel(found, node);
    if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        (result = driver.cuGraphMemAllocNodeGetParams(node, &params)) == CUDA_SUCCESS)
        note(found, &params);
    if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_GRAPH &&
        (result = driver.cuGraphChildGraphNodeGetGraph(node, &child)) == CUDA_SUCCESS)
        walk(found, child);
    if (result != CUDA_SUCCESS)
        found->result = result;
}

static void walk(struct found *found, CUgraph graph)
{
    CUgraphNode *nodes = NULL;
    size_t count = 0;
    CUresult result = driver.cuGraphGetNodes(graph, NULL, &count);

    if (result == CUDA_SUCCESS && count > 0) {
        nodes = malloc(count * sizeof(*nodes));
        result = nodes ? driver.cuGraphGetNodes(graph, nodes, &count) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        found->result = result;
        count = 0;
    }
    for (size_t i = 0; i < count; i++)
        look_at(found, nodes[i]);
    free(nodes);
}

/* A graph's footprint on each card, and the largest stack per thread of its kernels. */
struct footprint {
    struct graphs_part parts[GRAPHS_CARDS];
    size_t count;
    uint64_t stack;
};

/* Returns CUDA_SUCCESS, or why the footprint is not known: such a graph is refused. */
static CUresult footprint_of(CUgraph graph, struct footprint *footprint)
{
    struct found found = {.items = NULL, .result = CUDA_SUCCESS};

    footprint->count = 0;
    footprint->stack = 0;
    if (!graph || !(route_limited() || (route_active() && device_any_guarded())))
        return CUDA_SUCCESS;
    walk(&found, graph);
    footprint->count = graphs_footprint(found.items, found.count, footprint->parts);
    if (footprint->count > GRAPHS_CARDS) {
        LOG_ERROR_ONCE("a graph that allocates memory on more than %d cards is refused, because it cannot be "
                       "counted",
                       GRAPHS_CARDS);
        found.result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    footprint->stack = found.stack;
    free(found.items);
    return found.result;
}

/* ---- asking for it ---- */

/* One launch or upload, and what was asked for on each card. */
struct launch {
    size_t count;
    struct {
        struct graphs_ask ask;
        struct route_growth growth;
    } cards[GRAPHS_CARDS];
};

static uint64_t held_on(CUdevice card)
{
    return driver_graph_memory(card, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
}

/* Asks for a launch that runs alone. Returns true if the driver may take what it needs. */
enum effort { AT_ONCE, TRIM, BORROW };
static bool try_alone(struct graphs_ask *ask, struct route_growth *growth, enum effort effort)
{
    const CUdevice card = ask->part.card;

    graphs_alone(ask);
    /* No trim during a capture, which it might disturb. */
    if (effort != AT_ONCE && ask->alone && !capture_any()) {
        driver.cuDeviceGraphMemTrim(card);
        graphs_trimmed(ask);
    }
    const struct graphs_pool pool = {held_on(card),
                                     driver_graph_memory(card, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)};
    graphs_need(ask, &pool);
    if (route_grow_graph_begin(growth, card, ask->need, effort == BORROW))
        return true;
    graphs_end(ask, false, 0);
    return false;
}

/* Returns false if even all idle memory of the card would not be enough. */
static bool can_be_met(const struct graphs_ask *ask)
{
    const CUdevice card = ask->part.card;
    struct device *device = device_get(card);

    return !device ||
           account_short_to_grow(&device->account, ask->need) <= pools_idle_on(card) + held_on(card);
}

static CUresult ask_card(struct graphs_ask *ask, struct route_growth *growth, CUstream stream)
{
    const CUdevice card = ask->part.card;

    *growth = (struct route_growth){.device = NULL};
    if (graphs_again(ask, held_on(card)) || try_alone(ask, growth, AT_ONCE))
        return CUDA_SUCCESS;
    /* Memory of this stream's graphs can be given back when they are done. */
    if (can_be_met(ask)) {
        route_await_stream(stream);
        route_make_room(card, ask->need);
        if (try_alone(ask, growth, TRIM))
            return CUDA_SUCCESS;
    }
    if (try_alone(ask, growth, BORROW))
        return CUDA_SUCCESS;
    struct device *device = device_get(card), *guarded = device_guarded(card);
    if (device)
        refusal_say(device, REFUSAL_GRAPH, ask->need);
    else if (guarded)
        refusal_say_kept(guarded, ask->need);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void answered(struct launch *launch, const void *exec, CUresult result)
{
    for (size_t i = 0; i < launch->count; i++) {
        struct graphs_ask *ask = &launch->cards[i].ask;
        uint64_t held = 0;

        ask->exec = exec;
        if (!ask->again) {
            held = held_on(ask->part.card);
            if (events_are_on())
                seen_graphs(ask->part.card, held);
            route_grow_graph_end(&launch->cards[i].growth);
            route_touch(ask->part.card);
        }
        graphs_end(ask, result == CUDA_SUCCESS, held);
    }
}

static CUresult ask(struct launch *launch, const void *exec, const struct graphs_part *parts, size_t count,
                    uintptr_t key, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    launch->count = 0;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        launch->cards[i].ask = (struct graphs_ask){.exec = exec, .part = parts[i], .stream = key};
        result = ask_card(&launch->cards[i].ask, &launch->cards[i].growth, stream);
        if (result == CUDA_SUCCESS)
            launch->count++;
    }
    if (result != CUDA_SUCCESS)
        answered(launch, exec, result);
    return result;
}

static CUresult before(struct launch *launch, CUgraphExec exec, uintptr_t key, CUstream stream)
{
    struct graphs_part parts[GRAPHS_CARDS];
    size_t count;

    launch->count = 0;
    if (!route_active() || (count = graphs_find(exec, parts)) == 0 || capture_takes(stream))
        return CUDA_SUCCESS;
    return ask(launch, exec, parts, count, key, stream);
}

/* Return the card on which the driver may take memory for a launch, and how much; ROUTE_CURRENT and 0 if it
 * may be on several cards. */
static CUdevice card_of(const struct launch *launch)
{
    return launch->count == 1 ? launch->cards[0].ask.part.card : ROUTE_CURRENT;
}

static uint64_t bytes_of(const struct launch *launch)
{
    return launch->count == 1 ? launch->cards[0].ask.need : 0;
}

/* ---- the hooks ---- */

/* Asks for memory, and then runs `call`, which launches or uploads a graph. */
#define ALLOCATING(exec, key, stream, call)                                                                  \
    ({                                                                                                       \
        CUresult result_;                                                                                    \
        if (graphs_none()) {                                                                                 \
            result_ = ROUTE_TRY(call, ROUTE_CURRENT, 0);                                                     \
        } else {                                                                                             \
            struct launch launch_;                                                                           \
            OWNER_CALL();                                                                                    \
            result_ = before(&launch_, exec, key, stream);                                                   \
            if (result_ == CUDA_SUCCESS) {                                                                   \
                result_ = ROUTE_TRY(call, card_of(&launch_), bytes_of(&launch_));                            \
                answered(&launch_, exec, result_);                                                           \
            }                                                                                                \
        }                                                                                                    \
        result_;                                                                                             \
    })

/* Remembers a new executable graph, or destroys it if that fails: it could not be counted. */
static CUresult remember(CUgraphExec *exec, const struct footprint *footprint, CUresult result)
{
    if (result != CUDA_SUCCESS || (!footprint->count && graphs_none()) ||
        graphs_remember(*exec, footprint->parts, footprint->count) == 0)
        return result;
    driver.cuGraphExecDestroy(*exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Runs `call` after asking for the stacks of the graph's kernels in the current context. */
#define INSTANTIATE(exec, graph, call)                                                                       \
    ({                                                                                                       \
        struct footprint footprint_;                                                                         \
        struct route_growth growth_ = {.device = NULL};                                                      \
        CUresult result_ = footprint_of(graph, &footprint_);                                                 \
        if (result_ == CUDA_SUCCESS)                                                                         \
            result_ = route_grow_stack_begin(&growth_, footprint_.stack);                                    \
        if (result_ == CUDA_SUCCESS) {                                                                       \
            result_ = remember(exec, &footprint_, ROUTE_TRY_SELDOM(call));                                   \
            route_grow_result(&growth_, result_);                                                            \
        }                                                                                                    \
        result_;                                                                                             \
    })

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t log_size)
{
    return INSTANTIATE(exec, graph, driver.cuGraphInstantiate(exec, graph, error, log, log_size));
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log,
                               size_t log_size)
{
    return INSTANTIATE(exec, graph, driver.cuGraphInstantiate_v2(exec, graph, error, log, log_size));
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    return INSTANTIATE(exec, graph, driver.cuGraphInstantiateWithFlags(exec, graph, flags));
}

#define SUFFIX
#include "interpose/hook/hook_graph_launch.inc"
#undef SUFFIX
#define SUFFIX _ptsz
#include "interpose/hook/hook_graph_launch.inc"
#undef SUFFIX

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    if (graphs_none() || !route_active())
        return driver.cuGraphExecDestroy(exec);
    graphs_destroy_begin(exec);
    const CUresult result = driver.cuGraphExecDestroy(exec);
    graphs_destroy_end(exec, result == CUDA_SUCCESS);
    return result;
}

/* Runs alone, because no launch may count on memory that is given back. */
CUresult cuDeviceGraphMemTrim(CUdevice card)
{
    struct graphs_ask ask = {.part.card = card};

    if (graphs_none() || !route_active())
        return driver.cuDeviceGraphMemTrim(card);
    graphs_alone(&ask);
    CUresult result = driver.cuDeviceGraphMemTrim(card);
    graphs_trimmed(&ask);
    if (events_are_on())
        seen_graphs(card, held_on(card));
    graphs_end(&ask, false, 0);
    lend_freed_somewhere();
    return result;
}

/* Updates the footprint. An update never changes a node's kind, so a graph without allocations still has
 * none. One that is not known leaves the footprint as it was. */
static CUresult updated(CUgraphExec exec, CUgraph graph, CUresult result)
{
    struct footprint footprint;

    if (result == CUDA_SUCCESS && !graphs_none() && route_active() && graphs_find(exec, footprint.parts) &&
        footprint_of(graph, &footprint) == CUDA_SUCCESS)
        graphs_remember(exec, footprint.parts, footprint.count); /* in its old place */
    return result;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *why)
{
    return updated(exec, graph, driver.cuGraphExecUpdate(exec, graph, error, why));
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    return updated(exec, graph, driver.cuGraphExecUpdate_v2(exec, graph, info));
}

/* ---- nodes that wait for flags in memory or for external semaphores ---- */

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    pools_before_flag();
    return driver.cuGraphAddBatchMemOpNode(node, graph, dependencies, count, params);
}

CUresult cuGraphAddExternalSemaphoresWaitNode(CUgraphNode *node, CUgraph graph,
                                              const CUgraphNode *dependencies, size_t count,
                                              const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
    pools_before_flag();
    return driver.cuGraphAddExternalSemaphoresWaitNode(node, graph, dependencies, count, params);
}

static void look_at_new(const CUgraphNodeParams *params)
{
    if (params && (params->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ||
                   params->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT))
        pools_before_flag();
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *params)
{
    look_at_new(params);
    return driver.cuGraphAddNode(node, graph, dependencies, count, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    look_at_new(params);
    return driver.cuGraphAddNode_v2(node, graph, dependencies, edges, count, params);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    look_at_new(params);
    return driver.cuGraphAddNode_v3(node, graph, dependencies, edges, count, params);
}
