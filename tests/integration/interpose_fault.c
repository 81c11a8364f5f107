/* Each driver call is made to fail in turn, and the process is killed at each: the program gets the driver's
 * code, the account is as before, nothing leaks, and the next process can use all memory. Without the pool,
 * so that each call of the program is one of the driver; engine_faults does the same for the pool. */
#include "interpose_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CODE        719 /* an answer that no call of these programs gives by itself */
#define CANCELS_MAX 12
#define CALLS_MAX   18 /* more than any of the calls below makes into the driver */

void setUp(void) {}
void tearDown(void) {}

static const struct interpose_run capped = {.cap = "1G", .unpooled = true};

/* Calls `visit` with each line of a text, which it modifies. */
static void each_line(char *text, void (*visit)(const char *line))
{
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        visit(line);
}

static const char *step_name; /* of the step that is made to fail */
static int faulted, answered;

/* After a fault: success, if the call that failed was a query of the library itself, or the driver's code. */
static void check_line(const char *line)
{
    const size_t length = strlen(step_name);

    if (!strncmp(line, step_name, length) && line[length] == ' ') {
        int rc = atoi(line + length + 1);

        answered++;
        faulted += rc == CODE;
        TEST_ASSERT_TRUE_MESSAGE(rc == 0 || rc == CODE, line);
    } else if (!strncmp(line, "info", 4)) {
        TEST_ASSERT_EQUAL_STRING("info 0 free=448 total=1024", line);
    } else if (!strncmp(line, "leaks", 5)) {
        TEST_ASSERT_EQUAL_STRING("leaks 0", line);
    } else if (!strncmp(line, "held", 4)) {
        TEST_ASSERT_EQUAL_STRING("held 512", line);
    }
}

/* Makes the first, second, ... driver call within a step fail; each in a process of its own, because how many
 * calls there are depends on what was measured before. */
static void fail_each_call(const char *step)
{
    char steps[256], name[32];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(step, ":"), step);
    step_name = name;
    faulted = answered = 0;
    for (int n = 1; n <= CALLS_MAX; n++) {
        snprintf(steps, sizeof(steps), "init ctx:0 fault:*:%d=%d %s fault: free-all info held leaks", n, CODE,
                 step);
        struct spawn_result r = interpose_take(&capped, steps);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
        TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, steps);
        each_line(r.out, check_line);
        spawn_result_free(&r);
    }
    TEST_ASSERT_EQUAL_INT(CALLS_MAX, answered);
    TEST_ASSERT_TRUE_MESSAGE(faulted >= 1, "the driver's own call was never reached");
}

static void test_every_call_under_an_allocation_may_fail(void)
{
    static const char *const steps[] = {"alloc:16M",          "pitch:65536:256", "managed:16M",
                                        "async:16M",          "create:16M:0",    "array:1024:1024",
                                        "array3d:128:128:16", "mipmap:512:512:3"};

    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
        fail_each_call(steps[i]);
}

/* Cancels a thread in the first, second, ... driver call of a step: the next request of another thread is
 * granted, and when all is freed nothing is missing. A block that the thread did not get to keep stays in
 * use. */
static void cancel_in_each_call(const struct interpose_run *run, const char *step)
{
    char steps[256], name[32];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(step, ":"), step);
    for (int n = 2; n <= CANCELS_MAX; n++) { /* the first call is the thread's own */
        char granted[48];

        snprintf(steps, sizeof(steps), "init ctx:0 fault:*:%d=cancel lost:%s fault: %s free-all info held", n,
                 step, step);
        struct spawn_result r = interpose_take(run, steps);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
        TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, steps);
        snprintf(granted, sizeof(granted), "\n%s 0\n", name);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, granted), r.out);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "failed=0\ninfo 0 free=448 total=1024\n"), r.out);
        spawn_result_free(&r);
    }
}

