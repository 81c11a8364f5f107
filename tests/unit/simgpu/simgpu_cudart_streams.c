/* Streams, events, graphs and pools of the simulated runtime. Also compiled for per-thread default streams.
 */
#include "tests/unit/simgpu/simgpu_cudart_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

static atomic_int gate, calls;

void setUp(void)
{
    atomic_store(&gate, 0);
    atomic_store(&calls, 0);
}

void tearDown(void)
{
    FAILS(cudaSuccess, cudaGetLastError());
}

static void wait_for_gate(void *arg)
{
    (void)arg;
    while (!atomic_load(&gate))
        usleep(100);
}

static void count_call(void *arg)
{
    (void)arg;
    atomic_fetch_add(&calls, 1);
}

static void CUDART_CB count_callback(cudaStream_t stream, cudaError_t status, void *arg)
{
    (void)stream;
    if (status == cudaSuccess)
        count_call(arg);
}

static void test_a_busy_stream_is_not_ready_and_that_is_no_lasting_error(void)
{
    cudaStream_t s;
    cudaEvent_t e;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    OK(cudaLaunchHostFunc(s, wait_for_gate, NULL));
    OK(cudaEventRecord(e, s));
    FAILS(cudaErrorNotReady, cudaStreamQuery(s));
    FAILS(cudaErrorNotReady, cudaEventQuery(e));
    FAILS(cudaErrorNotReady, cudaGetLastError());
    FAILS(cudaSuccess, cudaGetLastError());
    atomic_store(&gate, 1);
    OK(cudaEventSynchronize(e));
    OK(cudaStreamSynchronize(s));
    OK(cudaStreamQuery(s));
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
}

static void test_one_stream_waits_for_an_event_of_another(void)
{
    cudaStream_t first, second;
    cudaEvent_t e;
    OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, -1));
    OK(cudaEventCreate(&e));
    OK(cudaLaunchHostFunc(first, wait_for_gate, NULL));
    OK(cudaEventRecord(e, first));
    OK(cudaStreamWaitEvent(second, e, 0));
    OK(cudaLaunchHostFunc(second, count_call, NULL));
    OK(cudaStreamAddCallback(second, count_callback, NULL, 0));
    usleep(2000);
    TEST_ASSERT_EQUAL_INT(0, atomic_load(&calls));
    atomic_store(&gate, 1);
    OK(cudaStreamSynchronize(second));
    TEST_ASSERT_EQUAL_INT(2, atomic_load(&calls));
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
}

static void test_events_measure_time(void)
{
    cudaEvent_t a, b;
    float ms = -1;
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    OK(cudaEventRecord(a, NULL));
    OK(cudaEventRecord(b, NULL));
    OK(cudaEventSynchronize(b));
    OK(cudaEventElapsedTime(&ms, a, b));
    TEST_ASSERT_TRUE(ms >= 0);
    OK(cudaEventDestroy(a));
    OK(cudaEventDestroy(b));
}

static void test_a_captured_graph_runs_when_it_is_launched(void)
{
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    size_t nodes = 0;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(cudaLaunchHostFunc(s, count_call, NULL));
    OK(cudaStreamIsCapturing(s, &status));
    TEST_ASSERT_EQUAL_INT(cudaStreamCaptureStatusActive, status);
    OK(cudaStreamGetCaptureInfo(s, &status, &id, NULL, NULL, NULL, NULL));
    TEST_ASSERT_TRUE(id != 0);
    OK(cudaStreamEndCapture(s, &graph));
    TEST_ASSERT_EQUAL_INT(0, atomic_load(&calls));
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    TEST_ASSERT_EQUAL_UINT64(1, nodes);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    TEST_ASSERT_EQUAL_INT(2, atomic_load(&calls));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(s));
}

