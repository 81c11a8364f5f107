/* simgpu_graph_memory: when allocation nodes take memory of the card, reuse it and give it back, on the
 * simulated driver. */
#include "tests/unit/simgpu/simgpu_support.h"

#define BLOCK (64 * MIB)

static CUstream stream;
static size_t at_start;

void setUp(void)
{
    sim_begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    at_start = sim_free();
}

void tearDown(void)
{
    OK(cuCtxSynchronize());
    OK(cuDeviceGraphMemTrim(0));
    TEST_ASSERT_EQUAL_UINT64(at_start, sim_free());
    OK(cuStreamDestroy(stream));
    sim_end();
}

static uint64_t taken(void)
{
    return at_start - sim_free();
}

static uint64_t attribute(CUgraphMem_attribute which)
{
    cuuint64_t value = 0;

    OK(cuDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

/* A captured graph of one allocation, freed in it or left. */
static CUgraph capture(uint64_t bytes, bool freed, CUdeviceptr *address)
{
    CUgraph graph;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(address, bytes, stream));
    OK(cuMemsetD8Async(*address, 7, 4096, stream));
    if (freed)
        OK(cuMemFreeAsync(*address, stream));
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

static CUgraphExec make(uint64_t bytes, bool freed, unsigned long long flags, CUdeviceptr *address)
{
    CUgraph graph = capture(bytes, freed, address);
    CUgraphExec exec;

    OK(cuGraphInstantiate(&exec, graph, flags));
    OK(cuGraphDestroy(graph));
    return exec;
}

static void launch(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
}

static void test_memory_is_taken_at_the_first_launch_and_kept(void)
{
    CUdeviceptr p;
    CUgraphExec exec = make(BLOCK, true, 0, &p);

    TEST_ASSERT_EQUAL_UINT64(0, taken());
    for (int i = 0; i < 3; i++) {
        launch(exec);
        TEST_ASSERT_EQUAL_UINT64(BLOCK, taken());
    }
    OK(cuGraphExecDestroy(exec));
}

static void test_an_upload_takes_it_too(void)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    CUdeviceptr p;
    CUgraphExec exec = make(BLOCK, true, 0, &p), second;
    CUgraph graph = capture(BLOCK, true, &p);

    OK(cuGraphUpload(exec, stream));
    TEST_ASSERT_EQUAL_UINT64(BLOCK, taken());
    params.hUploadStream = stream;
    OK(cuGraphInstantiateWithParams(&second, graph, &params));
    TEST_ASSERT_EQUAL_UINT64(2 * BLOCK, taken());
    launch(exec);
    launch(second);
    TEST_ASSERT_EQUAL_UINT64(2 * BLOCK, taken());
    OK(cuGraphDestroy(graph));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(second));
}

static void test_an_allocation_behind_a_free_uses_its_memory_again(void)
{
    CUdeviceptr first, second, third;
    CUgraphExec exec;
    CUgraph graph;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&first, BLOCK, stream));
    OK(cuMemFreeAsync(first, stream));
    OK(cuMemAllocAsync(&second, BLOCK / 2, stream));
    OK(cuMemAllocAsync(&third, BLOCK, stream));
    OK(cuMemFreeAsync(second, stream));
    OK(cuMemFreeAsync(third, stream));
    OK(cuStreamEndCapture(stream, &graph));
    TEST_ASSERT_EQUAL_UINT64(first, second);
    TEST_ASSERT_NOT_EQUAL_UINT64(first, third);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    launch(exec);
    TEST_ASSERT_EQUAL_UINT64(2 * BLOCK, taken());
    OK(cuGraphExecDestroy(exec));
}

static CUgraphNode add_alloc(CUgraph graph, const CUgraphNode *after, CUdeviceptr *address)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = BLOCK - 1};
    CUgraphNode node;

    OK(cuGraphAddMemAllocNode(&node, graph, after, after != NULL, &params));
    *address = params.dptr;
    return node;
}

static CUgraphNode add_free(CUgraph graph, CUgraphNode after, CUdeviceptr address)
{
    CUgraphNode node;

    OK(cuGraphAddMemFreeNode(&node, graph, &after, 1, address));
    return node;
}

static void test_nodes_beside_each_other_share_nothing(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUdeviceptr a, b, c, told;
    CUgraphNode free_a, free_b, node;
    CUgraph graph;
    CUgraphExec exec;

    OK(cuGraphCreate(&graph, 0));
    node = add_alloc(graph, NULL, &a);
    free_a = add_free(graph, node, a);
    node = add_alloc(graph, NULL, &b);
    TEST_ASSERT_NOT_EQUAL_UINT64(a, b);
    OK(cuGraphMemAllocNodeGetParams(node, &params));
    TEST_ASSERT_EQUAL_UINT64(BLOCK - 1, params.bytesize);
    TEST_ASSERT_EQUAL_UINT64(b, params.dptr);
    TEST_ASSERT_EQUAL_INT(0, params.poolProps.location.id);
    free_b = add_free(graph, node, b);
    OK(cuGraphMemFreeNodeGetParams(free_b, &told));
    TEST_ASSERT_EQUAL_UINT64(b, told);
    IS(1, cuGraphMemFreeNodeGetParams(node, &told));
    IS(1, cuGraphMemAllocNodeGetParams(free_b, &params));
    IS(1, cuGraphAddMemFreeNode(&node, graph, NULL, 0, b)); /* once only */
    node = add_alloc(graph, &free_a, &c);
    TEST_ASSERT_EQUAL_UINT64(a, c);
    add_free(graph, node, c);
    OK(cuGraphInstantiate(&exec, graph, 0));
    launch(exec);
    TEST_ASSERT_EQUAL_UINT64(2 * BLOCK, taken());
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void test_a_launch_that_does_not_fit_takes_nothing(void)
{
    CUdeviceptr p, q;
    CUgraphExec large = make(2 * GIB, true, 0, &p), small = make(BLOCK, true, 0, &q);

    IS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(large, stream));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphUpload(large, stream));
    TEST_ASSERT_EQUAL_UINT64(0, taken());
    launch(small);
    OK(cuGraphExecDestroy(large));
    OK(cuGraphExecDestroy(small));
}

