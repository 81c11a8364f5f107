/* The hooks on graphs that allocate: their memory is taken at a launch or an upload, and asked for here, as
 * the growth of a context is. Graphs without allocation nodes cost one load per launch. Owns no lock; what a
 * launch may need is decided in graphs.c.
 */
#include <stdlib.h>

#include "capture.h"
#include "fence.h"
#include "graphs.h"
#include "hooks.h"
#include "library.h"
#include "log.h"
#include "route.h"

/* ---- what a graph allocates ---- */

struct ranges {
    struct graphs_range *items;
    size_t count, capacity;
    bool incomplete; /* no memory to write it down */
};

static void note(struct ranges *ranges, const CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    const CUmemLocation *where = &params->poolProps.location;

    if (where->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_get(where->id))
        return;
    if (ranges->count == ranges->capacity) {
        const size_t capacity = ranges->capacity ? 2 * ranges->capacity : 16;
        struct graphs_range *larger = realloc(ranges->items, capacity * sizeof *larger);

        if (!larger) {
            ranges->incomplete = true;
            return;
        }
        ranges->items = larger;
        ranges->capacity = capacity;
    }
    ranges->items[ranges->count++] = (struct graphs_range){where->id, params->dptr, params->bytesize};
}

static void walk(struct ranges *ranges, CUgraph graph);

static void look_at(struct ranges *ranges, CUgraphNode node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = 0};
    CUgraphNodeType type;
    CUgraph child;

    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        driver.cuGraphMemAllocNodeGetParams(node, &params) == CUDA_SUCCESS)
        note(ranges, &params);
    if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
        driver.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
        walk(ranges, child);
}

static void walk(struct ranges *ranges, CUgraph graph)
{
    size_t count = 0;
    CUgraphNode *nodes;

    if (driver.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return;
    nodes = malloc(count * sizeof *nodes);
    if (!nodes) {
        ranges->incomplete = true;
        return;
    }
    if (driver.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count; i++)
            look_at(ranges, nodes[i]);
    }
    free(nodes);
}

static void not_counted(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;

    if (log_first(&said))
        log_error("no memory to write down what a graph allocates; it is not counted");
}

static size_t parts_of(CUgraph graph, struct graphs_part parts[GRAPHS_CARDS])
{
    struct ranges ranges = {.items = NULL};

    if (!graph || !route_active() || !options_any_limit(library_options()))
        return 0;
    walk(&ranges, graph);
    if (ranges.incomplete)
        not_counted();
    const size_t count = graphs_footprint(ranges.items, ranges.count, parts);
    free(ranges.items);
    return count;
}

/* ---- asking for it ---- */

/* One launch or upload, and what was asked for it on each card. */
struct launch {
    size_t count;
    struct {
        struct graphs_ask ask;
        struct route_growth growth;
    } cards[GRAPHS_CARDS];
};

static uint64_t attribute(CUdevice card, CUgraphMem_attribute which)
{
    cuuint64_t value = 0;

    return driver.cuDeviceGetGraphMemAttribute(card, which, &value) == CUDA_SUCCESS ? value : 0;
}

