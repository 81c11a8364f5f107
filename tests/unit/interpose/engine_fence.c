/* fence: when freed memory may be reused. Each case is a process of its own, because the state of the fence
 * belongs to the process. */
#include <errno.h>
#include <string.h>
#include <unity.h>

#include "tests/unit/interpose/engine_fence.h"
#include "interpose/pool/capture.h"

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

static void test_one_event_closes_an_epoch_for_all_frees_in_it(void)
{
    TEST_ASSERT_TRUE(fake_child(epochs));
}

/* A wait when no free belongs to the open epoch must not make the next frees count as done. */
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

/* The result of a wait is kept when an older event is found done afterwards. */
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
    CHECK(fence_done(&fence, epoch) && fence.waiting == 0);
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

static void begin(void)
{
    capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
    fake_set_capturing(true);
}

static void end(void)
{
    fake_set_capturing(false);
    capture_end(FAKE_CAPTURE, streams_thread_key());
}

/* ---- beside captures ---- */

static void captured_epochs(void)
{
    open_fence();
    work(0, STREAM_A);
    const uint64_t before = fence_epoch(&fence);
    fence_poll(&fence);
    begin();
    const uint64_t epoch = fence_epoch(&fence);
    fake_progress(0);
    fence_poll(&fence);
    CHECK(fence_done(&fence, before) && !fence_done(&fence, epoch) && fake_count(FAKE_RECORD) == 1);
    work(0, STREAM_A);
    CHECK(fence_wait(&fence, epoch) == 0 && fence_done(&fence, epoch) && fake_backlog(0) == 0);
    CHECK(fake_count(FAKE_RECORD) == 1);
    end();
    close_fence();
}

static void test_beside_a_capture_no_event_is_recorded_and_waits_work(void)
{
    TEST_ASSERT_TRUE(fake_child(captured_epochs));
}

static void captured_without_memory(void)
{
    open_fence();
    fake_full_of_others();
    work(0, STREAM_A);
    const uint64_t epoch = fence_epoch(&fence);
    begin();
    CHECK(fence_wait(&fence, epoch) == 0 && fence_done(&fence, epoch) && fake_backlog(0) == 0);
    end();
    close_fence();
}

static void test_waits_beside_a_capture_need_no_memory_of_the_card(void)
{
    TEST_ASSERT_TRUE(fake_child(captured_without_memory));
}

static void *end_capture(void *stream)
{
    capture_end(streams_key(stream), streams_thread_key());
    return NULL;
}

/* The second stream has joined, and is destroyed. Any thread may end a relaxed capture. */
static void capture_by_its_stream(void)
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

static void test_a_capture_ends_with_the_stream_that_began_it(void)
{
    TEST_ASSERT_TRUE(fake_child(capture_by_its_stream));
}

/* More than the table of names holds. */
static void captures_many(void)
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
    close_fence();
}

