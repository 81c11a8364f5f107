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

/* The group's record is still in the ledger when the second run begins. */
static void test_group_starts_over_when_all_its_processes_have_ended(void)
{
    static const char *const caps[] = {"--max=2G", "--max=3G", "--max=1G"};
    static const char *const totals[] = {"2147483648", "3221225472", "1073741824"};

    for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++) {
        struct spawn_env *env = capped_env();
        struct spawn_result result = CLI_RUN(env, "run", "--sim=1x16G", caps[i], "--group=again", "--",
                                             spawn_build_path("tests/gpu/fill_dl"), "--mode=greedy");

        cli_expect_status(0, &result);
        TEST_ASSERT_EQUAL_STRING(totals[i], spawn_value(result.out, "total"));
        spawn_result_free(&result);
        spawn_env_free(env);
    }
}

/* ---- --summary ---- */

static void test_summary_says_what_the_job_needed(void)
{
    struct spawn_env *env = capped_env();
    struct spawn_result result = CLI_RUN(env, "run", "--sim=1x16G;ctx=128M", "--max=2G", "--group=train-a",
                                         "--summary", spawn_build_path("tests/gpu/fill_dl"), "--mode=greedy");

    cli_expect_status(0, &result);
    /* The reserve of 64 MiB is not for the program. */
    cli_expect_err("gpucap: train-a on GPU 0: peak 1.9 GiB of 2.0 GiB, waited 0.0 s, lent 0, borrowed 0, ",
                   &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.err, ", 0 refusals"), result.err);
    TEST_ASSERT_EQUAL_STRING("yes", spawn_value(result.out, "held"));
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void expect_summary(const char *max, const char *script, int status, const char *line)
{
    struct spawn_env *env = capped_env();
    struct spawn_result result =
        CLI_RUN(env, "run", "--sim", max, "--group=g", "--summary", "/bin/sh", "-c", script);

    cli_expect_status(status, &result);
    cli_expect_err(line, &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_with_a_summary_the_end_of_the_program_is_that_of_the_command(void)
{
    expect_summary("--max=2G", "exit 7", 7,
                   "gpucap: g: no summary: it has used no GPU, or its ledger is not there\n");
    expect_summary("--max=2G", "kill -KILL $$", 128 + 9,
                   "gpucap: g: no summary: it has used no GPU, or its ledger is not there\n");
    expect_summary("--max=2G", "(sleep 0.1; exit 3) & exit 7", 7,
                   "gpucap: g: no summary: it has used no GPU, or its ledger is not there\n");
    /* A signal for the command goes to the program. */
    expect_summary("--max=2G", "trap 'exit 6' INT; kill -INT $PPID; while :; do sleep 0.01; done", 6,
                   "gpucap: g: no summary: it has used no GPU, or its ledger is not there\n");
    expect_summary("--max=2G", "trap 'exit 5' TERM; kill -TERM $PPID; while :; do sleep 0.01; done", 5,
                   "gpucap: g: no summary: it has used no GPU, or its ledger is not there\n");
}

#ifdef HAS_WALK
/* `set` is tried until the program has joined the job. */
static void test_summary_of_a_job_whose_limit_was_lifted_says_so(void)
{
    char script[3 * 4096];

    snprintf(script, sizeof(script),
             "{ echo take 10; until %s set g --max=none; do sleep 0.05; done; } 2>/dev/null | %s",
             spawn_build_path("gpucap"), spawn_build_path("tests/integration/prog_walk"));
    expect_summary("--max=2G", script, 0, " (no limit), waited 0.0 s");
}
#endif

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_program_sees_its_cap_and_goes_on_after_a_refusal);
    RUN_TEST(test_percentage_is_of_the_card);
    RUN_TEST(test_program_without_a_cap_sees_the_card);
    RUN_TEST(test_group_starts_over_when_all_its_processes_have_ended);
    RUN_TEST(test_summary_says_what_the_job_needed);
#ifdef HAS_WALK
    RUN_TEST(test_summary_of_a_job_whose_limit_was_lifted_says_so);
#endif
    RUN_TEST(test_with_a_summary_the_end_of_the_program_is_that_of_the_command);
    return UNITY_END();
}
