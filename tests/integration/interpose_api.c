/* interpose_api: the functions of gpucap.h. Each promise is a scenario of prog_api, which checks itself.
 */
#include <stdio.h>

#include "spawn.h"
#include "unity.h"

#define CARD "1x2G;ctx=128M"

void setUp(void) {}

void tearDown(void) {}

/* With one more setting than all runs have. */
static void run_on(const char *cards, const char *scenario, const char *way, const char *variable,
                   const char *value)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, cards, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    spawn_wrapped(env);
    spawn_cap(env, "1G");
    spawn_env_set(env, "GPUCAP_RESERVE", "0");
    spawn_env_set(env, "GPUCAP_FREE", way);
    spawn_env_set(env, "GPUCAP_DECAY", "off");
    spawn_env_set(env, variable, value);
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_api"), scenario, NULL}, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, way);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, way);
    spawn_result_free(&r);
}

static void run(const char *scenario, const char *way, const char *variable, const char *value)
{
    run_on(CARD, scenario, way, variable, value);
}

static void both_ways(const char *scenario)
{
    run(scenario, "strict", "GPUCAP_ZERO", "off");
    run(scenario, "deferred", "GPUCAP_ZERO", "off");
}

static void test_a_lower_limit_takes_back_what_is_cached(void)
{
    both_ways("lowered");
}

static void test_nvml_tells_the_limit_as_it_is(void)
{
    both_ways("nvml_knows");
}

static void test_what_could_not_be_cleared_is_not_handed_out(void)
{
    run("cleared_or_refused", "strict", "GPUCAP_ZERO", "on");
    run("cleared_or_refused", "deferred", "GPUCAP_ZERO", "on");
}

static void test_a_request_that_cannot_be_met_costs_nothing_that_is_held(void)
{
    both_ways("refused_in_vain");
}

static void test_what_was_freed_is_told_to_be_free_after_a_wait(void)
{
    both_ways("free_when_waited");
}

static void test_what_is_told_to_be_free_can_be_had(void)
{
    both_ways("told_can_be_had");
    run("told_can_be_had", "strict", "GPUCAP_DECAY", "0.005");
    run("told_can_be_had", "deferred", "GPUCAP_DECAY", "0.005");
}

static void test_without_decay_it_goes_back_then(void)
{
    run("given_back_when_waited", "strict", "GPUCAP_DECAY", "0");
    run("given_back_when_waited", "deferred", "GPUCAP_DECAY", "0");
}

static void test_a_wait_that_fails_makes_nothing_free(void)
{
    run("failed_wait", "deferred", "GPUCAP_ZERO", "off");
}

static void test_idle_memory_goes_back_after_a_while(void)
{
    run("given_back_in_time", "strict", "GPUCAP_DECAY", "0.01");
    run("given_back_in_time", "deferred", "GPUCAP_DECAY", "0.01");
}

static void test_the_slack_decides_between_growing_and_moving(void)
{
    run("much_slack", "strict", "GPUCAP_SLACK", "100%");
    run("little_slack", "strict", "GPUCAP_SLACK", "1%");
}

static void test_a_context_that_could_not_be_destroyed_lives_on(void)
{
    both_ways("refused_destroy");
}

static void test_peer_access_is_given_to_all_blocks_or_to_none(void)
{
    run_on("2x2G;ctx=128M", "refused_peer", "strict", "GPUCAP_ZERO", "off");
}

static void test_a_name_keeps_nothing_of_a_context_that_ended(void)
{
    both_ways("names_end");
}

static void test_what_has_no_answer_is_said_to_have_none(void)
{
    both_ways("no_answers");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_lower_limit_takes_back_what_is_cached);
    RUN_TEST(test_nvml_tells_the_limit_as_it_is);
    RUN_TEST(test_what_could_not_be_cleared_is_not_handed_out);
    RUN_TEST(test_a_request_that_cannot_be_met_costs_nothing_that_is_held);
    RUN_TEST(test_what_was_freed_is_told_to_be_free_after_a_wait);
    RUN_TEST(test_what_is_told_to_be_free_can_be_had);
    RUN_TEST(test_without_decay_it_goes_back_then);
    RUN_TEST(test_a_wait_that_fails_makes_nothing_free);
    RUN_TEST(test_idle_memory_goes_back_after_a_while);
    RUN_TEST(test_the_slack_decides_between_growing_and_moving);
    RUN_TEST(test_a_context_that_could_not_be_destroyed_lives_on);
    RUN_TEST(test_peer_access_is_given_to_all_blocks_or_to_none);
    RUN_TEST(test_a_name_keeps_nothing_of_a_context_that_ended);
    RUN_TEST(test_what_has_no_answer_is_said_to_have_none);
    return UNITY_END();
}
