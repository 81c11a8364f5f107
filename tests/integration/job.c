/* job: the processes of a job share one budget, lend each other what they do not use, and wait if they are
 * told to. Each promise is a scenario of prog_job or prog_lend, which check themselves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "cli_support.h"
#include "spawn.h"

#define CARD "1x2G;ctx=128M"

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

static struct spawn_env *wrapped(const char *pool, const char *wait)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, CARD, NULL);
    spawn_wrapped(env);
    spawn_cap(env, "1G");
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    spawn_env_set(env, "GPUCAP_GROUP", "both");
    spawn_env_set(env, "GPUCAP_POOL", pool);
    spawn_env_set(env, "GPUCAP_WAIT", wait);
    spawn_env_set(env, "GPUCAP_DECAY", "off"); /* idle memory goes back when it is asked for */
    spawn_env_set(env, "PROG_SLOW_CLOCK", "100");
    return env;
}

static void expect_success_of(struct spawn_env *env, const char *program, const char *scenario)
{
    struct spawn_result r = spawn_run(env, (const char *[]){spawn_build_path(program), scenario, NULL}, NULL);

    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING("", r.err);
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
}

static void expect_success(struct spawn_env *env, const char *scenario)
{
    expect_success_of(env, "tests/integration/prog_job", scenario);
}

/* A scenario of prog_lend. */
static void expect_lent(struct spawn_env *env, const char *scenario)
{
    expect_success_of(env, "tests/integration/prog_lend", scenario);
}

static void with_and_without_pool(const char *scenario, const char *wait)
{
    expect_success(wrapped("on", wait), scenario);
    expect_success(wrapped("off", wait), scenario);
}

static void test_two_processes_share_one_budget(void)
{
    with_and_without_pool("shared", "off");
}

static void test_what_is_told_to_be_free_counts_what_the_job_uses_and_not_what_it_has_leased(void)
{
    with_and_without_pool("told", "off");
}

static void test_idle_memory_of_one_process_serves_the_other(void)
{
    with_and_without_pool("lends", "off");
}

/* The other process takes longer to give memory back than its answer is awaited. */
static void test_idle_memory_of_a_slow_process_serves_the_other(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_env_set(env, "GPUCAP_SIM_FAULT", "cuMemUnmap:*=ms60");
    expect_success(env, "lends");
}

static void test_idle_memory_that_would_not_help_is_not_asked_for(void)
{
    with_and_without_pool("vain", "off");
}

static void test_what_a_process_has_freed_does_not_keep_it_from_borrowing(void)
{
    struct spawn_env *env = wrapped("on", "30s"); /* the other process may be slow to answer */

    spawn_env_set(env, "GPUCAP_DECAY", "off");
    expect_lent(env, "borrows_after_frees");
}

static void test_on_a_full_card_idle_memory_of_one_job_serves_another(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_sim(env, "1x1G;ctx=128M", NULL);
    spawn_cap(env, "900M"); /* one process fits, two do not */
    spawn_env_unset(env, "GPUCAP_GROUP");
    expect_success(env, "lends");
}

static void test_on_a_full_card_processes_without_any_limit_lend_too(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_sim(env, "1x1G;ctx=128M", NULL);
    spawn_env_unset(env, "GPUCAP_MAX");
    spawn_env_unset(env, "GPUCAP_GROUP");
    expect_success(env, "lends");
}

static void test_memory_of_one_card_is_not_given_back_for_another(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_sim(env, "2x1G;ctx=128M", NULL);
    spawn_env_unset(env, "GPUCAP_MAX");
    spawn_env_unset(env, "GPUCAP_GROUP");
    expect_lent(env, "lends_on_one_card");
}

static void test_on_a_full_card_memory_idle_in_the_drivers_own_pool_serves_another_job(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_sim(env, "1x1G;ctx=128M", NULL);
    spawn_env_unset(env, "GPUCAP_MAX");
    spawn_env_unset(env, "GPUCAP_GROUP");
    expect_lent(env, "lends_from_drivers_pool");
}

/* By the usual clock: a wait that ends within a millisecond counts as vain, and after some of them in a row
 * the request is refused. By the slower one that is a tenth of a second, in which the thread that lends may
 * not have been run yet. */
