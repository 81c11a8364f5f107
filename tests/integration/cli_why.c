/* What `gpucap why` promises of a living process: a refusal is explained, and what it suggests helps. */
#include <stdio.h>
#include <string.h>

#include "cli_members.h"
#include "unity.h"

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    members_end();
    cli_tear_down();
}

#ifdef HAS_WALK
/* A higher limit would not help while another program has the card. The `echo` after
 * `why` keeps the shell from becoming `why`, which would close the program's input. */
static void test_why_says_if_the_card_is_full_as_well(void)
{
    struct spawn_env *env = cli_env_real();
    const char *program = spawn_build_path("tests/integration/prog_walk"),
               *command = spawn_build_path("gpucap");
    char script[8 * 4096];

    snprintf(script, sizeof(script),
             "cd '%s' && { echo take 14000; until grep -q 'has 14000' native; do sleep 0.05; done; "
             "{ echo take 3000; until grep -q memory capped; do sleep 0.05; done; '%s' why " MEMBERS_SIM
             " g >&2; echo; } | '%s' run " MEMBERS_SIM " --max=2G --group=g -- '%s' >capped; echo; } | "
             "'%s' >native",
             cli_path(""), command, command, program, program);
    spawn_env_set(env, "GPUCAP_SIM", "1x16G");
    spawn_env_set(env, "LD_LIBRARY_PATH", spawn_build_path("sim"));
    struct spawn_result result = spawn_run(env, (const char *const[]){"/bin/sh", "-c", script, NULL}, NULL);
    cli_expect_status(0, &result);
    cli_expect_err("would fit    with a limit about ", &result);
    cli_expect_err("the card     has only 1.3 GiB free of 16.0 GiB now\n", &result);
    cli_expect_err("on it now    ", &result);
    cli_expect_err("gpucap ps   (shows who holds the card)\n", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

/* What `why` suggests is run, and then the request fits. */
static void test_memory_kept_for_another_job_is_named_and_can_be_had(void)
{
    struct spawn_env *env = cli_env_real();
    const char *program = spawn_build_path("tests/integration/prog_walk"),
               *command = spawn_build_path("gpucap");
    char script[8 * 4096];

    snprintf(script, sizeof(script),
             "cd '%s' && gpucap() { '%s' \"$@\"; } && "
             "{ echo take 100; until grep -q 'has 100 ' out.keeper; do sleep 0.05; done; "
             "{ echo take 9000; until grep -q 'out of memory' out.taker; do sleep 0.05; done; "
             "gpucap why " MEMBERS_SIM
             " taker | tee /dev/stderr | sed -n 's/.*gpucap set/gpucap set/p' >try; "
             ". ./try >&2; echo take 9000; until grep -q 'has 9000 ' out.taker; do sleep 0.05; done; } | "
             "'%s' run " MEMBERS_SIM " --max=12G --group=taker -- '%s' >out.taker; } | "
             "'%s' run " MEMBERS_SIM " --min=8G --group=keeper -- '%s' >out.keeper",
             cli_path(""), command, command, program, command, program);
    struct spawn_result result = spawn_run(env, (const char *const[]){"/bin/sh", "-c", script, NULL}, NULL);
    cli_expect_status(0, &result);
    cli_expect_err("limit        12.0 GiB for job taker; in use ", &result);
    cli_expect_err("cause        what is free on the card is kept for other jobs (--min)\n", &result);
    cli_expect_err("kept for     keeper: min 8.0 GiB (7.", &result);
    cli_expect_err(": min was 8.0 GiB, is 6.7 GiB now\n", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}
#endif

static struct spawn_result run_why(const char *word)
{
    struct spawn_env *env = cli_env();

    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id());
    struct spawn_result result = CLI_RUN(env, "why", MEMBERS_SIM, word);
    spawn_env_free(env);
    return result;
}

static void test_why_explains_the_last_refusal(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 5222, 0);
    const struct member *other = members_start(members_sim_uuid(), "train-a", 8192, 2867, 0);
    char expected[128];

    members_tell(member, "refuse 512");
    members_tell(member, "refuse 147");
    struct spawn_result result = run_why(members_pid(member));
    cli_expect_status(0, &result);
    cli_expect_out(": 2 requests refused, the last ", &result);
    cli_expect_out("asked        147 MiB on GPU 0\n", &result);
    cli_expect_out("limit        8.0 GiB for job train-a; in use 7.9 GiB\n", &result);
    cli_expect_out("held by      this process 5.1 GiB, others of the job 2.8 GiB\n", &result);
    snprintf(expected, sizeof(expected), "others now   %s 2.8 GiB\n", members_pid(other));
    cli_expect_out(expected, &result);
    cli_expect_out("idle now     none", &result);
    cli_expect_out("would fit    with a limit about 108 MiB higher\n", &result);
    cli_expect_out("before that  512 MiB ", &result);
    cli_expect_out("gpucap set train-a --max=9G\n", &result);
    spawn_result_free(&result);
}

static void test_why_names_who_has_a_card_that_was_full(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 1024, 0);
    const struct member *other = members_start(members_sim_uuid(), "serve", 16384, 14336, 0);
    char expected[128];

    members_tell(member, "refuse 2048"); /* for which the limit has room */
    struct spawn_result result = run_why(members_pid(member));
    cli_expect_out("cause        not the limit", &result);
    snprintf(expected, sizeof(expected), "on it now    %s 14.0 GiB\n", members_pid(other));
    cli_expect_out(expected, &result);
    cli_expect_out("Try:  gpucap ps   (shows who holds the card)\n", &result);
    cli_expect_out("gpucap run --wait=60s ...   (waits until others free memory)\n", &result);
    spawn_result_free(&result);
}

