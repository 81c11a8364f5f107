/* fence, strict frees: each asks the driver and waits as a native free does. Each case is a process of its
 * own, because the state of the fence belongs to the process. */
#include <errno.h>
#include <unity.h>

#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_fence.h"

void setUp(void) {}

void tearDown(void) {}

static void test_a_strict_free_asks_the_driver_each_time_and_sees_unseen_work(void)
{
    open_fence();
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_count(FAKE_RECORD) == 1);
    fake_work(0, ADDRESS, 0, 1); /* the hooks have not seen it */
    fake_work(3, ADDRESS, 0, 1);
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_backlog(0) + fake_backlog(3) == 0);
    CHECK(fake_count(FAKE_RECORD) == 2 && fence.waiting == 0);
    const uint64_t freed = fence_epoch(&fence);
    CHECK(!fence_done(&fence, freed));
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fence_done(&fence, freed));
    close_fence();
}

static int checks;

static CUresult refuse_to_wait(void *answer)
{
    checks++;
    return *(CUresult *)answer;
}

static void test_a_strict_free_of_what_is_no_block_does_not_wait(void)
{
    CUresult answer = CUDA_ERROR_INVALID_VALUE;
    const struct fence_check check = {refuse_to_wait, &answer};

    open_fence();
    CHECK(fence_pass(&fence, &check) == CUDA_SUCCESS && checks == 0); /* it does not block */
    fake_work(0, ADDRESS, 0, 1);
    CHECK(fence_pass(&fence, &check) == CUDA_ERROR_INVALID_VALUE && checks == 1 && fake_backlog(0) == 1);
    open_capture();
    CHECK(fence_pass(&fence, &check) == CUDA_ERROR_INVALID_VALUE && checks == 2 && fake_backlog(0) == 1);
    close_capture();
    answer = CUDA_SUCCESS;
    CHECK(fence_pass(&fence, &check) == CUDA_SUCCESS && checks == 3 && fake_backlog(0) == 0);
    close_fence();
}

static void test_a_strict_free_that_fails_leaves_its_epoch_open(void)
{
    open_fence();
    for (unsigned call = FAKE_EVENT_CREATE; call <= FAKE_RECORD; call++) {
        fake_work(0, ADDRESS, 0, 1);
        const uint64_t freed = fence_epoch(&fence);
        fake_fail(1U << call, 1, 0);
        CHECK(fence_pass(&fence, NULL) != CUDA_SUCCESS && !fence_done(&fence, freed));
        CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fence_done(&fence, freed) && fake_backlog(0) == 0);
    }
    fake_work(0, ADDRESS, 0, 1);
    const uint64_t freed = fence_epoch(&fence);
    fake_fail(1U << FAKE_SYNCHRONIZE, 1, 0);
    CHECK(fence_pass(&fence, NULL) != CUDA_SUCCESS && !fence_done(&fence, freed) && fake_backlog(0) == 1);
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fence_done(&fence, freed) && fake_backlog(0) == 0);
    close_fence();
}

/* As natively, a thread whose frees a capture forbids gets an error, and a relaxed one waits. */
static void test_a_strict_free_beside_a_capture_waits_and_answers_as_a_native_one(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    open_fence();
    fake_work(0, ADDRESS, 0, 1);
    const uint64_t freed = fence_epoch(&fence);
    open_capture();
    CHECK(fence_pass(&fence, NULL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && fake_backlog(0) == 1);
    CHECK(!fence_done(&fence, freed));
    driver.cuThreadExchangeStreamCaptureMode(&mode);
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_backlog(0) == 0 && fence_done(&fence, freed));
    CHECK(fake_count(FAKE_RECORD) == 0);
    close_capture();
    close_fence();
}

/* All events are in use: by epochs whose work does not end, and by threads that wait for them. */
static void test_a_strict_free_needs_no_event(void)
{
    open_fence();
    for (int i = 0; i < FENCE_EVENTS; i++) {
        work(0, STREAM_A);
        CHECK(fence_epoch(&fence));
        fence_poll(&fence);
    }
    CHECK(fence.waiting == FENCE_EVENTS);
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_backlog(0) == 0 && fence.waiting == 0);
    close_fence();
}

/* The last answers came at once: the context is asked without an event. */
static void at_rest(void)
{
    fence.questions.quick = FENCE_QUICK;
}