static struct spawn_env *waiting_for_a_card(void)
{
    struct spawn_env *env = wrapped("on", "600s");

    spawn_env_unset(env, "PROG_SLOW_CLOCK");
    return env;
}

static void test_processes_without_any_limit_wait_for_a_full_card(void)
{
    struct spawn_env *env = waiting_for_a_card();

    spawn_sim(env, "1x1G;ctx=128M", NULL);
    spawn_env_unset(env, "GPUCAP_MAX");
    spawn_env_unset(env, "GPUCAP_GROUP");
    expect_success(env, "waits");
}

static void test_a_graph_borrows_what_it_lacks_and_no_more(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_sim(env, "1x1G;ctx=128M", NULL);
    spawn_cap(env, "900M");
    spawn_env_unset(env, "GPUCAP_GROUP");
    expect_success(env, "lends_to_a_graph");
}

static void test_memory_of_a_killed_process_can_be_had_at_once(void)
{
    with_and_without_pool("killed", "off");
}

static void test_a_request_waits_for_what_the_other_frees(void)
{
    with_and_without_pool("waits", "30s");
}

static void test_of_two_that_wait_for_each_other_one_is_refused(void)
{
    with_and_without_pool("cycle", "30s");
}

static void test_what_can_never_fit_is_not_waited_for(void)
{
    with_and_without_pool("hopeless", "90s"); /* longer than the test may take */
}

/* As above, for a card that other jobs have filled. */
static void test_a_request_waits_for_what_another_job_frees_on_a_full_card(void)
{
    struct spawn_env *env = waiting_for_a_card();

    spawn_sim(env, "1x1G;ctx=128M", NULL);
    spawn_cap(env, "900M");
    spawn_env_unset(env, "GPUCAP_GROUP");
    expect_success(env, "waits");
}

static void test_a_full_card_is_not_waited_for_if_no_other_can_free_it(void)
{
    struct spawn_env *env = wrapped("on", "90s");

    spawn_sim(env, "1x1G;ctx=128M", NULL);
    spawn_env_unset(env, "GPUCAP_MAX");
    spawn_env_unset(env, "GPUCAP_GROUP");
    expect_success(env, "alone");
}

static void test_a_context_is_not_taken_for_as_large_as_what_others_use(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_env_unset(env, "GPUCAP_GROUP");
    expect_lent(env, "second_context");
}

static void test_a_context_is_not_taken_for_as_large_as_all_that_its_process_holds(void)
{
    expect_lent(wrapped("on", "off"), "context_beside_handles");
}

static struct spawn_env *without_nvml(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_env_set(env, "GPUCAP_SIM_NVML", "absent");
    spawn_env_set(env, "GPUCAP_LOG", "quiet");
    return env;
}

static void test_without_nvml_a_context_counts_once_while_it_lives(void)
{
    expect_lent(without_nvml(), "contexts_come_and_go");
}

static void test_a_context_that_cannot_be_measured_is_no_size_for_others(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_env_set(env, "GPUCAP_LOG", "quiet");
    expect_lent(env, "blind_beside_others");
}

static void test_without_nvml_code_that_was_not_loaded_does_not_count(void)
{
    expect_lent(without_nvml(), "loads_that_fail");
}

static void test_a_request_in_a_capture_waits_for_no_other_process(void)
{
    expect_lent(wrapped("on", "90s"), "captures"); /* longer than the test may take */
    struct spawn_env *env = wrapped("on", "90s");
    spawn_sim(env, "1x1G;ctx=128M", NULL);
    spawn_env_unset(env, "GPUCAP_MAX");
    spawn_env_unset(env, "GPUCAP_GROUP");
    expect_lent(env, "captures");
}

/* ---- min and high ---- */

static struct spawn_env *with_min(const char *pool)
{
    struct spawn_env *env = wrapped(pool, "off");

    spawn_cap(env, "1900M");
    spawn_env_set(env, "GPUCAP_MIN", "768M");
    spawn_env_set(env, "GPUCAP_RESERVE", "2M");
    spawn_env_unset(env, "GPUCAP_GROUP");
    return env;
}

