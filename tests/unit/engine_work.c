/* fence, who has worked where: when is one stream trusted, when is the device idle. Each case is a process of
 * its own, because the fence remembers for as long as a process lives. */
#include <sys/mman.h>
#include <unity.h>

#include "capture.h"
#include "engine_fence.h"

void setUp(void) {}

void tearDown(void) {}

/* ---- who works where ---- */

static void idle_single(void)
{
    open_fence();
    CHECK(fence_idle() && fence_one_stream() && fence_epoch(&fence) == 0);
    work(0, STREAM_A);
    CHECK(!fence_idle() && fence_one_stream() && fence_epoch(&fence) != 0);
    fence_waited();
    driver.cuCtxSynchronize();
    CHECK(fence_idle() && fence_epoch(&fence) == 0);
    work(0, STREAM_A);
    CHECK(!fence_idle());
    close_fence();
}

static void test_a_thread_that_waited_is_idle_until_it_works_again(void)
{
    TEST_ASSERT_TRUE(fake_child(idle_single));
}

static void *work_on_a(void *unused)
{
    (void)unused;
    work(0, STREAM_A);
    return NULL;
}

static void *see_idle(void *idle)
{
    *(bool *)idle = fence_idle();
    return NULL;
}

/* Threads come and go, and later ones live at the addresses of earlier ones. */
static void idle_threads(void)
{
    bool idle = true;

    open_fence();
    on_thread(work_on_a, NULL);
    CHECK(!fence_idle());
    on_thread(see_idle, &idle);
    CHECK(!idle && fence_one_stream());
    fence_waited();
    CHECK(!fence_idle()); /* it was not this thread's work */
    work(0, STREAM_A);
    fence_waited();
    CHECK(!fence_idle()); /* the other one may have worked since */
    close_fence();
}

static void test_a_thread_is_not_idle_because_an_earlier_one_at_its_address_was(void)
{
    TEST_ASSERT_TRUE(fake_child(idle_threads));
}

/* Threads that end at work leave it behind; whoever waits for all work after that waits for theirs too. */
static void ended_threads(void)
{
    CUresult result;

    open_fence();
    for (int i = 0; i < 3; i++)
        on_thread(work_on_a, NULL);
    CHECK(!fence_idle());
    CHECK(fence_wait_context(FAKE_CONTEXT, &result) && result == CUDA_SUCCESS);
    CHECK(fence_idle() && fence_epoch(&fence) == 0);
    on_thread(work_on_a, NULL);
    CHECK(!fence_idle() && fence_epoch(&fence) != 0);
    CHECK(fence_wait(&fence, FENCE_NOW) == 0 && fence_idle());
    close_fence();
}

static void test_the_work_of_a_thread_that_has_ended_ends_too(void)
{
    TEST_ASSERT_TRUE(fake_child(ended_threads));
}

static bool others_see_idle(void)
{
    bool idle;

    on_thread(see_idle, &idle);
    return idle;
}

static void rest_is_seen(void)
{
    open_fence();
    CHECK(others_see_idle());
    work(0, STREAM_A);
    CHECK(!others_see_idle());
    fence_waited();
    driver.cuCtxSynchronize();
    CHECK(others_see_idle() && fence_epoch(&fence) == 0);
    work(0, STREAM_A);
    CHECK(!others_see_idle() && fence_epoch(&fence) != 0);
    fence_poll(&fence); /* an event behind everything */
    CHECK(!fence_idle() && !others_see_idle());
    driver.cuCtxSynchronize();
    fence_poll(&fence);
    CHECK(fence_idle() && others_see_idle());
    fence_trust_nothing();
    CHECK(!fence_idle() && !others_see_idle());
    close_fence();
}

static void test_other_threads_see_that_the_only_one_at_work_has_waited(void)
{
    TEST_ASSERT_TRUE(fake_child(rest_is_seen));
}

