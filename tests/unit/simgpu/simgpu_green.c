/* simgpu_green: green contexts on the simulated driver. What waits for what, and which context owns what, was
 * measured on an H200 (driver 580). */
#include "tests/unit/simgpu/simgpu_support.h"

static CUcontext primary, partial; /* the primary context, and the green one that can be made current */
static CUgreenCtx green;
static CUstream on_green, on_primary;
static struct gate gate;

static CUgreenCtx make_green(unsigned int least)
{
    CUdevResource whole, part;
    CUdevResourceDesc description;
    unsigned int count = 1;
    CUgreenCtx made = NULL;

    OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &count, &whole, NULL, 0, least));
    OK(cuDevResourceGenerateDesc(&description, &part, 1));
    OK(cuGreenCtxCreate(&made, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return made;
}

void setUp(void)
{
    sim_begin();
    OK(cuCtxGetCurrent(&primary));
    green = make_green(16);
    OK(cuCtxFromGreenCtx(&partial, green));
    OK(cuGreenCtxStreamCreate(&on_green, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuStreamCreate(&on_primary, CU_STREAM_NON_BLOCKING));
    gate_init(&gate);
}

void tearDown(void)
{
    OK(cuCtxSetCurrent(primary));
    gate_open(&gate);
    OK(cuCtxSynchronize());
    if (on_green)
        OK(cuStreamDestroy(on_green));
    OK(cuStreamDestroy(on_primary));
    if (green)
        OK(cuGreenCtxDestroy(green));
    gate_end(&gate);
    sim_end();
}

/* ---- resources ---- */

static void test_multiprocessors_are_split(void)
{
    CUdevResource whole, parts[32], rest;
    unsigned int count = 0;

    OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    TEST_ASSERT_EQUAL_UINT(132, whole.sm.smCount);
    OK(cuDevSmResourceSplitByCount(NULL, &count, &whole, NULL, 0, 9));
    TEST_ASSERT_EQUAL_UINT(8, count);
    count = 3;
    OK(cuDevSmResourceSplitByCount(parts, &count, &whole, &rest, 0, 9));
    TEST_ASSERT_EQUAL_UINT(3, count);
    TEST_ASSERT_EQUAL_UINT(16, parts[2].sm.smCount);
    TEST_ASSERT_EQUAL_UINT(132 - 48, rest.sm.smCount);
    IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
       cuDevSmResourceSplitByCount(parts, &count, &parts[1], NULL, 0, 8));
    IS(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplitByCount(parts, &count, &whole, NULL, 0, 133));
    IS(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_INVALID));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDevResource(7, &whole, CU_DEV_RESOURCE_TYPE_SM));
}

static void test_each_context_says_what_it_has(void)
{
    CUdevResource resource;

    OK(cuGreenCtxGetDevResource(green, &resource, CU_DEV_RESOURCE_TYPE_SM));
    TEST_ASSERT_EQUAL_UINT(16, resource.sm.smCount);
    OK(cuCtxGetDevResource(partial, &resource, CU_DEV_RESOURCE_TYPE_SM));
    TEST_ASSERT_EQUAL_UINT(16, resource.sm.smCount);
    OK(cuCtxGetDevResource(primary, &resource, CU_DEV_RESOURCE_TYPE_SM));
    TEST_ASSERT_EQUAL_UINT(132, resource.sm.smCount);
}

static void test_bad_descriptions_are_refused(void)
{
    CUdevResource whole, parts[2], others[2];
    CUdevResourceDesc description;
    unsigned int count = 2;
    CUgreenCtx none;

    OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(parts, &count, &whole, NULL, 0, 8));
    OK(cuDevSmResourceSplitByCount(others, &count, &whole, NULL, 0, 8));
    parts[1] = others[1]; /* of two splits */
    IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevResourceGenerateDesc(&description, parts, 2));
    IS(CUDA_ERROR_INVALID_VALUE, cuDevResourceGenerateDesc(&description, parts, 0));
    OK(cuDevResourceGenerateDesc(&description, others, 2));
    IS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&none, description, 0, 0));
    IS(CUDA_ERROR_INVALID_DEVICE, cuGreenCtxCreate(&none, description, 7, CU_GREEN_CTX_DEFAULT_STREAM));
    IS(CUDA_ERROR_INVALID_VALUE,
       cuGreenCtxCreate(&none, (CUdevResourceDesc)&count, 0, CU_GREEN_CTX_DEFAULT_STREAM));
}

