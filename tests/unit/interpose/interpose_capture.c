/* capture: which captures are open, and what is called in the driver around a wait. The driver is the test's
 * own, and fails if a context stays pushed or a capture mode changed. */
#include "interpose/pool/capture.h"

#include <string.h>
#include <time.h>
#include <unity.h>

#define HERE     ((CUcontext)0x100)
#define ELSE     ((CUcontext)0x200)
#define CAPTURES 64 /* that have a name */

static struct fake {
    CUcontext current;
    int pushed;
    CUstreamCaptureMode mode;
    CUresult create, record, wait, alloc, push;
    int events, syncs, frees, host_frees, context_waits;
    int pauses; /* of captures that cannot begin */
    CUevent waited_for;
    CUstreamCaptureStatus status;
} fake;

/* ---- the test's own driver ---- */

static CUresult get_current(CUcontext *context)
{
    *context = fake.current;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    TEST_ASSERT_EQUAL_PTR(ELSE, context);
    fake.pushed += fake.push == CUDA_SUCCESS;
    return fake.push;
}

static CUresult pop(CUcontext *context)
{
    *context = ELSE;
    fake.pushed--;
    return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
    const CUstreamCaptureMode before = fake.mode;

    fake.mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *event, unsigned flags)
{
    TEST_ASSERT_EQUAL_UINT(CU_EVENT_DISABLE_TIMING, flags);
    *event = (CUevent)0x77;
    fake.events += fake.create == CUDA_SUCCESS;
    return fake.create;
}

static CUresult destroy_event(CUevent event)
{
    (void)event;
    fake.events--;
    return CUDA_SUCCESS;
}

static CUresult record_event(CUcontext context, CUevent event)
{
    (void)context, (void)event;
    TEST_ASSERT_FALSE_MESSAGE(capture_any(), "a context event would destroy a capture");
    return fake.record;
}

static CUresult context_waits(CUcontext context, CUevent event)
{
    TEST_ASSERT_EQUAL_PTR(HERE, context);
    (void)event;
    fake.context_waits++;
    return CUDA_SUCCESS;
}

static CUresult wait_event(CUevent event)
{
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_RELAXED, fake.mode);
    fake.waited_for = event;
    fake.syncs++;
    return fake.wait;
}

static CUresult query_event(CUevent event)
{
    (void)event;
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_RELAXED, fake.mode);
    return CUDA_ERROR_NOT_READY;
}

static CUresult wait_stream(CUstream stream)
{
    (void)stream;
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_RELAXED, fake.mode);
    fake.syncs++;
    return fake.wait;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes)
{
    *address = bytes;
    return fake.alloc;
}

static CUresult release(CUdeviceptr address)
{
    (void)address;
    fake.frees++;
    return CUDA_SUCCESS;
}

static CUresult allocate_host(void **host, size_t bytes, unsigned flags)
{
    (void)bytes, (void)flags;
    *host = &fake;
    return CUDA_SUCCESS;
}

static CUresult release_host(void *host)
{
    TEST_ASSERT_EQUAL_PTR(&fake, host);
    fake.host_frees++;
    return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    TEST_ASSERT_TRUE(stream && stream != CU_STREAM_LEGACY);
    *status = fake.status;
    return CUDA_SUCCESS;
}

int nanosleep(const struct timespec *span, struct timespec *left)
{
    (void)span, (void)left;
    fake.pauses++;
    return 0;
}

void setUp(void)
{
    fake = (struct fake){.current = HERE, .mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL};
    driver_entries.cuCtxGetCurrent = get_current;
    driver_entries.cuCtxPushCurrent_v2 = push;
    driver_entries.cuCtxPopCurrent_v2 = pop;
    driver_entries.cuThreadExchangeStreamCaptureMode = exchange_mode;
    driver_entries.cuEventCreate = create_event;
    driver_entries.cuEventDestroy_v2 = destroy_event;
    driver_entries.cuCtxRecordEvent = record_event;
    driver_entries.cuCtxWaitEvent = context_waits;
    driver_entries.cuEventSynchronize = wait_event;
    driver_entries.cuEventQuery = query_event;
    driver_entries.cuStreamSynchronize = wait_stream;
    driver_entries.cuMemAlloc_v2 = allocate;
    driver_entries.cuMemFree_v2 = release;
    driver_entries.cuMemHostAlloc = allocate_host;
    driver_entries.cuMemFreeHost = release_host;
    driver_entries.cuStreamIsCapturing = is_capturing;
    capture_after_fork();
}

