/* library: the mode of the library in a process, from its options to fork and exit. Each test runs in a child
 * of its own, because the mode is decided once; the rest of the library is the test's own. */
#include "interpose/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apart.h"
#include "interpose/account/device.h"
#include "interpose/account/measure.h"
#include "interpose/base/process.h"
#include "interpose/driver/driver.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/decay.h"
#include "interpose/pool/pools.h"
#include "interpose/pool/streams.h"
#include "interpose/see/recorder.h"
#include "interpose/settings/log.h"
#include "interpose/share/ipc.h"
#include "log_fake.h"

static struct fake {
    struct options options;
    bool bad_options, no_atexit, no_atfork, is_copy, no_mark;
    char order[32]; /* one letter for each call */
    int log_level;
} fake;
static atomic_int mark;
static void (*at_exit)(void), (*in_child)(void);

static void happen(char letter)
{
    fake.order[strlen(fake.order)] = letter;
}

/* ---- the test's own library ---- */

int __wrap_atexit(void (*function)(void));
int __wrap_atexit(void (*function)(void))
{
    at_exit = function;
    return fake.no_atexit;
}

int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    (void)prepare, (void)parent;
    in_child = child;
    return fake.no_atfork;
}

int options_load_here(struct options *options, char error[OPTIONS_ERROR_MAX])
{
    *options = fake.options;
    strcpy(error, "max is wrong");
    return fake.bad_options ? -22 : 0;
}

bool options_any_limit(const struct options *options)
{
    return options->max.count > 0;
}

void log_set(enum options_log level)
{
    fake.log_level = (int)level;
}

void device_setup(const struct options *options)
{
    (void)options;
    happen('D');
}

void pools_setup(const struct options *options)
{
    (void)options;
    happen('P');
}

void decay_setup(const struct options *options, void (*sweep)(struct fence *fence))
{
    (void)options, (void)sweep;
    happen('Y');
}

void ipc_imports_sweep(struct fence *fence)
{
    (void)fence;
}

void pools_report(void)
{
    happen('r');
}

void recorder_stop(void)
{
    happen(library_mode() == LIBRARY_PASS ? 's' : '!');
}

void measure_end(void)
{
    happen('m');
}

bool process_is_copy(void)
{
    return fake.is_copy;
}

atomic_int *process_mark(void)
{
    return fake.no_mark ? NULL : &mark;
}

void driver_after_fork(void)
{
    happen('a');
}

void device_after_fork(void)
{
    happen('b');
}

void capture_after_fork(void)
{
    happen('c');
}

void streams_after_fork(void)
{
    happen('d');
}

void pools_after_fork(void)
{
    happen('e');
}

void recorder_after_fork(void)
{
    happen('f');
}

/* ---- helpers ---- */

void setUp(void)
{
    fake = (struct fake){.options = {.pool = true, .decay = 5, .deferred = true, .log = OPTIONS_LOG_INFO}};
}

void tearDown(void) {}

static void expect_mode(enum library_mode mode)
{
    TEST_ASSERT_EQUAL_INT(mode, library_mode());
}

/* ---- promises ---- */

static void options_decide(void)
{
    expect_mode(LIBRARY_ON);
    TEST_ASSERT_EQUAL_STRING("DPY", fake.order);
    TEST_ASSERT_EQUAL_INT(OPTIONS_LOG_INFO, fake.log_level);
    TEST_ASSERT_FALSE(library_limited);
    TEST_ASSERT_TRUE(library_options()->deferred);
    TEST_ASSERT_TRUE(library_options()->decay == 5);
    expect_mode(LIBRARY_ON);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("DPY", fake.order, "once");
}

static void nothing_asked_for(void)
{
    fake.options.pool = false;
    expect_mode(LIBRARY_PASS);
    TEST_ASSERT_EQUAL_STRING("", fake.order);
    TEST_ASSERT_FALSE_MESSAGE(library_cuda_started(), "nothing to set up");
}

static void limit_alone(void)
{
    fake.options.pool = false;
    fake.options.max.count = 1;
    expect_mode(LIBRARY_ON);
    TEST_ASSERT_TRUE(library_limited);
}

static void recording_alone(void)
{
    fake.options.pool = false;
    strcpy(fake.options.record, "f");
    expect_mode(LIBRARY_ON);
}

static void bad_options(void)
{
    fake.bad_options = true;
    expect_mode(LIBRARY_REFUSE);
    TEST_ASSERT_NOT_NULL(strstr(log_fake_errors, "max is wrong; CUDA is refused"));
    TEST_ASSERT_EQUAL_STRING("", fake.order);
    TEST_ASSERT_FALSE(library_cuda_started());
}

