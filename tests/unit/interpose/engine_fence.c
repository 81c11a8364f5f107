/* fence: when freed memory may be reused. Each case is a process of its own, because the state of the fence
 * belongs to the process. */
#include <errno.h>
#include <string.h>
#include <unity.h>

#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_fence.h"

void setUp(void) {}

void tearDown(void) {}

/* ---- epochs ---- */

static void test_one_event_closes_an_epoch_for_all_frees_in_it(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t first = fence_epoch(&fence);
    CHECK(first && fence_epoch(&fence) == first && !fence_done(&fence, first) && fence_done(&fence, 0));
    fence_poll(&fence);
    CHECK(!fence_done(&fence, first) && fake_count(FAKE_RECORD) == 1);
    fence_poll(&fence);
    CHECK(fake_count(FAKE_RECORD) == 1); /* no free belongs to the new one */
    work(1, STREAM_B);
    const uint64_t second = fence_epoch(&fence);
    CHECK(second > first);
    fence_poll(&fence);
    fake_progress(0);
    fence_poll(&fence);
    CHECK(fence_done(&fence, first) && !fence_done(&fence, second));
    fake_progress(1);
    fence_poll(&fence);
    CHECK(fence_done(&fence, second) && fence_reached(&fence) == second);
    close_fence();
}

/* A thread that must wait then waits for the oldest of them, and not for its newest work. */
static void test_a_thread_that_frees_on_and_on_closes_epochs(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t first = fence_epoch(&fence);
    for (unsigned i = 0; i < FENCE_EPOCH_FREES; i++)
        fence_epoch(&fence);
    CHECK(fence_epoch(&fence) > first && fake_count(FAKE_RECORD) == 1);
    fake_progress(0);
    close_fence();
}

/* A wait when no free belongs to the open epoch must not make the next frees count as done. */
static void test_a_free_after_a_wait_is_not_done_by_that_wait(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t before = fence_epoch(&fence);
    fence_poll(&fence);
    CHECK(fence_wait_all(&fence) == 0 && fence_done(&fence, before));
    work(0, STREAM_A);
    const uint64_t after = fence_epoch(&fence);
    CHECK(after > before && !fence_done(&fence, after));
    CHECK(fence_wait_all(&fence) == 0 && fence_done(&fence, after));
    work(0, STREAM_A);
    CHECK(!fence_done(&fence, fence_epoch(&fence)));
    close_fence();
}

static void test_a_wait_for_the_oldest_says_whether_there_are_others(void)
{
    bool more;

    open_fence();
    for (int i = 0; i < 2; i++) {
        work(0, STREAM_A);
        CHECK(fence_epoch(&fence));
        fence_poll(&fence);
    }
    CHECK(fence_wait_oldest(&fence, &more) == 0 && more && fake_backlog(0) == 1);
    CHECK(fence_wait_oldest(&fence, &more) == 0 && !more && fake_backlog(0) == 0);
    fake_fail(1U << FAKE_RECORD, 1, 1000); /* then all of it is waited for */
    work(0, STREAM_A);
    const uint64_t freed = fence_epoch(&fence);
    CHECK(fence_wait_oldest(&fence, &more) == 0 && fake_backlog(0) == 0 && fence_done(&fence, freed));
    fake_fail(0, 0, 0);
    close_fence();
}

/* The result of a wait is kept when an older event is found done afterwards. */
static void test_a_wait_covers_every_epoch_before_it(void)
{
    uint64_t epoch = 0;

    open_fence();
    for (int i = 0; i < 3; i++) {
        work(0, STREAM_A);
        epoch = fence_epoch(&fence);
        if (i < 2)
            fence_poll(&fence);
    }
    CHECK(fence_wait_all(&fence) == 0 && fence_done(&fence, epoch));
    fence_poll(&fence);
    CHECK(fence_done(&fence, epoch) && fence.waiting == 0);
    close_fence();
}