/* What every wait leaves as it was. */
void tearDown(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.pushed, "a context stays pushed");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.events, "an event is left");
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, fake.mode);
    capture_begin(7, 1, HERE);
    capture_end(7, 1);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.pauses, "captures are still excluded");
}

/* ---- which are open ---- */

static void test_a_capture_ends_for_the_thread_that_began_it(void)
{
    capture_begin(5, 1, HERE);
    capture_begin(5, 2, ELSE);
    capture_end(5, 1);
    capture_context_end(HERE);
    TEST_ASSERT_TRUE_MESSAGE(capture_any(), "the second one is left");
    capture_end(5, 2);
    TEST_ASSERT_FALSE(capture_any());
    capture_begin(5, 1, HERE);
    capture_begin(5, 2, ELSE); /* each thread's own default stream may have the same key */
    capture_end(5, 2);
    TEST_ASSERT_TRUE(capture_any());
    capture_context_end(ELSE);
    TEST_ASSERT_TRUE_MESSAGE(capture_any(), "the other one is left");
    capture_end(5, 3); /* ended by another thread */
    TEST_ASSERT_FALSE(capture_any());
    capture_end(5, 1);
    TEST_ASSERT_FALSE_MESSAGE(capture_any(), "what is not open cannot end");
    capture_begin(5, 1, HERE);
    TEST_ASSERT_TRUE(capture_any());
}

static void test_captures_end_with_their_context_and_no_others(void)
{
    capture_begin(5, 1, HERE);
    capture_begin(6, 1, ELSE);
    capture_begin(7, 1, HERE);
    capture_context_end(HERE);
    TEST_ASSERT_TRUE(capture_any());
    capture_end(6, 1);
    TEST_ASSERT_FALSE(capture_any());
}

static void test_captures_beyond_the_table_are_counted(void)
{
    for (uintptr_t i = 0; i < CAPTURES + 2; i++)
        capture_begin(10 + i, 1, HERE);
    for (uintptr_t i = 0; i < CAPTURES + 2; i++) {
        TEST_ASSERT_TRUE(capture_any());
        capture_end(10 + i, 1);
    }
    TEST_ASSERT_FALSE(capture_any());
    capture_end(10, 1);
    TEST_ASSERT_FALSE(capture_any());
}

static void test_a_stream_is_asked_only_if_it_can_capture(void)
{
    fake.status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    TEST_ASSERT_FALSE(capture_takes((CUstream)0x900));
    capture_begin(5, 1, HERE);
    TEST_ASSERT_TRUE(capture_takes((CUstream)0x900));
    TEST_ASSERT_FALSE(capture_takes(NULL));
    TEST_ASSERT_FALSE(capture_takes(CU_STREAM_LEGACY));
    fake.status = CU_STREAM_CAPTURE_STATUS_NONE;
    TEST_ASSERT_FALSE(capture_takes((CUstream)0x900));
}

static void test_no_event_is_recorded_beside_a_capture(void)
{
    struct capture_questions questions = {0};

    TEST_ASSERT_TRUE(capture_exclude());
    capture_admit();
    capture_add_questions(&questions);
    const uint64_t number = capture_begin_question(&questions);
    TEST_ASSERT_NOT_EQUAL_UINT64(0, number);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, capture_begin_question(&questions), "one thread asks at a time");
    TEST_ASSERT_FALSE(capture_await_answer(&questions, number));
    capture_end_question(&questions, number, true);
    TEST_ASSERT_TRUE(capture_await_answer(&questions, number));
    capture_begin(5, 1, HERE);
    TEST_ASSERT_FALSE(capture_exclude());
    TEST_ASSERT_EQUAL_UINT64(0, capture_begin_question(&questions));
    capture_end(5, 1);
    TEST_ASSERT_NOT_EQUAL_UINT64_MESSAGE(0, capture_begin_question(&questions), "it was taken back");
    capture_remove_questions(&questions);
}

/* ---- waiting ---- */

