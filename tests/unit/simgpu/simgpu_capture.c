/* simgpu_capture: what a stream capture takes, what it forbids, and how its graph runs, on the simulated
 * driver.
 */
#include "tests/unit/simgpu/simgpu_support.h"

static CUstream stream;

void setUp(void)
{
    sim_begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

void tearDown(void)
{
    OK(cuStreamDestroy(stream));
    sim_end();
}

static void test_captured_work_runs_at_launch_only_and_each_time(void)
{
    static const unsigned int one = 1;
    CUstreamCaptureStatus status;
    unsigned int seen = 0;
    CUdeviceptr p;
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    int i;

    OK(cuMemAlloc(&p, 8));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamIsCapturing(stream, &status));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
    OK(cuMemsetD32Async(p, 7, 1, stream));
    OK(cuMemcpyDtoDAsync(p + 4, p, 4, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuMemcpyDtoH(&seen, p + 4, 4));
    TEST_ASSERT_EQUAL_UINT32(0, seen);
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    TEST_ASSERT_EQUAL_UINT64(2, nodes);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (i = 0; i < 3; i++) {
        OK(cuMemcpyHtoD(p + 4, &one, 4));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(&seen, p + 4, 4));
        TEST_ASSERT_EQUAL_UINT32(7, seen);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuMemFree(p));
}

static void test_an_allocation_destroys_a_global_capture(void)
{
    CUstreamCaptureStatus status;
    CUgraph graph = (CUgraph)&status;
    CUdeviceptr p;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    IS(900, cuMemAlloc(&p, 4096));
    OK(cuStreamIsCapturing(stream, &status));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status);
    IS(901, cuStreamEndCapture(stream, &graph));
    TEST_ASSERT_NULL(graph);
    OK(cuStreamIsCapturing(stream, &status));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_STATUS_NONE, status);
}

static void test_an_allocation_lives_with_a_relaxed_capture(void)
{
    CUgraph graph;
    CUdeviceptr p;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc(&p, 4096));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(p));
}

static void *allocate(void *data)
{
    CUdeviceptr p;
    CUresult result = cuCtxSetCurrent(data);

    if (result == CUDA_SUCCESS)
        result = cuMemAlloc(&p, 4096);
    if (result == CUDA_SUCCESS)
        result = cuMemFree(p);
    return (void *)(uintptr_t)result;
}

static CUresult allocate_elsewhere(void)
{
    CUcontext context;
    pthread_t thread;
    void *result;

    OK(cuCtxGetCurrent(&context));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, allocate, context));
    pthread_join(thread, &result);
    return (CUresult)(uintptr_t)result;
}

static void test_a_global_capture_binds_other_threads_a_local_one_does_not(void)
{
    CUgraph graph;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(allocate_elsewhere());
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    IS(900, allocate_elsewhere());
    IS(901, cuStreamEndCapture(stream, &graph));
}

static void test_a_thread_can_relax_its_own_mode(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUgraph graph;
    CUdeviceptr p;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    OK(cuMemAlloc(&p, 4096));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(p));
}

static void test_a_context_event_destroys_any_capture(void)
{
    CUcontext context;
    CUevent event;
    CUgraph graph;

    OK(cuCtxGetCurrent(&context));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    IS(900, cuCtxRecordEvent(context, event));
    IS(901, cuStreamEndCapture(stream, &graph));
    OK(cuEventDestroy(event));
}

static void test_virtual_memory_management_is_allowed(void)
{
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {props.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUgraph graph;
    CUdeviceptr p;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * MIB, &props, 0));
    OK(cuMemMap(p, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(p, 2 * MIB, &access, 1));
    OK(cuMemUnmap(p, 2 * MIB));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(p, 2 * MIB));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
}

static void test_waiting_for_a_capturing_stream_destroys_the_capture(void)
{
    CUgraph graph;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(900, cuStreamSynchronize(stream));
    IS(901, cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(900, cuStreamQuery(stream));
    IS(901, cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(900, cuCtxSynchronize());
    IS(901, cuStreamEndCapture(stream, &graph));
}

static void test_the_legacy_stream_cannot_be_used_beside_a_blocking_capture(void)
{
    CUstream blocking;
    CUgraph graph;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 4));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    IS(900, cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(906, cuMemsetD32Async(p, 1, 1, NULL));
    IS(901, cuStreamEndCapture(blocking, &graph));
    OK(cuStreamDestroy(blocking));
    OK(cuMemFree(p));
}

static void test_a_capture_follows_events_into_other_streams_and_back(void)
{
    CUstreamCaptureStatus status;
    CUstream other;
    CUevent fork_event, join_event;
    CUgraphExec exec;
    CUgraph graph;
    CUdeviceptr p;
    unsigned int seen[2] = {0, 0};
    size_t edges;

    OK(cuMemAlloc(&p, 8));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(p, 3, 1, stream));
    OK(cuEventRecord(fork_event, stream));

    OK(cuStreamWaitEvent(other, fork_event, 0));
    OK(cuStreamIsCapturing(other, &status));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
    OK(cuMemcpyDtoDAsync(p + 4, p, 4, other));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &graph));
    IS(901, cuStreamEndCapture(stream, &graph));

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(p, 3, 1, stream));
    OK(cuEventRecord(fork_event, stream));
    OK(cuStreamWaitEvent(other, fork_event, 0));
    OK(cuMemcpyDtoDAsync(p + 4, p, 4, other));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(stream, &graph));

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(p, 3, 1, stream));
    OK(cuEventRecord(fork_event, stream));
    OK(cuStreamWaitEvent(other, fork_event, 0));
    OK(cuMemcpyDtoDAsync(p + 4, p, 4, other));
    OK(cuEventRecord(join_event, other));
    OK(cuStreamWaitEvent(stream, join_event, 0));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    TEST_ASSERT_EQUAL_UINT64(1, edges);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(seen, p, 8));
    TEST_ASSERT_EQUAL_UINT32(3, seen[1]);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(fork_event));
    OK(cuEventDestroy(join_event));
    OK(cuStreamDestroy(other));
    OK(cuMemFree(p));
}

