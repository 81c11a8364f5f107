/* `scenarios` as a whole, with the smallest trainings on simulated cards: natively the first of several
 * arenas takes all, under gpucap all train; every way goes down a ladder of cards; trainings whose peaks
 * alternate share a budget by lending and waiting. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static struct spawn_result run_scenario(const char *letter)
{
    struct spawn_env *env = cli_env_real();
    char out[512], record[512], save[512];

    snprintf(out, sizeof(out), "--out=%s", cli_path("plots"));
    snprintf(record, sizeof(record), "--record=%s", cli_path("plots"));
    snprintf(save, sizeof(save), "--save=%s", cli_path("results"));
    struct spawn_result result =
        spawn_run(env,
                  (const char *[]){spawn_build_path("scenarios"), letter, "--sim", "--tiny", "--verbose",
                                   "--processes=3", out, save, *letter == 'b' ? record : NULL, NULL},
                  NULL);
    spawn_env_free(env);
    return result;
}

static void expect_file(const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", cli_path("plots"), name);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, access(path, R_OK), path);
}

/* How many of three train in the row of that name: the digit before the first " of 3". */
static int trained(const struct spawn_result *result, const char *row)
{
    const char *at = strstr(result->out, row);

    TEST_ASSERT_NOT_NULL_MESSAGE(at, result->out);
    const char *of = strstr(at, " of 3");
    TEST_ASSERT_NOT_NULL_MESSAGE(of, at);
    return of[-1] - '0';
}

static void test_arenas_starve_each_other_natively_and_share_under_gpucap(void)
{
    int natively = 3;

    /* On a busy machine one may be done before the last one starts, and leave it the card. */
    for (int i = 0; i < 3 && natively == 3; i++) {
        struct spawn_result result = run_scenario("b");

        cli_expect_status(0, &result);
        natively = trained(&result, "\narena  ");
        TEST_ASSERT_EQUAL_INT_MESSAGE(3, trained(&result, "\narena, gpucap, a share each "), result.out);
        TEST_ASSERT_EQUAL_INT_MESSAGE(3, trained(&result, "\narena, gpucap, one job with each "), result.out);
        cli_expect_out("Where gpucap does not help: ", &result);
        TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "naive, gpucap, one job"), "--tiny leaves it out");
        cli_expect_out("plots: ", &result);
        cli_expect_out("Recorded: arena on a card of ", &result);
        cli_expect_out(" 3 of 3 train (scenario-b-gpucap.html)", &result);
        spawn_result_free(&result);
        expect_file("scenario-b.html");
        expect_file("scenario-b-gpucap.html");
        expect_file("scenario-b.svg");
        expect_file("scenarios.svg");
    }
    TEST_ASSERT_TRUE(natively < 3);
}

/* Returns the MiB of the smallest card of a row, which must have trained on the large card as well. */
static double smallest_card(const struct spawn_result *result, const char *row)
{
    const char *at = strstr(result->out, row);
    double card, step;

    TEST_ASSERT_NOT_NULL_MESSAGE(at, result->out);
    at += strlen(row) + strspn(at + strlen(row), " ");
    at += strncmp(at, "at most ", 8) ? 0 : 8; /* two tries are all that --tiny makes */
    TEST_ASSERT_EQUAL_INT_MESSAGE(2, sscanf(at, "%lf MiB %lf ms", &card, &step), at);
    TEST_ASSERT_TRUE_MESSAGE(card > 16 && step > 0, at); /* a context has 16 MiB */
    return card;
}

/* The results of the last run, shown from their file, are what it said itself. */
static void expect_same_from_file(const struct spawn_result *ran)
{
    struct spawn_env *env = cli_env_real();
    char out[512], from[512];

    snprintf(out, sizeof(out), "--out=%s", cli_path("plots"));
    snprintf(from, sizeof(from), "--from=%s", cli_path("results"));
    struct spawn_result shown =
        spawn_run(env, (const char *[]){spawn_build_path("scenarios"), from, out, NULL}, NULL);
    spawn_env_free(env);
    cli_expect_status(0, &shown);
    TEST_ASSERT_EQUAL_STRING(ran->out, shown.out);
    spawn_result_free(&shown);
}

static void test_every_way_goes_down_the_ladder_and_the_verdict_follows(void)
{
    static const char *const ways[] = {"\nnaive ", "\ncache ", "\nasync ", "\narena ", "\nstatic "};
    struct spawn_result result = run_scenario("d");

    cli_expect_status(0, &result);
    smallest_card(&result, "\nnaive under gpucap ");
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        smallest_card(&result, ways[i]);
    cli_expect_out("Where gpucap does not help: ", &result);
    expect_file("scenario-d.svg");
    expect_same_from_file(&result);
    spawn_result_free(&result);
}

