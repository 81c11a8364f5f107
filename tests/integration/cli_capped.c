/* The whole command on the simulated GPU: a program under `gpucap run --sim --max=...` sees its cap, keeps to
 * it, and goes on after a refusal; without --max it sees the card.
 */
#include <stdio.h>
#include <string.h>

#include "cli_support.h"
#include "unity.h"

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

/* The real library, on a simulated card of the test's own. */
static struct spawn_env *capped_env(void)
{
    struct spawn_env *env = cli_env_real();
    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id());
    return env;
}

static void expect_total(const char *option, const char *total)
{
    struct spawn_env *env = capped_env();
    struct spawn_result result = CLI_RUN(env, "run", "--sim=1x16G", option, "--",
                                         spawn_build_path("tests/gpu/fill_dl"), "--mode=greedy");
    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING(total, spawn_value(result.out, "total"));
    TEST_ASSERT_EQUAL_STRING("2", spawn_value(result.out, "over_total_code"));
    TEST_ASSERT_EQUAL_STRING("yes", spawn_value(result.out, "held"));
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_program_sees_its_cap_and_goes_on_after_a_refusal(void)
{
    expect_total("--max=2G", "2147483648");
}

static void test_percentage_is_of_the_card(void)
{
    expect_total("--max=25%", "4294967296");
}

static void test_program_without_a_cap_sees_the_card(void)
{
    expect_total("--max=none", "17179869184");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_program_sees_its_cap_and_goes_on_after_a_refusal);
    RUN_TEST(test_percentage_is_of_the_card);
    RUN_TEST(test_program_without_a_cap_sees_the_card);
    return UNITY_END();
}
