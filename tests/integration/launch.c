/* launch: the budget of a job covers all processes that a launcher written in Python starts, however it
 * starts them: torchrun's subprocesses in sessions of their own, and multiprocessing's spawn and forkserver.
 * launch_workers.py stands in for such a launcher.
 */
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "cli_support.h"
#include "spawn.h"

#define WORKERS "3"
#define MOST                                                                                                 \
    ((1024 - 3 * 64) / 16) /* blocks of 16 MiB in a job of 1 GiB, beside three contexts of 64 MiB            \
                            */
#define SPARE 2            /* blocks that may be missing: the reserve and what is rounded up */

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

static struct spawn_result launch(const char *way, const char *limit)
{
    struct spawn_env *env = cli_env_real();

    spawn_sim(env, "1x8G;ctx=64M", NULL);
    spawn_env_set(env, "GPUCAP_RESERVE", "2M");
    struct spawn_result r = spawn_run(env,
                                      (const char *[]){spawn_build_path("gpucap"), "run", limit, "--",
                                                       "python3", LAUNCH_WORKERS, way, WORKERS, NULL},
                                      NULL);
    spawn_env_free(env);
    if (r.status == 127)
        TEST_IGNORE_MESSAGE("no python3 here");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    return r;
}

static void expect_one_budget(const char *way)
{
    struct spawn_result r = launch(way, "--max=1G");
    const int blocks = atoi(spawn_value(r.out, "blocks"));

    TEST_ASSERT_LESS_OR_EQUAL_INT_MESSAGE(MOST, blocks, r.out);
    TEST_ASSERT_GREATER_OR_EQUAL_INT_MESSAGE(MOST - SPARE, blocks, r.out);
    spawn_result_free(&r);
}

static void test_ranks_in_sessions_of_their_own_share_the_budget(void)
{
    expect_one_budget("sessions");
}

static void test_spawned_workers_share_the_budget(void)
{
    expect_one_budget("spawn");
}

static void test_workers_of_a_fork_server_share_the_budget(void)
{
    expect_one_budget("forkserver");
}

/* The same workers with a limit for each hold three times as much: what the tests above see is the job's. */
static void test_a_limit_for_each_is_none_for_all(void)
{
    struct spawn_result r = launch("forkserver", "--each=1G");

    const int blocks = atoi(spawn_value(r.out, "blocks"));

    TEST_ASSERT_GREATER_THAN_INT_MESSAGE(2 * MOST, blocks, r.out);
    TEST_ASSERT_LESS_OR_EQUAL_INT_MESSAGE(3 * (1024 - 64) / 16, blocks, r.out);
    spawn_result_free(&r);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_ranks_in_sessions_of_their_own_share_the_budget);
    RUN_TEST(test_spawned_workers_share_the_budget);
    RUN_TEST(test_workers_of_a_fork_server_share_the_budget);
    RUN_TEST(test_a_limit_for_each_is_none_for_all);
    return UNITY_END();
}
