/* fence, epochs: what may be reused when. Each case is a process of its own, because the fence remembers for
 * as long as a process lives. */
#include <errno.h>
#include <string.h>
#include <unity.h>

#include "capture.h"
#include "engine_fence.h"

void setUp(void) {}

void tearDown(void) {}

/* ---- epochs ---- */

static void epochs(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t first = fence_epoch(&fence);
    CHECK(first && fence_epoch(&fence) == first && !fence_done(&fence, first) && fence_done(&fence, 0));
    fence_poll(&fence);
    CHECK(!fence_done(&fence, first) && fake_count(FAKE_RECORD) == 1);
    fence_poll(&fence);
    CHECK(fake_count(FAKE_RECORD) == 1); /* nobody belongs to the new one */
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

static void test_one_event_closes_an_epoch_for_all_frees_in_it(void)
{
    TEST_ASSERT_TRUE(fake_child(epochs));
}

/* A wait when nobody belongs to the open epoch must not make the next frees count as done. */
static void wait_then_free(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t before = fence_epoch(&fence);
    fence_poll(&fence);
    CHECK(fence_wait(&fence, before) == 0 && fence_done(&fence, before));
    work(0, STREAM_A);
    const uint64_t after = fence_epoch(&fence);
    CHECK(after > before && !fence_done(&fence, after));
    CHECK(fence_wait(&fence, FENCE_NOW) == 0 && fence_done(&fence, after));
    work(0, STREAM_A);
    CHECK(!fence_done(&fence, fence_epoch(&fence)));
    close_fence();
}

static void test_a_free_after_a_wait_is_not_done_by_that_wait(void)
{
    TEST_ASSERT_TRUE(fake_child(wait_then_free));
}

/* What a wait has learned is not forgotten because an older event comes in behind it. */
static void wait_over_events(void)
{
    uint64_t epoch = 0;

    open_fence();
    for (int i = 0; i < 3; i++) {
        work(0, STREAM_A);
        epoch = fence_epoch(&fence);
        if (i < 2)
            fence_poll(&fence);
    }
    CHECK(fence_wait(&fence, epoch) == 0 && fence_done(&fence, epoch));
    fence_poll(&fence);
    CHECK(fence_done(&fence, epoch) && fence.count == 0);
    close_fence();
}

static void test_a_wait_covers_every_epoch_before_it(void)
{
    TEST_ASSERT_TRUE(fake_child(wait_over_events));
}

/* The program waits by itself, and frees meanwhile and after a wait that failed. */
static void programs_wait(void)
{
    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    const uint64_t before = fence_epoch(&fence);
    fence_poll(&fence);
    const uint64_t open = fence_epoch(&fence), failed = fence_before_wait(&fence);
    fence_after_wait(&fence, failed, false);
    CHECK(!fence_done(&fence, before) && !fence_done(&fence, open));
    const uint64_t ended = fence_before_wait(&fence);
    work(0, STREAM_A);
    const uint64_t during = fence_epoch(&fence);
    while (fake_progress(1))
        ;
    fake_progress(0);
    fence_after_wait(&fence, ended, true);
    CHECK(fence_done(&fence, before) && fence_done(&fence, open) && !fence_done(&fence, during));
    CHECK(fence.count == 0);
    fake_progress(0);
    fence_poll(&fence);
    CHECK(fence_done(&fence, during));
    close_fence();
}

static void test_the_programs_own_wait_ends_what_was_freed_before_it(void)
{
    TEST_ASSERT_TRUE(fake_child(programs_wait));
}

static void full_ring(void)
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

static void test_more_epochs_than_events_only_share_them(void)
{
    TEST_ASSERT_TRUE(fake_child(full_ring));
}

static void captured_epochs(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t before = fence_epoch(&fence);
    fence_poll(&fence);
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    fake_set_capturing(true);
    const uint64_t epoch = fence_epoch(&fence);
    fence_poll(&fence);
    CHECK(fence_wait(&fence, epoch) == -EBUSY && fence_wait(&fence, before) == -EBUSY);
    fake_set_capturing(false);
    fence_capture_ended(FAKE_CAPTURE);
    fake_progress(0);
    fence_poll(&fence);
    fence_poll(&fence);
    CHECK(fence_done(&fence, before) && fence_done(&fence, epoch));
    close_fence();
}

/* Until there has been a capture the context is waited for, and then an event; in one nothing. */
static void waited_as_native(void)
{
    CUresult result = CUDA_SUCCESS;

    open_fence();
    work(0, STREAM_A);
    CHECK(fence_wait_context(FAKE_CONTEXT, &result) && result == CUDA_SUCCESS);
    CHECK(fake_count(FAKE_RECORD) == 0 && fence_idle() && fake_backlog(0) == 0);
    work(0, STREAM_A);
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    fake_set_capturing(true);
    CHECK(!fence_wait_context(FAKE_CONTEXT, &result) && result == CUDA_SUCCESS && !fence_idle());
    fake_set_capturing(false);
    fence_capture_ended(FAKE_CAPTURE);
    CHECK(fence_wait_context(FAKE_CONTEXT, &result) && result == CUDA_SUCCESS);
    CHECK(fake_count(FAKE_RECORD) == 1 && fence_idle() && fake_backlog(0) == 0);
    close_fence();
}

static void test_a_native_wait_meets_no_capture(void)
{
    TEST_ASSERT_TRUE(fake_child(waited_as_native));
}

static void *end_capture(void *stream)
{
    CHECK(capture_elsewhere(fence_thread()));
    fence_capture_ended(fence_stream(stream));
    return NULL;
}

/* The second stream has joined, and is destroyed. Any thread may end a relaxed capture. */
static void capture_by_its_stream(void)
{
    open_fence();
    CHECK(capture_elsewhere(fence_thread()) == 0);
    fence_capture_begins(fence_stream(STREAM_A), FAKE_CONTEXT);
    CHECK(capture_elsewhere(fence_thread()) == 0); /* its own */
    fence_capture_ended(fence_stream(STREAM_B));
    CHECK(capture_any());
    on_thread(end_capture, STREAM_A);
    CHECK(!capture_any() && capture_elsewhere(fence_thread()) == 1);
    fence_capture_ended(fence_stream(STREAM_A));
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    CHECK(capture_any()); /* none has been ended twice */
    fence_capture_ended(FAKE_CAPTURE);
    close_fence();
}

static void test_a_capture_ends_with_the_stream_that_began_it(void)
{
    TEST_ASSERT_TRUE(fake_child(capture_by_its_stream));
}

/* More than anybody names. */
static void captures_many(void)
{
    const uintptr_t many = 200;

    open_fence();
    for (uintptr_t i = 0; i < many; i++)
        fence_capture_begins(fence_stream(STREAM_A) + 16 * i, FAKE_CONTEXT);
    for (uintptr_t i = 0; i < many; i++) {
        CHECK(capture_any());
        fence_capture_ended(fence_stream(STREAM_A) + 16 * (many - 1 - i));
    }
    CHECK(!capture_any() && capture_elsewhere(fence_thread()) == many);
    close_fence();
}

static void test_any_number_of_captures_may_be_open(void)
{
    TEST_ASSERT_TRUE(fake_child(captures_many));
}

static void begin_capture(void)
{
    fake_on_synchronize = NULL;
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    fake_set_capturing(true);
}

/* A capture begins while the event is waited for; the thread has its own mode again afterwards. */
static void waited_beside_a_capture(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CUresult result = CUDA_SUCCESS;

    open_fence();
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    fence_capture_ended(FAKE_CAPTURE);
    driver.cuThreadExchangeStreamCaptureMode(&mode);
    work(0, STREAM_A);
    fake_on_synchronize = begin_capture;
    CHECK(fence_wait_context(FAKE_CONTEXT, &result) && result == CUDA_SUCCESS && fake_backlog(0) == 0);
    CHECK(driver.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    fake_set_capturing(false);
    fence_capture_ended(FAKE_CAPTURE);
    close_fence();
}

static void test_a_native_wait_harms_no_capture_that_begins_meanwhile(void)
{
    TEST_ASSERT_TRUE(fake_child(waited_beside_a_capture));
}

/* The same for a wait that makes room: what is waited for is an epoch's event. */
static void waited_for_room_beside_a_capture(void)
{
    bool more = false;

    alarm(60); /* it would wait for itself */
    open_fence();
    work(0, STREAM_A);
    CHECK(fence_epoch(&fence) == 1);
    fake_on_synchronize = begin_capture;
    CHECK(fence_wait_oldest(&fence, &more) == 0 && fake_backlog(0) == 0);
    CHECK(more && !fence_done(&fence, 1)); /* now nobody may ask */
    CHECK(fence_wait_oldest(&fence, &more) == -EBUSY);
    fake_set_capturing(false);
    fence_capture_ended(FAKE_CAPTURE);
    fence_poll(&fence);
    CHECK(fence_done(&fence, 1));
    close_fence();
}

static void test_making_room_keeps_no_capture_waiting_and_harms_none(void)
{
    TEST_ASSERT_TRUE(fake_child(waited_for_room_beside_a_capture));
}

static atomic_int entered;
static atomic_bool begun;

/* Nobody leaves before another has come, or is seen not to come. Without an event this is under the lock. */
static void until_relieved(void)
{
    const int mine = atomic_fetch_add(&entered, 1) + 1;

    for (int ms = 0; ms < 100 && atomic_load(&entered) == mine; ms++)
        usleep(1000);
}

static void *wait_again_and_again(void *unused)
{
    while (!atomic_load(&begun))
        fence_wait(&fence, FENCE_NOW);
    return unused;
}

static void waits_without_a_gap(void)
{
    pthread_t threads[2];

    alarm(60); /* it would be for ever */
    open_fence();
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT); /* the first is another matter */
    fence_capture_ended(FAKE_CAPTURE);
    fake_fail(1U << FAKE_EVENT_CREATE, 1, UINT64_MAX);
    fake_on_synchronize = until_relieved;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, wait_again_and_again, NULL) == 0);
    while (atomic_load(&entered) < 2)
        usleep(1000);
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    atomic_store(&begun, true);
    fence_capture_ended(FAKE_CAPTURE);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    fake_on_synchronize = NULL;
    close_fence();
}

