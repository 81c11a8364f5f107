/* What `gpucap why` promises of a living process: a refusal is explained, and what it suggests helps. */
#include <limits.h>
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
/* The name of a recording is what a process answers, and may act on a terminal. */
static void test_what_a_process_answers_is_one_line_of_text(void)
{
    struct spawn_env *env = cli_env_real();
    const char *program = spawn_build_path("tests/integration/prog_walk"),
               *command = spawn_build_path("gpucap");
    char script[8 * 4096];

    snprintf(script, sizeof(script),
             "cd '%s' && { echo take 100; until grep -q 'has 100' out; do sleep 0.05; done; "
             "pid=$('%s' completion processes | head -n 1); "
             "'%s' record start $pid --to=\"$(printf 'a\\033[2J\\nprocess 1: b')\" >&2; "
             "'%s' record stop $pid >&2; echo; } | '%s' run " MEMBERS_SIM " --max=2G -- '%s' >out",
             cli_path(""), command, command, command, command, program);
    struct spawn_result result = spawn_run(env, (const char *const[]){"/bin/sh", "-c", script, NULL}, NULL);
    spawn_env_free(env);
    cli_expect_status(0, &result);
    cli_expect_err("/a?[2J?process 1: b\n", &result);
    cli_expect_err(": recorded to ", &result);
    TEST_ASSERT_NULL_MESSAGE(strchr(result.err, '\033'), result.err);
    TEST_ASSERT_NULL(strstr(result.err, "\nprocess 1:"));
    spawn_result_free(&result);
}

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

/* A limit of the process is known also while its job's is the lower one. */
static void test_why_knows_the_limit_of_a_process_above_that_of_its_job(void)
{
    struct spawn_env *env = cli_env_real();
    const char *program = spawn_build_path("tests/integration/prog_walk"),
               *command = spawn_build_path("gpucap");
    char script[8 * 4096];

    snprintf(script, sizeof(script),
             "cd '%s' && { echo take 1000; until grep -q 'has 1000' out; do sleep 0.05; done; "
             "'%s' set g --max=2G >&2; echo take 3000; until grep -q memory out; do sleep 0.05; done; "
             "'%s' why g >&2; echo; } | '%s' run " MEMBERS_SIM " --max=4G --each=3G --group=g -- '%s' >out",
             cli_path(""), command, command, command, program);
    struct spawn_result result = spawn_run(env, (const char *const[]){"/bin/sh", "-c", script, NULL}, NULL);
    spawn_env_free(env);
    cli_expect_status(0, &result);
    cli_expect_err("limit        2.0 GiB for job g; in use ", &result);
    cli_expect_err("               and this process's own limit, 3.0 GiB, about 1.5 GiB higher\n", &result);
    spawn_result_free(&result);
}

/* `taker` asks for memory that is kept for `keeper`, until the shell's condition `until` is true. What `why`
 * suggests then is run, and then the request fits, which is made once more for `again`. */
static struct spawn_result take_what_is_kept(const char *option, const char *until, const char *again,
                                             const char *keeps, const char *said)
{
    struct spawn_env *env = cli_env_real();
    const char *program = spawn_build_path("tests/integration/prog_walk"),
               *command = spawn_build_path("gpucap");
    char script[8 * 4096];

    snprintf(script, sizeof(script),
             "cd '%s' && gpucap() { '%s' \"$@\"; } && "
             "{ echo take 100; until grep -q 'has 100 ' out.keeper; do sleep 0.05; done; "
             "{ echo take 9000; until %s; do sleep 0.05; done; "
             "gpucap why " MEMBERS_SIM
             " taker | tee /dev/stderr | sed -n 's/.*gpucap set/gpucap set/p' >try; "
             ". ./try >&2; %s; until grep -q 'has 9000 ' out.taker; do sleep 0.05; done; } | "
             "'%s' run " MEMBERS_SIM " --max=12G --min=2G %s --group=taker -- '%s' >out.taker; } | "
             "'%s' run " MEMBERS_SIM " %s --group=keeper -- '%s' >out.keeper",
             cli_path(""), command, until, again, command, option, program, command, keeps, program);
    struct spawn_result result = spawn_run(env, (const char *const[]){"/bin/sh", "-c", script, NULL}, NULL);
    spawn_env_free(env);
    cli_expect_status(0, &result);
    cli_expect_err("cause        what is free on the card is kept for other jobs (--min)\n", &result);
    cli_expect_err("kept for     keeper: min ", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.err, "taker: min"), result.err);
    cli_expect_err(said, &result);
    return result;
}