/* The program waits by itself, and frees meanwhile and after a wait that failed. */
static void test_the_programs_own_wait_ends_what_was_freed_before_it(void)
{
    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    const uint64_t before = fence_epoch(&fence);
    fence_poll(&fence);
    const uint64_t open = fence_epoch(&fence), failed = fence_wait_begin(&fence);
    fence_wait_end(&fence, failed, false);
    CHECK(!fence_done(&fence, before) && !fence_done(&fence, open));
    const uint64_t ended = fence_wait_begin(&fence);
    work(0, STREAM_A);
    const uint64_t during = fence_epoch(&fence);
    while (fake_progress(1))
        ;
    fake_progress(0);
    fence_wait_end(&fence, ended, true);
    CHECK(fence_done(&fence, before) && fence_done(&fence, open) && !fence_done(&fence, during));
    CHECK(fence.waiting == 0);
    fake_progress(0);
    fence_poll(&fence);
    CHECK(fence_done(&fence, during));
    close_fence();
}

static void test_more_epochs_than_events_only_share_them(void)
{
    uint64_t last = 0;

    open_fence();
    for (int i = 0; i < 3 * FENCE_EVENTS; i++) {
        work(0, STREAM_A);
        last = fence_epoch(&fence);
        fence_poll(&fence);
    }
    CHECK(fake_count(FAKE_RECORD) == FENCE_EVENTS && !fence_done(&fence, last));
    for (int i = 0; i < FENCE_EVENTS; i++)
        fake_progress(0);
    fence_poll(&fence);
    CHECK(!fence_done(&fence, last));
    fence_poll(&fence);
    while (fake_progress(0))
        ;
    fence_poll(&fence);
    CHECK(fence_done(&fence, last));
    close_fence();
}

/* ---- beside captures ---- */

static void test_beside_a_capture_no_event_is_recorded_and_waits_work(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t before = fence_epoch(&fence);
    fence_poll(&fence);
    open_capture();
    const uint64_t epoch = fence_epoch(&fence);
    fake_progress(0);
    fence_poll(&fence);
    CHECK(fence_done(&fence, before) && !fence_done(&fence, epoch) && fake_count(FAKE_RECORD) == 1);
    work(0, STREAM_A);
    CHECK(fence_wait_all(&fence) == 0 && fence_done(&fence, epoch) && fake_backlog(0) == 0);
    CHECK(fake_count(FAKE_RECORD) == 1);
    close_capture();
    close_fence();
}

static void test_waits_beside_a_capture_need_no_memory_of_the_card(void)
{
    open_fence();
    fake_full_of_others();
    work(0, STREAM_A);
    const uint64_t epoch = fence_epoch(&fence);
    open_capture();
    CHECK(fence_wait_all(&fence) == 0 && fence_done(&fence, epoch) && fake_backlog(0) == 0);
    close_capture();
    close_fence();
}

static void *end_capture(void *stream)
{
    capture_end(streams_key(stream), streams_thread_key());
    return NULL;
}

/* The second stream has joined, and is destroyed. Any thread may end a relaxed capture. */
static void test_a_capture_ends_with_the_stream_that_began_it(void)
{
    const uintptr_t thread = streams_thread_key();

    open_fence();
    capture_begin(streams_key(STREAM_A), thread, FAKE_CONTEXT);
    capture_end(streams_key(STREAM_B), thread);
    CHECK(capture_any());
    on_thread(end_capture, STREAM_A);
    CHECK(!capture_any());
    capture_end(streams_key(STREAM_A), thread);
    capture_begin(FAKE_CAPTURE, thread, FAKE_CONTEXT);
    CHECK(capture_any()); /* none has been ended twice */
    capture_end(FAKE_CAPTURE, thread);
    close_fence();
}

/* More than the table of names holds. */
static void test_any_number_of_captures_may_be_open(void)
{
    const uintptr_t many = 200, thread = streams_thread_key();

    open_fence();
    for (uintptr_t i = 0; i < many; i++)
        capture_begin(streams_key(STREAM_A) + 16 * i, thread, FAKE_CONTEXT);
    for (uintptr_t i = 0; i < many; i++) {
        CHECK(capture_any());
        capture_end(streams_key(STREAM_A) + 16 * (many - 1 - i), thread);
    }
    CHECK(!capture_any());
    capture_end(streams_key(STREAM_B), thread); /* of none */
    capture_begin(FAKE_CAPTURE, thread, FAKE_CONTEXT);
    CHECK(capture_any());
    capture_end(FAKE_CAPTURE, thread);
    CHECK(!capture_any());
    close_fence();
}