/* ---- creating and destroying ---- */

static int retains_the_primary_context(void)
{
    CUdevResource whole;
    CUdevResourceDesc description;
    unsigned int flags;
    int active;
    CUgreenCtx made;

    MUST(0, cuInit(0));
    MUST(0, cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    MUST(0, cuDevResourceGenerateDesc(&description, &whole, 1));
    MUST(0, cuGreenCtxCreate(&made, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    MUST(0, cuDevicePrimaryCtxGetState(0, &flags, &active));
    MUST(1, active);
    MUST(0, cuGreenCtxDestroy(made));
    MUST(0, cuDevicePrimaryCtxGetState(0, &flags, &active));
    MUST(0, active);
    MUST(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(made));
    MUST(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
    return 0;
}

static void test_it_can_be_current(void)
{
    unsigned long long ids[3] = {0};
    CUcontext current;
    CUdevice device = -1;

    OK(cuCtxPushCurrent(partial));
    OK(cuCtxGetCurrent(&current));
    TEST_ASSERT_EQUAL_PTR(partial, current);
    OK(cuCtxGetDevice(&device));
    TEST_ASSERT_EQUAL_INT(0, device);
    OK(cuCtxGetId(partial, &ids[0]));
    OK(cuCtxGetId(primary, &ids[1]));
    OK(cuGreenCtxGetId(NULL, &ids[2]));
    TEST_ASSERT_TRUE(ids[0] != ids[1] && ids[0] == ids[2]);
    OK(cuCtxPopCurrent(&current));
    TEST_ASSERT_EQUAL_PTR(partial, current);
    IS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxGetId(NULL, &ids[2]));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)green));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(partial));
}

static void test_a_stream_tells_its_contexts(void)
{
    CUcontext of = NULL;
    CUgreenCtx part = NULL;

    OK(cuStreamGetCtx(on_green, &of));
    TEST_ASSERT_EQUAL_PTR(partial, of);
    OK(cuStreamGetCtx_v2(on_green, &of, &part));
    TEST_ASSERT_EQUAL_PTR(primary, of);
    TEST_ASSERT_EQUAL_PTR(green, part);
    OK(cuStreamGetGreenCtx(on_green, &part));
    TEST_ASSERT_EQUAL_PTR(green, part);
    OK(cuStreamGetCtx_v2(on_primary, &of, &part));
    TEST_ASSERT_EQUAL_PTR(primary, of);
    TEST_ASSERT_NULL(part);
    OK(cuStreamGetGreenCtx(NULL, &part));
    TEST_ASSERT_NULL(part);
    OK(cuCtxPushCurrent(partial));
    OK(cuStreamGetCtx_v2(NULL, &of, &part));
    TEST_ASSERT_EQUAL_PTR(primary, of);
    TEST_ASSERT_EQUAL_PTR(green, part);
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamGetCtx_v2(CU_STREAM_PER_THREAD, &of, &part));
    OK(cuCtxPopCurrent(NULL));
}

static void test_a_stream_made_while_it_is_current_is_its_own(void)
{
    CUgreenCtx part = NULL;
    CUstream stream;

    OK(cuCtxPushCurrent(partial));
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuCtxPopCurrent(NULL));
    OK(cuStreamGetGreenCtx(stream, &part));
    TEST_ASSERT_EQUAL_PTR(green, part);
    OK(cuStreamDestroy(stream));
    IS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0));
}

static void test_memory_is_the_primary_contexts_and_outlives_it(void)
{
    CUcontext owner = NULL;
    CUdeviceptr p, q, pooled;
    char in[] = "abcdefg", out[sizeof(in)] = "";

    OK(cuCtxPushCurrent(partial));
    OK(cuMemAlloc(&p, MIB));
    OK(cuMemAlloc(&q, MIB));
    OK(cuMemAllocAsync(&pooled, MIB, on_green));
    OK(cuMemFreeAsync(pooled, on_green));
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    TEST_ASSERT_EQUAL_PTR(primary, owner);
    OK(cuMemFree(q));
    OK(cuCtxPopCurrent(NULL));
    OK(cuStreamDestroy(on_green));
    OK(cuGreenCtxDestroy(green));
    on_green = NULL;
    green = NULL;
    OK(cuMemcpyHtoD(p, in, sizeof(in)));
    OK(cuMemcpyDtoH(out, p, sizeof(out)));
    TEST_ASSERT_EQUAL_STRING(in, out);
    OK(cuMemFree(p));
}