static void test_a_capture_begins_though_one_thread_or_another_always_waits(void)
{
    TEST_ASSERT_TRUE(fake_child(waits_without_a_gap));
}

static void *come_as_guest(void *unused)
{
    fence_work(fence_stream(STREAM_B));
    CHECK(fake_backlog(0) == 0);
    fence_worked();
    atomic_store(&begun, true);
    return unused;
}

static pthread_t guest_thread;

static void let_a_guest_come(void)
{
    fake_on_synchronize = NULL;
    CHECK(pthread_create(&guest_thread, NULL, come_as_guest, NULL) == 0);
    for (int ms = 0; ms < 100 && !atomic_load(&begun); ms++)
        usleep(1000);
    fence_poll(&fence); /* others do not wait */
    CHECK(!fence_one_stream() && !capture_any());
}

/* Blocks are in other hands before the home stream is done with them, and a capture, before it begins, waits
 * for that. Other streams that come meanwhile must too. */
static void guest_beside_a_beginning(void)
{
    alarm(60);
    open_fence();
    work(0, STREAM_A);
    CHECK(fence_epoch(&fence) && fence_one_stream());
    fake_on_synchronize = let_a_guest_come;
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    CHECK(pthread_join(guest_thread, NULL) == 0 && atomic_load(&begun) && capture_any());
    fence_capture_ended(FAKE_CAPTURE);
    close_fence();
}