/* Once a thread has excluded captures, one that begins waits for it, and a second thread does not exclude
 * them. */
static atomic_bool begun;

static void *begin_aside(void *unused)
{
    capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
    atomic_store(&begun, true);
    return unused;
}

static void test_a_capture_does_not_begin_while_an_event_is_recorded(void)
{
    pthread_t thread;

    alarm(250); /* it would be for ever */
    atomic_store(&fake_clock_stands, true);
    open_fence();
    CHECK(capture_exclude());
    CHECK(pthread_create(&thread, NULL, begin_aside, NULL) == 0);
    while (!capture_any())
        usleep(100);
    CHECK(!capture_exclude()); /* the one that waits comes first */
    usleep(10000);
    CHECK(!atomic_load(&begun));
    capture_admit();
    CHECK(pthread_join(thread, NULL) == 0 && atomic_load(&begun));
    capture_context_end(FAKE_CONTEXT);
    CHECK(!capture_any() && capture_exclude());
    capture_admit();
    close_fence();
}

static void begin_capture(void)
{
    fake_on_synchronize = NULL;
    open_capture();
}

/* A capture begins while an event is waited for; the thread has its own mode again afterwards. */
static void test_a_wait_harms_no_capture_that_begins_meanwhile(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    bool more = true;

    open_fence();
    driver.cuThreadExchangeStreamCaptureMode(&mode);
    work(0, STREAM_A);
    CHECK(fence_epoch(&fence) == 1);
    fake_on_synchronize = begin_capture;
    CHECK(fence_wait_oldest(&fence, &more) == 0 && fake_backlog(0) == 0 && !more && fence_done(&fence, 1));
    CHECK(driver.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    close_capture();
    close_fence();
}

/* ---- a driver that fails ---- */

static void test_a_failing_driver_never_makes_an_epoch_done(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t epoch = fence_epoch(&fence);
    fake_fail(1 << FAKE_EVENT_CREATE | 1 << FAKE_RECORD, 1, 5);
    for (int i = 0; i < 6; i++) {
        fence_poll(&fence);
        CHECK(!fence_done(&fence, epoch));
    }
    fake_progress(0);
    fence_poll(&fence);
    CHECK(fence_done(&fence, epoch));
    work(0, STREAM_A);
    const uint64_t second = fence_epoch(&fence);
    fake_fail(1 << FAKE_SYNCHRONIZE, 1, 0);
    CHECK(fence_wait_all(&fence) == -EIO && !fence_done(&fence, second));
    CHECK(fence_wait_all(&fence) == 0 && fence_done(&fence, second));
    close_fence();
}

/* ---- threads ---- */

#define THREADS 4

static atomic_int running;

/* Frees and waits: what is said to be done must be done. Each thread has its own stream and knows its own
 * work. */
static void *free_and_wait(void *argument)
{
    const unsigned stream = (unsigned)(uintptr_t)argument;
    const uint64_t place = ADDRESS + stream * 16;

    for (int i = 0; i < 2000; i++) {
        const bool foreign =
            streams_submit_begin(streams_key((CUstream)(0x10000 + 0x100 * (uintptr_t)stream)));

        fake_work(stream, place, 0, stream);
        if (foreign)
            streams_submit_end();
        const uint64_t epoch = fence_epoch(&fence);
        CHECK(epoch);
        if (i % 7 == 0)
            CHECK(fence_wait_all(&fence) == 0 && fence_done(&fence, epoch));
        else if (i % 3 == 0)
            fake_progress(stream);
        else
            fence_poll(&fence);
        if (fence_done(&fence, epoch))
            CHECK(!fake_pending(place - 1, 2));
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static void test_threads_are_never_told_that_their_work_is_done_when_it_is_not(void)
{
    pthread_t threads[THREADS];

    open_fence();
    streams_distrust();
    atomic_store(&running, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, free_and_wait, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(atomic_load(&running) == 0);
    close_fence();
}

/* ---- order on the device instead of waiting ---- */

static void test_a_join_makes_frees_usable_and_waits_for_nothing(void)
{
    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    work(0, STREAM_A);
    const uint64_t epoch = fence_epoch(&fence);
    CHECK(epoch && fence_usable(&fence) < epoch);
    CHECK(fence_join(&fence) && fence_usable(&fence) >= epoch);
    CHECK(!fence_done(&fence, epoch)); /* what is mapped stays mapped */
    CHECK(fake_backlog(0) && fake_count(FAKE_WAIT) == 1);
    CHECK(!fence_join(&fence) && fake_count(FAKE_WAIT) == 1); /* nothing more has been freed */
    work(1, STREAM_B);
    const uint64_t later = fence_epoch(&fence);
    CHECK(later > epoch && fence_usable(&fence) < later);
    CHECK(fake_progress(1) && fake_progress(1)); /* it ends behind all that was there */
    CHECK(fake_backlog(0) == 0);
    fence_poll(&fence);
    CHECK(fence_done(&fence, epoch));
    close_fence();
}

/* The device is far behind: no event is free, and the newest serves again. */
static void test_joins_need_no_free_event(void)
{
    uint64_t first = 0;

    open_fence();
    for (int i = 0; i < 3 * FENCE_EVENTS; i++) {
        work(0, STREAM_A);
        work(1, STREAM_B);
        const uint64_t epoch = fence_epoch(&fence);
        first = first ? first : epoch;
        CHECK(fence_join(&fence) && fence_usable(&fence) >= epoch && !fence_done(&fence, first));
    }
    const uint64_t last = fence_usable(&fence);
    while (fake_progress(0) || fake_progress(1))
        ;
    for (int i = 0; i < FENCE_EVENTS; i++)
        fence_poll(&fence);
    CHECK(fence_done(&fence, last) && fence.waiting == 0);
    close_fence();
}

/* What was waited for has ended meanwhile, and what came later may be waiting for the caller. */
static void test_no_thread_waits_for_what_came_later_when_all_has_ended(void)
{
    bool more = true;

    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    const uint64_t epoch = fence_epoch(&fence);
    fence_poll(&fence);
    while (fake_progress(0) || fake_progress(1))
        ;
    work(0, STREAM_A);
    const uint64_t before = fake_count(FAKE_SYNCHRONIZE);
    CHECK(fence_wait_oldest(&fence, &more) == 0 && !more && fence_done(&fence, epoch));
    CHECK(fake_count(FAKE_SYNCHRONIZE) == before && fake_backlog(0) == 1);
    close_fence();
}

static void test_a_join_that_cannot_be_leaves_things_as_they_are(void)
{
    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    const uint64_t epoch = fence_epoch(&fence);
    open_capture();
    CHECK(!fence_join(&fence)); /* it would destroy the capture */
    close_capture();
    fake_fail(1 << FAKE_WAIT, 1, 0);
    CHECK(!fence_join(&fence) && fence_usable(&fence) < epoch);
    fence_forbid_joins();
    CHECK(!fence_join(&fence) && fence_usable(&fence) < epoch && fake_count(FAKE_WAIT) == 1);
    CHECK(fence_wait_all(&fence) == 0 && fence_usable(&fence) >= epoch);
    close_fence();
}

static void test_what_is_handed_out_comes_to_rest_before_others_may_touch_it(void)
{
    open_fence();
    work(0, STREAM_A);
    CHECK(fence_wait_all(&fence) == 0 && fake_backlog(0) == 1); /* nothing has been freed */
    CHECK(fence_epoch(&fence) && streams_in_order());
    CHECK(fence_wait_all(&fence) == 0 && fake_backlog(0) == 0);
    work(0, STREAM_A);
    work(1, STREAM_B);
    CHECK(fence_epoch(&fence) && fence_join(&fence));
    CHECK(fence_wait_all(&fence) == 0 && fake_backlog(0) + fake_backlog(1) == 0);
    work(1, STREAM_B);
    const uint64_t waits = fake_count(FAKE_SYNCHRONIZE);
    CHECK(fence_wait_all(&fence) == 0 && fake_count(FAKE_SYNCHRONIZE) == waits); /* not freed behind it */
    close_fence();
}

/* Another thread waits for all work of the context, some of which waits for what this thread does next. */
static void test_who_has_freed_nothing_waits_for_no_other_threads_wait(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t freed = fence_epoch(&fence), ended = fence_wait_begin(&fence);
    while (fake_progress(0))
        ;
    fence_wait_end(&fence, ended, true);
    CHECK(fence_done(&fence, freed));
    work(0, STREAM_A);
    const uint64_t waits = fence_wait_begin(&fence);
    CHECK(fence_wait_all(&fence) == 0 && fake_backlog(0) == 1);
    fence_wait_end(&fence, waits, false);
    CHECK(fence_wait_all(&fence) == 0 && fake_backlog(0) == 1);
    close_fence();
}

/* The event behind the free is waited for, not the work that came later. */
static void test_what_is_handed_out_comes_to_rest_without_later_work(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t freed = fence_epoch(&fence);
    fence_poll(&fence);
    work(0, STREAM_A);
    CHECK(fence_wait_all(&fence) == 0 && fence_done(&fence, freed) && fake_backlog(0) == 1);
    close_fence();
}

static void test_memory_is_reused_early_in_the_order_of_a_stream(void)
{
    open_fence();
    CHECK(!fence_reused_early());
    work(0, STREAM_A);
    CHECK(fence_epoch(&fence) && fence_reused_early());
    close_fence();
}

static void test_memory_is_reused_early_by_joins_and_else_not(void)
{
    open_fence();
    streams_distrust();
    work(0, STREAM_A);
    CHECK(fence_epoch(&fence) && !fence_reused_early());
    CHECK(fence_join(&fence) && fence_reused_early());
    close_fence();
}

/* Handed out by a join, and a capture has begun since. */
static void test_what_is_handed_out_comes_to_rest_also_beside_a_capture(void)
{
    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    const uint64_t epoch = fence_epoch(&fence);
    CHECK(epoch && fence_join(&fence) && fence_usable(&fence) >= epoch && fake_backlog(0) == 1);
    work(2, STREAM_A);
    open_capture();
    CHECK(fence_wait_all(&fence) == 0 && fake_backlog(0) == 0 && fake_backlog(1) == 0);
    close_capture();
    close_fence();
}

/* ---- calls that fail ---- */

/* What was freed before a call that failed is found to be done later. */
static void found_later(uint64_t epoch)
{
    CHECK(!fence_done(&fence, epoch));
    while (fake_progress(0))
        ;
    fence_poll(&fence);
    CHECK(fence_done(&fence, epoch));
    close_fence();
}

static void wait_that_fails(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t epoch = fence_epoch(&fence);
    fence_wait_end(&fence, fence_wait_begin(&fence), false);
    found_later(epoch);
}

static void event_wait_that_fails(void)
{
    bool more;

    open_fence();
    work(0, STREAM_A);
    const uint64_t epoch = fence_epoch(&fence);
    fence_poll(&fence);
    fake_fail(1U << FAKE_SYNCHRONIZE, 1, 0);
    CHECK(fence_wait_oldest(&fence, &more) == -EIO && fake_failed() == 1);
    fake_fail(0, 0, 0);
    found_later(epoch);
}

static void record_that_fails(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t epoch = fence_epoch(&fence);
    fake_fail(1U << FAKE_RECORD, 1, 1);
    fence_poll(&fence);
    CHECK(fake_failed() == 2);
    fake_fail(0, 0, 0);
    found_later(epoch);
}

static void test_no_epoch_is_lost_in_a_call_that_fails(void)
{
    TEST_ASSERT_TRUE(fake_child(wait_that_fails));
    TEST_ASSERT_TRUE(fake_child(event_wait_that_fails));
    TEST_ASSERT_TRUE(fake_child(record_that_fails));
}

/* Beside a capture no event can close the open epoch: then its work is waited for in another way. */
static void test_beside_a_capture_settling_waits_for_what_was_just_freed(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t epoch = fence_epoch(&fence);
    open_capture();
    CHECK(fence_wait_all(&fence) == 0 && fence_done(&fence, epoch));
    close_capture();
    close_fence();
}

static CUresult (*query)(CUevent event);
static int queries;

/* The program raises the flag when it has been asked for the third time. */
static CUresult query_until_raised(CUevent event)
{
    if (++queries == 3)
        fake_progress(0);
    return query(event);
}

static void is_raised(void)
{
    CHECK(fake_backlog(0) == 0);
}

/* The stream may wait for a flag that the waiting thread itself has to raise. */
static void test_where_flags_are_expected_no_wait_is_for_ever(void)
{
    bool more;

    open_fence();
    fence_expect_flags();
    work(0, STREAM_A);
    const uint64_t epoch = fence_epoch(&fence);
    query = driver_entries.cuEventQuery;
    driver_entries.cuEventQuery = query_until_raised;
    fake_on_synchronize = is_raised;
    CHECK(fence_wait_oldest(&fence, &more) == 0 && fence_done(&fence, epoch) && !more);
    fake_on_synchronize = NULL;
    close_fence();
}

/* A thread waits for the event, and would wait for later work if it were recorded again. */
static void test_an_event_that_a_thread_waits_for_is_not_recorded_again(void)
{
    open_fence();
    work(0, STREAM_A);
    fence.events[0].users = 1;
    for (int i = 1; i < FENCE_EVENTS; i++) {
        CHECK(fence_epoch(&fence));
        fence_poll(&fence);
        CHECK(fence.events[0].epoch == 0 && fence.waiting == (unsigned)i);
    }
    struct fence_event *newest = &fence.events[FENCE_EVENTS - 1];
    const uint64_t epoch = newest->epoch;
    CHECK(epoch == fence.closed && fence_epoch(&fence) > epoch);
    newest->users = 1;
    fence_join(&fence);
    CHECK(newest->epoch == epoch);
    newest->users = 0;
    CHECK(fence_join(&fence) && newest->epoch > epoch);
    fence.events[0].users = 0;
    fake_progress(0);
    close_fence();
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_where_flags_are_expected_no_wait_is_for_ever);
    RUN_APART(test_one_event_closes_an_epoch_for_all_frees_in_it);
    RUN_APART(test_a_thread_that_frees_on_and_on_closes_epochs);
    RUN_APART(test_a_free_after_a_wait_is_not_done_by_that_wait);
    RUN_APART(test_a_wait_for_the_oldest_says_whether_there_are_others);
    RUN_APART(test_a_wait_covers_every_epoch_before_it);
    RUN_APART(test_the_programs_own_wait_ends_what_was_freed_before_it);
    RUN_APART(test_more_epochs_than_events_only_share_them);
    RUN_APART(test_beside_a_capture_no_event_is_recorded_and_waits_work);
    RUN_APART(test_waits_beside_a_capture_need_no_memory_of_the_card);
    RUN_APART(test_a_capture_ends_with_the_stream_that_began_it);
    RUN_APART(test_any_number_of_captures_may_be_open);
    RUN_APART(test_a_capture_does_not_begin_while_an_event_is_recorded);
    RUN_APART(test_a_wait_harms_no_capture_that_begins_meanwhile);
    RUN_APART(test_a_failing_driver_never_makes_an_epoch_done);
    RUN_APART(test_threads_are_never_told_that_their_work_is_done_when_it_is_not);
    RUN_APART(test_a_join_makes_frees_usable_and_waits_for_nothing);
    RUN_APART(test_joins_need_no_free_event);
    RUN_APART(test_no_thread_waits_for_what_came_later_when_all_has_ended);
    RUN_APART(test_a_join_that_cannot_be_leaves_things_as_they_are);
    RUN_APART(test_who_has_freed_nothing_waits_for_no_other_threads_wait);
    RUN_APART(test_what_is_handed_out_comes_to_rest_without_later_work);
    RUN_APART(test_memory_is_reused_early_in_the_order_of_a_stream);
    RUN_APART(test_memory_is_reused_early_by_joins_and_else_not);
    RUN_APART(test_what_is_handed_out_comes_to_rest_also_beside_a_capture);
    RUN_APART(test_what_is_handed_out_comes_to_rest_before_others_may_touch_it);
    RUN_TEST(test_no_epoch_is_lost_in_a_call_that_fails);
    RUN_APART(test_beside_a_capture_settling_waits_for_what_was_just_freed);
    RUN_APART(test_an_event_that_a_thread_waits_for_is_not_recorded_again);
    return UNITY_END();
}
