/* decay: when idle memory goes back. The clock is the test's: the helper thread sleeps until the test lets a
 * quarter of a period pass, and the test goes on when the thread sleeps again. Nothing here takes real time.
 *
 * The thread belongs to the process, so the tests build on each other: the first ones run before it exists,
 * the last one ends it. It is not detached here, so that its end can be waited for.
 */
#include "interpose/pool/decay.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/base/process.h"
#include "interpose/driver/driver.h"
#include "interpose/pool/pools.h"

#define PERIOD_S   4
#define QUARTER_MS (PERIOD_S * 1000 / 4 + 1)
#define QUARTERS   4
#define HIGH       900 /* permille */
#define IDLE       UINT64_C(12345)

static struct options settings = {.decay = PERIOD_S, .early = {.is_percent = true, .permille = HIGH}};
static struct pool pool = {.context = (CUcontext)0x1000};
static pthread_t tester, helper;
static void (*at_exit)(void);
static unsigned registered;

/* ---- the clock ---- */

static pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* guarded by clock_lock */
static unsigned quarters_left; /* that may pass */
static unsigned sleeps;        /* of the helper, that have begun */
static bool sleeping;
static long asked_ms;

/* ---- what the helper did; read while it sleeps ---- */

static struct {
    unsigned visits, pushes, pops, sweeps, import_sweeps, trims, idle_questions;
    uint64_t trimmed;
    uint32_t permille;
} did;
static uint64_t idle;
static bool mostly_free;
static CUresult push_result;
static bool hold_look; /* a look lasts until the exit handler waits for it */
static bool look_held; /* guarded by clock_lock */

static void set_and_tell(bool *what, bool value)
{
    pthread_mutex_lock(&clock_lock);
    *what = value;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&clock_lock);
}

static void await(const bool *what, bool value)
{
    pthread_mutex_lock(&clock_lock);
    while (*what != value)
        pthread_cond_wait(&changed, &clock_lock);
    pthread_mutex_unlock(&clock_lock);
}

/* Stands for libc's. The test's own thread comes here only from the exit handler. */
int nanosleep(const struct timespec *span, struct timespec *rest)
{
    (void)rest;
    if (pthread_equal(pthread_self(), tester)) {
        set_and_tell(&look_held, false);
        pthread_join(helper, NULL); /* it ends after this look */
        return 0;
    }
    pthread_mutex_lock(&clock_lock);
    helper = pthread_self();
    asked_ms = span->tv_sec * 1000 + span->tv_nsec / 1000000;
    sleeps++;
    sleeping = true;
    pthread_cond_broadcast(&changed);
    while (!quarters_left)
        pthread_cond_wait(&changed, &clock_lock);
    quarters_left--;
    sleeping = false;
    pthread_mutex_unlock(&clock_lock);
    return 0;
}

static unsigned let_quarter_pass(void)
{
    pthread_mutex_lock(&clock_lock);
    const unsigned before = sleeps;
    quarters_left++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&clock_lock);
    return before;
}

/* One quarter passes, and the helper has looked. */
static void pass_quarter(void)
{
    const unsigned before = let_quarter_pass();

    pthread_mutex_lock(&clock_lock);
    while (sleeps == before)
        pthread_cond_wait(&changed, &clock_lock);
    pthread_mutex_unlock(&clock_lock);
}

/* ---- the rest of the library ---- */

/* So that the test can join the thread. */
int pthread_attr_setdetachstate(pthread_attr_t *attributes, int state)
{
    (void)attributes;
    (void)state;
    return 0;
}

int atexit(void (*handler)(void))
{
    at_exit = handler;
    registered++;
    return 0;
}

void pools_each(void (*visit)(struct pool *pool, void *argument), void *argument)
{
    did.visits++;
    visit(&pool, argument);
}

void pool_sweep(struct pool *swept)
{
    TEST_ASSERT_EQUAL_PTR(&pool, swept);
    did.sweeps++;
}

static void sweep_imports(struct fence *fence)
{
    TEST_ASSERT_EQUAL_PTR(&pool.fence, fence);
    did.import_sweeps++;
}

bool pool_mostly_free(struct pool *asked, uint32_t permille)
{
    (void)asked;
    did.permille = permille;
    return mostly_free;
}

uint64_t pool_idle_bytes(struct pool *asked)
{
    (void)asked;
    did.idle_questions++;
    return idle;
}

uint64_t pool_trim(struct pool *trimmed, uint64_t bytes)
{
    (void)trimmed;
    did.trims++;
    did.trimmed += bytes;
    return bytes;
}

bool process_is_copy(void)
{
    return false;
}

static CUresult CUDAAPI push(CUcontext context)
{
    TEST_ASSERT_EQUAL_PTR(pool.context, context);
    did.pushes += push_result == CUDA_SUCCESS;
    if (hold_look) {
        set_and_tell(&look_held, true);
        await(&look_held, false);
    }
    return push_result;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
    *context = pool.context;
    did.pops++;
    return CUDA_SUCCESS;
}