static void test_a_thread_may_be_cancelled_in_every_call_under_an_allocation(void)
{
    static const char *const steps[] = {"alloc:16M", "pitch:65536:256", "async:16M", "create:16M:0",
                                        "array:1024:1024"};
    const struct interpose_run pooled = {.cap = "1G"};

#ifdef __SANITIZE_ADDRESS__
    TEST_IGNORE_MESSAGE("AddressSanitizer takes the end of a cancelled thread for an error");
#endif
    cancel_in_each_call(&pooled, "alloc:16M");
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
        cancel_in_each_call(&capped, steps[i]);
}

static void test_a_free_that_fails_keeps_the_block_and_its_bytes(void)
{
    static const struct {
        const char *take, *call, *give;
    } kinds[] = {
        {"alloc:100M", "cuMemFree_v2", "free"},
        {"pitch:65536:1600", "cuMemFree_v2", "free"},
        {"create:100M:0", "cuMemRelease", "free"},
        {"array:1024:6400", "cuArrayDestroy", "free"},
        {"array3d:256:256:100", "cuArrayDestroy", "free"},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char steps[512], want[512], name[32];

        snprintf(name, sizeof(name), "%.*s", (int)strcspn(kinds[i].take, ":"), kinds[i].take);
        snprintf(steps, sizeof(steps), "init ctx:0 %s info fault:%s:1=%d %s fault: info %s info leaks",
                 kinds[i].take, kinds[i].call, CODE, kinds[i].give, kinds[i].give);
        snprintf(want, sizeof(want),
                 "init 0\nctx 0\n%s 0\ninfo 0 free=348 total=1024\nfault 0\nfree %d\nfault 0\ninfo 0 "
                 "free=348 total=1024\n"
                 "free 0\ninfo 0 free=448 total=1024\nleaks 0\n",
                 name, CODE);
        interpose_expect(&capped, steps, want);
    }
}

static void test_a_context_that_the_driver_refuses_is_no_context(void)
{
    interpose_expect(&capped,
                     "init fault:cuCtxCreate_v2:1=719 ctx:0 fault: held info ctx:0 info "
                     "fault:cuCtxDestroy_v2:1=719 destroy fault: info "
                     "destroy held",
                     "init 0\nfault 0\nctx 719\nfault 0\nheld 0\ninfo 201 free=0 total=0\nctx 0\ninfo 0 "
                     "free=448 total=1024\n"
                     "fault 0\ndestroy 719\nfault 0\ninfo 0 free=448 total=1024\ndestroy 0\nheld 0\n");
    interpose_expect(
        &capped, "init fault:cuDevicePrimaryCtxRetain:1=719 primary:0 fault: held primary:0 info",
        "init 0\nfault 0\nprimary 719\nfault 0\nheld 0\nprimary 0\ninfo 0 free=448 total=1024\n");
}

static void test_cuinit_may_fail_and_be_called_again(void)
{
    interpose_expect(&capped, "fault:cuInit:1=719 init fault: init ctx:0 fill:alloc:16M",
                     "fault 0\ninit 719\nfault 0\ninit 0\nctx 0\nfill alloc 2 n=28\n");
}

static void test_out_of_memory_of_the_card_itself_is_passed_on(void)
{
    interpose_expect(&capped, "init ctx:0 fault:cuMemAlloc_v2:*=2 alloc:16M fault: info alloc:16M free info",
                     "init 0\nctx 0\nfault 0\nalloc 2\nfault 0\ninfo 0 free=448 total=1024\nalloc 0\nfree "
                     "0\ninfo 0 free=448 total=1024\n");
}

static void test_a_question_that_fails_does_not_open_the_cap(void)
{
    /* The driver is asked which card the context is on; if it does not say, later measurements still count.
     */
    const struct interpose_run run = {.cap = "1G", .unpooled = true};
    struct spawn_result r = interpose_take(
        &run, "init ctx:0 fault:cuCtxGetDevice:1=719 alloc:300M fault: info fill:alloc:16M held");
    const char *held = strstr(r.out, "held ");

    TEST_ASSERT_TRUE_MESSAGE(held && atoi(held + 5) <= 1024, r.out);
    spawn_result_free(&r);
}

