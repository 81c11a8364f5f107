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

/* The real library; of what spawn_wrapped preloads only the sanitizer's runtime, if any: the library is the
 * command's business. */
static struct spawn_env *capped_env(void)
{
    struct spawn_env *env = cli_env();
    char runtime[4096];
    spawn_env_unset(env, "GPUCAP_LIB");
    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id());
    spawn_wrapped(env);
    snprintf(runtime, sizeof(runtime), "%s", spawn_env_get(env, "LD_PRELOAD"));
    char *colon = strrchr(runtime, ':');
    if (colon) {
        *colon = 0;
        spawn_env_set(env, "LD_PRELOAD", runtime);
    } else {
        spawn_env_unset(env, "LD_PRELOAD");
    }
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