static void test_a_stream_that_comes_while_a_capture_waits_to_begin_waits_too(void)
{
    TEST_ASSERT_TRUE(fake_child(guest_beside_a_beginning));
}

/* A driver that knows no event of a context, or has no memory for one. */
static void waited_without_events(void)
{
    CUresult result = CUDA_SUCCESS;

    open_fence();
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    fence_capture_ended(FAKE_CAPTURE);
    for (unsigned call = FAKE_EVENT_CREATE; call <= FAKE_RECORD; call++) {
        work(0, STREAM_A);
        fake_fail(1U << call, 1, 0);
        CHECK(fence_wait_context(FAKE_CONTEXT, &result) && result == CUDA_SUCCESS);
        CHECK(fence_idle() && fake_backlog(0) == 0);
    }
    work(0, STREAM_A); /* and one whose context has failed */
    fake_fail(1U << FAKE_EVENT_CREATE | 1U << FAKE_SYNCHRONIZE, 1, 1);
    CHECK(fence_wait_context(FAKE_CONTEXT, &result) && result != CUDA_SUCCESS && !fence_idle());
    close_fence();
}

static void test_a_native_wait_needs_no_event(void)
{
    TEST_ASSERT_TRUE(fake_child(waited_without_events));
}

static void test_no_event_no_query_and_no_wait_while_a_capture_is_open(void)
{
    TEST_ASSERT_TRUE(fake_child(captured_epochs));
}