static void no_exit_handler(void)
{
    fake.no_atexit = true;
    expect_mode(LIBRARY_REFUSE);
    TEST_ASSERT_NOT_NULL(strstr(log_fake_errors, "CUDA is refused"));
}

static void test_the_options_decide_whether_anything_is_done(void)
{
    apart(options_decide);
    apart(nothing_asked_for);
    apart(limit_alone);
    apart(recording_alone);
}

static void test_cuda_is_refused_if_the_limits_cannot_be_kept(void)
{
    apart(bad_options);
    apart(no_exit_handler);
}

static void guard_on(void)
{
    fake.options.guard = true;
    TEST_ASSERT_TRUE_MESSAGE(library_options()->decay == 0, "freed memory is unmapped at once");
    TEST_ASSERT_TRUE(library_options()->deferred);
    TEST_ASSERT_EQUAL_STRING("", log_fake_errors);
}

static void fill_on(void)
{
    fake.options.fill = true;
    TEST_ASSERT_FALSE_MESSAGE(library_options()->deferred, "freed memory is filled before the free returns");
    TEST_ASSERT_TRUE(library_options()->decay == 5);
}

static void guard_without_pool(void)
{
    fake.options = (struct options){.guard = true};
    expect_mode(LIBRARY_PASS);
    TEST_ASSERT_EQUAL_STRING("guard and fill have no effect with pool=off\n", log_fake_errors);
}

static void test_guard_and_fill_change_other_options(void)
{
    apart(guard_on);
    apart(fill_on);
    apart(guard_without_pool);
}

static void exits(void)
{
    expect_mode(LIBRARY_ON);
    TEST_ASSERT_TRUE(library_cuda_started());
    TEST_ASSERT_FALSE_MESSAGE(library_cuda_started(), "true once");
    fake.order[3] = '\0';
    fake.is_copy = true;
    at_exit();
    TEST_ASSERT_EQUAL_STRING_MESSAGE("DPY", fake.order, "nothing of this is the child's");
    expect_mode(LIBRARY_ON);
    fake.is_copy = false;
    at_exit();
    TEST_ASSERT_EQUAL_STRING_MESSAGE("DPYrsm", fake.order, "no driver call of ours any more");
    expect_mode(LIBRARY_PASS);
}

static void exits_refused(void)
{
    expect_mode(LIBRARY_ON);
    library_refuse();
    expect_mode(LIBRARY_REFUSE);
    at_exit();
    TEST_ASSERT_EQUAL_STRING_MESSAGE("DPYsm", fake.order, "there is nothing to report");
}

static void test_at_exit_the_programs_calls_go_straight_through(void)
{
    apart(exits);
    apart(exits_refused);
}

static void forks(void)
{
    expect_mode(LIBRARY_ON);
    TEST_ASSERT_TRUE(library_cuda_started());
    TEST_ASSERT_EQUAL_INT(LIBRARY_ON, atomic_load(&mark));
    TEST_ASSERT_EQUAL_PTR_MESSAGE(&mark, atomic_load(&library_state), "in a page that a copy finds cleared");
    atomic_store(&mark, 0); /* as in a copy that runs no fork handlers */
    expect_mode(LIBRARY_PASS);
    atomic_store(&mark, LIBRARY_ON);
    in_child();
    expect_mode(LIBRARY_PASS);
    TEST_ASSERT_EQUAL_STRING("DPYabcdef", fake.order);
}

static void forks_without_a_page(void)
{
    fake.no_mark = true;
    expect_mode(LIBRARY_ON);
    TEST_ASSERT_TRUE(library_cuda_started());
    expect_mode(LIBRARY_ON);
    in_child();
    expect_mode(LIBRARY_PASS);
}

static void no_fork_handler(void)
{
    fake.no_atfork = true;
    expect_mode(LIBRARY_ON);
    TEST_ASSERT_FALSE(library_cuda_started());
    expect_mode(LIBRARY_REFUSE);
    TEST_ASSERT_NOT_NULL(strstr(log_fake_errors, "CUDA is refused"));
}

static void test_a_forked_child_passes_all_calls_through(void)
{
    apart(forks);
    apart(forks_without_a_page);
    apart(no_fork_handler);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_options_decide_whether_anything_is_done);
    RUN_TEST(test_cuda_is_refused_if_the_limits_cannot_be_kept);
    RUN_TEST(test_guard_and_fill_change_other_options);
    RUN_TEST(test_at_exit_the_programs_calls_go_straight_through);
    RUN_TEST(test_a_forked_child_passes_all_calls_through);
    return UNITY_END();
}