static void test_any_number_of_captures_may_be_open(void)
{
    TEST_ASSERT_TRUE(fake_child(captures_many));
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

static void capture_waits_for_a_record(void)
{
    pthread_t thread;

    alarm(60); /* it would be for ever */
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

static void test_a_capture_does_not_begin_while_an_event_is_recorded(void)
{
    TEST_ASSERT_TRUE(fake_child(capture_waits_for_a_record));
}

static void begin_capture(void)
{
    fake_on_synchronize = NULL;
    begin();
}

/* A capture begins while an event is waited for; the thread has its own mode again afterwards. */
static void waited_beside_a_capture(void)
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
    end();
    close_fence();
}

static void test_a_wait_harms_no_capture_that_begins_meanwhile(void)
{
    TEST_ASSERT_TRUE(fake_child(waited_beside_a_capture));
}

/* ---- free = strict ---- */

static void passes(void)
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

static void test_a_strict_free_asks_the_driver_each_time_and_sees_unseen_work(void)
{
    TEST_ASSERT_TRUE(fake_child(passes));
}

static int checks;

static CUresult refuse_to_wait(void *answer)
{
    checks++;
    return *(CUresult *)answer;
}

static void passes_checked(void)
{
    CUresult answer = CUDA_ERROR_INVALID_VALUE;
    const struct fence_check check = {refuse_to_wait, &answer};

    open_fence();
    CHECK(fence_pass(&fence, &check) == CUDA_SUCCESS && checks == 0); /* it does not block */
    fake_work(0, ADDRESS, 0, 1);
    CHECK(fence_pass(&fence, &check) == CUDA_ERROR_INVALID_VALUE && checks == 1 && fake_backlog(0) == 1);
    begin();
    CHECK(fence_pass(&fence, &check) == CUDA_ERROR_INVALID_VALUE && checks == 2 && fake_backlog(0) == 1);
    end();
    answer = CUDA_SUCCESS;
    CHECK(fence_pass(&fence, &check) == CUDA_SUCCESS && checks == 3 && fake_backlog(0) == 0);
    close_fence();
}

static void test_a_strict_free_of_what_is_no_block_does_not_wait(void)
{
    TEST_ASSERT_TRUE(fake_child(passes_checked));
}

static void passes_failing(void)
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

static void test_a_strict_free_that_fails_leaves_its_epoch_open(void)
{
    TEST_ASSERT_TRUE(fake_child(passes_failing));
}

/* As natively, a thread whose frees a capture forbids gets an error, and a relaxed one waits. */
static void passes_captured(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    open_fence();
    fake_work(0, ADDRESS, 0, 1);
    const uint64_t freed = fence_epoch(&fence);
    begin();
    CHECK(fence_pass(&fence, NULL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && fake_backlog(0) == 1);
    CHECK(!fence_done(&fence, freed));
    driver.cuThreadExchangeStreamCaptureMode(&mode);
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_backlog(0) == 0 && fence_done(&fence, freed));
    CHECK(fake_count(FAKE_RECORD) == 0);
    end();
    close_fence();
}

static void test_a_strict_free_beside_a_capture_waits_and_answers_as_a_native_one(void)
{
    TEST_ASSERT_TRUE(fake_child(passes_captured));
}

/* All events are in use: by epochs whose work does not end, and by threads that wait for them. */
static void passes_without_events(void)
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

static void test_a_strict_free_needs_no_event(void)
{
    TEST_ASSERT_TRUE(fake_child(passes_without_events));
}

/* The last answers came at once: the context is asked without an event. */
static void at_rest(void)
{
    fence.quick = FENCE_QUICK;
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
    CHECK(fence_done(&fence, freed) && fake_count(FAKE_RECORD) == 0 && !atomic_load(&fence.asking));
    at_rest();
    fake_work(0, ADDRESS, 0, 1);
    freed = fence_epoch(&fence);
    fake_fail(1U << FAKE_SYNCHRONIZE, 1, 0);
    CHECK(fence_pass(&fence, NULL) != CUDA_SUCCESS && !fence_done(&fence, freed) && fake_backlog(0) == 1);
    at_rest();
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fence_done(&fence, freed) && fake_backlog(0) == 0);
    at_rest();
    fake_work(0, ADDRESS, 0, 1);
    begin();
    CHECK(fence_pass(&fence, NULL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && fake_backlog(0) == 1);
    end();
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_backlog(0) == 0);
    close_fence();
}

static void test_a_strict_free_at_rest_asks_the_driver_too(void)
{
    TEST_ASSERT_TRUE(fake_child(passes_at_rest));
}

/* An answer that takes long ends that: a capture could not begin meanwhile. */
static void answer_late(void)
{
    const struct timespec late = {.tv_nsec = 30000000};

    nanosleep(&late, NULL);
}

static void passes_no_longer_at_rest(void)
{
    open_fence();
    at_rest();
    fake_on_synchronize = answer_late;
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fence.quick == 0);
    const uint64_t recorded = fake_count(FAKE_RECORD);
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS && fake_count(FAKE_RECORD) == recorded + 1);
    close_fence();
}

