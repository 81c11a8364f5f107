/* Hooks on graphs that allocate: what an instantiation and a launch ask for, and what is remembered of them.
 * The table of graphs (graphs.c) is real; the driver and all that decides (route.h) are the test's own. */
#include "interpose/hook/hooks.h"

#include <string.h>
#include <unity.h>

#include "interpose/account/graphs.h"
#include "interpose/hook/growth.h"
#include "interpose/hook/seen.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/pool/streams.h"
#include "interpose/refusal.h"
#include "interpose/route.h"
#include "interpose/see/events.h"
#include "interpose/see/owner.h"
#include "log_fake.h"

#define MIB       (UINT64_C(1) << 20)
#define GRAPH     ((CUgraph)0x100)
#define CHILD     ((CUgraph)0x200)
#define EXEC      ((CUgraphExec)0x300)
#define CAPTURING ((CUstream)0x900)

static struct device device;

/* The nodes of GRAPH are 1, 2, ...; a child graph has one node, an allocation. */
static struct node {
    CUgraphNodeType type;
    uint64_t bytes;
    uintptr_t function, kernel; /* its number is its stack */
    int card;
} nodes[GRAPHS_CARDS + 1];
static size_t node_count;

static struct fake {
    CUresult result, instantiated;    /* of launches and updates; of instantiations */
    uint64_t held, used;              /* by the driver for graphs */
    uint64_t room;                    /* that may be asked for */
    bool captures, inactive, guarded; /* guarded: the process has no limit, and other jobs have a min */
    bool many_cards;                  /* all have limits */
    int arrays;                       /* that may still grow; -1: any number */
} fake;

static struct {
    uint64_t stack, asked;
    int asks, graph_ends, launches, trims, flags, says, kept, lends, awaits, rooms, destroyed, growing;
    CUresult grown; /* the result that the growth of a stack was told */
} got;

/* ---- the test's own library ---- */

void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes)
{
    if (fake.arrays == 0)
        return NULL;
    fake.arrays -= fake.arrays > 0;
    return __real_realloc(memory, bytes);
}

bool route_active(void)
{
    return !fake.inactive;
}

bool route_limited(void)
{
    return !fake.inactive;
}

uint64_t route_given_back(void)
{
    return 0;
}

bool route_retry(struct route_attempt *attempt)
{
    (void)attempt;
    return false;
}

CUresult route_grow_stack_begin(struct route_growth *growth, uint64_t bytes)
{
    growth->device = (struct device *)0x1000;
    got.growing++;
    got.stack = bytes;
    return CUDA_SUCCESS;
}

void route_grow_end(const struct route_growth *growth)
{
    got.growing -= growth->device != NULL;
}

void route_grow_result(const struct route_growth *growth, CUresult result)
{
    got.grown = result;
    route_grow_end(growth);
}

bool route_grow_graph_begin(struct route_growth *growth, CUdevice ordinal, uint64_t bytes, bool borrow)
{
    (void)growth, (void)ordinal, (void)borrow;
    got.asks++;
    got.asked = bytes;
    return bytes <= fake.room;
}

void route_grow_graph_end(const struct route_growth *growth)
{
    (void)growth;
    got.graph_ends++;
}

bool route_make_room(CUdevice ordinal, uint64_t bytes)
{
    (void)ordinal, (void)bytes;
    got.rooms++;
    return false;
}

void route_touch(CUdevice ordinal)
{
    (void)ordinal;
}

void route_await_stream(CUstream stream)
{
    (void)stream;
    got.awaits++;
}

uint64_t growth_stack_of(CUfunction kernel)
{
    return (uintptr_t)kernel;
}

struct device *device_get(CUdevice ordinal)
{
    return (ordinal == 0 || fake.many_cards) && !fake.guarded ? &device : NULL;
}

struct device *device_guarded(CUdevice ordinal)
{
    return ordinal == 0 && fake.guarded ? &device : NULL;
}

bool device_any_guarded(void)
{
    return false;
}

uint64_t account_short_to_grow(struct account *account, uint64_t need)
{
    (void)account, (void)need;
    return 0;
}

uint64_t pools_idle_on(CUdevice ordinal)
{
    (void)ordinal;
    return 0;
}

void pools_before_flag(void)
{
    got.flags++;
}

bool capture_any(void)
{
    return fake.captures;
}

bool capture_takes(CUstream stream)
{
    return fake.captures && stream == CAPTURING;
}

void refusal_say(struct device *of, enum refusal_of whose, uint64_t bytes)
{
    (void)of, (void)bytes;
    got.says += whose == REFUSAL_GRAPH;
}