/* A second is enough for no scenario. The results lie in a folder that is not there yet. */
static void test_what_there_is_no_time_for_is_skipped_and_named(void)
{
    struct spawn_env *env = cli_env_real();
    char out[512], save[512];

    snprintf(out, sizeof(out), "--out=%s", cli_path("fresh"));
    snprintf(save, sizeof(save), "--save=%s", cli_path("fresh/results"));
    struct spawn_result result = spawn_run(env,
                                           (const char *[]){spawn_build_path("scenarios"), "all", "--sim",
                                                            "--tiny", "--seconds=1", out, save, NULL},
                                           NULL);

    spawn_env_free(env);
    cli_expect_status(0, &result);
    cli_expect_out("(a) skipped: no time: ", &result);
    cli_expect_out("(g) skipped: no time: ", &result);
    TEST_ASSERT_EQUAL_INT(0, access(cli_path("fresh/results"), R_OK));
    spawn_result_free(&result);
}

#define TRIES 5

/* Runs (g). Natively it depends on when the peaks meet. Returns whether the peak of the sum was seen to be
 * less than the sum of the peaks. */
static bool peaks_alternate(void)
{
    struct spawn_result result = run_scenario("g");
    double sum, peak;

    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, trained(&result, "\ngpucap, a share each "), result.out);
    TEST_ASSERT_EQUAL_INT_MESSAGE(3, trained(&result, "\ngpucap, one job, lends and waits "), result.out);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "smaller validation"), "--tiny tries none");
    const char *row = strstr(result.out, "\ngpucap, one job, lends and waits ");
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        2, sscanf(row, " gpucap, one job, lends and waits 3 of 3 0 %*f s %lf MiB %lf MiB", &sum, &peak), row);
    spawn_result_free(&result);
    return peak < sum;
}

/* On a busy machine the peaks may be over before they are measured: then they train again. */
static void test_peaks_that_alternate_fit_one_job_that_lends_and_waits(void)
{
    bool less = false;

    for (int i = 0; i < TRIES && !less; i++)
        less = peaks_alternate();
    TEST_ASSERT_TRUE(less);
}

/* Returns the lesser of the two members' peaks, both of which keep to the cap. */
static unsigned long long train_two(void)
{
    struct spawn_env *env = cli_env_real();
    struct spawn_result result =
        spawn_run(env,
                  (const char *[]){spawn_build_path("fleet"), "--sim=1x512M;ctx=16M", "--each=96M",
                                   "--processes=2", "--quiet", "--", "train", "--model=mlp", "--hidden=8",
                                   "--batch=64", "--steps=1000", "--val-batches=1", "--alloc=arena", NULL},
                  NULL);
    unsigned long long peak, least = ULLONG_MAX;
    int members = 0;

    spawn_env_free(env);
    cli_expect_status(0, &result);
    cli_expect_out("members=2 ok=2 steps=2000 ", &result);
    for (const char *at = strstr(result.out, "member=0 "); at && members < 2; at = strchr(at, '\n') + 1) {
        const char *figure = strstr(at, "peak_memory=");

        TEST_ASSERT_NOT_NULL(figure);
        TEST_ASSERT_EQUAL_INT(1, sscanf(figure, "peak_memory=%llu", &peak));
        TEST_ASSERT_TRUE_MESSAGE(peak <= 96 << 20, at);
        least = peak < least ? peak : least;
        members++;
    }
    TEST_ASSERT_EQUAL_INT(2, members);
    spawn_result_free(&result);
    return least;
}

/* Half a second of steps: fleet asks NVML every 20 ms, and a member that ends sooner may never be seen. So
 * may one that ends while fleet is not run, on a busy machine: then they train again. */
static void test_a_fleet_of_trainings_keeps_to_its_caps(void)
{
    unsigned long long least = 0;

    for (int i = 0; i < TRIES && least <= 16 << 20; i++)
        least = train_two();
    TEST_ASSERT_TRUE(least > 16 << 20);
}