static void test_a_wait_for_a_context_is_behind_an_event(void)
{
    TEST_ASSERT_EQUAL_INT(0, capture_wait_context(HERE));
    TEST_ASSERT_EQUAL_INT(1, fake.syncs);
    TEST_ASSERT_EQUAL_INT(0, capture_wait_context(ELSE)); /* with that context current */
    TEST_ASSERT_EQUAL_INT(2, fake.syncs);
    fake.wait = CUDA_ERROR_LAUNCH_FAILED;
    TEST_ASSERT_EQUAL_INT(fake.wait, capture_wait_context(HERE));
    fake.push = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    TEST_ASSERT_EQUAL_INT(fake.push, capture_wait_context(ELSE));
    TEST_ASSERT_EQUAL_INT(0, fake.frees);
}

static void test_without_an_event_a_free_waits(void)
{
    capture_begin(5, 1, HERE);
    TEST_ASSERT_EQUAL_INT(0, capture_wait_context(HERE));
    TEST_ASSERT_EQUAL_INT(1, fake.frees);
    TEST_ASSERT_EQUAL_INT(0, capture_wait_as_free(ELSE));
    TEST_ASSERT_EQUAL_INT(2, fake.frees);
    fake.alloc = CUDA_ERROR_OUT_OF_MEMORY; /* the card is full: host memory will do */
    TEST_ASSERT_EQUAL_INT(0, capture_wait_as_free(HERE));
    TEST_ASSERT_EQUAL_INT(1, fake.host_frees);
    fake.alloc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    TEST_ASSERT_EQUAL_INT(fake.alloc, capture_wait_as_free(HERE));
    TEST_ASSERT_EQUAL_INT(1, fake.host_frees);
    capture_end(5, 1);
    fake.alloc = CUDA_SUCCESS;
    fake.record = CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_EQUAL_INT(0, capture_wait_context(HERE));
    fake.create = CUDA_ERROR_OUT_OF_MEMORY;
    TEST_ASSERT_EQUAL_INT(0, capture_wait_context(HERE));
    TEST_ASSERT_EQUAL_INT(4, fake.frees);
    TEST_ASSERT_EQUAL_INT(0, fake.syncs);
}

static void test_events_and_streams_are_waited_for_in_relaxed_mode(void)
{
    TEST_ASSERT_EQUAL_INT(0, capture_wait_event((CUevent)0x33));
    TEST_ASSERT_EQUAL_PTR((CUevent)0x33, fake.waited_for);
    TEST_ASSERT_EQUAL_INT(0, capture_wait_stream((CUstream)0x900));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, capture_query_event((CUevent)0x33));
}

static void test_later_work_is_ordered_behind_one_event(void)
{
    CUevent event = NULL;

    TEST_ASSERT_FALSE_MESSAGE(capture_order_behind(ELSE, &event), "not the current context");
    TEST_ASSERT_TRUE(capture_order_behind(HERE, &event));
    TEST_ASSERT_TRUE(capture_order_behind(HERE, &event));
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.events, "the same event");
    TEST_ASSERT_EQUAL_INT(2, fake.context_waits);
    fake.record = CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_FALSE(capture_order_behind(HERE, &event));
    capture_begin(5, 1, HERE);
    TEST_ASSERT_FALSE(capture_order_behind(HERE, &event));
    TEST_ASSERT_EQUAL_INT(2, fake.context_waits);
    fake.events = 0; /* the caller keeps it */
    capture_end(5, 1);
    event = NULL;
    fake.create = CUDA_ERROR_OUT_OF_MEMORY;
    TEST_ASSERT_FALSE(capture_order_behind(HERE, &event));
    TEST_ASSERT_NULL_MESSAGE(event, "there is none");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_capture_ends_for_the_thread_that_began_it);
    RUN_TEST(test_captures_end_with_their_context_and_no_others);
    RUN_TEST(test_captures_beyond_the_table_are_counted);
    RUN_TEST(test_a_stream_is_asked_only_if_it_can_capture);
    RUN_TEST(test_no_event_is_recorded_beside_a_capture);
    RUN_TEST(test_a_wait_for_a_context_is_behind_an_event);
    RUN_TEST(test_without_an_event_a_free_waits);
    RUN_TEST(test_events_and_streams_are_waited_for_in_relaxed_mode);
    RUN_TEST(test_later_work_is_ordered_behind_one_event);
    return UNITY_END();
}