static void test_a_graph_built_by_hand_runs_in_order(void)
{
    struct cudaHostNodeParams host = {.fn = count_call};
    struct cudaMemsetParams fill = {.elementSize = 1, .width = 64, .height = 1, .value = 0x21};
    unsigned char out[64] = {0};
    cudaGraph_t graph;
    cudaGraphNode_t first, second, third;
    cudaGraphExec_t exec;
    OK(cudaMalloc(&fill.dst, 64));
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddHostNode(&first, graph, NULL, 0, &host));
    OK(cudaGraphAddMemsetNode(&second, graph, &first, 1, &fill));
    OK(cudaGraphAddMemcpyNode1D(&third, graph, &second, 1, out, fill.dst, 64, cudaMemcpyDeviceToHost));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, NULL));
    OK(cudaStreamSynchronize(NULL));
    TEST_ASSERT_EQUAL_INT(1, atomic_load(&calls));
    TEST_ASSERT_EACH_EQUAL_HEX8(0x21, out, 64);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaFree(fill.dst));
}

static void test_allocation_in_the_order_of_a_stream(void)
{
    cudaStream_t s;
    cudaMemPool_t pool;
    uint64_t used = 0;
    unsigned char out[256];
    void *p, *q;
    OK(cudaStreamCreate(&s));
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMallocAsync(&p, 256, s));
    OK(cudaMemsetAsync(p, 0x42, 256, s));
    OK(cudaMemcpyAsync(out, p, 256, cudaMemcpyDeviceToHost, s));
    OK(cudaMallocFromPoolAsync(&q, 256, pool, s));
    OK(cudaFreeAsync(p, s));
    OK(cudaFreeAsync(q, s));
    OK(cudaStreamSynchronize(s));
    TEST_ASSERT_EACH_EQUAL_HEX8(0x42, out, 256);
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    TEST_ASSERT_EQUAL_UINT64(0, used);
    OK(cudaMemPoolTrimTo(pool, 0));
    FAILS(cudaErrorMemoryAllocation, cudaMallocAsync(&p, (size_t)1 << 50, s));
    FAILS(cudaErrorMemoryAllocation, cudaGetLastError());
    OK(cudaStreamDestroy(s));
}

static void *use_default_stream(void *arg)
{
    unsigned char *mine = arg, back[4096];
    void *p;
    for (int i = 0; i < 50; i++) {
        if (cudaMalloc(&p, sizeof(back)) || cudaMemsetAsync(p, mine[0], sizeof(back), NULL) ||
            cudaMemcpyAsync(back, p, sizeof(back), cudaMemcpyDeviceToHost, NULL) ||
            cudaStreamSynchronize(NULL) || cudaFree(p))
            return (void *)(uintptr_t) "a call failed";
        for (size_t k = 0; k < sizeof(back); k++) {
            if (back[k] != mine[0])
                return (void *)(uintptr_t) "another thread's bytes";
        }
    }
    return NULL;
}

static void test_threads_share_the_device_without_harm(void)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    unsigned char value[THREADS];
    void *complaint;
    for (int i = 0; i < THREADS; i++) {
        value[i] = (unsigned char)(i + 1);
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread[i], NULL, use_default_stream, &value[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        TEST_ASSERT_EQUAL_INT(0, pthread_join(thread[i], &complaint));
        TEST_ASSERT_NULL_MESSAGE(complaint, complaint);
    }
}

int main(void)
{
    cudart_own_machine("1x128M;ctx=4M");
    UNITY_BEGIN();
    RUN_TEST(test_a_busy_stream_is_not_ready_and_that_is_no_lasting_error);
    RUN_TEST(test_one_stream_waits_for_an_event_of_another);
    RUN_TEST(test_events_measure_time);
    RUN_TEST(test_a_captured_graph_runs_when_it_is_launched);
    RUN_TEST(test_a_graph_built_by_hand_runs_in_order);
    RUN_TEST(test_allocation_in_the_order_of_a_stream);
    RUN_TEST(test_threads_share_the_device_without_harm);
    return UNITY_END();
}