static void passes_at_rest(void)
{
    CUresult answer = CUDA_ERROR_INVALID_VALUE;
    const struct fence_check check = {refuse_to_wait, &answer};

    open_fence();
    at_rest();
    fake_work(0, ADDRESS, 0, 1); /* the hooks have not seen it */
    fake_work(3, ADDRESS, 0, 1);
    uint64_t freed = fence_epoch(&fence);
    CHECK(fence_pass(&fence, &check) == CUDA_ERROR_INVALID_VALUE && fake_backlog(0) == 1);
    CHECK(!fence_done(&fence, freed));
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_backlog(0) + fake_backlog(3) == 0);
    CHECK(fence_done(&fence, freed) && fake_count(FAKE_RECORD) == 0 && fence.questions.word == 2);
    at_rest();
    fake_work(0, ADDRESS, 0, 1);
    freed = fence_epoch(&fence);
    fake_fail(1U << FAKE_SYNCHRONIZE, 1, 0);
    CHECK(fence_pass(&fence, NULL) != CUDA_SUCCESS && !fence_done(&fence, freed) && fake_backlog(0) == 1);
    CHECK(fence.questions.word == 2); /* it was not answered */
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fence_done(&fence, freed) && fake_backlog(0) == 0);
    at_rest();
    fake_work(0, ADDRESS, 0, 1);
    open_capture();
    CHECK(fence_pass(&fence, NULL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && fake_backlog(0) == 1);
    close_capture();
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_backlog(0) == 0);
    close_fence();
}

/* cuCtxSynchronize would wait for the thread's own context. */
static void passes_from_elsewhere(void)
{
    open_fence();
    at_rest();
    fake_elsewhere = true;
    fake_work(0, ADDRESS, 0, 1);
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_backlog(0) == 0);
    fake_elsewhere = false;
    close_fence();
}

/* cuCtxSynchronize is cheaper than an event as long as the answers are quick. */
static void test_after_quick_answers_a_strict_free_records_no_event(void)
{
    open_fence();
    atomic_store(&fake_clock_stands, true);
    for (int i = 0; i < FENCE_QUICK; i++)
        CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS);
    CHECK(fake_count(FAKE_RECORD) == FENCE_QUICK && fake_count(FAKE_SYNCHRONIZE) == 0);
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS);
    CHECK(fake_count(FAKE_RECORD) == FENCE_QUICK && fake_count(FAKE_SYNCHRONIZE) == 1);
    atomic_store(&fake_clock_stands, false);
    close_fence();
}

static void test_a_strict_free_at_rest_asks_the_driver_too(void)
{
    TEST_ASSERT_TRUE(fake_child(passes_at_rest));
    TEST_ASSERT_TRUE(fake_child(passes_from_elsewhere));
}

/* A capture that has to wait for the answer ends that: later ones need not. */
static atomic_bool begun;

static void *begin_aside(void *unused)
{
    capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
    atomic_store(&begun, true);
    return unused;
}

static pthread_t later_thread;

static void begin_meanwhile(void)
{
    fake_on_synchronize = NULL;
    CHECK(pthread_create(&later_thread, NULL, begin_aside, NULL) == 0);
    while (fence.questions.quick)
        usleep(100);
    CHECK(!atomic_load(&begun));
}

static void test_a_capture_waits_for_a_strict_free_once_and_then_begins_beside_them(void)
{
    alarm(250); /* it would be for ever */
    atomic_store(&fake_clock_stands, true);
    open_fence();
    at_rest();
    fake_on_synchronize = begin_meanwhile;
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS);
    CHECK(pthread_join(later_thread, NULL) == 0 && atomic_load(&begun));
    CHECK(!capture_begin_question(&fence.questions) && fence.questions.word == 2);
    capture_context_end(FAKE_CONTEXT);
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_count(FAKE_RECORD) == 1);
    close_fence();
}

/* A thread is cancelled while it asks: others ask again, and a capture does not wait for it. */
static void be_cancelled(void)
{
    fake_on_synchronize = NULL;
    pthread_cancel(pthread_self());
    pthread_testcancel();
}

static void *pass_once(void *unused)
{
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS);
    return unused;
}

static void passes_cancelled(void)
{
    void *end = NULL;

    open_fence();
    at_rest();
    fake_work(0, ADDRESS, 0, 1);
    const uint64_t freed = fence_epoch(&fence);
    fake_on_synchronize = be_cancelled;
    CHECK(pthread_create(&later_thread, NULL, pass_once, NULL) == 0);
    CHECK(pthread_join(later_thread, &end) == 0 && end == PTHREAD_CANCELED);
    CHECK(fence.questions.word == 0 && !fence_done(&fence, freed) && fake_backlog(0) == 1);
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fence_done(&fence, freed) && fake_backlog(0) == 0);
    CHECK(fence.questions.word == 2);
    close_fence();
}

static void test_a_thread_cancelled_in_a_strict_free_leaves_no_question_behind(void)
{
#ifdef __SANITIZE_ADDRESS__
    TEST_IGNORE_MESSAGE("AddressSanitizer takes the end of a cancelled thread for an error");
#endif
    TEST_ASSERT_TRUE(fake_child(passes_cancelled));
}

#define PASSERS FAKE_STREAMS /* a stream each */

static pthread_barrier_t together;

