/* streams: when the library relies on the order of one stream. Each case is a process of its own, because the
 * state of streams belongs to the process. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unity.h>

#include "interpose/base/clock.h"
#include "interpose/pool/capture.h"
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_fence.h"

void setUp(void) {}

void tearDown(void) {}

static void test_the_second_stream_comes_behind_the_first_and_no_thread_waits(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    work(0, STREAM_A);
    CHECK(fake_count(FAKE_WAIT) == 0);
    work(1, STREAM_B);
    CHECK(fake_count(FAKE_WAIT) == 1 && !streams_in_order() && fake_backlog(0) == 2);
    CHECK(fake_progress(1) && fake_backlog(0) == 0); /* it ends behind all that was there */
    work(0, STREAM_A);
    work(1, STREAM_B);
    work(0, STREAM_A);
    CHECK(fake_count(FAKE_WAIT) == 1 && fake_count(FAKE_SYNCHRONIZE) == 0);
    close_fence();
}

/* Another context ends in which nothing was freed early. */
static void test_the_end_of_another_context_leaves_the_order_of_streams(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    streams_context_end((CUcontext)0x2000);
    work(1, STREAM_B);
    CHECK(fake_count(FAKE_WAIT) == 1);
    close_fence();
}

static void test_a_forked_child_relies_on_no_order(void)
{
    CHECK(streams_in_order());
    streams_after_fork();
    CHECK(!streams_in_order());
}

/* The order on the device holds for one context. */
static void test_where_the_order_of_one_context_is_not_enough_the_first_stream_is_waited_for(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    work(1, STREAM_B);
    CHECK(fake_count(FAKE_WAIT) == 1 && fake_backlog(0) == 1);
    streams_distrust();
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1 && fake_backlog(0) == 0);
    CHECK(fake_backlog(1) == 1); /* it may be waiting for this thread */
    work(2, STREAM_B);
    CHECK(fake_count(FAKE_WAIT) == 1 && fake_count(FAKE_SYNCHRONIZE) == 1);
    close_fence();
}

/* The driver may crash if a context is used while it is destroyed, and its end waits for the work anyway. */
static void test_the_first_stream_is_not_waited_for_while_its_context_may_end(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    streams_context_end_begin(FAKE_CONTEXT);
    streams_context_end_begin(FAKE_CONTEXT); /* two threads try it */
    bool brief = false; /* it takes half a second, not that once for the order and once for the wait */
    for (int i = 0; i < 3 && !brief; i++) { /* on a busy machine it may take longer */
        const uint64_t began = clock_ns();
        work(1, STREAM_B);
        brief = clock_ns() - began < 1000000000;
    }
    CHECK(brief);
    streams_distrust();
    streams_context_end_abort(FAKE_CONTEXT);
    work(1, STREAM_B);
    CHECK(fake_count(FAKE_WAIT) == 0 && fake_count(FAKE_RECORD) == 0 && fake_count(FAKE_SYNCHRONIZE) == 0);
    streams_context_end_abort(FAKE_CONTEXT); /* it did not end */
    work(1, STREAM_B);
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1 && fake_backlog(0) == 0);
    close_fence();
}

/* The reset of a card without a context, and the destruction of none, which the driver refuses. */
static void test_calls_for_no_context_are_not_counted(void)
{
    open_fence();
    streams_context_end_begin(NULL);
    work(0, STREAM_A);
    free_early();
    streams_context_end_begin(FAKE_CONTEXT);
    streams_context_end_abort(FAKE_CONTEXT);
    work(1, STREAM_B);
    CHECK(fake_count(FAKE_WAIT) == 1);
    for (int i = 0; i < 2; i++)
        streams_context_end_abort(NULL);
    streams_context_end_begin(FAKE_CONTEXT);
    streams_context_end_abort(FAKE_CONTEXT);
    streams_distrust();
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1);
    close_fence();
}

static atomic_bool waits_now, end_tried, end_begun;

static void wait_for_the_end_to_begin(void)
{
    atomic_store(&waits_now, true);
    while (!atomic_load(&end_tried))
        sched_yield();
    for (int i = 0; i < 1000; i++)
        sched_yield();
    CHECK(!atomic_load(&end_begun));
}

static void *end_the_context(void *unused)
{
    while (!atomic_load(&waits_now))
        sched_yield();
    atomic_store(&end_tried, true);
    streams_context_end_begin(FAKE_CONTEXT);
    atomic_store(&end_begun, true);
    return unused;
}

static void test_a_context_does_not_end_while_a_thread_waits_in_it(void)
{
    pthread_t thread;

    open_fence();
    work(0, STREAM_A);
    free_early();
    CHECK(pthread_create(&thread, NULL, end_the_context, NULL) == 0);
    fake_on_synchronize = wait_for_the_end_to_begin;
    streams_distrust();
    fake_on_synchronize = NULL;
    CHECK(pthread_join(thread, NULL) == 0 && atomic_load(&end_begun));
    close_fence();
}

