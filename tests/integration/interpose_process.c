/* Processes that fork, start others, end in the middle of something, or have threads without a context: the
 * parent's account is not affected, children get the same errors as without the library, and nothing hangs
 * (ctest's time limit is the assertion). */
#include "interpose_support.h"

#include <stdio.h>
#include <string.h>

#define REPEATS 10 /* of what depends on timing */

void setUp(void) {}
void tearDown(void) {}

static const struct interpose_run ways[] = {
    {.program = "prog_process", .way = "dlsym", .cap = "1G"},
    {.program = "prog_process", .way = "proc", .cap = "1G"},
    {.program = "prog_process_direct", .way = "direct", .cap = "1G"},
};
#define WAYS (sizeof(ways) / sizeof(*ways))

static void test_a_child_that_never_uses_cuda_leaves_the_account_alone(void)
{
    for (size_t i = 0; i < WAYS; i++)
        interpose_expect(
            &ways[i], "fork-idle",
            "before info 0 free=348 total=1024\nchild 7\nafter info 0 free=348 total=1024\nfill 21\n");
}

static void test_a_child_of_a_cuda_process_gets_the_same_errors_as_without_the_library(void)
{
    for (size_t i = 0; i < WAYS; i++)
        interpose_expect(
            &ways[i], "fork-use",
            "child alloc 3 info 3 free 3 init 3\nchild 0\nafter info 0 free=348 total=1024\nfree 0\n"
            "at last info 0 free=448 total=1024\n");
}

static void test_a_child_may_be_the_first_to_use_cuda(void)
{
    for (size_t i = 0; i < WAYS; i++)
        interpose_expect(&ways[i], "fork-first",
                         "child info 0 free=448 total=1024\nchild fill 28\nchild 0\nchild info 0 free=448 "
                         "total=1024\nchild fill 28\n");
}

static void test_programs_that_a_cuda_program_starts_have_their_own_account(void)
{
    for (size_t i = 0; i < WAYS; i++)
        interpose_expect(&ways[i], "start",
                         "child info 0 free=448 total=1024\nchild fill 28\nchild 0\n"
                         "child info 0 free=448 total=1024\nchild fill 28\nchild 0\n"
                         "after info 0 free=348 total=1024\nfill 21\n");
}

static void test_a_raw_clone_leaves_the_account_alone(void)
{
    for (size_t i = 0; i < WAYS; i++)
        interpose_expect(&ways[i], "clone", "child 3\nafter info 0 free=348 total=1024\nfill 21\n");
}

static void test_forks_while_others_allocate_do_not_hang(void)
{
    for (int i = 0; i < 3; i++)
        interpose_expect(&ways[0], "fork-racing", "right 20\nafter info 0 free=448 total=1024\n");
}

static void leave(const char *mode)
{
    for (int i = 0; i < REPEATS; i++) {
        struct spawn_result r = interpose_take(&ways[0], mode);

        TEST_ASSERT_FALSE(r.timed_out);
        TEST_ASSERT_EQUAL_INT_MESSAGE(5, r.status, r.err);
        TEST_ASSERT_EQUAL_STRING("leaving\n", r.out);
        /* A thread may still query NVML when the driver has shut it down; no other message is allowed. */
        TEST_ASSERT_TRUE_MESSAGE(!*r.err || strstr(r.err, "gpucap: NVML does not report") == r.err, r.err);
        spawn_result_free(&r);
    }
}

static void test_exit_while_threads_allocate_is_clean(void)
{
    leave("leave-soft");
    leave("leave-hard");
}

/* The thread that loads NVML starts running while exit runs destructors: the dynamic loader would run the
 * constructors of libraries that have already been destroyed. */
static void test_nvml_is_not_loaded_any_more_when_exit_has_begun(void)
{
    char folders[512];
    /* No thread of the library's but that one. */
    const char *const variables[] = {
        "LD_LIBRARY_PATH", folders, "GPUCAP_DECAY", "off", "GPUCAP_LEDGER", "off", NULL};
    const struct interpose_run run = {.program = "prog_leaves", .cap = "1G", .variables = variables};

    snprintf(folders, sizeof(folders), "%s:%s", interpose_program("bare"), spawn_build_path("sim"));
    struct spawn_result r = interpose_take(&run, "");
    TEST_ASSERT_FALSE(r.timed_out);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("loaded\nleaving\nended\n", r.out, r.err);
    TEST_ASSERT_EQUAL_INT_MESSAGE(5, r.status, r.err);
    spawn_result_free(&r);
}