static void driver_fails(void)
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
    CHECK(fence_wait(&fence, second) == -EIO && !fence_done(&fence, second));
    CHECK(fence_wait(&fence, second) == 0 && fence_done(&fence, second));
    close_fence();
}

static void test_a_failing_driver_never_makes_an_epoch_done(void)
{
    TEST_ASSERT_TRUE(fake_child(driver_fails));
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
        const bool guest = fence_work(fence_stream((CUstream)(0x10000 + 0x100 * (uintptr_t)stream)));

        fake_work(stream, place, 0, stream);
        if (guest)
            fence_worked();
        const uint64_t epoch = fence_epoch(&fence);
        CHECK(epoch);
        if (i % 7 == 0)
            CHECK(fence_wait(&fence, epoch) == 0 && fence_done(&fence, epoch));
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

static void several_threads(void)
{
    pthread_t threads[THREADS];

    open_fence();
    fence_trust_nothing();
    atomic_store(&running, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, free_and_wait, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(atomic_load(&running) == 0);
    close_fence();
}

static void test_threads_are_never_told_that_their_work_is_done_when_it_is_not(void)
{
    TEST_ASSERT_TRUE(fake_child(several_threads));
}

/* ---- order on the device instead of waiting ---- */

static void joined(void)
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

static void test_a_join_makes_frees_usable_and_waits_for_nothing(void)
{
    TEST_ASSERT_TRUE(fake_child(joined));
}

/* The device is far behind: no event is free, and the newest serves again. */
static void joined_often(void)
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
    CHECK(fence_done(&fence, last));
    close_fence();
}

static void test_joins_need_no_free_event(void)
{
    TEST_ASSERT_TRUE(fake_child(joined_often));
}

/* What was waited for has ended meanwhile, and what came later may be waiting for the caller. */
static void ended_meanwhile(void)
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

static void test_nobody_waits_for_what_came_later_when_all_has_ended(void)
{
    TEST_ASSERT_TRUE(fake_child(ended_meanwhile));
}

static void join_refused(void)
{
    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    const uint64_t epoch = fence_epoch(&fence);
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    fake_set_capturing(true);
    CHECK(!fence_join(&fence)); /* it would destroy the capture */
    fake_set_capturing(false);
    fence_capture_ended(FAKE_CAPTURE);
    fake_fail(1 << FAKE_WAIT, 1, 0);
    CHECK(!fence_join(&fence) && fence_usable(&fence) < epoch);
    fence_no_joins();
    CHECK(!fence_join(&fence) && fence_usable(&fence) < epoch && fake_count(FAKE_WAIT) == 1);
    CHECK(fence_wait(&fence, epoch) == 0 && fence_usable(&fence) >= epoch);
    close_fence();
}

static void test_a_join_that_cannot_be_leaves_things_as_they_are(void)
{
    TEST_ASSERT_TRUE(fake_child(join_refused));
}

static void settled(void)
{
    open_fence();
    work(0, STREAM_A);
    CHECK(fence_settle(&fence) == 0 && fake_backlog(0) == 1); /* nothing has been freed */
    CHECK(fence_epoch(&fence) && fence_one_stream());
    CHECK(fence_settle(&fence) == 0 && fake_backlog(0) == 0);
    work(0, STREAM_A);
    work(1, STREAM_B);
    CHECK(fence_epoch(&fence) && fence_join(&fence));
    CHECK(fence_settle(&fence) == 0 && fake_backlog(0) + fake_backlog(1) == 0);
    work(1, STREAM_B);
    const uint64_t waits = fake_count(FAKE_SYNCHRONIZE);
    CHECK(fence_settle(&fence) == 0 && fake_count(FAKE_SYNCHRONIZE) == waits); /* not freed behind it */
    close_fence();
}

/* Handed out by a join, and a capture has begun since. */
static void joined_beside_a_capture(void)
{
    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    const uint64_t epoch = fence_epoch(&fence);
    CHECK(epoch && fence_join(&fence) && fence_usable(&fence) >= epoch && fake_backlog(0) == 1);
    work(2, STREAM_A);
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    fake_set_capturing(true);
    CHECK(fence_settle(&fence) == 0 && fake_backlog(0) == 0 && fake_backlog(1) == 0);
    fake_set_capturing(false);
    fence_capture_ended(FAKE_CAPTURE);
    close_fence();
}

static void test_what_is_handed_out_comes_to_rest_also_beside_a_capture(void)
{
    TEST_ASSERT_TRUE(fake_child(joined_beside_a_capture));
}

static void test_what_is_handed_out_comes_to_rest_before_others_may_touch_it(void)
{
    TEST_ASSERT_TRUE(fake_child(settled));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_one_event_closes_an_epoch_for_all_frees_in_it);
    RUN_TEST(test_a_free_after_a_wait_is_not_done_by_that_wait);
    RUN_TEST(test_a_wait_covers_every_epoch_before_it);
    RUN_TEST(test_the_programs_own_wait_ends_what_was_freed_before_it);
    RUN_TEST(test_more_epochs_than_events_only_share_them);
    RUN_TEST(test_no_event_no_query_and_no_wait_while_a_capture_is_open);
    RUN_TEST(test_a_native_wait_meets_no_capture);
    RUN_TEST(test_a_capture_ends_with_the_stream_that_began_it);
    RUN_TEST(test_any_number_of_captures_may_be_open);
    RUN_TEST(test_a_native_wait_harms_no_capture_that_begins_meanwhile);
    RUN_TEST(test_making_room_keeps_no_capture_waiting_and_harms_none);
    RUN_TEST(test_a_capture_begins_though_one_thread_or_another_always_waits);
    RUN_TEST(test_a_stream_that_comes_while_a_capture_waits_to_begin_waits_too);
    RUN_TEST(test_a_native_wait_needs_no_event);
    RUN_TEST(test_a_failing_driver_never_makes_an_epoch_done);
    RUN_TEST(test_threads_are_never_told_that_their_work_is_done_when_it_is_not);
    RUN_TEST(test_a_join_makes_frees_usable_and_waits_for_nothing);
    RUN_TEST(test_joins_need_no_free_event);
    RUN_TEST(test_nobody_waits_for_what_came_later_when_all_has_ended);
    RUN_TEST(test_a_join_that_cannot_be_leaves_things_as_they_are);
    RUN_TEST(test_what_is_handed_out_comes_to_rest_before_others_may_touch_it);
    RUN_TEST(test_what_is_handed_out_comes_to_rest_also_beside_a_capture);
    return UNITY_END();
}