static void killed_at(const char *fault)
{
    static const char *const kinds[] = {"alloc:200M", "managed:100M", "async:200M", "create:200M:0",
                                        "array:4096:2048"};
    const struct interpose_run native = {.native = true};
    char script[64];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        static const char *const calls[] = {"cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocAsync",
                                            "cuMemCreate", "cuArrayCreate_v2"};
        char steps[256];

        snprintf(script, sizeof(script), "fault:%s:1=%s", calls[i], fault);
        snprintf(steps, sizeof(steps), "init ctx:0 alloc:100M %s %s info", script, kinds[i]);
        struct spawn_result r = interpose_take(&capped, steps);
        TEST_ASSERT_EQUAL_INT_MESSAGE(SIGKILL, r.signal, r.out);
        TEST_ASSERT_NULL_MESSAGE(strstr(r.out, "info"), r.out);
        spawn_result_free(&r);
        interpose_expect(&capped, "init ctx:0 info fill:alloc:64M",
                         "init 0\nctx 0\ninfo 0 free=448 total=1024\nfill alloc 2 n=7\n");
        interpose_expect(&native, "init ctx:0 info", "init 0\nctx 0\ninfo 0 free=7680 total=8192\n");
    }
}

static void test_a_process_killed_in_a_call_leaves_all_memory_to_the_next(void)
{
    killed_at("kill");
    killed_at("kill-after");
}

/* A folder with the driver alone: no NVML. */
static void test_without_nvml_the_cap_holds_by_the_librarys_own_count(void)
{
    char folder[] = "/tmp/gpucap-no-nvml-XXXXXX", link[64];

    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    snprintf(link, sizeof(link), "%s/libcuda.so.1", folder);
    TEST_ASSERT_EQUAL_INT(0, symlink(spawn_build_path("sim/libcuda.so.1"), link));
    const char *const blind[] = {"LD_LIBRARY_PATH", folder, NULL};
    const struct interpose_run run = {.cap = "2G", .unpooled = true, .variables = blind};
    struct spawn_result r = interpose_take(&run, "init ctx:0 info fill:alloc:64M alloc:1M free-all info");
    unlink(link);
    rmdir(folder);
    /* 2048 less a guess of 640 for the context and 64 of reserve; or less what the card says is used by all.
     */
    const char *n = strstr(r.out, "fill alloc 2 n=");
    TEST_ASSERT_NOT_NULL_MESSAGE(n, r.out);
    TEST_ASSERT_TRUE_MESSAGE(atoi(n + 15) >= 21 && atoi(n + 15) <= 23, r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "alloc 2\nfree-all"), r.out);
    TEST_ASSERT_EQUAL_STRING("info 0 free=1344 total=2048\n", strstr(r.out, "failed=0\n") + 9);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "gpucap: NVML does not report"), r.err);
    TEST_ASSERT_EQUAL_PTR_MESSAGE(strchr(r.err, '\n'), strrchr(r.err, '\n'), r.err);
    spawn_result_free(&r);
}

int main(void)
{
    interpose_need_sim();
    UNITY_BEGIN();
    RUN_TEST(test_every_call_under_an_allocation_may_fail);
    RUN_TEST(test_a_thread_may_be_cancelled_in_every_call_under_an_allocation);
    RUN_TEST(test_a_free_that_fails_keeps_the_block_and_its_bytes);
    RUN_TEST(test_a_context_that_the_driver_refuses_is_no_context);
    RUN_TEST(test_cuinit_may_fail_and_be_called_again);
    RUN_TEST(test_out_of_memory_of_the_card_itself_is_passed_on);
    RUN_TEST(test_a_question_that_fails_does_not_open_the_cap);
    RUN_TEST(test_a_process_killed_in_a_call_leaves_all_memory_to_the_next);
    RUN_TEST(test_without_nvml_the_cap_holds_by_the_librarys_own_count);
    return UNITY_END();
}
