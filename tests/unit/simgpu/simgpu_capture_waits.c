/* simgpu_capture_waits: which waits and queries a stream capture forbids, for a capture of another thread and
 * for the thread's own.
 *
 * Every line was measured on an H200 (driver 580). A forbidden call returns 900 at once and invalidates the
 * capture; an allowed one waits as usual, and the capture goes on.
 */
#include "tests/unit/simgpu/simgpu_support.h"

#include <stdio.h>

static CUcontext context;
static CUstream busy; /* its work waits at a gate */
static CUevent earlier, later;
static CUdeviceptr block;
static void *pinned;

static CUresult free_device(void)
{
    CUresult result = cuMemFree(block);

    block = result == CUDA_SUCCESS ? 0 : block;
    return result;
}

static CUresult free_pinned(void)
{
    CUresult result = cuMemFreeHost(pinned);

    pinned = result == CUDA_SUCCESS ? NULL : pinned;
    return result;
}

static CUresult context_sync(void)
{
    return cuCtxSynchronize();
}

static CUresult context_sync_by_name(void)
{
    return cuCtxSynchronize_v2(context);
}

static CUresult context_record(void)
{
    return cuCtxRecordEvent(context, later);
}

static CUresult event_query(void)
{
    return cuEventQuery(earlier);
}

static CUresult event_sync(void)
{
    return cuEventSynchronize(earlier);
}

static CUresult stream_sync(void)
{
    return cuStreamSynchronize(busy);
}

static CUresult stream_query(void)
{
    return cuStreamQuery(busy);
}

static CUresult record_and_sync(void)
{
    CUresult result = cuEventRecord(later, busy);

    return result ? result : cuEventSynchronize(later);
}

static CUresult alloc_device(void)
{
    CUdeviceptr p = 0;
    CUresult result = cuMemAlloc(&p, 512);

    if (p)
        OK(cuMemFreeAsync(p, busy));
    return result;
}

/* A call, what it returns when allowed, and whether any capture of the context forbids it. */
static const struct call {
    const char *name;
    CUresult (*run)(void);
    CUresult allowed;
    bool never;
} calls[] = {{"cuMemFree", free_device, CUDA_SUCCESS, false},
             {"cuMemFreeHost", free_pinned, CUDA_SUCCESS, false},
             {"cuCtxSynchronize", context_sync, CUDA_SUCCESS, true},
             {"cuCtxSynchronize_v2", context_sync_by_name, CUDA_SUCCESS, true},
             {"cuCtxRecordEvent", context_record, CUDA_SUCCESS, true},
             {"cuEventQuery", event_query, CUDA_ERROR_NOT_READY, false},
             {"cuEventSynchronize", event_sync, CUDA_SUCCESS, false},
             {"cuStreamSynchronize", stream_sync, CUDA_SUCCESS, false},
             {"cuStreamQuery", stream_query, CUDA_ERROR_NOT_READY, false},
             {"cuEventRecord and cuEventSynchronize", record_and_sync, CUDA_SUCCESS, false}};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

void setUp(void)
{
    sim_begin();
    OK(cuCtxGetCurrent(&context));
    OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&earlier, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&later, CU_EVENT_DISABLE_TIMING));
}

void tearDown(void)
{
    OK(cuCtxSynchronize());
    OK(cuEventDestroy(earlier));
    OK(cuEventDestroy(later));
    OK(cuStreamDestroy(busy));
    if (block)
        OK(cuMemFree(block));
    if (pinned)
        OK(cuMemFreeHost(pinned));
    block = 0;
    pinned = NULL;
    sim_end();
}

/* Work behind a gate, an event behind that, and something to free. */
static void begin_work(struct gate *gate)
{
    if (!block)
        OK(cuMemAlloc(&block, 512));
    if (!pinned)
        OK(cuMemHostAlloc(&pinned, 4096, 0));
    gate_init(gate);
    gate_put(gate, busy);
    OK(cuEventRecord(earlier, busy));
}

/* Makes the call; if it waits, the gate opens by itself. */
static void expect_call(const struct call *call, bool forbidden, struct gate *gate, const char *where)
{
    const bool waits = !forbidden && call->allowed == CUDA_SUCCESS;

    if (waits)
        gate_open_soon(gate);
    TEST_ASSERT_EQUAL_INT_MESSAGE(forbidden ? 900 : call->allowed, call->run(), where);
    TEST_ASSERT_EQUAL_INT_MESSAGE(waits, gate_passed(gate), where);
    gate_open(gate);
}

