/* simgpu_stream: order, waiting and time in the simulated driver's streams and events. */
#include "tests/unit/simgpu/simgpu_support.h"

#include <stdatomic.h>

void setUp(void)
{
    sim_begin();
}

void tearDown(void)
{
    sim_end();
}

static void test_work_of_a_stream_runs_in_order(void)
{
    enum { COUNT = 200 };
    CUdeviceptr p;
    CUstream stream;
    unsigned int seen = 0, i;

    OK(cuMemAlloc(&p, 4));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (i = 1; i <= COUNT; i++)
        OK(cuMemsetD32Async(p, i, 1, stream));
    OK(cuMemcpyDtoHAsync(&seen, p, 4, stream));
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_UINT32(COUNT, seen);
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(p));
}

static void test_a_query_is_not_ready_while_work_is_there(void)
{
    struct gate gate;
    CUstream stream;
    CUevent event;

    gate_init(&gate);
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuEventQuery(event));
    OK(cuStreamQuery(stream));
    gate_put(&gate, stream);
    OK(cuEventRecord(event, stream));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    gate_open(&gate);
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    OK(cuStreamQuery(stream));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    gate_end(&gate);
}

static void test_the_legacy_stream_and_blocking_streams_wait_for_each_other(void)
{
    struct gate first, second;
    CUstream stream;

    gate_init(&first);
    gate_init(&second);
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    gate_put(&first, stream);
    gate_put(&second, NULL);
    gate_open(&second);
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    TEST_ASSERT_FALSE(gate_passed(&second));
    gate_open(&first);
    OK(cuStreamSynchronize(NULL));
    TEST_ASSERT_TRUE(gate_passed(&second));
    gate_end(&second);

    gate_init(&second);
    first.open = first.passed = false;
    gate_put(&first, CU_STREAM_LEGACY);
    gate_put(&second, stream);
    gate_open(&second);
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    gate_open(&first);
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_TRUE(gate_passed(&first));
    OK(cuStreamDestroy(stream));
    gate_end(&first);
    gate_end(&second);
}

static void test_a_non_blocking_stream_ignores_the_legacy_one(void)
{
    struct gate gate;
    CUstream stream;
    CUdeviceptr p;

    gate_init(&gate);
    OK(cuMemAlloc(&p, 4));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    gate_put(&gate, NULL);
    OK(cuMemsetD32Async(p, 1, 1, stream));
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_FALSE(gate_passed(&gate));
    gate_open(&gate);
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(p));
    gate_end(&gate);
}

static void *query_own_stream(void *data)
{
    CUcontext context = data;

    if (cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return (void *)1;
    return (void *)(uintptr_t)cuStreamQuery(CU_STREAM_PER_THREAD);
}

static void test_each_thread_has_a_default_stream_of_its_own(void)
{
    unsigned long long legacy, own;
    struct gate gate;
    CUcontext context;
    pthread_t thread;
    void *answer;

    gate_init(&gate);
    OK(cuCtxGetCurrent(&context));
    gate_put(&gate, CU_STREAM_PER_THREAD);
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, query_own_stream, context));
    pthread_join(thread, &answer);
    TEST_ASSERT_NULL(answer);
    gate_open(&gate);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &own));
    OK(cuStreamGetId(NULL, &legacy));
    TEST_ASSERT_TRUE(own != legacy);
    gate_end(&gate);
}

static void test_a_stream_waits_for_an_event_of_another(void)
{
    struct gate gate;
    CUstream a, b;
    CUevent event;
    CUdeviceptr p;

    gate_init(&gate);
    OK(cuMemAlloc(&p, 4));
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    gate_put(&gate, a);
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
    OK(cuMemsetD32Async(p, 9, 1, b));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
    gate_open(&gate);
    OK(cuStreamSynchronize(b));
    TEST_ASSERT_TRUE(gate_passed(&gate));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
    OK(cuMemFree(p));
    gate_end(&gate);
}

static void test_a_context_event_stands_for_all_streams(void)
{
    struct gate gate;
    CUcontext context;
    CUdeviceptr p;
    CUstream stream, later;
    CUevent event;

    gate_init(&gate);
    OK(cuCtxGetCurrent(&context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&p, 32));
    OK(cuCtxRecordEvent(context, event));
    OK(cuEventQuery(event));
    gate_put(&gate, stream);
    OK(cuCtxRecordEvent(context, event));
    IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    OK(cuCtxWaitEvent(context, event));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    OK(cuStreamCreate(&later, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD8Async(p, 1, 16, later));
    OK(cuMemsetD8Async(p + 16, 1, 16, CU_STREAM_PER_THREAD));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(later));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
    gate_open(&gate);
    OK(cuEventSynchronize(event));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy(later));
    OK(cuStreamCreate(&later, CU_STREAM_NON_BLOCKING));
    OK(cuStreamQuery(later));
    OK(cuStreamDestroy(later));
    OK(cuMemFree(p));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    gate_end(&gate);
}