/* Its context has ended, and there is another one. */
static void ended_fence(void)
{
    struct fence *ended =
        mmap(NULL, sizeof *ended, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    open_fence();
    CHECK(ended != MAP_FAILED && fence_open(ended, FAKE_CONTEXT) == 0);
    work(0, STREAM_A);
    CHECK(fence_epoch(ended) != 0);
    fence_poll(ended);
    fence_trust_nothing();
    fence_close(ended, true);
    munmap(ended, sizeof *ended);
    CHECK(!fence_idle());
    close_fence();
}

static void test_nobody_looks_at_a_fence_that_has_ended(void)
{
    TEST_ASSERT_TRUE(fake_child(ended_fence));
}

static pthread_barrier_t turn;

/* Works, waits and works again, each in its turn. */
static void *work_in_turns(void *unused)
{
    work(1, STREAM_A);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    CHECK(!fence_idle()); /* nobody has waited for its own work */
    fence_waited();
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    work(1, STREAM_A);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    return unused;
}

static void rest_of_several(void)
{
    pthread_t thread;

    open_fence();
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0);
    work(0, STREAM_A);
    CHECK(pthread_create(&thread, NULL, work_in_turns, NULL) == 0);
    pthread_barrier_wait(&turn);
    fence_waited();
    CHECK(!fence_idle() && !others_see_idle());
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn); /* it has waited */
    CHECK(fence_idle() && others_see_idle());
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn); /* it works again */
    CHECK(!fence_idle() && !others_see_idle());
    fence_waited();
    CHECK(!fence_idle());
    pthread_barrier_wait(&turn);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(!fence_idle() && !others_see_idle()); /* what it left behind may still be at work */
    close_fence();
}

static void test_several_threads_at_work_must_each_have_waited(void)
{
    TEST_ASSERT_TRUE(fake_child(rest_of_several));
}

static void second_stream(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    work(0, STREAM_A);
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 0);
    CHECK(fence_work(fence_stream(STREAM_B)));
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1 && !fence_one_stream());
    fence_worked();
    work(0, STREAM_A);
    work(1, STREAM_B);
    work(0, STREAM_A);
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1);
    close_fence();
}

static void test_the_second_stream_waits_once_for_the_first(void)
{
    TEST_ASSERT_TRUE(fake_child(second_stream));
}

/* The home stream waits for what another one is about to do, as a kernel that spins. */
static void nothing_freed_early(void)
{
    open_fence();
    work(0, STREAM_A);
    work(1, STREAM_B);
    fence_stream_ends(STREAM_A);
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    fence_capture_ended(FAKE_CAPTURE);
    CHECK(!fence_one_stream() && fake_count(FAKE_SYNCHRONIZE) == 0 && fake_backlog(0) == 1);
    close_fence();
}

static void test_where_every_free_has_waited_no_stream_waits_for_another(void)
{
    TEST_ASSERT_TRUE(fake_child(nothing_freed_early));
}

static void default_streams(void)
{
    open_fence();
    work(0, NULL);
    work(0, LEGACY);
    CHECK(fence_one_stream());
    CHECK(fence_stream_ptsz(NULL) == fence_stream(OWN) && fence_stream_ptsz(LEGACY) == fence_stream(NULL));
    CHECK(fence_stream_ptsz(NULL) != fence_stream(NULL));
    work(1, OWN);
    CHECK(!fence_one_stream());
    close_fence();
}

static void test_the_legacy_stream_is_one_whatever_its_name_and_the_own_one_another(void)
{
    TEST_ASSERT_TRUE(fake_child(default_streams));
}

static void *work_on_own(void *unused)
{
    (void)unused;
    work(0, OWN);
    return NULL;
}

static void own_streams(void)
{
    open_fence();
    on_thread(work_on_own, NULL);
    CHECK(fence_one_stream());
    on_thread(work_on_own, NULL);
    CHECK(!fence_one_stream());
    close_fence();
}