static void test_what_a_destroyed_green_context_leaves_returns_its_error(void)
{
    CUcontext current;
    CUdevice device;

    OK(cuCtxPushCurrent(partial));
    OK(cuGreenCtxDestroy(green));
    green = NULL;
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxGetDevice(&device));
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize(on_green));
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy(on_green));
    OK(cuCtxPopCurrent(&current));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(partial));
    TEST_ASSERT_EQUAL_UINT64(2,
                             simgpu_leaks()); /* the stream that was left in it, as cuda.h says, and ours */
    OK(cuStreamDestroy(on_primary));
    OK(cuDevicePrimaryCtxReset(0)); /* takes it away */
    on_green = NULL;
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuStreamCreate(&on_primary, CU_STREAM_NON_BLOCKING));
}

/* ---- waits ---- */

/* The call returns while the gate is closed. */
#define DOES_NOT_WAIT(call)                                                                                  \
    do {                                                                                                     \
        OK(call);                                                                                            \
        TEST_ASSERT_FALSE(gate_passed(&gate));                                                               \
    } while (0)
/* Another thread opens the gate, and the call returns only then. */
#define WAITS(call)                                                                                          \
    do {                                                                                                     \
        gate_open_soon(&gate);                                                                               \
        OK(call);                                                                                            \
        TEST_ASSERT_TRUE(gate_passed(&gate));                                                                \
    } while (0)

static void test_a_green_one_waits_for_its_own_streams_only(void)
{
    gate_put(&gate, on_primary);
    OK(cuCtxPushCurrent(partial));
    DOES_NOT_WAIT(cuCtxSynchronize());
    OK(cuCtxPopCurrent(NULL));
    DOES_NOT_WAIT(cuCtxSynchronize_v2(partial));
}

static void test_a_green_one_waits_for_its_streams(void)
{
    gate_put(&gate, on_green);
    OK(cuCtxPushCurrent(partial));
    WAITS(cuCtxSynchronize());
    OK(cuCtxPopCurrent(NULL));
}

static void test_a_free_waits_for_all_whichever_is_current(void)
{
    CUdeviceptr p;

    gate_put(&gate, on_primary);
    OK(cuCtxPushCurrent(partial));
    OK(cuMemAlloc(&p, MIB));
    WAITS(cuMemFree(p));
    OK(cuCtxPopCurrent(NULL));
}

static void test_a_free_in_the_primary_one_waits_for_green_streams(void)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, MIB));
    gate_put(&gate, on_green);
    WAITS(cuMemFree(p));
}

static void test_the_primary_one_waits_for_green_streams(void)
{
    gate_put(&gate, on_green);
    WAITS(cuCtxSynchronize());
}

static void test_the_primary_one_waits_for_them_by_name(void)
{
    gate_put(&gate, on_green);
    WAITS(cuCtxSynchronize_v2(primary));
}

static void test_an_event_of_the_primary_one_covers_green_streams(void)
{
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    gate_put(&gate, on_green);
    OK(cuCtxRecordEvent(primary, event));
    IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    WAITS(cuEventSynchronize(event));
    OK(cuEventDestroy(event));
}

static void test_an_event_of_a_green_one_covers_its_own_only(void)
{
    CUevent event;

    OK(cuCtxPushCurrent(partial));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)); /* is the primary context's all the same */
    OK(cuCtxPopCurrent(NULL));
    gate_put(&gate, on_primary);
    OK(cuCtxRecordEvent(partial, event));
    OK(cuEventQuery(event));
    OK(cuGreenCtxRecordEvent(green, event));
    OK(cuEventQuery(event));
    OK(cuCtxRecordEvent(primary, event));
    IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    OK(cuEventDestroy(event));
}