static atomic_bool works_now;

static void *work_on_another_stream(void *unused)
{
    atomic_store(&works_now, true);
    work(1, STREAM_B);
    return unused;
}

static void *rely_on_no_order(void *unused)
{
    atomic_store(&works_now, true);
    streams_distrust();
    return unused;
}

/* Far less than a thread waits for the end: on a busy machine each yield may take a while. */
#define LOOK_MS 50

/* Starts a thread while the context may be ending, and gives it time to look at that. */
static pthread_t start_beside_an_end(void *(*run)(void *))
{
    pthread_t thread;

    streams_context_end_begin(FAKE_CONTEXT);
    CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
    while (!atomic_load(&works_now))
        sched_yield();
    const uint64_t until = clock_ms() + LOOK_MS;
    for (int i = 0; i < 1000 && clock_ms() < until; i++)
        sched_yield();
    return thread;
}

/* A detach or a release may leave the context, with blocks that were handed out again. */
static void test_work_beside_an_end_that_does_not_happen_comes_behind_the_first_stream(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    const pthread_t thread = start_beside_an_end(work_on_another_stream);
    streams_context_end_abort(FAKE_CONTEXT);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(fake_count(FAKE_WAIT) == 1);
    close_fence();
}

static void test_a_context_that_has_ended_is_not_waited_for(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    const pthread_t thread = start_beside_an_end(rely_on_no_order);
    streams_context_end(FAKE_CONTEXT);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(fake_count(FAKE_RECORD) == 0 && fake_count(FAKE_SYNCHRONIZE) == 0);
    close_fence();
}

/* The main stream waits for what another one is about to do, as a kernel that spins. */
static void test_where_every_free_has_waited_no_stream_waits_for_another(void)
{
    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    streams_end(STREAM_A);
    CHECK(!streams_in_order() && fake_count(FAKE_SYNCHRONIZE) == 0 && fake_backlog(0) == 1);
    close_fence();
}

static void test_the_legacy_stream_is_one_whatever_its_name_and_the_own_one_another(void)
{
    open_fence();
    work(0, NULL);
    work(0, LEGACY);
    CHECK(streams_in_order());
    CHECK(streams_key_ptsz(NULL) == streams_key(OWN) && streams_key_ptsz(LEGACY) == streams_key(NULL));
    CHECK(streams_key_ptsz(NULL) != streams_key(NULL));
    work(1, OWN);
    CHECK(!streams_in_order());
    close_fence();
}

static void *work_on_own(void *unused)
{
    (void)unused;
    work(0, OWN);
    return NULL;
}

static void test_two_threads_own_streams_are_two_even_at_one_address(void)
{
    open_fence();
    on_thread(work_on_own, NULL);
    CHECK(streams_in_order());
    on_thread(work_on_own, NULL);
    CHECK(!streams_in_order());
    close_fence();
}

static void test_the_end_of_the_only_stream_ends_the_reliance_on_its_handle(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    streams_end(STREAM_B);
    CHECK(streams_in_order());
    streams_end(STREAM_A);
    CHECK(!streams_in_order() && fake_count(FAKE_SYNCHRONIZE) == 1);
    close_fence();
}

static void unknown_entry(void)
{
    open_fence();
    CHECK(streams_in_order());
    streams_unknown("cuOfALaterDriver");
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 0 && !streams_in_order()); /* nothing to wait for yet */
    work(0, STREAM_A);
    work(1, STREAM_B);
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 0);
    close_fence();
}

static void unknown_entry_late(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    streams_unknown("cuOfALaterDriver");
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1 && !streams_in_order());
    streams_unknown("cuOfALaterDriver");
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1);
    close_fence();
}

static void test_an_unknown_entry_point_ends_the_shortcut_for_good(void)
{
    TEST_ASSERT_TRUE(fake_child(unknown_entry));
    TEST_ASSERT_TRUE(fake_child(unknown_entry_late));
}

/* Beside a capture no context event can be recorded; the wait for the main stream works all the same. */
static void second_beside_a_capture(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    CHECK(streams_in_order());
    capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
    fake_set_capturing(true);
    CHECK(!streams_in_order() && capture_any() && fake_backlog(0) == 1);
    CHECK(streams_submit_begin(streams_key(STREAM_B)));
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1 && fake_count(FAKE_RECORD) == 0 && fake_backlog(0) == 0);
    streams_submit_end();
    fake_set_capturing(false);
    capture_end(FAKE_CAPTURE, streams_thread_key());
    CHECK(!capture_any());
    close_fence();
}