static void test_two_threads_own_streams_are_two_even_at_one_address(void)
{
    TEST_ASSERT_TRUE(fake_child(own_streams));
}

static void stream_ends(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    fence_stream_ends(STREAM_B);
    CHECK(fence_one_stream());
    fence_stream_ends(STREAM_A);
    CHECK(!fence_one_stream() && fake_count(FAKE_SYNCHRONIZE) == 1);
    close_fence();
}

static void test_the_only_stream_ending_ends_the_trust_in_its_handle(void)
{
    TEST_ASSERT_TRUE(fake_child(stream_ends));
}

static void unknown_entry(void)
{
    open_fence();
    fence_trust_nothing();
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 0 && !fence_one_stream()); /* nothing to wait for yet */
    work(0, STREAM_A);
    work(1, STREAM_B);
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 0 && !fence_idle());
    fence_waited();
    CHECK(!fence_idle());
    close_fence();
}

static void unknown_entry_late(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    fence_trust_nothing();
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1 && !fence_one_stream() && !fence_idle());
    fence_trust_nothing();
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1);
    close_fence();
}

static void test_an_unknown_entry_point_ends_the_shortcut_for_good(void)
{
    TEST_ASSERT_TRUE(fake_child(unknown_entry));
    TEST_ASSERT_TRUE(fake_child(unknown_entry_late));
}

/* A capture forbids every wait, so it begins with one: other streams find the home stream's blocks at rest.
 */
static void captured_second(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    CHECK(fence_one_stream());
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    fake_set_capturing(true);
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1 && !fake_pending(ADDRESS - 1, 2));
    CHECK(!fence_one_stream() && capture_any() && !fence_idle());
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    const bool guest = fence_work(fence_stream(STREAM_B));
    if (guest)
        fence_worked();
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1);
    fence_capture_ended(FAKE_CAPTURE);
    fake_set_capturing(false);
    fence_capture_ended(FAKE_CAPTURE);
    CHECK(!capture_any());
    close_fence();
}

static void test_a_capture_begins_with_all_streams_at_rest(void)
{
    TEST_ASSERT_TRUE(fake_child(captured_second));
}

/* ---- waits that fail ---- */

static void second_after_failures(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    fake_fail(1U << FAKE_SYNCHRONIZE, 1, 3);
    work(1, STREAM_B);
    CHECK(fake_failed() == 4 && fake_backlog(0) == 0);
    close_fence();
}

static void capture_after_failures(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    fake_fail(1U << FAKE_SYNCHRONIZE, 1, 3);
    fence_capture_begins(FAKE_CAPTURE, FAKE_CONTEXT);
    CHECK(fake_failed() == 4 && fake_backlog(0) == 0);
    fence_capture_ended(FAKE_CAPTURE);
    close_fence();
}

static void test_a_wait_that_nothing_can_do_without_is_tried_again(void)
{
    TEST_ASSERT_TRUE(fake_child(second_after_failures));
    TEST_ASSERT_TRUE(fake_child(capture_after_failures));
}

/* Each time the other stream works, so that it is seen when the context works again. */
static void failed_for_long(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    fake_fail(1U << FAKE_SYNCHRONIZE, 1, UINT64_MAX);
    work(1, STREAM_B);
    work(1, STREAM_B);
    CHECK(fake_failed() > 1 && fake_backlog(0) == 1 && !fence_one_stream());
    fake_fail(0, 0, 0);
    work(1, STREAM_B);
    CHECK(fake_backlog(0) == 0);
    close_fence();
}

static void test_a_wait_that_always_fails_holds_nobody_up(void)
{
    TEST_ASSERT_TRUE(fake_child(failed_for_long));
}

/* ---- guests ---- */