static void test_time_passes_between_events(void)
{
    CUevent from, to, untimed;
    float ms = -1;

    OK(cuEventCreate(&from, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&to, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, from, to));
    OK(cuEventRecord(from, NULL));
    OK(cuEventRecord(to, NULL));
    OK(cuEventSynchronize(to));
    OK(cuEventElapsedTime(&ms, from, to));
    TEST_ASSERT_TRUE(ms >= 0);
    OK(cuEventRecord(untimed, NULL));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, from, untimed));
    OK(cuEventDestroy(from));
    OK(cuEventDestroy(to));
    OK(cuEventDestroy(untimed));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(to));
}

static void test_pageable_memory_is_read_before_an_async_copy_returns(void)
{
    unsigned int value = 5, seen = 0;
    struct gate gate;
    CUdeviceptr p;

    gate_init(&gate);
    OK(cuMemAlloc(&p, 4));
    gate_put(&gate, NULL);
    OK(cuMemcpyHtoDAsync(p, &value, 4, NULL));
    value = 6;
    gate_open(&gate);
    OK(cuMemcpyDtoH(&seen, p, 4));
    TEST_ASSERT_EQUAL_UINT32(5, seen);
    OK(cuMemFree(p));
    gate_end(&gate);
}

static void test_a_copy_between_device_blocks_does_not_wait_unless_told(void)
{
    struct gate gate;
    CUdeviceptr a, b;
    unsigned int on = 1;

    gate_init(&gate);
    OK(cuMemAlloc(&a, 4096));
    OK(cuMemAlloc(&b, 4096));
    gate_put(&gate, NULL);
    OK(cuMemcpyDtoD(a, b, 4096));
    OK(cuMemsetD8(a, 1, 4096));
    TEST_ASSERT_FALSE(gate_passed(&gate));
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    gate_open_soon(&gate);
    OK(cuMemsetD8(a, 1, 4096));
    TEST_ASSERT_TRUE(gate_passed(&gate));
    OK(cuMemFree(a));
    OK(cuMemFree(b));
    gate_end(&gate);
}

static void test_copies_check_their_device_addresses(void)
{
    char host[64] = "";
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 64));
    IS(1, cuMemcpyHtoD(p, host, 65));
    IS(1, cuMemcpyHtoD((CUdeviceptr)(uintptr_t)host, host, 1));
    IS(1, cuMemcpyDtoH(host, (CUdeviceptr)(uintptr_t)host, 1));
    IS(1, cuMemsetD32(p + 1, 0, 1));
    IS(1, cuMemsetD8(p, 0, 65));
    OK(cuMemcpyHtoD(p, host, 0));
    OK(cuMemcpy(p, (CUdeviceptr)(uintptr_t)host, 64));
    OK(cuMemFree(p));
}

static void test_two_dimensional_copies_and_fills(void)
{
    enum { PITCH = 512, ROWS = 5 };
    unsigned short seen[ROWS][4];
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcPitch = PITCH,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = seen,
                          .dstPitch = sizeof(seen[0]),
                          .WidthInBytes = sizeof(seen[0]),
                          .Height = ROWS};
    CUdeviceptr p;
    int i;

    OK(cuMemAlloc(&p, PITCH * ROWS));
    OK(cuMemsetD2D16(p, PITCH, 0x1234, 3, ROWS));
    copy.srcDevice = p;
    OK(cuMemcpy2D(&copy));
    for (i = 0; i < ROWS; i++) {
        TEST_ASSERT_EQUAL_HEX16(0x1234, seen[i][2]);
        TEST_ASSERT_EQUAL_HEX16(0, seen[i][3]);
    }
    OK(cuMemFree(p));
}

static _Atomic int called;

static void CUDA_CB callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    if (status == CUDA_SUCCESS && data == (void *)&called)
        called++;
}

static void call_the_driver(void *data)
{
    *(int *)data = cuCtxSynchronize();
}