static void second_beside_a_capture_on_a_full_card(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    fake_full_of_others();
    capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
    fake_set_capturing(true);
    CHECK(streams_submit_begin(streams_key(STREAM_B)) && fake_backlog(0) == 0);
    streams_submit_end();
    fake_set_capturing(false);
    capture_end(FAKE_CAPTURE, streams_thread_key());
    close_fence();
}

static void test_the_second_stream_waits_for_the_first_beside_a_capture_too(void)
{
    TEST_ASSERT_TRUE(fake_child(second_beside_a_capture));
    TEST_ASSERT_TRUE(fake_child(second_beside_a_capture_on_a_full_card));
}

/* ---- waits that fail ---- */

static void test_a_wait_that_nothing_can_do_without_is_tried_again(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    fake_fail(1U << FAKE_WAIT | 1U << FAKE_SYNCHRONIZE, 1, 3);
    work(1, STREAM_B);
    CHECK(fake_failed() == 4 && fake_backlog(0) == 0);
    close_fence();
}

/* Each time the other stream works, so that it is seen when the context works again. */
static void test_a_wait_that_always_fails_holds_no_thread_up(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    fake_fail(1U << FAKE_WAIT | 1U << FAKE_SYNCHRONIZE, 1, UINT64_MAX);
    work(1, STREAM_B);
    work(1, STREAM_B);
    CHECK(fake_failed() > 1 && fake_backlog(0) == 1 && !streams_in_order());
    fake_fail(0, 0, 0);
    const uint64_t waits = fake_count(FAKE_WAIT);
    work(1, STREAM_B);
    CHECK(fake_count(FAKE_WAIT) == waits + 1);
    close_fence();
}

/* ---- other streams ---- */

/* A stream that works once is waited for, and then the main stream is the only one again. */
static void test_one_stream_is_relied_upon_again_when_the_others_work_is_done(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    CHECK(streams_submit_begin(streams_key(STREAM_B)) && !streams_in_order() && fake_count(FAKE_WAIT) == 1);
    fake_work(1, ADDRESS, 0, 2);
    streams_submit_end();
    CHECK(!streams_in_order());
    const uint64_t epoch = fence_epoch(&fence);
    fence_poll(&fence);
    CHECK(!fence_done(&fence, epoch) && !streams_in_order());
    fake_progress(1);
    fence_poll(&fence);
    CHECK(fence_done(&fence, epoch) && streams_in_order());
    work(0, STREAM_A);
    CHECK(streams_submit_begin(streams_key(STREAM_B)) &&
          fake_count(FAKE_WAIT) == 2); /* and comes first again */
    streams_submit_end();
    close_fence();
}

/* A submission that comes while the event is under way is not covered by it. */
static void test_a_stream_in_the_middle_of_a_submission_is_not_done(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    CHECK(streams_submit_begin(streams_key(STREAM_B)));
    streams_submit_end();
    fake_progress(0);
    fence_epoch(&fence);
    fence_poll(&fence);
    CHECK(streams_in_order()); /* nothing was pending */
    CHECK(streams_submit_begin(streams_key(STREAM_B)));
    fake_work(1, ADDRESS, 0, 2);
    fence_epoch(&fence);
    fence_poll(&fence); /* in the middle of its submission */
    streams_submit_end();
    fake_progress(1);
    fence_poll(&fence);
    CHECK(!streams_in_order());
    fence_epoch(&fence);
    fence_poll(&fence);
    CHECK(streams_in_order());
    close_fence();
}

static void test_streams_that_come_all_the_time_are_no_longer_waited_for(void)
{
    open_fence();
    work(0, STREAM_A);
    for (int i = 0; i < 1000; i++) {
        if (streams_submit_begin(streams_key(STREAM_B)))
            streams_submit_end();
        fence_epoch_quietly(&fence);
        CHECK(fence_wait_all(&fence) == 0);
        streams_submit_begin(streams_key(STREAM_A));
    }
    CHECK(!streams_in_order());
    fake_start(GIB);
    for (int i = 0; i < 100; i++) {
        CHECK(!streams_submit_begin(streams_key(STREAM_B)));
        CHECK(!streams_submit_begin(streams_key(STREAM_A)));
    }
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 0);
    close_fence();
}

static void *work_on_b(void *unused)
{
    (void)unused;
    const bool foreign = streams_submit_begin(streams_key(STREAM_B));
    CHECK(!fake_pending(ADDRESS - 1, 2));
    if (foreign)
        streams_submit_end();
    return NULL;
}

/* The first waits long: no other stream may pass before the main stream is at rest. */
static void meanwhile(void)
{
    static int depth;

    if (depth++ == 0)
        on_thread(work_on_b, NULL);
}

static void test_a_third_stream_does_not_overtake_the_wait_of_the_second(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    fake_fail(1U << FAKE_WAIT, 1, UINT64_MAX);
    fake_on_synchronize = meanwhile;
    const bool foreign = streams_submit_begin(streams_key((CUstream)0x10200));
    CHECK(!fake_pending(ADDRESS - 1, 2));
    if (foreign)
        streams_submit_end();
    close_fence();
}

