/* fence: who has worked where, and what may be reused when. Each case is a process of its own, because the
 * fence remembers for as long as a process lives. */
#include "fence.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unity.h>

#include "engine_fake.h"

#define STREAM_A ((CUstream)0x10000)
#define STREAM_B ((CUstream)0x10100)
#define LEGACY   ((CUstream)0x1)
#define OWN      ((CUstream)0x2)
#define ADDRESS  (UINT64_C(1) << 45)

void setUp(void) {}

void tearDown(void) {}

static struct fence fence;

static void open_fence(void)
{
    fake_start(GIB);
    CHECK(fence_open(&fence, FAKE_CONTEXT) == 0);
}

static void close_fence(void)
{
    fence_close(&fence, true);
    fake_end();
}

/* Work that touches no memory of the fake: only its being pending counts. */
static void work(unsigned stream, CUstream handle)
{
    const bool guest = fence_work(fence_stream(handle));

    fake_work(stream, ADDRESS, 0, 1);
    if (guest)
        fence_worked();
}

/* A free behind work, elsewhere: from now on blocks may be in other hands before their work is done. */
static void free_early(void)
{
    struct fence elsewhere;

    CHECK(fence_open(&elsewhere, FAKE_CONTEXT) == 0);
    CHECK(fence_epoch(&elsewhere));
    fence_close(&elsewhere, true);
}

static void on_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, run, argument) == 0 && pthread_join(thread, NULL) == 0);
}

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
    fence_capture(1);
    fence_capture(-1);
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
    fence_capture(1);
    fake_set_capturing(true);
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1 && !fake_pending(ADDRESS - 1, 2));
    CHECK(!fence_one_stream() && fence_capturing() && !fence_idle());
    fence_capture(1);
    const bool guest = fence_work(fence_stream(STREAM_B));
    if (guest)
        fence_worked();
    CHECK(fake_count(FAKE_SYNCHRONIZE) == 1);
    fence_capture(-1);
    fake_set_capturing(false);
    fence_capture(-1);
    CHECK(!fence_capturing());
    close_fence();
}

static void test_a_capture_begins_with_all_streams_at_rest(void)
{
    TEST_ASSERT_TRUE(fake_child(captured_second));
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
    fence_capture(1);
    fake_set_capturing(true);
    const uint64_t epoch = fence_epoch(&fence);
    fence_poll(&fence);
    CHECK(fence_wait(&fence, epoch) == -EBUSY && fence_wait(&fence, before) == -EBUSY);
    fake_set_capturing(false);
    fence_capture(-1);
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
    fence_capture(1);
    fake_set_capturing(true);
    CHECK(!fence_wait_context(FAKE_CONTEXT, &result) && result == CUDA_SUCCESS && !fence_idle());
    CHECK(fence_captures_elsewhere() == 0); /* its own */
    fake_set_capturing(false);
    fence_capture(-1);
    CHECK(fence_captures_elsewhere() == 1);
    CHECK(fence_wait_context(FAKE_CONTEXT, &result) && result == CUDA_SUCCESS);
    CHECK(fake_count(FAKE_RECORD) == 1 && fence_idle() && fake_backlog(0) == 0);
    close_fence();
}

static void test_a_native_wait_meets_no_capture(void)
{
    TEST_ASSERT_TRUE(fake_child(waited_as_native));
}

static void begin_capture(void)
{
    fence_capture(1);
    fake_set_capturing(true);
}

/* A capture begins while the event is waited for; the thread has its own mode again afterwards. */
static void waited_beside_a_capture(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CUresult result = CUDA_SUCCESS;

    open_fence();
    fence_capture(1);
    fence_capture(-1);
    driver.cuThreadExchangeStreamCaptureMode(&mode);
    work(0, STREAM_A);
    fake_on_synchronize = begin_capture;
    CHECK(fence_wait_context(FAKE_CONTEXT, &result) && result == CUDA_SUCCESS && fake_backlog(0) == 0);
    fake_on_synchronize = NULL;
    CHECK(driver.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    fake_set_capturing(false);
    fence_capture(-1);
    close_fence();
}

static void test_a_native_wait_harms_no_capture_that_begins_meanwhile(void)
{
    TEST_ASSERT_TRUE(fake_child(waited_beside_a_capture));
}

/* A driver that knows no event of a context, or has no memory for one. */
static void waited_without_events(void)
{
    CUresult result = CUDA_SUCCESS;

    open_fence();
    fence_capture(1);
    fence_capture(-1);
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
    fence_capture(1);
    fake_set_capturing(true);
    CHECK(!fence_join(&fence)); /* it would destroy the capture */
    fake_set_capturing(false);
    fence_capture(-1);
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
    fence_capture(1);
    CHECK(fence_settle(&fence) == -EBUSY);
    fence_capture(-1);
    CHECK(fence_settle(&fence) == 0 && fake_backlog(0) + fake_backlog(1) == 0);
    work(1, STREAM_B);
    const uint64_t waits = fake_count(FAKE_SYNCHRONIZE);
    CHECK(fence_settle(&fence) == 0 && fake_count(FAKE_SYNCHRONIZE) == waits); /* not freed behind it */
    close_fence();
}

static void test_what_is_handed_out_comes_to_rest_before_others_may_touch_it(void)
{
    TEST_ASSERT_TRUE(fake_child(settled));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_thread_that_waited_is_idle_until_it_works_again);
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
    RUN_TEST(test_one_stream_is_trusted_again_when_the_guests_work_is_done);
    RUN_TEST(test_a_guest_in_the_middle_of_a_submission_is_not_gone);
    RUN_TEST(test_guests_that_come_all_the_time_are_no_longer_waited_for);
    RUN_TEST(test_a_third_stream_does_not_overtake_the_wait_of_the_second);
    RUN_TEST(test_one_event_closes_an_epoch_for_all_frees_in_it);
    RUN_TEST(test_a_free_after_a_wait_is_not_done_by_that_wait);
    RUN_TEST(test_a_wait_covers_every_epoch_before_it);
    RUN_TEST(test_more_epochs_than_events_only_share_them);
    RUN_TEST(test_no_event_no_query_and_no_wait_while_a_capture_is_open);
    RUN_TEST(test_a_native_wait_meets_no_capture);
    RUN_TEST(test_a_native_wait_harms_no_capture_that_begins_meanwhile);
    RUN_TEST(test_a_native_wait_needs_no_event);
    RUN_TEST(test_a_failing_driver_never_makes_an_epoch_done);
    RUN_TEST(test_an_event_behind_all_work_makes_a_thread_idle);
    RUN_TEST(test_an_event_that_could_not_be_recorded_makes_nobody_idle);
    RUN_TEST(test_threads_are_never_told_that_their_work_is_done_when_it_is_not);
    RUN_TEST(test_a_join_makes_frees_usable_and_waits_for_nothing);
    RUN_TEST(test_joins_need_no_free_event);
    RUN_TEST(test_nobody_waits_for_what_came_later_when_all_has_ended);
    RUN_TEST(test_a_join_that_cannot_be_leaves_things_as_they_are);
    RUN_TEST(test_what_is_handed_out_comes_to_rest_before_others_may_touch_it);
    return UNITY_END();
}