/* ---- a capture of another thread ---- */

struct other {
    CUstreamCaptureMode mode;
    pthread_barrier_t begun, over;
    CUresult begin, end;
};

static void *capture_elsewhere(void *data)
{
    struct other *other = data;
    CUgraph graph = NULL;
    CUstream stream;

    cuCtxSetCurrent(context);
    other->begin = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (!other->begin)
        other->begin = cuStreamBeginCapture(stream, other->mode);
    pthread_barrier_wait(&other->begun);
    pthread_barrier_wait(&other->over);
    other->end = cuStreamEndCapture(stream, &graph);
    if (graph)
        cuGraphDestroy(graph);
    cuStreamDestroy(stream);
    return NULL;
}

static void beside(CUstreamCaptureMode mode, CUstreamCaptureMode own, const struct call *call)
{
    const bool global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL && own == CU_STREAM_CAPTURE_MODE_GLOBAL;
    const bool forbidden = call->never || global;
    struct other other = {.mode = mode};
    CUstreamCaptureMode exchanged = own;
    char where[96];
    pthread_t thread;
    struct gate gate;

    snprintf(where, sizeof(where), "%s, capture of mode %d, thread of mode %d", call->name, mode, own);
    begin_work(&gate);
    pthread_barrier_init(&other.begun, NULL, 2);
    pthread_barrier_init(&other.over, NULL, 2);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, capture_elsewhere, &other));
    pthread_barrier_wait(&other.begun);
    OK(cuThreadExchangeStreamCaptureMode(&exchanged));
    expect_call(call, forbidden, &gate, where);
    OK(cuThreadExchangeStreamCaptureMode(&exchanged));
    pthread_barrier_wait(&other.over);
    pthread_join(thread, NULL);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, other.begin, where);
    TEST_ASSERT_EQUAL_INT_MESSAGE(forbidden ? 901 : 0, other.end, where);
    OK(cuCtxSynchronize());
    gate_end(&gate);
    pthread_barrier_destroy(&other.begun);
    pthread_barrier_destroy(&other.over);
}

static void beside_all(CUstreamCaptureMode mode)
{
    int i;

    for (i = 0; i < CALLS; i++) {
        beside(mode, CU_STREAM_CAPTURE_MODE_GLOBAL, &calls[i]);
        beside(mode, CU_STREAM_CAPTURE_MODE_RELAXED, &calls[i]);
    }
}

static void test_beside_a_global_capture_all_is_forbidden_but_to_a_relaxed_thread(void)
{
    beside_all(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void test_beside_a_thread_local_capture_only_what_covers_its_stream_is_forbidden(void)
{
    beside_all(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void test_beside_a_relaxed_capture_only_what_covers_its_stream_is_forbidden(void)
{
    beside_all(CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* ---- the thread's own capture ---- */

static void test_in_its_own_capture_a_thread_may_wait_only_if_that_is_relaxed(void)
{
    static const struct call allocate = {"cuMemAlloc", alloc_device, CUDA_SUCCESS, false};
    const struct call *tried[] = {&calls[0], &calls[6], &calls[7]};
    CUstreamCaptureMode mode;
    CUgraph graph;
    CUstream own;
    size_t i;

    OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    for (mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        const bool forbidden = mode != CU_STREAM_CAPTURE_MODE_RELAXED;

        for (i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
            struct gate gate;

            begin_work(&gate);
            OK(cuStreamBeginCapture(own, mode));
            expect_call(tried[i], forbidden, &gate, tried[i]->name);
            IS(forbidden ? 901 : 0, cuStreamEndCapture(own, &graph));
            if (!forbidden)
                OK(cuGraphDestroy(graph));
            OK(cuCtxSynchronize());
            gate_end(&gate);
        }
        OK(cuStreamBeginCapture(own, mode));
        IS(forbidden ? 900 : 0, allocate.run());
        IS(forbidden ? 901 : 0, cuStreamEndCapture(own, &graph));
        if (!forbidden)
            OK(cuGraphDestroy(graph));
    }
    OK(cuStreamDestroy(own));
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_beside_a_global_capture_all_is_forbidden_but_to_a_relaxed_thread);
    RUN_TEST(test_beside_a_thread_local_capture_only_what_covers_its_stream_is_forbidden);
    RUN_TEST(test_beside_a_relaxed_capture_only_what_covers_its_stream_is_forbidden);
    RUN_TEST(test_in_its_own_capture_a_thread_may_wait_only_if_that_is_relaxed);
    return UNITY_END();
}