/* A stream that works once is waited for, and then the home stream is the only one again. */
static void guest_leaves(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    CHECK(fence_work(fence_stream(STREAM_B)) && !fence_one_stream() && fake_count(FAKE_SYNCHRONIZE) == 1);
    fake_work(1, ADDRESS, 0, 2);
    fence_worked();
    CHECK(!fence_one_stream());
    const uint64_t epoch = fence_epoch(&fence);
    fence_poll(&fence);
    CHECK(!fence_done(&fence, epoch) && !fence_one_stream());
    fake_progress(1);
    fence_poll(&fence);
    CHECK(fence_done(&fence, epoch) && fence_one_stream());
    work(0, STREAM_A);
    CHECK(fence_work(fence_stream(STREAM_B)) && !fake_pending(ADDRESS - 1, 2)); /* and is waited for again */
    fence_worked();
    close_fence();
}

static void test_one_stream_is_trusted_again_when_the_guests_work_is_done(void)
{
    TEST_ASSERT_TRUE(fake_child(guest_leaves));
}

/* A guest that comes while the event is under way is not covered by it. */
static void guest_comes_back(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    CHECK(fence_work(fence_stream(STREAM_B)));
    fence_worked();
    fence_epoch(&fence);
    fence_poll(&fence);
    CHECK(fence_one_stream()); /* nothing was pending */
    CHECK(fence_work(fence_stream(STREAM_B)));
    fake_work(1, ADDRESS, 0, 2);
    fence_epoch(&fence);
    fence_poll(&fence); /* in the middle of its submission */
    fence_worked();
    fake_progress(1);
    fence_poll(&fence);
    CHECK(!fence_one_stream());
    fence_epoch(&fence);
    fence_poll(&fence);
    CHECK(fence_one_stream());
    close_fence();
}

static void test_a_guest_in_the_middle_of_a_submission_is_not_gone(void)
{
    TEST_ASSERT_TRUE(fake_child(guest_comes_back));
}

static void guests_stay(void)
{
    open_fence();
    work(0, STREAM_A);
    for (int i = 0; i < 1000; i++) {
        if (fence_work(fence_stream(STREAM_B)))
            fence_worked();
        CHECK(fence_wait(&fence, FENCE_NOW) == 0);
        fence_work(fence_stream(STREAM_A));
    }
    CHECK(!fence_one_stream());
    fake_start(GIB);
    for (int i = 0; i < 100; i++) {
        CHECK(!fence_work(fence_stream(STREAM_B)));
        CHECK(!fence_work(fence_stream(STREAM_A)));
    }
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 0);
    close_fence();
}

static void test_guests_that_come_all_the_time_are_no_longer_waited_for(void)
{
    TEST_ASSERT_TRUE(fake_child(guests_stay));
}

static void *work_on_b(void *unused)
{
    (void)unused;
    const bool guest = fence_work(fence_stream(STREAM_B));
    CHECK(!fake_pending(ADDRESS - 1, 2));
    if (guest)
        fence_worked();
    return NULL;
}

/* The first who comes waits long: nobody else may pass before the first stream is at rest. */
static void meanwhile(void)
{
    static int depth;

    if (depth++ == 0)
        on_thread(work_on_b, NULL);
}

static void two_come_second(void)
{
    open_fence();
    work(0, STREAM_A);
    free_early();
    fake_on_synchronize = meanwhile;
    const bool guest = fence_work(fence_stream((CUstream)0x10200));
    CHECK(!fake_pending(ADDRESS - 1, 2));
    if (guest)
        fence_worked();
    close_fence();
}

static void test_a_third_stream_does_not_overtake_the_wait_of_the_second(void)
{
    TEST_ASSERT_TRUE(fake_child(two_come_second));
}

/* ---- idle ---- */