static void test_a_strict_free_that_waits_long_is_followed_by_ones_that_captures_may_begin_beside(void)
{
    TEST_ASSERT_TRUE(fake_child(passes_no_longer_at_rest));
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

static void passes_together(void)
{
    pthread_t threads[PASSERS];

    open_fence();
    CHECK(pthread_barrier_init(&together, NULL, PASSERS) == 0);
    for (uintptr_t i = 0; i < PASSERS; i++)
        CHECK(pthread_create(&threads[i], NULL, pass_often, (void *)i) == 0);
    for (int i = 0; i < PASSERS; i++)
        pthread_join(threads[i], NULL);
    CHECK(fence.waiting == 0 && fake_count(FAKE_RECORD) <= PASSERS * 500);
    close_fence();
}

static void test_threads_that_free_together_each_wait_for_their_own_work(void)
{
    TEST_ASSERT_TRUE(fake_child(passes_together));
}

/* One thread waits for its epoch; a free that began before the event was recorded shares it. */
static void *pass_once(void *unused)
{
    CHECK(fence_pass(&fence, NULL) == CUDA_SUCCESS);
    return unused;
}

static pthread_t later_thread;

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

static void test_a_free_does_not_share_a_question_that_was_asked_before_it_began(void)
{
    TEST_ASSERT_TRUE(fake_child(passes_later));
    TEST_ASSERT_TRUE(fake_child(passes_later_at_rest));
}

/* ---- a driver that fails ---- */

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
        const bool foreign = streams_work(streams_key((CUstream)(0x10000 + 0x100 * (uintptr_t)stream)));

        fake_work(stream, place, 0, stream);
        if (foreign)
            streams_worked();
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
    streams_distrust();
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

static void test_no_thread_waits_for_what_came_later_when_all_has_ended(void)
{
    TEST_ASSERT_TRUE(fake_child(ended_meanwhile));
}

static void join_refused(void)
{
    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    const uint64_t epoch = fence_epoch(&fence);
    begin();
    CHECK(!fence_join(&fence)); /* it would destroy the capture */
    end();
    fake_fail(1 << FAKE_WAIT, 1, 0);
    CHECK(!fence_join(&fence) && fence_usable(&fence) < epoch);
    fence_forbid_joins();
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
    CHECK(fence_epoch(&fence) && streams_in_order());
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
    begin();
    CHECK(fence_settle(&fence) == 0 && fake_backlog(0) == 0 && fake_backlog(1) == 0);
    end();
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
    TEST_ASSERT_TRUE(fake_child(record_that_fails));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_one_event_closes_an_epoch_for_all_frees_in_it);
    RUN_TEST(test_a_free_after_a_wait_is_not_done_by_that_wait);
    RUN_TEST(test_a_wait_covers_every_epoch_before_it);
    RUN_TEST(test_the_programs_own_wait_ends_what_was_freed_before_it);
    RUN_TEST(test_more_epochs_than_events_only_share_them);
    RUN_TEST(test_beside_a_capture_no_event_is_recorded_and_waits_work);
    RUN_TEST(test_waits_beside_a_capture_need_no_memory_of_the_card);
    RUN_TEST(test_a_capture_ends_with_the_stream_that_began_it);
    RUN_TEST(test_any_number_of_captures_may_be_open);
    RUN_TEST(test_a_capture_does_not_begin_while_an_event_is_recorded);
    RUN_TEST(test_a_wait_harms_no_capture_that_begins_meanwhile);
    RUN_TEST(test_a_strict_free_asks_the_driver_each_time_and_sees_unseen_work);
    RUN_TEST(test_a_strict_free_of_what_is_no_block_does_not_wait);
    RUN_TEST(test_a_strict_free_that_fails_leaves_its_epoch_open);
    RUN_TEST(test_a_strict_free_beside_a_capture_waits_and_answers_as_a_native_one);
    RUN_TEST(test_a_strict_free_needs_no_event);
    RUN_TEST(test_a_strict_free_at_rest_asks_the_driver_too);
    RUN_TEST(test_a_strict_free_that_waits_long_is_followed_by_ones_that_captures_may_begin_beside);
    RUN_TEST(test_threads_that_free_together_each_wait_for_their_own_work);
    RUN_TEST(test_a_free_does_not_share_a_question_that_was_asked_before_it_began);
    RUN_TEST(test_a_failing_driver_never_makes_an_epoch_done);
    RUN_TEST(test_threads_are_never_told_that_their_work_is_done_when_it_is_not);
    RUN_TEST(test_a_join_makes_frees_usable_and_waits_for_nothing);
    RUN_TEST(test_joins_need_no_free_event);
    RUN_TEST(test_no_thread_waits_for_what_came_later_when_all_has_ended);
    RUN_TEST(test_a_join_that_cannot_be_leaves_things_as_they_are);
    RUN_TEST(test_what_is_handed_out_comes_to_rest_also_beside_a_capture);
    RUN_TEST(test_what_is_handed_out_comes_to_rest_before_others_may_touch_it);
    RUN_TEST(test_no_epoch_is_lost_in_a_call_that_fails);
    return UNITY_END();
}