static void test_a_thread_without_a_context_gets_the_same_errors_as_without_the_library(void)
{
    struct interpose_run native = ways[0];

    native.native = true;
    struct spawn_result want = interpose_take(&native, "no-context");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(want.out, "alloc 201 info 201"), want.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(want.out, "create too much 2\n"), want.out);
    for (size_t i = 0; i < WAYS; i++) {
        struct spawn_result got = interpose_take(&ways[i], "no-context");
        char *end = strstr(got.out, "main info");

        TEST_ASSERT_NOT_NULL_MESSAGE(end, got.out);
        TEST_ASSERT_EQUAL_STRING_LEN(want.out, got.out, (size_t)(end - got.out));
        TEST_ASSERT_EQUAL_STRING("main info 0 free=446 total=1024\n", end);
        TEST_ASSERT_EQUAL_STRING("", got.err);
        TEST_ASSERT_EQUAL_INT(0, got.status);
        spawn_result_free(&got);
    }
    spawn_result_free(&want);
}

static void test_memory_freed_at_the_end_of_a_thread_comes_back(void)
{
    interpose_expect(&ways[0], "thread-end", "after info 0 free=448 total=1024\n");
}

static void test_an_exit_handler_does_not_escape_the_cap(void)
{
    for (size_t i = 0; i < WAYS; i++)
        interpose_expect(&ways[i], "exit-handler", "alloc 0\nat exit: refused\n");
}

/* The helper gives idle memory back: it is at work all the time. */
static const char *const busy_helper[] = {"GPUCAP_DECAY", "0.004", NULL};
static const char *const busy_and_wordy[] = {"GPUCAP_DECAY", "0.004", "GPUCAP_LOG", "info", NULL};

static void expect_end(const char *mode, const char *const *variables, bool native, int status,
                       const char *out)
{
    struct interpose_run run = ways[0];

    run.native = native;
    run.variables = variables;
    struct spawn_result r = interpose_take(&run, mode);
    TEST_ASSERT_FALSE_MESSAGE(r.timed_out, mode);
    TEST_ASSERT_EQUAL_STRING("", r.err);
    TEST_ASSERT_EQUAL_INT(status, r.status);
    TEST_ASSERT_EQUAL_STRING(out, r.out);
    spawn_result_free(&r);
}

/* Natively and under the library. */
static void expect_both(const char *mode, const char *const *variables, const char *out)
{
    expect_end(mode, variables, true, 0, out);
    expect_end(mode, variables, false, 0, out);
}

static void test_a_helper_that_cannot_be_started_is_not_missed(void)
{
    expect_both("no-helper", busy_helper, "pair 0\npair 0\n");
}

static void test_no_call_reaches_a_driver_that_has_ended(void)
{
    expect_both("after-driver", busy_helper, "early 3\npair 0\nstayed\n");
}

static void test_an_exit_that_interrupts_an_allocation_does_not_hang(void)
{
    expect_end("exit-inside", busy_helper, false, 5, "pair 0\n");
    /* The messages at exit are missing then. */
    struct interpose_run wordy = ways[0];
    wordy.variables = busy_and_wordy;
    struct spawn_result r = interpose_take(&wordy, "exit-inside");
    TEST_ASSERT_FALSE(r.timed_out);
    TEST_ASSERT_EQUAL_INT_MESSAGE(5, r.status, r.err);
    spawn_result_free(&r);
}

static void test_a_raw_clone_ends_as_any_program_does(void)
{
    expect_both("clone-exit", NULL, "pair 0\nchild 3\npair 0\n");
}

static void test_a_copy_does_not_wait_for_a_thread_that_it_does_not_have(void)
{
    expect_both("clone-inside", NULL, "pair 0\nchild 3\npair 0\n");
    expect_both("fork-inside", NULL, "pair 0\nchild 3\npair 0\n");
}

int main(void)
{
    interpose_need_sim();
    UNITY_BEGIN();
    RUN_TEST(test_a_child_that_never_uses_cuda_leaves_the_account_alone);
    RUN_TEST(test_a_child_of_a_cuda_process_gets_the_same_errors_as_without_the_library);
    RUN_TEST(test_a_child_may_be_the_first_to_use_cuda);
    RUN_TEST(test_programs_that_a_cuda_program_starts_have_their_own_account);
    RUN_TEST(test_a_raw_clone_leaves_the_account_alone);
    RUN_TEST(test_forks_while_others_allocate_do_not_hang);
    RUN_TEST(test_exit_while_threads_allocate_is_clean);
    RUN_TEST(test_nvml_is_not_loaded_any_more_when_exit_has_begun);
    RUN_TEST(test_a_thread_without_a_context_gets_the_same_errors_as_without_the_library);
    RUN_TEST(test_memory_freed_at_the_end_of_a_thread_comes_back);
    RUN_TEST(test_an_exit_handler_does_not_escape_the_cap);
    RUN_TEST(test_a_helper_that_cannot_be_started_is_not_missed);
    RUN_TEST(test_no_call_reaches_a_driver_that_has_ended);
    RUN_TEST(test_an_exit_that_interrupts_an_allocation_does_not_hang);
    RUN_TEST(test_a_raw_clone_ends_as_any_program_does);
    RUN_TEST(test_a_copy_does_not_wait_for_a_thread_that_it_does_not_have);
    return UNITY_END();
}