static void test_memory_kept_for_another_job_is_named_and_can_be_had(void)
{
    struct spawn_result result = take_what_is_kept("", "grep -q 'out of memory' out.taker", "echo take 9000",
                                                   "--min=8G", ": min was 8.0 GiB, is 6.7 GiB now\n");

    cli_expect_err("limit        12.0 GiB for job taker; in use ", &result);
    spawn_result_free(&result);
}

static void test_why_of_a_process_that_waits_for_kept_memory_says_so(void)
{
    struct spawn_result result =
        take_what_is_kept("--wait=600", "gpucap why " MEMBERS_SIM " taker 2>&1 | grep -q 'waits for'", "true",
                          "--min=12G --max=8G", /* of which 8G count */
                          ": min was 12.0 GiB, is 6.7 GiB now\n");

    cli_expect_err("waits for 8.8 GiB on GPU 0\n\n  the card     has 14.9 GiB free of 16.0 GiB now\n",
                   &result);
    spawn_result_free(&result);
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

/* The shell that runs `why` may have another ledger than the program. */
static void test_what_why_suggests_names_the_ledger_that_it_was_given(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 5222, 0);
    struct spawn_env *env = cli_env();
    char option[PATH_MAX], expected[PATH_MAX + 64];

    members_start(members_sim_uuid(), "train-a", 8192, 2867, 0);
    members_tell(member, "refuse 147");
    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id());
    spawn_env_set(env, "GPUCAP_LEDGER", "off");
    snprintf(option, sizeof(option), "--ledger=%s", cli_path("ledger"));
    struct spawn_result result = CLI_RUN(env, "why", MEMBERS_SIM, option, "train-a");
    snprintf(expected, sizeof(expected), "Try:  gpucap set train-a %s --max=9G\n", option);
    cli_expect_out(expected, &result);
    spawn_result_free(&result);
    members_tell(member, "refuse 4"); /* for which the limit has room */
    result = CLI_RUN(env, "why", MEMBERS_SIM, option, members_pid(member));
    snprintf(expected, sizeof(expected), "Try:  gpucap ps %s   (shows who holds the card)\n", option);
    cli_expect_out(expected, &result);
    spawn_result_free(&result);
    result = CLI_RUN(env, "why", MEMBERS_SIM, option, "train-b");
    snprintf(expected, sizeof(expected), "`gpucap ps %s` lists them\n", option);
    cli_expect_err(expected, &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

/* The job may have a higher limit on its other card: `set` would lower it. */
static void test_advice_for_a_job_on_two_cards_says_that_it_is_for_both(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 5222, 0);

    members_start(MEMBERS_UUID, "train-a", 16384, 1024, 0);
    members_tell(member, "refuse 4000");
    struct spawn_result result = run_why(members_pid(member));
    cli_expect_out("gpucap set train-a --max=10G   (on all its cards)\n", &result);
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

/* Beside a limit of the process that is too low as well. */
static void test_why_says_how_large_the_card_is_and_not_the_other_limit(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 14336, 6400, 0);

    members_start(members_sim_uuid(), "train-a", 14336, 6400, 0);
    members_tell(member, "each 9216");
    members_tell(member, "refuse 4000");
    struct spawn_result result = run_why(members_pid(member));
    cli_expect_out("9.0 GiB, about 1.2 GiB higher\n", &result);
    cli_expect_out("the card     has only 16.0 GiB in all\n", &result);
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

/* A request has to fit the limit of the job and that of the process (--each): raising one, or waiting, is no
 * advice while the other forbids it. */
static void test_why_looks_at_both_limits_of_a_process(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 2048, 0);

    members_start(members_sim_uuid(), "train-a", 8192, 5120, 0);
    members_tell(member, "each 4096");
    members_tell(member, "refuse 2500");
    struct spawn_result result = run_why(members_pid(member));
    cli_expect_out("would fit    with a limit about 1.5 GiB higher\n"
                   "               and this process's own limit, 4.0 GiB, about 516 MiB higher\n",
                   &result);
    cli_expect_out("Try:  gpucap run --max=10G --each=5G ...\n", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "--wait"), result.out);
    spawn_result_free(&result);
    members_tell(member, "refuse 1000"); /* which the process's own limit allows */
    result = run_why(members_pid(member));
    cli_expect_out("would fit    with a limit about 40 MiB higher\n", &result);
    cli_expect_out("Try:  gpucap set train-a --max=9G\n        gpucap run --wait=60s", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "own limit"), result.out);
    spawn_result_free(&result);
    members_tell(member, "each 2200");
    members_tell(member, "refuse 1000");
    result = run_why(members_pid(member));
    cli_expect_out("limit        2.1 GiB for this process alone; in use 2.0 GiB\n", &result);
    cli_expect_out("               and the job's limit, 8.0 GiB, about 40 MiB higher\n", &result);
    cli_expect_out("Try:  gpucap run --max=9G --each=3200M ...\n", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "set", "train-a", "--max=2G"); /* less than the process's own */
    spawn_result_free(&result);
    result = run_why(members_pid(member));
    cli_expect_out("               and the job's limit, 2.0 GiB, about 6.0 GiB higher\n", &result);
    cli_expect_out("Try:  gpucap run --max=9G --each=3200M ...\n", &result);
    spawn_result_free(&result);
    members_tell(member, "refuse 1000"); /* by the job's */
    result = run_why(members_pid(member));
    cli_expect_out("               and this process's own limit, 2.1 GiB, about 912 MiB higher\n", &result);
    cli_expect_out("Try:  gpucap run --max=9G --each=3200M ...\n", &result);
    spawn_result_free(&result);
}

