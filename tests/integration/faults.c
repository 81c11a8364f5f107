/* faults: guard=on and fill=on show what a program does wrong, and a program that does nothing wrong sees no
 * difference. Each promise is a scenario of prog_faults, or of prog_pointers and prog_ipc, which check
 * themselves.
 */
#include <stdio.h>
#include <string.h>

#include "spawn.h"
#include "unity.h"

#define CARD "1x2G;ctx=128M"

enum { GUARD = 1, FILL = 2, ZERO = 4 };

void setUp(void) {}

void tearDown(void) {}

static struct spawn_env *environment(int options, const char *freeing)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, CARD, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    spawn_wrapped(env);
    spawn_env_set(env, "GPUCAP_FREE", freeing);
    spawn_env_set(env, "GPUCAP_DECAY", "off");
    spawn_env_set(env, "GPUCAP_GUARD", options & GUARD ? "on" : "off");
    spawn_env_set(env, "GPUCAP_FILL", options & FILL ? "on" : "off");
    spawn_env_set(env, "GPUCAP_ZERO", options & ZERO ? "on" : "off");
    return env;
}

static void run_one(const char *program, const char *scenario, int options, const char *freeing,
                    const char *cap)
{
    struct spawn_env *env = environment(options, freeing);
    char path[64], what[96];

    if (cap)
        spawn_cap(env, cap);
    snprintf(path, sizeof(path), "tests/integration/%s", program);
    snprintf(what, sizeof(what), "%s, %s, options %d", scenario, freeing, options);
    struct spawn_result r = spawn_run(env, (const char *[]){spawn_build_path(path), scenario, NULL}, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, what);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, what);
    spawn_result_free(&r);
}

static void run(const char *scenario, int options, const char *cap)
{
    run_one("prog_faults", scenario, options, "strict", cap);
    run_one("prog_faults", scenario, options, "deferred", cap);
}

static void test_an_overrun_fails_with_guard_alone(void)
{
    run("overruns_fail", GUARD, NULL);
    run("overruns_fail", GUARD | FILL, NULL);
    run("overruns_pass", FILL, NULL);
}

static void test_a_use_after_free_fails_with_guard_alone(void)
{
    run("late_uses_fail", GUARD, NULL);
    run("late_uses_fail", GUARD | FILL, NULL);
    run("late_uses_pass", FILL, NULL);
}

static void test_the_cap_holds_and_everything_is_given_back(void)
{
    run("within_the_cap", GUARD, "288M");
    run("within_the_cap", GUARD | FILL, "288M");
}

static void test_every_page_of_the_cap_can_be_had(void)
{
    run("told_can_be_had", GUARD, "512M");
    run("told_can_be_had", GUARD | FILL, "512M");
}

static void test_fresh_blocks_are_filled(void)
{
    run("fresh_blocks", FILL, NULL);
    run("fresh_blocks", FILL | GUARD, NULL);
    run("fresh_blocks_cleared", FILL | ZERO, NULL);
}

static void test_freed_blocks_are_filled_when_their_work_is_done(void)
{
    run("freed_blocks", FILL, NULL);
    run("freed_blocks", FILL | ZERO, NULL);
    run("freed_in_stream_order", FILL, NULL);
}

static void test_what_other_processes_may_hold_is_not_filled(void)
{
    run("exported_blocks", FILL, NULL);
}

static void test_captures_live_on(void)
{
    run("captures_live", GUARD, NULL);
    run("captures_live", FILL, NULL);
    run("captures_live", GUARD | FILL, NULL);
}

static void test_guarded_blocks_look_like_the_drivers_own(void)
{
    static const char *const scenarios[] = {"ranges", "ends",    "attributes", "freed",
                                            "ids",    "backing", "threads"};

    for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
        run_one("prog_pointers", scenarios[i], GUARD | FILL, "strict", NULL);
}

static void test_guarded_blocks_are_shared_with_other_processes(void)
{
    run_one("prog_ipc", "share", GUARD | FILL, "strict", NULL);
    run_one("prog_ipc", "share", GUARD, "deferred", NULL);
}

static void test_without_the_pool_they_are_said_to_have_no_effect(void)
{
    struct spawn_env *env = environment(GUARD, "strict");

    spawn_env_set(env, "GPUCAP_POOL", "off");
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_pointers"), "freed", NULL}, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "no effect with pool=off"), r.err);
    spawn_result_free(&r);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_an_overrun_fails_with_guard_alone);
    RUN_TEST(test_a_use_after_free_fails_with_guard_alone);
    RUN_TEST(test_the_cap_holds_and_everything_is_given_back);
    RUN_TEST(test_every_page_of_the_cap_can_be_had);
    RUN_TEST(test_fresh_blocks_are_filled);
    RUN_TEST(test_freed_blocks_are_filled_when_their_work_is_done);
    RUN_TEST(test_what_other_processes_may_hold_is_not_filled);
    RUN_TEST(test_captures_live_on);
    RUN_TEST(test_guarded_blocks_look_like_the_drivers_own);
    RUN_TEST(test_guarded_blocks_are_shared_with_other_processes);
    RUN_TEST(test_without_the_pool_they_are_said_to_have_no_effect);
    return UNITY_END();
}
