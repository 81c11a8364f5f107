/* wakes: a process that waits for memory of its job is told of every free, without having to ask again; and
 * people are told when a ledger is removed. Each case is a scenario of prog_wakes, which checks itself. */
#include <unity.h>

#include "cli_support.h"
#include "spawn.h"

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

static struct spawn_env *wrapped(void)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, "1x2G;ctx=128M", NULL);
    spawn_wrapped(env);
    spawn_cap(env, "1G");
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    spawn_env_set(env, "GPUCAP_GROUP", "both");
    spawn_env_set(env, "GPUCAP_LEDGER", cli_path("ledger"));
    return env;
}

static void expect_success(const char *scenario)
{
    struct spawn_env *env = wrapped();
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_wakes"), scenario, NULL}, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING("", r.err);
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
}

static void test_a_stream_ordered_free_tells_the_one_that_waits(void)
{
    expect_success("stream_ordered");
    expect_success("stream_ordered_frees");
    expect_success("stream_ordered_plain_free");
}

static void test_a_stream_that_comes_to_a_free_later_tells_the_one_that_waits(void)
{
    expect_success("stream_ordered_behind_work");
}

static void test_memory_of_graphs_given_back_tells_the_one_that_waits(void)
{
    expect_success("graph_trim");
}

static void test_the_end_of_a_pool_tells_the_one_that_waits(void)
{
    expect_success("pool_destroyed");
}

/* $0: the program; $1: where its stderr goes. */
static void test_a_ledger_that_is_removed_under_a_job_is_said_once(void)
{
    static const char script[] = "\"$0\" ledger_removed 2>\"$1\" & "
                                 "until grep -q removed \"$1\"; do kill -0 $! || exit 1; sleep 0.02; done; "
                                 "kill $!; wait $! 2>/dev/null; cat \"$1\"";
    struct spawn_env *env = wrapped();
    struct spawn_result r =
        spawn_run(env,
                  (const char *[]){"sh", "-c", script, spawn_build_path("tests/integration/prog_wakes"),
                                   cli_path("stderr"), NULL},
                  NULL);

    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING("gpucap: the ledger of device 0 was removed: programs that start now get the "
                             "job's whole max again; restart the job\n",
                             r.out);
    spawn_result_free(&r);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_stream_ordered_free_tells_the_one_that_waits);
    RUN_TEST(test_a_stream_that_comes_to_a_free_later_tells_the_one_that_waits);
    RUN_TEST(test_memory_of_graphs_given_back_tells_the_one_that_waits);
    RUN_TEST(test_the_end_of_a_pool_tells_the_one_that_waits);
    RUN_TEST(test_a_ledger_that_is_removed_under_a_job_is_said_once);
    return UNITY_END();
}