/* No wait makes room for a process that alone needs more than the limit. */
static void test_why_advises_no_wait_for_memory_that_others_do_not_have(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 4096, 3000, 0);

    members_start(members_sim_uuid(), "train-a", 4096, 1000, 0);
    members_tell(member, "refuse 1200");
    struct spawn_result result = run_why(members_pid(member));
    cli_expect_out("would fit    with a limit about 1.1 GiB higher\n\n"
                   "  Try:  gpucap set train-a --max=6G\n",
                   &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "--wait"), result.out);
    spawn_result_free(&result);
}

static void expect_advice(const struct member *member, const char *would_fit, const char *advice)
{
    struct spawn_result result = run_why(members_pid(member));

    cli_expect_out(would_fit, &result);
    cli_expect_out(advice, &result);
    spawn_result_free(&result);
}

/* Nobody is asked for idle memory by a process whose own limit is too low. */
static void test_why_advises_no_higher_limit_of_a_job_that_has_enough_idle(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 3800, 0);
    struct member *other = members_start(members_sim_uuid(), "train-a", 8192, 4200, 3600);

    members_tell(member, "each 5120"); /* the job's limit leaves less */
    members_tell(member, "refuse 1800");
    expect_advice(member,
                  "  would fit    with this process's own limit, 5.0 GiB, about 544 MiB higher\n"
                  "               and 1.6 GiB of what the job's others have idle\n",
                  "Try:  gpucap run --each=6G ...\n");
    members_tell(member, "each 3900"); /* the process's leaves less */
    members_tell(member, "refuse 1800");
    expect_advice(member,
                  "  would fit    with a limit about 1.7 GiB higher\n"
                  "               and 1.6 GiB of what the job's others have idle\n",
                  "Try:  gpucap run --each=6G ...\n");
    members_tell(other, "use 4200 1600");
    expect_advice(member, "               and the job's limit, 8.0 GiB, about 1.6 GiB higher\n",
                  "Try:  gpucap run --max=10G --each=6G ...\n");
}