void setUp(void)
{
    driver_entries = (struct driver_table){.cuCtxPushCurrent_v2 = push, .cuCtxPopCurrent_v2 = pop};
    memset(&did, 0, sizeof(did));
    idle = IDLE;
    mostly_free = false;
    push_result = CUDA_SUCCESS;
    hold_look = false;
}

void tearDown(void) {}

/* ---- tests ---- */

static void test_without_settings_or_a_period_there_is_no_thread(void)
{
    static const struct options at_once = {.decay = 0}, off = {.decay = -1};

    decay_wake();
    decay_setup(&at_once, sweep_imports);
    decay_wake();
    decay_setup(&off, sweep_imports);
    decay_wake();
    TEST_ASSERT_EQUAL_UINT(0, registered);
}

static void test_the_first_free_starts_one_thread(void)
{
    decay_setup(&settings, sweep_imports);
    decay_wake();
    decay_wake();
    await(&sleeping, true);
    TEST_ASSERT_EQUAL_UINT(1, registered);
    TEST_ASSERT_EQUAL_UINT(1, sleeps);
    TEST_ASSERT_EQUAL_INT(QUARTER_MS, asked_ms);
}

static void test_what_was_idle_for_a_period_goes_back_at_its_end(void)
{
    for (unsigned i = 1; i < QUARTERS; i++)
        pass_quarter();
    TEST_ASSERT_EQUAL_UINT(0, did.trims);
    TEST_ASSERT_EQUAL_UINT_MESSAGE(0, did.idle_questions, "each question begins a new period");
    pass_quarter();
    TEST_ASSERT_EQUAL_UINT(1, did.trims);
    TEST_ASSERT_EQUAL_UINT64(IDLE, did.trimmed);
}

static void test_where_nothing_was_idle_nothing_goes_back(void)
{
    idle = 0;
    for (unsigned i = 0; i < QUARTERS; i++)
        pass_quarter();
    TEST_ASSERT_EQUAL_UINT(1, did.idle_questions);
    TEST_ASSERT_EQUAL_UINT(0, did.trims);
}

static void test_above_the_high_mark_a_quarter_is_enough(void)
{
    mostly_free = true;
    for (unsigned i = 1; i <= QUARTERS; i++) {
        pass_quarter();
        TEST_ASSERT_EQUAL_UINT(i, did.trims);
    }
    TEST_ASSERT_EQUAL_UINT32(HIGH, did.permille);
}

static void test_every_look_unmaps_old_places_in_the_pools_own_context(void)
{
    for (unsigned i = 0; i < QUARTERS; i++)
        pass_quarter();
    TEST_ASSERT_EQUAL_UINT(QUARTERS, did.sweeps);
    TEST_ASSERT_EQUAL_UINT(QUARTERS, did.import_sweeps);
    TEST_ASSERT_EQUAL_UINT(QUARTERS, did.pushes);
    TEST_ASSERT_EQUAL_UINT(QUARTERS, did.pops);
}

static void test_a_context_that_cannot_be_made_current_is_left_alone(void)
{
    push_result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    mostly_free = true;
    pass_quarter();
    TEST_ASSERT_EQUAL_UINT(1, did.visits);
    TEST_ASSERT_EQUAL_UINT(0, did.sweeps + did.import_sweeps + did.trims + did.pops);
}

/* The driver's own exit handlers come after ours. In a child, as the thread can be ended only once; before
 * there is a thread here. */
static void test_an_exit_waits_for_a_look_that_is_under_way(void)
{
    int status = -1;
    const pid_t child = fork();

    if (child == 0) {
        hold_look = true;
        decay_setup(&settings, sweep_imports);
        decay_wake();
        let_quarter_pass();
        await(&look_held, true);
        at_exit();
        _exit(did.pops == 1 ? 0 : 1);
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
}

static void test_a_thread_that_sleeps_over_an_exit_does_not_look(void)
{
    at_exit();
    let_quarter_pass();
    pthread_join(helper, NULL);
    TEST_ASSERT_EQUAL_UINT(0, did.visits);
}

int main(void)
{
    tester = pthread_self();
    UNITY_BEGIN();
    RUN_TEST(test_without_settings_or_a_period_there_is_no_thread);
    RUN_TEST(test_an_exit_waits_for_a_look_that_is_under_way);
    RUN_TEST(test_the_first_free_starts_one_thread);
    RUN_TEST(test_what_was_idle_for_a_period_goes_back_at_its_end);
    RUN_TEST(test_where_nothing_was_idle_nothing_goes_back);
    RUN_TEST(test_above_the_high_mark_a_quarter_is_enough);
    RUN_TEST(test_every_look_unmaps_old_places_in_the_pools_own_context);
    RUN_TEST(test_a_context_that_cannot_be_made_current_is_left_alone);
    RUN_TEST(test_a_thread_that_sleeps_over_an_exit_does_not_look);
    return UNITY_END();
}