static CUresult (*record_now)(CUcontext context, CUevent event);
static atomic_int arrived;

/* Gives the other thread time to come as far, if nothing stops it. */
static CUresult record_late(CUcontext context, CUevent event)
{
    while (atomic_load(&arrived) < 2)
        usleep(100);
    usleep(20000);
    return record_now(context, event);
}

static void *come_second(void *handle)
{
    atomic_fetch_add(&arrived, 1);
    work(handle == STREAM_B ? 1 : 2, handle);
    return NULL;
}

/* If both ordered, the second would put the main stream behind the first one's work, which may be waiting for
 * the main stream's. */
static void test_of_two_threads_that_come_second_one_orders_the_streams(void)
{
    pthread_t threads[2];

    open_fence();
    work(0, STREAM_A);
    free_early();
    record_now = driver.cuCtxRecordEvent;
    driver.cuCtxRecordEvent = record_late;
    CHECK(pthread_create(&threads[0], NULL, come_second, STREAM_B) == 0 &&
          pthread_create(&threads[1], NULL, come_second, (void *)0x10200) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(fake_count(FAKE_WAIT) == 1);
    close_fence();
}

/* An event that is recorded meanwhile may not cover that submission. */
static void test_a_mark_beside_a_submission_settles_nothing(void)
{
    open_fence();
    work(0, STREAM_A);
    CHECK(streams_mark().quiet);
    CHECK(streams_submit_begin(streams_key(STREAM_B)));
    CHECK(!streams_mark().quiet);
    streams_submit_end();
    CHECK(streams_mark().quiet);
    close_fence();
}

/* All events are in use, so a join records the newest one again. If the driver refuses, that event still
 * stands for the work before, and another stream's work after it is not done with it. */
static void test_an_event_that_could_not_be_recorded_again_covers_no_more_work(void)
{
    open_fence();
    for (int i = 0; i < FENCE_EVENTS; i++) {
        work(0, STREAM_A);
        CHECK(fence_epoch(&fence));
        fence_poll(&fence);
    }
    work(1, STREAM_B);
    CHECK(fence_epoch(&fence));
    fake_fail(1U << FAKE_RECORD, 1, 0);
    CHECK(!fence_join(&fence) && fake_failed() == 1);
    while (fake_progress(0))
        ;
    fence_poll(&fence);
    CHECK(fake_backlog(1) == 1 && !streams_in_order());
    CHECK(fake_progress(1));
    fence_poll(&fence);
    CHECK(streams_in_order());
    close_fence();
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_the_second_stream_comes_behind_the_first_and_no_thread_waits);
    RUN_APART(test_the_end_of_another_context_leaves_the_order_of_streams);
    RUN_APART(test_a_forked_child_relies_on_no_order);
    RUN_APART(test_where_the_order_of_one_context_is_not_enough_the_first_stream_is_waited_for);
    RUN_APART(test_the_first_stream_is_not_waited_for_while_its_context_may_end);
    RUN_APART(test_calls_for_no_context_are_not_counted);
    RUN_APART(test_a_context_does_not_end_while_a_thread_waits_in_it);
    RUN_APART(test_work_beside_an_end_that_does_not_happen_comes_behind_the_first_stream);
    RUN_APART(test_a_context_that_has_ended_is_not_waited_for);
    RUN_APART(test_where_every_free_has_waited_no_stream_waits_for_another);
    RUN_APART(test_the_legacy_stream_is_one_whatever_its_name_and_the_own_one_another);
    RUN_APART(test_two_threads_own_streams_are_two_even_at_one_address);
    RUN_APART(test_the_end_of_the_only_stream_ends_the_reliance_on_its_handle);
    RUN_TEST(test_an_unknown_entry_point_ends_the_shortcut_for_good);
    RUN_TEST(test_the_second_stream_waits_for_the_first_beside_a_capture_too);
    RUN_APART(test_a_wait_that_nothing_can_do_without_is_tried_again);
    RUN_APART(test_a_wait_that_always_fails_holds_no_thread_up);
    RUN_APART(test_one_stream_is_relied_upon_again_when_the_others_work_is_done);
    RUN_APART(test_a_stream_in_the_middle_of_a_submission_is_not_done);
    RUN_APART(test_streams_that_come_all_the_time_are_no_longer_waited_for);
    RUN_APART(test_a_third_stream_does_not_overtake_the_wait_of_the_second);
    RUN_APART(test_of_two_threads_that_come_second_one_orders_the_streams);
    RUN_APART(test_a_mark_beside_a_submission_settles_nothing);
    RUN_APART(test_an_event_that_could_not_be_recorded_again_covers_no_more_work);
    return UNITY_END();
}