static void test_asking_about_a_captured_event_destroys_the_capture(void)
{
    CUevent event;
    CUgraph graph;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(event, stream));
    IS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
    IS(901, cuStreamEndCapture(stream, &graph));
    OK(cuEventDestroy(event));
}

static void test_copies_that_wait_live_beside_a_capture_but_a_query_does_not(void)
{
    unsigned int value = 1;
    CUstream other;
    CUgraph graph;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 4));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpyHtoD(p, &value, 4));
    OK(cuMemsetD32Async(p, 1, 1, NULL));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    IS(900, cuStreamQuery(other));
    IS(901, cuStreamEndCapture(stream, &graph));
    OK(cuStreamDestroy(other));
    OK(cuMemFree(p));
}

static void test_a_capture_cannot_wait_for_an_event_from_outside(void)
{
    CUevent event;
    CUgraph graph;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, stream));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, event, 0));
    IS(901, cuStreamEndCapture(stream, &graph));
    OK(cuEventDestroy(event));
}

static void test_async_memory_in_a_capture_belongs_to_the_graph(void)
{
    size_t before = sim_free();
    CUgraphExec exec;
    CUgraph graph;
    CUdeviceptr p;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&p, 4096, stream));
    OK(cuMemsetD32Async(p, 1, 1024, stream));
    OK(cuMemFreeAsync(p, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_TRUE(sim_free() < before);
    OK(cuGraphExecDestroy(exec));
    OK(cuDeviceGraphMemTrim(0));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

static void add_one(void *data)
{
    ++*(int *)data;
}

static void test_a_graph_can_be_built_by_hand(void)
{
    CUDA_HOST_NODE_PARAMS host = {.fn = add_one};
    CUDA_MEMSET_NODE_PARAMS fill = {.value = 5, .elementSize = 4, .width = 2, .height = 1};
    CUgraphNode nodes[4], roots[4];
    CUgraphNodeType type;
    CUgraph graph, child;
    CUgraphExec exec;
    CUcontext context;
    size_t count = 4;
    int calls = 0;
    unsigned int seen = 0;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 8));
    OK(cuCtxGetCurrent(&context));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    host.userData = &calls;
    fill.dst = p;
    OK(cuGraphAddHostNode(&nodes[0], graph, NULL, 0, &host));
    OK(cuGraphAddMemsetNode(&nodes[1], graph, &nodes[0], 1, &fill, context));
    OK(cuGraphAddHostNode(&nodes[2], child, NULL, 0, &host));
    OK(cuGraphAddChildGraphNode(&nodes[3], graph, &nodes[1], 1, child));
    OK(cuGraphDestroy(child));
    OK(cuGraphGetRootNodes(graph, roots, &count));
    TEST_ASSERT_EQUAL_UINT64(1, count);
    TEST_ASSERT_EQUAL_PTR(nodes[0], roots[0]);
    OK(cuGraphNodeGetType(nodes[3], &type));
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_NODE_TYPE_GRAPH, type);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_INT(2, calls);
    OK(cuMemcpyDtoH(&seen, p + 4, 4));
    TEST_ASSERT_EQUAL_UINT32(5, seen);
    OK(cuGraphAddDependencies(graph, &nodes[3], &nodes[0], NULL, 1));
    IS(1, cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    IS(1, cuGraphDestroy(graph));
    OK(cuMemFree(p));
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_captured_work_runs_at_launch_only_and_each_time);
    RUN_TEST(test_an_allocation_destroys_a_global_capture);
    RUN_TEST(test_an_allocation_lives_with_a_relaxed_capture);
    RUN_TEST(test_a_global_capture_binds_other_threads_a_local_one_does_not);
    RUN_TEST(test_a_thread_can_relax_its_own_mode);
    RUN_TEST(test_a_context_event_destroys_any_capture);
    RUN_TEST(test_virtual_memory_management_is_allowed);
    RUN_TEST(test_waiting_for_a_capturing_stream_destroys_the_capture);
    RUN_TEST(test_the_legacy_stream_cannot_be_used_beside_a_blocking_capture);
    RUN_TEST(test_a_capture_follows_events_into_other_streams_and_back);
    RUN_TEST(test_asking_about_a_captured_event_destroys_the_capture);
    RUN_TEST(test_copies_that_wait_live_beside_a_capture_but_a_query_does_not);
    RUN_TEST(test_a_capture_cannot_wait_for_an_event_from_outside);
    RUN_TEST(test_async_memory_in_a_capture_belongs_to_the_graph);
    RUN_TEST(test_a_graph_can_be_built_by_hand);
    return UNITY_END();
}