static void *pass_often(void *argument)
{
    const unsigned stream = (unsigned)(uintptr_t)argument;

    pthread_barrier_wait(&together);
    for (int i = 0; i < 500; i++) {
        fake_work(stream, ADDRESS + stream * 16, 0, stream + 1);
        CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS);
        CHECK(fake_backlog(stream) == 0);
    }
    return NULL;
}

static void pass_together(void)
{
    pthread_t threads[PASSERS];

    CHECK(pthread_barrier_init(&together, NULL, PASSERS) == 0);
    for (uintptr_t i = 0; i < PASSERS; i++)
        CHECK(pthread_create(&threads[i], NULL, pass_often, (void *)i) == 0);
    for (int i = 0; i < PASSERS; i++)
        pthread_join(threads[i], NULL);
    CHECK(fence.waiting == 0 && fake_count(FAKE_RECORD) <= PASSERS * 500);
}

static void passes_together(void)
{
    open_fence();
    pass_together();
    close_fence();
}

static void passes_together_at_rest(void)
{
    open_fence();
    at_rest();
    pass_together();
    CHECK(fake_count(FAKE_RECORD) == 0 && fence.questions.word % 2 == 0);
    close_fence();
}

static void test_threads_that_free_together_each_wait_for_their_own_work(void)
{
    TEST_ASSERT_TRUE(fake_child(passes_together));
    TEST_ASSERT_TRUE(fake_child(passes_together_at_rest));
}

/* The first thread has recorded its event and waits: a free that begins now is not covered by it. */
static void pass_meanwhile(void)
{
    fake_on_synchronize = NULL;
    fake_work(1, ADDRESS, 0, 2);
    CHECK(pthread_create(&later_thread, NULL, pass_once, NULL) == 0 && pthread_join(later_thread, NULL) == 0);
    CHECK(fake_backlog(1) == 0 && fake_count(FAKE_RECORD) == 2);
}

static void passes_later(void)
{
    open_fence();
    fake_work(0, ADDRESS, 0, 1);
    fake_on_synchronize = pass_meanwhile;
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_backlog(0) == 0);
    close_fence();
}

/* The same while the first thread asks without an event. */
static void pass_meanwhile_at_rest(void)
{
    fake_on_synchronize = NULL;
    fake_work(1, ADDRESS, 0, 2);
    CHECK(pthread_create(&later_thread, NULL, pass_once, NULL) == 0 && pthread_join(later_thread, NULL) == 0);
    CHECK(fake_backlog(1) == 0);
}

static void passes_later_at_rest(void)
{
    open_fence();
    at_rest();
    fake_work(0, ADDRESS, 0, 1);
    fake_on_synchronize = pass_meanwhile_at_rest;
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_backlog(0) == 0);
    close_fence();
}

/* A free that begins during question 1 shares the answer to question 3, and to no earlier one. */
static void shares_later_answers(void)
{
    struct capture_questions *questions = &fence.questions;

    open_fence();
    CHECK(capture_next_question(questions) == 1);
    CHECK(capture_begin_question(questions) == 1 && !capture_begin_question(questions));
    CHECK(capture_next_question(questions) == 3 && !capture_await_answer(questions, 3));
    capture_end_question(questions, 1, true);
    CHECK(capture_await_answer(questions, 1) && !capture_await_answer(questions, 3));
    CHECK(capture_begin_question(questions) == 3 && !capture_await_answer(questions, 3));
    capture_end_question(questions, 3, false);
    CHECK(!capture_await_answer(questions, 3) && capture_begin_question(questions) == 3);
    capture_end_question(questions, 3, true);
    CHECK(capture_await_answer(questions, 3));
    close_fence();
}

static void test_a_free_does_not_share_a_question_that_was_asked_before_it_began(void)
{
    TEST_ASSERT_TRUE(fake_child(shares_later_answers));
    TEST_ASSERT_TRUE(fake_child(passes_later));
    TEST_ASSERT_TRUE(fake_child(passes_later_at_rest));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_a_strict_free_asks_the_driver_each_time_and_sees_unseen_work);
    RUN_APART(test_a_strict_free_of_what_is_no_block_does_not_wait);
    RUN_APART(test_a_strict_free_that_fails_leaves_its_epoch_open);
    RUN_APART(test_a_strict_free_beside_a_capture_waits_and_answers_as_a_native_one);
    RUN_APART(test_a_strict_free_needs_no_event);
    RUN_APART(test_after_quick_answers_a_strict_free_records_no_event);
    RUN_TEST(test_a_strict_free_at_rest_asks_the_driver_too);
    RUN_APART(test_a_capture_waits_for_a_strict_free_once_and_then_begins_beside_them);
    RUN_TEST(test_a_thread_cancelled_in_a_strict_free_leaves_no_question_behind);
    RUN_TEST(test_threads_that_free_together_each_wait_for_their_own_work);
    RUN_TEST(test_a_free_does_not_share_a_question_that_was_asked_before_it_began);
    return UNITY_END();
}