static void test_waiting_for_an_event_holds_back_the_streams_of_a_context(void)
{
    CUstream late;
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    gate_put(&gate, on_primary);
    OK(cuEventRecord(event, on_primary));
    OK(cuGreenCtxWaitEvent(green, event));
    OK(cuGreenCtxStreamCreate(&late, green, CU_STREAM_NON_BLOCKING, 0));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(on_green));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(late));
    OK(cuStreamQuery(NULL)); /* of the primary one: not held back */
    OK(cuCtxWaitEvent(primary, event));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    WAITS(cuStreamSynchronize(late));
    OK(cuStreamDestroy(late));
    OK(cuEventDestroy(event));
}

static void test_waiting_in_the_primary_one_holds_back_green_streams(void)
{
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    gate_put(&gate, on_primary);
    OK(cuCtxRecordEvent(primary, event));
    OK(cuCtxWaitEvent(primary, event));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(on_green));
    WAITS(cuStreamSynchronize(on_green));
    OK(cuEventDestroy(event));
}

static void test_the_null_stream_is_the_current_contexts(void)
{
    gate_put(&gate, NULL);
    OK(cuCtxPushCurrent(partial));
    DOES_NOT_WAIT(cuStreamSynchronize(NULL));
    OK(cuCtxPopCurrent(NULL));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
}

/* ---- captures ---- */

static void test_only_what_waits_for_a_captured_stream_ends_its_capture(void)
{
    CUgraph graph = NULL;

    OK(cuStreamBeginCapture(on_primary, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuCtxSynchronize_v2(partial));
    OK(cuStreamEndCapture(on_primary, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(on_green, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(900, cuCtxSynchronize_v2(primary));
    IS(901, cuStreamEndCapture(on_green, &graph));
    OK(cuStreamBeginCapture(on_green, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(900, cuCtxSynchronize_v2(partial));
    IS(901, cuStreamEndCapture(on_green, &graph));
}

static void test_a_capture_ends_with_its_green_context(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

    OK(cuStreamBeginCapture(on_green, mode));
    OK(cuGreenCtxDestroy(green));
    green = NULL;
    OK(cuCtxSynchronize()); /* no capture is open any more */
    OK(cuStreamDestroy(on_primary));
    OK(cuDevicePrimaryCtxReset(0));
    on_green = NULL;
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuStreamCreate(&on_primary, CU_STREAM_NON_BLOCKING));
}

int main(void)
{
    int retains;

    sim_machine("1x1G");
    retains = sim_in_child(retains_the_primary_context);
    if (retains != 0)
        return retains;
    UNITY_BEGIN();
    RUN_TEST(test_multiprocessors_are_split);
    RUN_TEST(test_each_context_says_what_it_has);
    RUN_TEST(test_bad_descriptions_are_refused);
    RUN_TEST(test_it_can_be_current);
    RUN_TEST(test_a_stream_tells_its_contexts);
    RUN_TEST(test_a_stream_made_while_it_is_current_is_its_own);
    RUN_TEST(test_memory_is_the_primary_contexts_and_outlives_it);
    RUN_TEST(test_what_a_destroyed_green_context_leaves_returns_its_error);
    RUN_TEST(test_a_green_one_waits_for_its_own_streams_only);
    RUN_TEST(test_a_green_one_waits_for_its_streams);
    RUN_TEST(test_a_free_waits_for_all_whichever_is_current);
    RUN_TEST(test_a_free_in_the_primary_one_waits_for_green_streams);
    RUN_TEST(test_the_primary_one_waits_for_green_streams);
    RUN_TEST(test_the_primary_one_waits_for_them_by_name);
    RUN_TEST(test_an_event_of_the_primary_one_covers_green_streams);
    RUN_TEST(test_an_event_of_a_green_one_covers_its_own_only);
    RUN_TEST(test_waiting_for_an_event_holds_back_the_streams_of_a_context);
    RUN_TEST(test_waiting_in_the_primary_one_holds_back_green_streams);
    RUN_TEST(test_the_null_stream_is_the_current_contexts);
    RUN_TEST(test_only_what_waits_for_a_captured_stream_ends_its_capture);
    RUN_TEST(test_a_capture_ends_with_its_green_context);
    return UNITY_END();
}