static uint64_t held_on(CUdevice card)
{
    return attribute(card, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
}

/* True: the driver may take what it may need. */
static bool try_alone(struct graphs_ask *ask, struct route_growth *growth, bool trim)
{
    const CUdevice card = ask->part.card;

    graphs_alone(ask);
    /* Whether a capture minds is not known: none is disturbed. */
    if (trim && ask->alone && !capture_any()) {
        driver.cuDeviceGraphMemTrim(card);
        graphs_trimmed(ask);
    }
    const struct graphs_pool pool = {held_on(card), attribute(card, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)};
    graphs_need(ask, &pool);
    if (route_try_grow(growth, card, ask->need))
        return true;
    graphs_end(ask, false, 0);
    return false;
}

static CUresult ask_card(struct graphs_ask *ask, struct route_growth *growth, CUstream stream)
{
    const CUdevice card = ask->part.card;
    char need[SIZE_TEXT];

    growth->device = NULL;
    if (graphs_again(ask, held_on(card)) || try_alone(ask, growth, false))
        return CUDA_SUCCESS;
    /* What this stream's graphs have is of no use to anybody when they are done, and can then be let go. */
    if (!capture_any())
        driver.cuStreamSynchronize(stream);
    route_make_room(card, ask->need);
    if (try_alone(ask, growth, true))
        return CUDA_SUCCESS;
    log_info("out of memory on device %d: a graph needs %s", card, size_format(ask->need, need));
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
            route_grown(&launch->cards[i].growth);
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

/* ---- the hooks ---- */

/* `call` puts a graph, or its memory, on the device. */
#define ALLOCATING(exec, key, stream, call)                                                                  \
    ({                                                                                                       \
        CUresult result_;                                                                                    \
        if (graphs_none()) {                                                                                 \
            result_ = ROUTE_TRY(call, ROUTE_CURRENT);                                                        \
        } else {                                                                                             \
            struct launch launch_;                                                                           \
            result_ = before(&launch_, exec, key, stream);                                                   \
            if (result_ == CUDA_SUCCESS) {                                                                   \
                result_ = ROUTE_TRY(call, ROUTE_CURRENT);                                                    \
                answered(&launch_, exec, result_);                                                           \
            }                                                                                                \
        }                                                                                                    \
        result_;                                                                                             \
    })

static CUresult remember(CUgraphExec *exec, const struct graphs_part *parts, size_t count, CUresult result)
{
    if (result == CUDA_SUCCESS && (count || !graphs_none()) && graphs_remember(*exec, parts, count))
        not_counted();
    return result;
}

#define INSTANTIATE(exec, graph, call)                                                                       \
    ({                                                                                                       \
        struct graphs_part parts_[GRAPHS_CARDS];                                                             \
        const size_t count_ = parts_of(graph, parts_);                                                       \
        remember(exec, parts_, count_, call);                                                                \
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

/* The only one that can upload at once. */
#define WITH_PARAMS(suffix)                                                                                  \
    CUresult cuGraphInstantiateWithParams##suffix(CUgraphExec *exec, CUgraph graph,                          \
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *params)                     \
    {                                                                                                        \
        struct graphs_part parts[GRAPHS_CARDS];                                                              \
        const size_t count = parts_of(graph, parts);                                                         \
        struct launch launch = {.count = 0};                                                                 \
        CUresult result = CUDA_SUCCESS;                                                                      \
                                                                                                             \
        if (count && exec && params && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)                   \
            result = ask(&launch, NULL, parts, count, fence_stream##suffix(params->hUploadStream),           \
                         STREAM##suffix(params->hUploadStream));                                             \
        if (result != CUDA_SUCCESS) {                                                                        \
            params->hErrNode_out = NULL;                                                                     \
            params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;                                               \
            return result;                                                                                   \
        }                                                                                                    \
        result =                                                                                             \
            remember(exec, parts, count, driver.cuGraphInstantiateWithParams##suffix(exec, graph, params));  \
        answered(&launch, result == CUDA_SUCCESS ? *exec : NULL, result);                                    \
        return result;                                                                                       \
    }

WITH_PARAMS()
WITH_PARAMS(_ptsz)

#define LAUNCH_HOOKS(suffix)                                                                                 \
    CUresult cuGraphLaunch##suffix(CUgraphExec exec, CUstream stream)                                        \
    {                                                                                                        \
        const uintptr_t key = fence_stream##suffix(stream);                                                  \
                                                                                                             \
        return ALLOCATING(exec, key, STREAM##suffix(stream),                                                 \
                          FENCE_SUBMIT(key, driver.cuGraphLaunch##suffix(exec, stream)));                    \
    }                                                                                                        \
                                                                                                             \
    CUresult cuGraphUpload##suffix(CUgraphExec exec, CUstream stream)                                        \
    {                                                                                                        \
        return ALLOCATING(exec, fence_stream##suffix(stream), STREAM##suffix(stream),                        \
                          driver.cuGraphUpload##suffix(exec, stream));                                       \
    }

LAUNCH_HOOKS()
LAUNCH_HOOKS(_ptsz)

/* Before the driver: another thread may be given the same handle right after. */
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    if (!graphs_none() && route_active())
        graphs_forget(exec);
    return driver.cuGraphExecDestroy(exec);
}

/* No launch may count on memory that goes back. */
CUresult cuDeviceGraphMemTrim(CUdevice card)
{
    struct graphs_ask ask = {.part.card = card};

    if (graphs_none() || !route_active())
        return driver.cuDeviceGraphMemTrim(card);
    graphs_alone(&ask);
    CUresult result = driver.cuDeviceGraphMemTrim(card);
    graphs_trimmed(&ask);
    graphs_end(&ask, false, 0);
    return result;
}

/* An update changes no node's kind: a graph without allocations stays one. */
static CUresult updated(CUgraphExec exec, CUgraph graph, CUresult result)
{
    struct graphs_part parts[GRAPHS_CARDS];

    if (result == CUDA_SUCCESS && !graphs_none() && route_active() && graphs_find(exec, parts))
        return remember(&exec, parts, parts_of(graph, parts), result);
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