static void test_callbacks_run_in_order_and_may_not_call_the_driver(void)
{
    int result = -1;

    called = 0;
    OK(cuStreamAddCallback(NULL, callback, (void *)&called, 0));
    OK(cuLaunchHostFunc(NULL, call_the_driver, &result));
    OK(cuStreamSynchronize(NULL));
    TEST_ASSERT_EQUAL_INT(1, called);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, result);
}

static void test_a_destroyed_stream_finishes_its_work(void)
{
    struct gate gate;
    CUstream stream;

    gate_init(&gate);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    gate_put(&gate, stream);
    OK(cuStreamDestroy(stream));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
    gate_open(&gate);
    OK(cuCtxSynchronize());
    TEST_ASSERT_TRUE(gate_passed(&gate));
    gate_end(&gate);
}

static void test_a_stream_says_what_it_is(void)
{
    CUcontext context, current;
    CUstream stream;
    unsigned int flags;
    int priority, least, greatest;
    CUdevice device;

    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 10));
    OK(cuStreamGetPriority(stream, &priority));
    TEST_ASSERT_EQUAL_INT(greatest, priority);
    OK(cuStreamGetFlags(stream, &flags));
    TEST_ASSERT_EQUAL_UINT(CU_STREAM_NON_BLOCKING, flags);
    OK(cuCtxGetCurrent(&current));
    OK(cuStreamGetCtx(stream, &context));
    TEST_ASSERT_EQUAL_PTR(current, context);
    OK(cuStreamGetDevice(stream, &device));
    TEST_ASSERT_EQUAL_INT(0, device);
    OK(cuStreamDestroy(stream));
    IS(1, cuStreamCreate(&stream, 0x100));
}

static void test_streams_wait_for_values_in_memory(void)
{
    CUstream a, b;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 8));
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(a, p, 3, CU_STREAM_WAIT_VALUE_GEQ));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    OK(cuStreamWriteValue32(b, p, 4, 0));
    OK(cuStreamSynchronize(a));
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
    OK(cuMemFree(p));
}

struct worker {
    CUcontext context;
    int failures;
};

static void *hammer(void *data)
{
    struct worker *worker = data;
    CUstream stream;
    int i;

    worker->failures += cuCtxSetCurrent(worker->context) != CUDA_SUCCESS;
    worker->failures += cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
    for (i = 0; i < 60; i++) {
        CUdeviceptr p;
        unsigned int seen = 0;

        worker->failures += cuMemAlloc(&p, 4096) != CUDA_SUCCESS;
        worker->failures += cuMemsetD32Async(p, (unsigned int)i, 1024, stream) != CUDA_SUCCESS;
        worker->failures += cuMemcpyDtoHAsync(&seen, p + 4092, 4, stream) != CUDA_SUCCESS;
        worker->failures += seen != (unsigned int)i;
        worker->failures += cuMemFree(p) != CUDA_SUCCESS;
    }
    worker->failures += cuStreamDestroy(stream) != CUDA_SUCCESS;
    return NULL;
}

static void test_many_threads_work_at_once(void)
{
    enum { THREADS = 6 };
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    CUcontext context;
    int i;

    OK(cuCtxGetCurrent(&context));
    for (i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.context = context};
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, hammer, &workers[i]));
    }
    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        TEST_ASSERT_EQUAL_INT(0, workers[i].failures);
    }
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_work_of_a_stream_runs_in_order);
    RUN_TEST(test_a_query_is_not_ready_while_work_is_there);
    RUN_TEST(test_the_legacy_stream_and_blocking_streams_wait_for_each_other);
    RUN_TEST(test_a_non_blocking_stream_ignores_the_legacy_one);
    RUN_TEST(test_each_thread_has_a_default_stream_of_its_own);
    RUN_TEST(test_a_stream_waits_for_an_event_of_another);
    RUN_TEST(test_a_context_event_stands_for_all_streams);
    RUN_TEST(test_time_passes_between_events);
    RUN_TEST(test_pageable_memory_is_read_before_an_async_copy_returns);
    RUN_TEST(test_a_copy_between_device_blocks_does_not_wait_unless_told);
    RUN_TEST(test_copies_check_their_device_addresses);
    RUN_TEST(test_two_dimensional_copies_and_fills);
    RUN_TEST(test_callbacks_run_in_order_and_may_not_call_the_driver);
    RUN_TEST(test_a_destroyed_stream_finishes_its_work);
    RUN_TEST(test_a_stream_says_what_it_is);
    RUN_TEST(test_streams_wait_for_values_in_memory);
    RUN_TEST(test_many_threads_work_at_once);
    return UNITY_END();
}