void refusal_say_kept(struct device *of, uint64_t bytes)
{
    got.kept += of == &device && bytes == 32 * MIB;
}

void lend_freed_somewhere(void)
{
    got.lends++;
}

atomic_bool events_on;

void seen_graphs(CUdevice ordinal, uint64_t held)
{
    (void)ordinal, (void)held;
}

void owner_enter(void *return_address)
{
    (void)return_address;
}

_Thread_local uintptr_t streams_last, streams_thread;

uintptr_t streams_new_key(void)
{
    return streams_thread = 5;
}

bool streams_submit_slow(uintptr_t key)
{
    streams_last = key;
    return false;
}

void streams_submit_end(void) {}

/* ---- the driver ---- */

/* Questions about a graph; `fails` is the one that the driver does not answer. */
static enum question { NONE, COUNT, NODES, TYPE, ALLOC, CHILDREN } fails;

static CUresult answer_to(enum question question)
{
    return question == fails ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult CUDAAPI get_nodes(CUgraph graph, CUgraphNode *list, size_t *count)
{
    *count = graph == CHILD ? 1 : node_count;
    for (size_t i = 0; list && i < *count; i++)
        list[i] = (CUgraphNode)(graph == CHILD ? 99 : i + 1);
    return answer_to(list ? NODES : COUNT);
}

static CUresult CUDAAPI get_type(CUgraphNode node, CUgraphNodeType *type)
{
    *type = (uintptr_t)node == 99 ? CU_GRAPH_NODE_TYPE_MEM_ALLOC : nodes[(uintptr_t)node - 1].type;
    return answer_to(TYPE);
}

static CUresult CUDAAPI get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    params->func = (CUfunction)nodes[(uintptr_t)node - 1].function;
    params->kern = (CUkernel)nodes[(uintptr_t)node - 1].kernel;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_alloc(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    params->poolProps.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    if ((uintptr_t)node != 99)
        params->poolProps.location.id = nodes[(uintptr_t)node - 1].card;
    params->bytesize = (uintptr_t)node == 99 ? 64 * MIB : nodes[(uintptr_t)node - 1].bytes;
    params->dptr = 0;
    return answer_to(ALLOC);
}

static CUresult CUDAAPI get_child(CUgraphNode node, CUgraph *child)
{
    (void)node;
    *child = CHILD;
    return answer_to(CHILDREN);
}

static CUstreamCaptureMode mode;

static CUresult CUDAAPI exchange_mode(CUstreamCaptureMode *exchanged)
{
    const CUstreamCaptureMode before = mode;

    mode = *exchanged;
    *exchanged = before;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_attribute(CUdevice card, CUgraphMem_attribute which, void *value)
{
    (void)card;
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_RELAXED, mode); /* or it might end a capture */
    *(cuuint64_t *)value = which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? fake.held : fake.used;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI trim(CUdevice card)
{
    (void)card;
    got.trims++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)graph, (void)flags;
    *exec = EXEC;
    return fake.instantiated;
}

static CUresult CUDAAPI instantiate_with(CUgraphExec *exec, CUgraph graph,
                                         CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return instantiate(exec, graph, 0);
}

static CUresult CUDAAPI launch(CUgraphExec exec, CUstream stream)
{
    (void)exec, (void)stream;
    got.launches++;
    return fake.result;
}

static CUresult CUDAAPI update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    (void)exec, (void)graph, (void)info;
    return fake.result;
}

static CUresult CUDAAPI destroy(CUgraphExec exec)
{
    (void)exec;
    got.destroyed++;
    return fake.result;
}

static CUresult CUDAAPI add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, CUgraphNodeParams *params)
{
    (void)node, (void)graph, (void)dependencies, (void)count, (void)params;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI add_node_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                    const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    (void)edges;
    return add_node(node, graph, dependencies, count, params);
}

void setUp(void)
{
    driver_entries = (struct driver_table){.cuGraphGetNodes = get_nodes,
                                           .cuGraphNodeGetType = get_type,
                                           .cuGraphKernelNodeGetParams_v2 = get_kernel,
                                           .cuGraphMemAllocNodeGetParams = get_alloc,
                                           .cuGraphChildGraphNodeGetGraph = get_child,
                                           .cuDeviceGetGraphMemAttribute = get_attribute,
                                           .cuThreadExchangeStreamCaptureMode = exchange_mode,
                                           .cuDeviceGraphMemTrim = trim,
                                           .cuGraphInstantiateWithFlags = instantiate,
                                           .cuGraphInstantiateWithParams = instantiate_with,
                                           .cuGraphLaunch = launch,
                                           .cuGraphExecUpdate_v2 = update,
                                           .cuGraphExecDestroy = destroy,
                                           .cuGraphAddNode = add_node,
                                           .cuGraphAddNode_v3 = add_node_v3};
    fake = (struct fake){.room = 1024 * MIB, .arrays = -1};
    memset(&got, 0, sizeof(got));
    node_count = 0;
    fails = NONE;
}