static void test_a_min_is_left_to_its_job(void)
{
    expect_success(with_min("on"), "guaranteed");
    expect_success(with_min("off"), "guaranteed");
}

static void test_a_min_is_left_by_processes_without_a_limit(void)
{
    expect_success(with_min("on"),
                   "guaranteed_from_unlimited"); /* with neither limit nor pool it is not ours */
}

static void test_a_min_is_left_by_graphs_of_processes_without_a_limit(void)
{
    expect_success(with_min("on"), "graphs_leave_a_min");
}

static void test_a_min_is_left_by_new_contexts(void)
{
    expect_success(with_min("on"), "no_context_in_a_min");
}

static void test_a_context_beside_a_min_gets_what_others_have_idle(void)
{
    expect_lent(with_min("on"), "context_beside_a_min");
}

static void test_a_request_beside_a_min_waits_for_room(void)
{
    struct spawn_env *env = with_min("on");

    spawn_env_set(env, "GPUCAP_WAIT", "30s");
    expect_lent(env, "waits_beside_a_min");
}

static void test_a_refusal_names_what_is_kept_for_other_jobs(void)
{
    static const char *const scenarios[] = {"guaranteed", "guaranteed_from_unlimited"};

    for (int i = 0; i < 2; i++) {
        struct spawn_env *env = with_min("on");
        struct spawn_result r = spawn_run(
            env, (const char *[]){spawn_build_path("tests/integration/prog_job"), scenarios[i], NULL}, NULL);

        spawn_env_free(env);
        TEST_ASSERT_NOT_NULL_MESSAGE(
            strstr(r.refusals, "; 640M of the card are kept for other jobs (their min)"), r.refusals);
        spawn_result_free(&r);
    }
}

static void test_above_its_high_a_job_keeps_no_idle_memory(void)
{
    for (int job = 0; job < 2; job++) {
        struct spawn_env *env = wrapped("on", "off");

        spawn_env_set(env, "GPUCAP_HIGH", "384M");
        if (!job)
            spawn_env_unset(env, "GPUCAP_GROUP");
        expect_success(env, "gives_early");
    }
}

/* By the usual clock: with the slower one each request that is refused would wait for long. */
static void test_processes_that_race_never_pass_the_budget(void)
{
    for (int pool = 0; pool < 2; pool++) {
        struct spawn_env *env = wrapped(pool ? "on" : "off", "off");

        spawn_env_unset(env, "PROG_SLOW_CLOCK");
        expect_success(env, "races");
    }
}

/* ---- what a program is told ---- */

/* Runs programs that ask how much is free, take all of it and end, so many at once, and returns their lines.
 */
static struct spawn_result ask_free(struct spawn_env *env, const char *programs)
{
    static const char script[] = "for i in $1; do \"$0\" --mode=greedy > out.$i & done; wait; cat out.*";
    char folder[256];

    snprintf(folder, sizeof(folder), "cd %s && %s", cli_folder(), script);
    return spawn_run(
        env, (const char *[]){"sh", "-c", folder, spawn_build_path("tests/gpu/fill_dl"), programs, NULL},
        NULL);
}

/* Programs that measure at their start how much they may use must not see each other. */
static void test_free_memory_is_the_same_alone_and_beside_other_jobs(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_sim(env, "1x16G;ctx=128M", NULL);
    spawn_env_unset(env, "GPUCAP_GROUP");
    struct spawn_result alone = ask_free(env, "1");
    char *expected = strdup(spawn_value(alone.out, "free_at_start"));
    struct spawn_result together = ask_free(env, "1 2 3 4");
    int programs = 0;
    for (const char *at = together.out; (at = strstr(at, "free_at_start=")); at++, programs++)
        TEST_ASSERT_EQUAL_STRING_MESSAGE(expected, spawn_value(at, "free_at_start"), together.out);
    TEST_ASSERT_EQUAL_INT(4, programs);
    TEST_ASSERT_EQUAL_UINT64((1024 - 128 - 64) * UINT64_C(1048576), strtoull(expected, NULL, 10));
    free(expected);
    spawn_result_free(&alone);
    spawn_result_free(&together);
    spawn_env_free(env);
}