/* A thread that has submitted nothing behind its last event is idle when that is done, without a wait. */
static void event_ends_work(void)
{
    const uintptr_t stream = fence_stream((CUstream)0x10000);

    open_fence();
    CHECK(!fence_work(stream) && !fence_idle());
    fake_work(0, ADDRESS, 0, 1);
    CHECK(fence_epoch(&fence) != 0);
    fence_poll(&fence); /* the event is behind the work, which is not done */
    CHECK(!fence_idle() && fence_epoch(&fence) != 0);
    while (fake_progress(0))
        ;
    CHECK(!fence_idle()); /* nobody has looked */
    fence_poll(&fence);
    fence_poll(&fence);
    CHECK(fence_idle() && fence_epoch(&fence) == 0);
    /* More work, more waiting. */
    CHECK(!fence_work(stream) && !fence_idle());
    fake_work(0, ADDRESS, 0, 1);
    CHECK(fence_epoch(&fence) != 0);
    fence_poll(&fence);
    CHECK(!fence_work(stream));
    fake_work(0, ADDRESS, 0, 1); /* behind the event */
    CHECK(fake_progress(0));
    fence_poll(&fence); /* the event is done, the work behind it is not */
    CHECK(!fence_idle() && fake_backlog(0) == 1);
    while (fake_progress(0))
        ;
    close_fence();
}

static void test_an_event_behind_all_work_makes_a_thread_idle(void)
{
    TEST_ASSERT_TRUE(fake_child(event_ends_work));
}

static void event_fails(void)
{
    open_fence();
    work(0, STREAM_A);
    CHECK(fence_epoch(&fence) != 0);
    fake_fail(1U << FAKE_RECORD, 1, 0);
    fence_poll(&fence);
    CHECK(fake_failed() == 1 && !fence_idle() && !others_see_idle());
    /* An earlier event, which is done, says nothing about what came behind it. */
    fence_poll(&fence);
    while (fake_progress(0))
        ;
    fence_poll(&fence);
    work(0, STREAM_A);
    CHECK(fence_epoch(&fence) != 0);
    fake_fail(1U << FAKE_RECORD, 1, 0);
    fence_poll(&fence);
    CHECK(fake_failed() == 1 && !fence_idle() && !others_see_idle());
    close_fence();
}

static void test_an_event_that_could_not_be_recorded_makes_nobody_idle(void)
{
    TEST_ASSERT_TRUE(fake_child(event_fails));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_thread_that_waited_is_idle_until_it_works_again);
    RUN_TEST(test_the_work_of_a_thread_that_has_ended_ends_too);
    RUN_TEST(test_a_thread_is_not_idle_because_an_earlier_one_at_its_address_was);
    RUN_TEST(test_other_threads_see_that_the_only_one_at_work_has_waited);
    RUN_TEST(test_nobody_looks_at_a_fence_that_has_ended);
    RUN_TEST(test_several_threads_at_work_must_each_have_waited);
    RUN_TEST(test_the_second_stream_waits_once_for_the_first);
    RUN_TEST(test_where_every_free_has_waited_no_stream_waits_for_another);
    RUN_TEST(test_the_legacy_stream_is_one_whatever_its_name_and_the_own_one_another);
    RUN_TEST(test_two_threads_own_streams_are_two_even_at_one_address);
    RUN_TEST(test_the_only_stream_ending_ends_the_trust_in_its_handle);
    RUN_TEST(test_an_unknown_entry_point_ends_the_shortcut_for_good);
    RUN_TEST(test_a_capture_begins_with_all_streams_at_rest);
    RUN_TEST(test_a_wait_that_nothing_can_do_without_is_tried_again);
    RUN_TEST(test_a_wait_that_always_fails_holds_nobody_up);
    RUN_TEST(test_one_stream_is_trusted_again_when_the_guests_work_is_done);
    RUN_TEST(test_a_guest_in_the_middle_of_a_submission_is_not_gone);
    RUN_TEST(test_guests_that_come_all_the_time_are_no_longer_waited_for);
    RUN_TEST(test_a_third_stream_does_not_overtake_the_wait_of_the_second);
    RUN_TEST(test_an_event_behind_all_work_makes_a_thread_idle);
    RUN_TEST(test_an_event_that_could_not_be_recorded_makes_nobody_idle);
    return UNITY_END();
}