void tearDown(void)
{
    fake.inactive = false;
    fake.result = CUDA_SUCCESS;
    cuGraphExecDestroy(EXEC);
    TEST_ASSERT_TRUE(graphs_none());
    TEST_ASSERT_EQUAL_INT(0, got.growing);
}

static void add(CUgraphNodeType type, uint64_t bytes, uintptr_t function, uintptr_t kernel)
{
    nodes[node_count++] = (struct node){type, bytes, function, kernel, 0};
}

static void make(void)
{
    CUgraphExec exec;

    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&exec, GRAPH, 0));
}

/* What is not remembered could not be counted. The table is empty yet, and has to grow for the first graph.
 */
static void test_a_graph_that_cannot_be_remembered_is_refused(void)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 0};
    CUgraphExec exec;

    add(CU_GRAPH_NODE_TYPE_MEM_ALLOC, MIB, 0, 0);
    fake.arrays = 1; /* the list of its allocations */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiateWithFlags(&exec, GRAPH, 0));
    TEST_ASSERT_EQUAL_INT(1, got.destroyed);
    fake.arrays = 1;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiateWithParams(&exec, GRAPH, &params));
    TEST_ASSERT_EQUAL_INT(CUDA_GRAPH_INSTANTIATE_ERROR, params.result_out);
    TEST_ASSERT_EQUAL_INT(2, got.destroyed);
    fake.arrays = -1;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphInstantiateWithParams(&exec, GRAPH, &params));
    TEST_ASSERT_EQUAL_INT(CUDA_GRAPH_INSTANTIATE_SUCCESS, params.result_out);
    TEST_ASSERT_EQUAL_INT(2, got.destroyed);
}

/* ---- tests ---- */

static void test_the_largest_stack_of_a_graphs_kernels_is_asked_for(void)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 0};
    CUgraphExec exec;

    add(CU_GRAPH_NODE_TYPE_KERNEL, 0, 100, 0);
    add(CU_GRAPH_NODE_TYPE_KERNEL, 0, 0, 3000); /* by its CUkernel */
    add(CU_GRAPH_NODE_TYPE_KERNEL, 0, 200, 0);
    make();
    TEST_ASSERT_EQUAL_UINT64(3000, got.stack);
    got.stack = 0;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphInstantiateWithParams(&exec, GRAPH, &params));
    TEST_ASSERT_EQUAL_UINT64(3000, got.stack);
    TEST_ASSERT_TRUE(graphs_none()); /* it allocates nothing */
    fake.inactive = true;
    make();
    TEST_ASSERT_EQUAL_UINT64(0, got.stack);
}

static void test_what_a_graph_allocates_is_asked_for_at_its_launch(void)
{
    add(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 32 * MIB, 0, 0);
    add(CU_GRAPH_NODE_TYPE_GRAPH, 0, 0, 0);
    make();
    TEST_ASSERT_EQUAL_INT(0, got.asks);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphLaunch(EXEC, NULL));
    TEST_ASSERT_EQUAL_UINT64(96 * MIB, got.asked);
    TEST_ASSERT_EQUAL_INT(1, got.launches);
    TEST_ASSERT_EQUAL_INT(1, got.graph_ends);
    fake.held = fake.used = 96 * MIB;
    got.asks = 0;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS,
                          cuGraphLaunch(EXEC, NULL)); /* holds no less than after a launch before */
    TEST_ASSERT_EQUAL_INT(0, got.asks);
    nodes[0].bytes = 128 * MIB;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphExecUpdate_v2(EXEC, GRAPH, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphLaunch(EXEC, NULL));
    TEST_ASSERT_EQUAL_INT(1, got.asks); /* another footprint */
}

static void test_the_stack_for_a_graph_that_the_driver_refuses_is_not_kept(void)
{
    CUgraphExec exec;

    add(CU_GRAPH_NODE_TYPE_KERNEL, 0, 2000, 0);
    make();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, got.grown);
    fake.instantiated = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, GRAPH, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, got.grown);
}

/* It could not be counted at its launch. */
static void test_a_graph_that_the_driver_does_not_describe_is_refused(void)
{
    CUgraphExec exec;

    add(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 32 * MIB, 0, 0);
    add(CU_GRAPH_NODE_TYPE_GRAPH, 0, 0, 0);
    for (fails = COUNT; fails <= CHILDREN; fails++)
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuGraphInstantiateWithFlags(&exec, GRAPH, 0));
    fails = NONE;
    make();
    fails = ALLOC;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphExecUpdate_v2(EXEC, GRAPH, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphLaunch(EXEC, NULL));
    TEST_ASSERT_EQUAL_UINT64(96 * MIB, got.asked); /* as before the update */
}