static void test_ballast_leaves_what_it_is_told_and_refuses_the_rest(void)
{
    struct spawn_env *env = cli_env_real();
    const struct spawn_options options = {
        .input = "leave 104857600\nleave it\nleave 99999999999\nleave 209715200\n"};
    unsigned long long first, second;
    int read = 0;

    spawn_sim(env, "1x1G;ctx=16M", NULL);
    struct spawn_result result =
        spawn_run(env, (const char *[]){spawn_build_path("ballast"), NULL}, &options);
    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_INT_MESSAGE(2,
                                  sscanf(result.out,
                                         "ready free=%llu held=%*u\nfailed %*[^\n]\nfailed %*[^\n]\n"
                                         "ready free=%llu held=%*u\n%n",
                                         &first, &second, &read),
                                  result.out);
    TEST_ASSERT_UINT64_WITHIN(2 << 20, 100 << 20, first);
    TEST_ASSERT_UINT64_WITHIN(2 << 20, 200 << 20, second);
    TEST_ASSERT_EQUAL_INT_MESSAGE((int)result.out_len, read, result.out);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_a_card_that_is_too_small_under_gpucap_too_is_no_help(void)
{
    struct spawn_env *env = cli_env_real();
    char out[512];

    snprintf(out, sizeof(out), "--out=%s", cli_path("plots"));
    struct spawn_result result =
        spawn_run(env,
                  (const char *[]){spawn_build_path("scenarios"), "b", "g", "--sim", "--tiny", "--card=20M",
                                   "--processes=2", out, NULL},
                  NULL);
    spawn_env_free(env);
    cli_expect_status(0, &result);
    for (int letter = 'b'; letter <= 'g'; letter += 'g' - 'b') {
        char name[8];

        snprintf(name, sizeof(name), "\n(%c) ", letter);
        const char *at = strstr(result.out, name);
        at = at ? strstr(at, "Where gpucap does not help: ") : NULL;
        TEST_ASSERT_NOT_NULL_MESSAGE(at, result.out);
        TEST_ASSERT_EQUAL_STRING_LEN("Where gpucap does not help: here, where not all train under it.\n", at,
                                     64);
    }
    spawn_result_free(&result);
}

static void test_bad_use_runs_nothing(void)
{
    struct spawn_env *env = cli_env_real();
    static const struct {
        const char *word, *says;
    } bad[] = {
        {"h", "'h' is no scenario: give letters from a to g, or all"},
        {"ab", "'ab' is no scenario"},
        {"--what", "unknown option '--what' (see --help)"},
        {"--card=huge", "--card=huge is not valid; accepted: a size such as 8G"},
        {"--card=50%", "--card=50% is not valid"},
        {"--processes=0", "--processes=0: expected a number from 1 to 64"},
        {"--seconds=0", "--seconds=0: expected a number from 1 to 1000000"},
        {"--quick=1", "--quick takes no value"},
        {"--out", "--out needs a value: --out=DIR"},
        {"--from=x", "--from runs nothing"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct spawn_result result =
            spawn_run(env, (const char *[]){spawn_build_path("scenarios"), "b", bad[i].word, NULL}, NULL);

        cli_expect_status(2, &result);
        cli_expect_err(bad[i].says, &result);
        TEST_ASSERT_EQUAL_STRING("", result.out);
        spawn_result_free(&result);
    }
    spawn_env_free(env);
}

static void test_a_place_that_cannot_be_written_is_told_before_anything_runs(void)
{
    struct spawn_env *env = cli_env_real();
    static const char *const bad[] = {"--save=/proc/results", "--save=/tmp", "--write-docs=/proc",
                                      "--out=/dev/null", "--record=/dev/null"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct spawn_result result =
            spawn_run(env, (const char *[]){spawn_build_path("scenarios"), "--sim", "b", bad[i], NULL}, NULL);

        cli_expect_status(1, &result);
        TEST_ASSERT_EQUAL_STRING("", result.out);
        TEST_ASSERT_NULL_MESSAGE(strstr(result.err, "scenarios: on "), result.err);
        spawn_result_free(&result);
    }
    spawn_env_free(env);
}

static bool runs_under(const char *sanitizer)
{
    struct spawn_env *env = cli_env_real();
    const char *preloaded = spawn_env_get(env, "LD_PRELOAD");
    const bool found = preloaded && strstr(preloaded, sanitizer);

    spawn_env_free(env);
    return found;
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_arenas_starve_each_other_natively_and_share_under_gpucap);
    if (!runs_under("asan")) { /* thirty trainings twice: too slow there */
        RUN_TEST(test_every_way_goes_down_the_ladder_and_the_verdict_follows);
        RUN_TEST(test_peaks_that_alternate_fit_one_job_that_lends_and_waits);
    }
    RUN_TEST(test_a_fleet_of_trainings_keeps_to_its_caps);
    RUN_TEST(test_ballast_leaves_what_it_is_told_and_refuses_the_rest);
    RUN_TEST(test_what_there_is_no_time_for_is_skipped_and_named);
    RUN_TEST(test_a_card_that_is_too_small_under_gpucap_too_is_no_help);
    RUN_TEST(test_bad_use_runs_nothing);
    RUN_TEST(test_a_place_that_cannot_be_written_is_told_before_anything_runs);
    return UNITY_END();
}