/* ---- what is said ---- */

static struct spawn_result say(const char *scenario, const char *cap, const char *each)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_cap(env, cap);
    if (each)
        spawn_env_set(env, "GPUCAP_EACH", each);
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_job"), scenario, NULL}, NULL);
    spawn_env_free(env);
    return r;
}

static int lines_in(const char *text)
{
    int lines = 0;

    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

/* The scenario's refusals come within a second of the program's clock. */
static void test_the_first_refusal_is_said_with_what_was_asked_and_what_was_there(void)
{
    struct spawn_result r = say("hopeless", "1G", NULL);

    TEST_ASSERT_EQUAL_STRING(
        "gpucap: out of memory on device 0: asked for 1G, 832M left of 1G (job's max)\n"
        "gpucap:   who held the memory: `gpucap run --record=FILE`, then `gpucap why FILE`\n"
        "gpucap: out of memory: 4 more refused like these\n",
        r.refusals);
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
    r = say("hopeless", "1G", "512M");
    TEST_ASSERT_EQUAL_STRING(
        "gpucap: out of memory on device 0: asked for 1G, 320M left of 512M (each)\n"
        "gpucap:   who held the memory: `gpucap run --record=FILE`, then `gpucap why FILE`\n"
        "gpucap: out of memory: 4 more refused like these\n",
        r.refusals);
    spawn_result_free(&r);
}

static void test_a_refusal_names_what_the_others_of_the_job_use(void)
{
    struct spawn_result r = say("shared", "1G", NULL);

    TEST_ASSERT_EQUAL_INT(3, lines_in(r.refusals)); /* the last says how many more there were */
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.refusals,
                                        "\ngpucap:   this process uses 128M, the job's others 640M; see "
                                        "`gpucap why "),
                                 r.refusals);
    spawn_result_free(&r);
    /* What the others leave of the job's max is less than the process's own limit: that is what binds. */
    r = say("shared", "1G", "768M");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.refusals, " left of 1G (job's max)"), r.refusals);
    spawn_result_free(&r);
}

static void test_a_refusal_says_how_much_would_have_fitted_idle_memory_included(void)
{
    struct spawn_result r = say("idles", "1G", NULL);

    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.refusals, ": asked for 834M, 832M left of 1G (job's max"),
                                 r.refusals);
    TEST_ASSERT_EQUAL_STRING("", r.err);
    spawn_result_free(&r);
}

static void test_a_refusal_does_not_name_a_setting_that_the_limit_is_not_from(void)
{
    struct spawn_result r = say("joins", "1G", NULL);

    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(r.refusals, " left of 1G (job's max, from `gpucap set` or another process)\n"), r.refusals);
    spawn_result_free(&r);
}

static void test_a_min_for_a_card_that_is_not_there_refuses_cuda(void)
{
    struct spawn_env *env = wrapped("on", "off");

    spawn_env_set(env, "GPUCAP_MIN", "7=100M");
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_job"), "hopeless", NULL}, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(r.err, "gpucap: min names device 7, which does not exist; CUDA is refused\n"), r.err);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void test_a_limit_for_a_card_that_is_not_there_refuses_cuda_and_lists_the_cards(void)
{
    static const struct {
        const char *cap, *line;
    } cases[] = {
        {"5=300M", "gpucap: max names device 5, which does not exist; CUDA is refused\n"},
        {"0=1G,1=1G", "gpucap: max names device 1, which does not exist; CUDA is refused\n"},
        {"GPU-abcd=1G",
         "gpucap: max names the card GPU-abcd, which this machine does not have; CUDA is refused\n"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct spawn_result r = say("hopeless", cases[i].cap, NULL);

        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, cases[i].line), r.err);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "\ngpucap:   device 0: GPU-73696d67-"), r.err);
        TEST_ASSERT_NOT_EQUAL_INT(0, r.status);
        spawn_result_free(&r);
    }
}

/* ---- gpucap run ---- */

static struct spawn_result run_command(struct spawn_env *env, const char *const *options,
                                       const char *scenario)
{
    const char *argv[12] = {spawn_build_path("gpucap"), "run"};
    int count = 2;

    for (; *options; options++)
        argv[count++] = *options;
    argv[count++] = spawn_build_path("tests/integration/prog_job");
    argv[count++] = scenario;
    return spawn_run(env, argv, NULL);
}