static void test_what_graphs_have_left_serves_others_until_a_trim(void)
{
    CUdeviceptr p;
    CUgraphExec first = make(BLOCK, true, 0, &p), second;

    launch(first);
    TEST_ASSERT_EQUAL_UINT64(BLOCK, attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    OK(cuGraphExecDestroy(first));
    TEST_ASSERT_EQUAL_UINT64(0, attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    TEST_ASSERT_EQUAL_UINT64(BLOCK, attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
    second = make(BLOCK + BLOCK / 2, true, 0, &p);
    launch(second);
    TEST_ASSERT_EQUAL_UINT64(BLOCK + BLOCK / 2, taken());
    OK(cuDeviceGraphMemTrim(0));
    TEST_ASSERT_EQUAL_UINT64(0, taken());
    TEST_ASSERT_EQUAL_UINT64(0, attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
    launch(second);
    TEST_ASSERT_EQUAL_UINT64(BLOCK + BLOCK / 2, taken());
    OK(cuGraphExecDestroy(second));
}

static void test_a_trim_leaves_what_is_in_use(void)
{
    struct gate gate;
    CUdeviceptr p;
    CUgraphExec left = make(BLOCK, false, 0, &p), busy = make(BLOCK, true, 0, &(CUdeviceptr){0});
    unsigned char seen = 0;

    launch(left);
    OK(cuDeviceGraphMemTrim(0));
    OK(cuMemcpyDtoH(&seen, p, 1));
    TEST_ASSERT_EQUAL_UINT8(7, seen);
    gate_init(&gate);
    gate_put(&gate, stream);
    OK(cuGraphLaunch(busy, stream));
    OK(cuGraphExecDestroy(busy)); /* runs all the same */
    OK(cuDeviceGraphMemTrim(0));
    TEST_ASSERT_EQUAL_UINT64(2 * BLOCK, taken());
    gate_open(&gate);
    OK(cuStreamSynchronize(stream));
    gate_end(&gate);
    OK(cuDeviceGraphMemTrim(0));
    TEST_ASSERT_EQUAL_UINT64(BLOCK, taken());
    OK(cuGraphExecDestroy(left));
    OK(cuMemcpyDtoH(&seen, p, 1)); /* destroying a graph does not free what it left allocated */
    OK(cuMemFreeAsync(p, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGraphMemTrim(0));
    TEST_ASSERT_EQUAL_UINT64(0, taken());
}

static void test_what_was_left_must_be_freed_before_the_next_launch(void)
{
    CUdeviceptr p, q;
    CUgraphExec plain = make(BLOCK, false, 0, &p),
                by_itself = make(BLOCK, false, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, &q);

    launch(plain);
    IS(1, cuGraphLaunch(plain, stream));
    OK(cuMemFree(p));
    launch(plain);
    launch(by_itself);
    launch(by_itself);
    OK(cuMemFreeAsync(p, stream));
    OK(cuMemFreeAsync(q, stream));
    OK(cuGraphExecDestroy(plain));
    OK(cuGraphExecDestroy(by_itself));
}

static void test_high_marks_can_be_reset_and_nothing_else_be_set(void)
{
    cuuint64_t zero = 0, one = 1;
    CUdeviceptr p;
    CUgraphExec exec = make(BLOCK, true, 0, &p);

    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
    launch(exec);
    OK(cuGraphExecDestroy(exec));
    OK(cuDeviceGraphMemTrim(0));
    TEST_ASSERT_EQUAL_UINT64(BLOCK, attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH));
    TEST_ASSERT_EQUAL_UINT64(BLOCK, attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH));
    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
    TEST_ASSERT_EQUAL_UINT64(0, attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH));
    TEST_ASSERT_EQUAL_UINT64(0, attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH));
    IS(1, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one));
    IS(1, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
    IS(101, cuDeviceGraphMemTrim(9));
}

static void test_the_graph_of_a_child_node_is_told(void)
{
    CUgraph graph, child, told = NULL;
    CUgraphNode node, inside;
    size_t count = 0;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    OK(cuGraphAddEmptyNode(&inside, child, NULL, 0));
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    OK(cuGraphChildGraphNodeGetGraph(node, &told));
    OK(cuGraphGetNodes(told, NULL, &count));
    TEST_ASSERT_EQUAL_UINT64(1, count);
    IS(1, cuGraphChildGraphNodeGetGraph(inside, &told));
    OK(cuGraphDestroy(child));
    OK(cuGraphDestroy(graph));
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_memory_is_taken_at_the_first_launch_and_kept);
    RUN_TEST(test_an_upload_takes_it_too);
    RUN_TEST(test_an_allocation_behind_a_free_uses_its_memory_again);
    RUN_TEST(test_nodes_beside_each_other_share_nothing);
    RUN_TEST(test_a_launch_that_does_not_fit_takes_nothing);
    RUN_TEST(test_what_graphs_have_left_serves_others_until_a_trim);
    RUN_TEST(test_a_trim_leaves_what_is_in_use);
    RUN_TEST(test_what_was_left_must_be_freed_before_the_next_launch);
    RUN_TEST(test_high_marks_can_be_reset_and_nothing_else_be_set);
    RUN_TEST(test_the_graph_of_a_child_node_is_told);
    return UNITY_END();
}