static void test_a_graph_that_the_driver_refuses_to_destroy_is_still_counted(void)
{
    add(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 32 * MIB, 0, 0);
    make();
    fake.result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(EXEC));
    fake.result = CUDA_SUCCESS;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphLaunch(EXEC, NULL));
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, got.asked);
}

static void test_a_graph_on_more_cards_than_can_be_counted_is_refused(void)
{
    CUgraphExec exec;

    fake.many_cards = true;
    for (int i = 0; i <= GRAPHS_CARDS; i++) {
        add(CU_GRAPH_NODE_TYPE_MEM_ALLOC, MIB, 0, 0);
        nodes[i].card = i;
    }
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiateWithFlags(&exec, GRAPH, 0));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, "more than 16 cards is refused"), log_fake_errors);
    node_count--;
    make();
}

static void test_a_launch_that_fails_gives_no_certainty(void)
{
    add(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 32 * MIB, 0, 0);
    make();
    fake.result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(EXEC, NULL));
    fake.result = CUDA_SUCCESS;
    got.asks = 0;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphLaunch(EXEC, NULL));
    TEST_ASSERT_EQUAL_INT(1, got.asks);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, got.asked);
}

static void test_a_launch_without_room_trims_unless_there_is_a_capture(void)
{
    add(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 32 * MIB, 0, 0);
    make();
    fake.room = 0;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(EXEC, NULL));
    TEST_ASSERT_EQUAL_INT(0, got.launches + got.graph_ends);
    TEST_ASSERT_EQUAL_INT(1, got.says);
    TEST_ASSERT_EQUAL_INT(1, got.awaits);
    TEST_ASSERT_EQUAL_INT(1, got.rooms);
    TEST_ASSERT_EQUAL_INT(2, got.trims);
    fake.captures = true;
    got.trims = 0;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(EXEC, NULL));
    TEST_ASSERT_EQUAL_INT(0, got.trims);                                 /* it might disturb the capture */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphLaunch(EXEC, CAPTURING)); /* adds a node, takes nothing */
    fake.room = 1024 * MIB;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphLaunch(EXEC, NULL)); /* no lock is left taken */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDeviceGraphMemTrim(0));
    TEST_ASSERT_EQUAL_INT(1, got.lends);
}

static void test_a_launch_that_a_guarantee_refuses_says_so(void)
{
    add(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 32 * MIB, 0, 0);
    make();
    fake.room = 0;
    fake.guarded = true;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(EXEC, NULL));
    TEST_ASSERT_EQUAL_INT(0, got.says);
    TEST_ASSERT_EQUAL_INT(1, got.kept);
}

static void test_nodes_that_wait_for_flags_are_told(void)
{
    static const struct {
        CUgraphNodeType type;
        int flags;
    } cases[] = {{CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, 1},
                 {CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, 1},
                 {CU_GRAPH_NODE_TYPE_KERNEL, 0}};
    CUgraphNode node;

    for (int i = 0; i < 3; i++) {
        CUgraphNodeParams params = {.type = cases[i].type};

        got.flags = 0;
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphAddNode(&node, GRAPH, NULL, 0, &params));
        TEST_ASSERT_EQUAL_INT(cases[i].flags, got.flags);
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGraphAddNode_v3(&node, GRAPH, NULL, NULL, 0, &params));
        TEST_ASSERT_EQUAL_INT(2 * cases[i].flags, got.flags);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_graph_that_cannot_be_remembered_is_refused);
    RUN_TEST(test_the_largest_stack_of_a_graphs_kernels_is_asked_for);
    RUN_TEST(test_what_a_graph_allocates_is_asked_for_at_its_launch);
    RUN_TEST(test_the_stack_for_a_graph_that_the_driver_refuses_is_not_kept);
    RUN_TEST(test_a_graph_that_the_driver_does_not_describe_is_refused);
    RUN_TEST(test_a_graph_that_the_driver_refuses_to_destroy_is_still_counted);
    RUN_TEST(test_a_graph_on_more_cards_than_can_be_counted_is_refused);
    RUN_TEST(test_a_launch_that_fails_gives_no_certainty);
    RUN_TEST(test_a_launch_without_room_trims_unless_there_is_a_capture);
    RUN_TEST(test_a_launch_that_a_guarantee_refuses_says_so);
    RUN_TEST(test_nodes_that_wait_for_flags_are_told);
    return UNITY_END();
}