static struct spawn_env *plain(void)
{
    struct spawn_env *env = cli_env_real();

    spawn_sim(env, CARD, NULL);
    return env;
}

static void test_the_limit_that_a_context_passes_is_named(void)
{
    struct spawn_env *env = plain();
    struct spawn_result r = run_command(env, (const char *[]){"--max=1G", "--each=100M", NULL}, "hopeless");

    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(r.err, "this process would use 128M, the limit is 100M; raise each\n"), r.err);
    spawn_result_free(&r);
    r = run_command(env, (const char *[]){"--max=100M", NULL}, "hopeless");
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(r.err, "this process's job would use 128M, the limit is 100M; raise max\n"), r.err);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void test_what_one_run_starts_is_one_job(void)
{
    struct spawn_env *env = plain();
    struct spawn_result r = run_command(env, (const char *[]){"--max=1G", NULL}, "shared");

    TEST_ASSERT_EQUAL_STRING("", r.err);
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
    spawn_env_free(env);
}

/* The other process has leased more than it used, and gave that up. */
static void test_memory_that_was_only_leased_does_not_count_as_lent(void)
{
    struct spawn_env *env = plain();
    struct spawn_result r = run_command(env, (const char *[]){"--max=1G", "--summary", NULL}, "shared");

    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, ", lent 0, borrowed 0, "), r.err);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void test_a_run_inside_a_run_stays_in_its_job(void)
{
    struct spawn_env *env = plain();
    struct spawn_result r = spawn_run(
        env,
        (const char *[]){spawn_build_path("gpucap"), "run", "--max=1G", spawn_build_path("gpucap"), "run",
                         "--max=2G", spawn_build_path("tests/integration/prog_job"), "shared", NULL},
        NULL);

    TEST_ASSERT_EQUAL_STRING("", r.err);
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void test_a_run_that_leaves_its_job_says_so(void)
{
    struct spawn_env *env = plain();
    struct spawn_result r = spawn_run(env,
                                      (const char *[]){spawn_build_path("gpucap"), "run", "--group=outer",
                                                       "--max=1G", spawn_build_path("gpucap"), "run",
                                                       "--group=inner", "--max=2G", "true", NULL},
                                      NULL);

    TEST_ASSERT_EQUAL_STRING(
        "gpucap: run: note: the program leaves the job outer, whose max does not hold for it\n", r.err);
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void test_a_group_that_keeps_another_max_says_so(void)
{
    struct spawn_env *env = plain();
    struct spawn_result r = run_command(env, (const char *[]){"--max=1G", NULL}, "hopeless"); /* a ledger */

    spawn_result_free(&r);
    r = spawn_run(env, (const char *[]){spawn_build_path("gpucap"), "set", "night", "--max=512M", NULL},
                  NULL);
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
    for (int same = 0; same < 2; same++) {
        r = spawn_run(env,
                      (const char *[]){spawn_build_path("gpucap"), "run", "--group=night",
                                       same ? "--max=512M" : "--max=1G", "true", NULL},
                      NULL);
        TEST_ASSERT_EQUAL_INT(same, strstr(r.err, "note: night keeps its max of 512 MiB on GPU-73696d67\n") ==
                                        NULL);
        spawn_result_free(&r);
    }
    spawn_env_free(env);
}

/* Without a ledger each process has the whole cap for itself, and one line says so. */
static void test_without_a_ledger_the_cap_holds_for_each_process_and_that_is_reported(void)
{
    struct spawn_env *env = plain();
    struct spawn_result r = run_command(env, (const char *[]){"--max=1G", "--ledger=off", NULL}, "hopeless");

    TEST_ASSERT_NOT_NULL(strstr(r.err, "(ledger=off): max holds for each process alone\n"));
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
    r = run_command(env, (const char *[]){"--max=1G", "--ledger=/proc/nowhere", NULL}, "hopeless");
    TEST_ASSERT_NOT_NULL(strstr(r.err, "max holds for each process alone\n"));
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
    spawn_env_free(env);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_two_processes_share_one_budget);
    RUN_TEST(test_what_is_told_to_be_free_counts_what_the_job_uses_and_not_what_it_has_leased);
    RUN_TEST(test_idle_memory_of_one_process_serves_the_other);
    RUN_TEST(test_idle_memory_of_a_slow_process_serves_the_other);
    RUN_TEST(test_idle_memory_that_would_not_help_is_not_asked_for);
    RUN_TEST(test_what_a_process_has_freed_does_not_keep_it_from_borrowing);
    RUN_TEST(test_on_a_full_card_idle_memory_of_one_job_serves_another);
    RUN_TEST(test_on_a_full_card_processes_without_any_limit_lend_too);
    RUN_TEST(test_memory_of_one_card_is_not_given_back_for_another);
    RUN_TEST(test_on_a_full_card_memory_idle_in_the_drivers_own_pool_serves_another_job);
    RUN_TEST(test_processes_without_any_limit_wait_for_a_full_card);
    RUN_TEST(test_a_graph_borrows_what_it_lacks_and_no_more);
    RUN_TEST(test_memory_of_a_killed_process_can_be_had_at_once);
    RUN_TEST(test_a_request_waits_for_what_the_other_frees);
    RUN_TEST(test_of_two_that_wait_for_each_other_one_is_refused);
    RUN_TEST(test_what_can_never_fit_is_not_waited_for);
    RUN_TEST(test_a_request_waits_for_what_another_job_frees_on_a_full_card);
    RUN_TEST(test_a_full_card_is_not_waited_for_if_no_other_can_free_it);
    RUN_TEST(test_a_context_is_not_taken_for_as_large_as_what_others_use);
    RUN_TEST(test_a_context_is_not_taken_for_as_large_as_all_that_its_process_holds);
    RUN_TEST(test_without_nvml_a_context_counts_once_while_it_lives);
    RUN_TEST(test_a_context_that_cannot_be_measured_is_no_size_for_others);
    RUN_TEST(test_without_nvml_code_that_was_not_loaded_does_not_count);
    RUN_TEST(test_a_request_in_a_capture_waits_for_no_other_process);
    RUN_TEST(test_a_context_beside_a_min_gets_what_others_have_idle);
    RUN_TEST(test_a_request_beside_a_min_waits_for_room);
    RUN_TEST(test_a_min_is_left_to_its_job);
    RUN_TEST(test_a_min_is_left_by_processes_without_a_limit);
    RUN_TEST(test_a_min_is_left_by_graphs_of_processes_without_a_limit);
    RUN_TEST(test_a_min_is_left_by_new_contexts);
    RUN_TEST(test_a_refusal_names_what_is_kept_for_other_jobs);
    RUN_TEST(test_above_its_high_a_job_keeps_no_idle_memory);
    RUN_TEST(test_processes_that_race_never_pass_the_budget);
    RUN_TEST(test_free_memory_is_the_same_alone_and_beside_other_jobs);
    RUN_TEST(test_the_first_refusal_is_said_with_what_was_asked_and_what_was_there);
    RUN_TEST(test_a_refusal_names_what_the_others_of_the_job_use);
    RUN_TEST(test_a_refusal_says_how_much_would_have_fitted_idle_memory_included);
    RUN_TEST(test_a_refusal_does_not_name_a_setting_that_the_limit_is_not_from);
    RUN_TEST(test_a_min_for_a_card_that_is_not_there_refuses_cuda);
    RUN_TEST(test_the_limit_that_a_context_passes_is_named);
    RUN_TEST(test_a_limit_for_a_card_that_is_not_there_refuses_cuda_and_lists_the_cards);
    RUN_TEST(test_what_one_run_starts_is_one_job);
    RUN_TEST(test_memory_that_was_only_leased_does_not_count_as_lent);
    RUN_TEST(test_a_run_inside_a_run_stays_in_its_job);
    RUN_TEST(test_a_run_that_leaves_its_job_says_so);
    RUN_TEST(test_a_group_that_keeps_another_max_says_so);
    RUN_TEST(test_without_a_ledger_the_cap_holds_for_each_process_and_that_is_reported);
    return UNITY_END();
}