static void expect_enough_now(const struct member *member, const char *limit_now)
{
    struct spawn_result result = run_why(members_pid(member));

    cli_expect_out(limit_now, &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "would fit"), result.out);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "Try:"), result.out);
    spawn_result_free(&result);
}

static void test_why_advises_no_limit_below_one_that_was_raised(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 5222, 0);
    struct spawn_result result;

    members_start(members_sim_uuid(), "train-a", 8192, 2867, 0);
    members_tell(member, "refuse 512");
    result = CLI_RUN(NULL, "set", "train-a", "--max=12G");
    cli_expect_status(0, &result);
    spawn_result_free(&result);
    expect_enough_now(member, "limit now    12.0 GiB, enough for this request\n");
    members_tell(member, "each 5632");
    members_tell(member, "refuse 512");
    members_tell(member, "each 7168");
    expect_enough_now(member, "limit now    7.0 GiB, enough for this request\n");
}

static void test_why_counts_the_reserve_where_nothing_was_left(void)
{
    struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 8150, 0);

    members_tell(member, "refuse 10"); /* 42 MiB are left, less than the reserve */
    struct spawn_result result = run_why(members_pid(member));
    cli_expect_out("would fit    with a limit about 32 MiB higher\n", &result);
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

static void expect_narrow(const char *text)
{
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        TEST_ASSERT_TRUE_MESSAGE(strcspn(line, "\n") <= 80, line);
}