static void test_why_gives_no_advice_that_the_card_cannot_hold(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 16384, 16000, 0);

    members_tell(member, "refuse 2048");
    struct spawn_result result = run_why(members_pid(member));
    cli_expect_out("the card     has only 16.0 GiB in all\n", &result);
    TEST_ASSERT_NULL(strstr(result.out, "Try:"));
    spawn_result_free(&result);
}

static void test_why_counts_the_reserve(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 8000, 0);

    members_tell(member, "refuse 150"); /* 192 MiB are left, of which 64 are the reserve */
    struct spawn_result result = run_why(members_pid(member));
    cli_expect_out("would fit    with a limit about 22 MiB higher\n", &result);
    cli_expect_out("gpucap set train-a --max=9G\n", &result);
    spawn_result_free(&result);
}

static void test_why_does_not_blame_a_limit_that_left_enough(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 1024, 0);

    members_tell(member, "refuse 128");
    struct spawn_result result = run_why(members_pid(member));
    cli_expect_out("not the limit, which left enough", &result);
    TEST_ASSERT_NULL(strstr(result.out, "Try:"));
    spawn_result_free(&result);
}

static void test_why_takes_a_job_for_no_file_of_that_name(void)
{
    members_start(MEMBERS_UUID, "bin", 8192, 1024, 0);
    struct spawn_env *env = cli_env();
    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    struct spawn_result result =
        spawn_run(env, (const char *[]){"sh", "-c", "cd / && exec \"$CLI\" why bin", NULL}, NULL);
    cli_expect_status(0, &result);
    cli_expect_out(": no request was refused", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_why_of_a_process_without_refusals_says_so(void)
{
    const struct member *member = members_start(MEMBERS_UUID, "job", 8192, 1024, 0);
    struct spawn_result result = run_why(members_pid(member));

    cli_expect_status(0, &result);
    cli_expect_out("no request was refused on ", &result);
    spawn_result_free(&result);
}

static void test_why_of_a_process_that_is_not_there_is_status_1(void)
{
    members_start(MEMBERS_UUID, "job", 8192, 1024, 0);
    struct spawn_result result = run_why("1");

    cli_expect_status(1, &result);
    cli_expect_err("no process or job '1' runs under gpucap here", &result);
    spawn_result_free(&result);
    result = run_why("gone.gpucap");
    cli_expect_status(125, &result);
    cli_expect_err("gone.gpucap cannot be read: No such file", &result);
    spawn_result_free(&result);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_why_explains_the_last_refusal);
#ifdef HAS_WALK
    RUN_TEST(test_why_says_if_the_card_is_full_as_well);
    RUN_TEST(test_memory_kept_for_another_job_is_named_and_can_be_had);
#endif
    RUN_TEST(test_why_names_who_has_a_card_that_was_full);
    RUN_TEST(test_why_gives_no_advice_that_the_card_cannot_hold);
    RUN_TEST(test_why_counts_the_reserve);
    RUN_TEST(test_why_does_not_blame_a_limit_that_left_enough);
    RUN_TEST(test_why_takes_a_job_for_no_file_of_that_name);
    RUN_TEST(test_why_of_a_process_without_refusals_says_so);
    RUN_TEST(test_why_of_a_process_that_is_not_there_is_status_1);
    return UNITY_END();
}