static void test_why_fits_80_columns(void)
{
    static const char job[] = "evaluation-of-the-large-model-second-run1";
    struct member *member = members_start(members_sim_uuid(), job, 16000, 1023, 0);
    struct spawn_result result;

    for (int i = 0; i < 5; i++)
        members_start(members_sim_uuid(), job, 16000, 1023, 0);
    members_tell(member, "each 1023");
    for (int i = 0; i < 12; i++)
        members_tell(member, "refuse 14000");
    result = run_why(members_pid(member));
    cli_expect_out("\n               1 more\n", &result);
    cli_expect_out("and the job's limit, 15.6 GiB, about 4.1 GiB higher\n", &result);
    expect_narrow(result.out);
    spawn_result_free(&result);
    members_tell(member, "each 12000");
    members_tell(member, "refuse 14000");
    result = run_why(members_pid(member));
    cli_expect_out("  limit        15.6 GiB for job evaluation-of-the-large-model-second-run1; in\n"
                   "               use 6.0 GiB\n",
                   &result);
    cli_expect_out("and this process's own limit, 11.7 GiB, about 3.0 GiB higher\n", &result);
    expect_narrow(result.out);
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

/* The answer for a process that waits, as soon as it does so, in a thread of its own. */
static struct spawn_result why_of_waiter(const struct member *waiter)
{
    struct spawn_result result = run_why(members_pid(waiter));

    while (!strstr(result.out, ": waits for 512 MiB on GPU 0\n\n")) {
        spawn_result_free(&result);
        result = run_why(members_pid(waiter));
    }
    return result;
}

/* A program that seems to hang is why people ask. */
static void test_why_of_a_process_that_waits_says_for_what(void)
{
    struct member *waiter = members_start(members_sim_uuid(), "train-a", 4096, 1024, 0);
    struct member *other = members_start(members_sim_uuid(), "train-a", 4096, 3000, 0);
    char expected[128];

    members_tell(waiter, "wait 512");
    struct spawn_result result = why_of_waiter(waiter);
    cli_expect_out("  limit        4.0 GiB for job train-a; in use 3.9 GiB\n", &result);
    snprintf(expected, sizeof(expected), "  others now   %s 2.9 GiB\n", members_pid(other));
    cli_expect_out(expected, &result);
    cli_expect_out("  Try:  gpucap set train-a --max=5G   (then it goes on)\n", &result);
    spawn_result_free(&result);
    members_tell(waiter, "refuse 1024");
    result = run_why(members_pid(waiter));
    cli_expect_out("  now          it waits for 512 MiB\n", &result);
    spawn_result_free(&result);
}

/* Of a card of 16 GiB that is empty, 28 MiB are missing beside what is kept. */
static void test_why_promises_nothing_where_the_card_is_short_as_well(void)
{
    struct member *waiter = members_start(members_sim_uuid(), "train-a", 4096, 1024, 0);
    struct spawn_result result;

    members_start(members_sim_uuid(), "train-a", 4096, 3000, 0);
    members_start(members_sim_uuid(), "keeper", 16384, 100, 0);
    result = CLI_RUN(NULL, "set", "keeper", "--min=16000M");
    cli_expect_status(0, &result);
    spawn_result_free(&result);
    members_tell(waiter, "wait 512");
    result = why_of_waiter(waiter);
    cli_expect_out("  limit        4.0 GiB for job train-a; in use 3.9 GiB\n", &result);
    cli_expect_out("  the card     has 16.0 GiB free of 16.0 GiB now\n", &result);
    cli_expect_out("  kept for     keeper: min 15.6 GiB (15.5 GiB kept free)\n", &result);
    cli_expect_out("  Try:  gpucap set train-a --max=5G\n        gpucap set keeper --min=15972M\n", &result);
    spawn_result_free(&result);
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
    RUN_TEST(test_what_a_process_answers_is_one_line_of_text);
    RUN_TEST(test_why_says_if_the_card_is_full_as_well);
    RUN_TEST(test_why_knows_the_limit_of_a_process_above_that_of_its_job);
    RUN_TEST(test_memory_kept_for_another_job_is_named_and_can_be_had);
    RUN_TEST(test_why_of_a_process_that_waits_for_kept_memory_says_so);
#endif
    RUN_TEST(test_what_why_suggests_names_the_ledger_that_it_was_given);
    RUN_TEST(test_advice_for_a_job_on_two_cards_says_that_it_is_for_both);
    RUN_TEST(test_why_names_who_has_a_card_that_was_full);
    RUN_TEST(test_why_gives_no_advice_that_the_card_cannot_hold);
    RUN_TEST(test_why_says_how_large_the_card_is_and_not_the_other_limit);
    RUN_TEST(test_why_counts_the_reserve);
    RUN_TEST(test_why_counts_the_reserve_where_nothing_was_left);
    RUN_TEST(test_why_looks_at_both_limits_of_a_process);
    RUN_TEST(test_why_advises_no_wait_for_memory_that_others_do_not_have);
    RUN_TEST(test_why_advises_no_higher_limit_of_a_job_that_has_enough_idle);
    RUN_TEST(test_why_advises_no_limit_below_one_that_was_raised);
    RUN_TEST(test_why_does_not_blame_a_limit_that_left_enough);
    RUN_TEST(test_why_fits_80_columns);
    RUN_TEST(test_why_takes_a_job_for_no_file_of_that_name);
    RUN_TEST(test_why_of_a_process_that_waits_says_for_what);
    RUN_TEST(test_why_promises_nothing_where_the_card_is_short_as_well);
    RUN_TEST(test_why_of_a_process_without_refusals_says_so);
    RUN_TEST(test_why_of_a_process_that_is_not_there_is_status_1);
    return UNITY_END();
}
