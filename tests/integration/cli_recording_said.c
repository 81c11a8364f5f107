/* Small recordings, each with one thing of which `why`, `view` and `summary` must say the right words: a
 * limit of the job beside one of the process, a long wait, a pool without idle memory, no events at all. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_support.h"
#include "tests/support/recording_make.h"
#include "unity.h"

#define MIB UINT64_C(1048576)
#define S   UINT64_C(1000000000)

static char path[256];

void setUp(void)
{
    cli_set_up();
    snprintf(path, sizeof(path), "%s", cli_path("a.gpucap"));
}

void tearDown(void)
{
    cli_tear_down();
}

static struct recording_make begin(void)
{
    static const char program[] = "host\0train-a\0train";
    struct recording_make make;

    TEST_ASSERT_TRUE(recording_make_open(&make, path, (struct recording_head){.pid = 7}, RECORDING_PLAIN));
    recording_make_name(&make, RECORDING_PROGRAM, 0, program, sizeof(program));
    return make;
}

/* A process with 148 MiB and a limit of its own of 600 MiB; its job's refuses and leaves `left`. */
static struct spawn_result why_job_refused(uint64_t asked, uint64_t job_max, uint64_t left)
{
    struct recording_make make = begin();

    recording_make_event(
        &make, RECORDING_LIMIT,
        (struct recording_event){.time_ns = 1, .bytes = 600 * MIB, .other = RECORDING_LIMIT_PROCESS});
    recording_make_event(&make, RECORDING_CONTEXT,
                         (struct recording_event){.time_ns = 2, .bytes = 128 * MIB, .other = 1});
    recording_make_event(&make, RECORDING_USED, (struct recording_event){.time_ns = 3, .bytes = 128 * MIB});
    recording_make_event(
        &make, RECORDING_ALLOC,
        (struct recording_event){.time_ns = 4, .address = 4096, .bytes = 20 * MIB, .kind = RECORDING_ASYNC});
    recording_make_event(&make, RECORDING_APART,
                         (struct recording_event){.time_ns = 5, .limit = RECORDING_APART_IDLE});
    recording_make_event(
        &make, RECORDING_APART,
        (struct recording_event){.time_ns = 5, .bytes = 568 * MIB, .limit = RECORDING_APART_OTHERS});
    recording_make_event(
        &make, RECORDING_REFUSAL,
        (struct recording_event){
            .time_ns = 5, .address = job_max, .bytes = asked, .other = left, .limit = RECORDING_LIMIT_JOB});
    recording_make_close(&make, 10, true);
    return CLI_RUN(NULL, "why", path);
}

/* The limit that applies to the process is not the one that refused. */
static void test_why_names_the_limit_of_the_job_that_refused(void)
{
    struct spawn_result result = why_job_refused(400 * MIB, 900 * MIB, 120 * MIB);

    cli_expect_status(0, &result);
    cli_expect_out("limit        900 MiB, limit of the job; at most 120 MiB would have fitted\n", &result);
    cli_expect_out("neighbours   the job's others had 568 MiB: add their recordings\n", &result);
    cli_expect_out("would fit    with a limit 280 MiB higher\n"
                   "               and the limit of the process, 600 MiB, 12 MiB higher\n",
                   &result);
    cli_expect_out("Try:  gpucap run --max=1280M --each=640M ...\n", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "--wait"), result.out);
    spawn_result_free(&result);
    result = why_job_refused(300 * MIB, 900 * MIB, 120 * MIB); /* which the limit of the process allows */
    cli_expect_out("would fit    with a limit 180 MiB higher\n", &result);
    cli_expect_out("Try:  gpucap run --max=1152M ...\n        gpucap run --wait=60s", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "--each"), result.out);
    spawn_result_free(&result);
    result = why_job_refused(400 * MIB, 0, 120 * MIB); /* a library that does not note it */
    cli_expect_out("limit        600 MiB, limit of the job", &result);
    spawn_result_free(&result);
    result = why_job_refused(100 * MIB, 500 * MIB, 0); /* less than is in use, after gpucap set */
    cli_expect_out("would fit    with a limit 380 MiB higher\n", &result);
    cli_expect_out("Try:  gpucap run --max=896M ...\n        gpucap run --wait=60s", &result);
    spawn_result_free(&result);
}

static void test_the_name_of_a_recording_does_not_act_on_a_terminal(void)
{
    static const char *const commands[] = {"why", "summary", "view"};

    snprintf(path, sizeof(path), "%s", cli_path("a\033[2J\nb.gpucap"));
    struct spawn_result result = why_job_refused(400 * MIB, 900 * MIB, 120 * MIB);
    cli_expect_out("gpucap page $'/", &result); /* a shell reads it as the name */
    cli_expect_out("/a\\033[2J\\012b.gpucap' -o page.html", &result);
    TEST_ASSERT_NULL_MESSAGE(strchr(result.out, '\033'), result.out);
    spawn_result_free(&result);
    cli_write(path, "just some text, longer than the head of a recording would be", 60, 0600);
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        result = CLI_RUN(NULL, commands[i], path);
        cli_expect_err("/a?[2J?b.gpucap is no recording of gpucap", &result);
        spawn_result_free(&result);
    }
    result = CLI_RUN(NULL, "completion", "\033[2J");
    cli_expect_err("unknown shell '?[2J'", &result);
    spawn_result_free(&result);
}

/* What raises the limit of a process beyond its job's does not help. */
static void test_why_names_the_limit_of_the_job_beside_that_of_a_process(void)
{
    struct recording_make make = begin();

    recording_make_event(
        &make, RECORDING_LIMIT,
        (struct recording_event){.time_ns = 1, .bytes = 350 * MIB, .other = RECORDING_LIMIT_PROCESS});
    recording_make_event(&make, RECORDING_CONTEXT,
                         (struct recording_event){.time_ns = 2, .bytes = 128 * MIB, .other = 1});
    recording_make_event(&make, RECORDING_APART,
                         (struct recording_event){.time_ns = 5, .limit = RECORDING_APART_IDLE});
    recording_make_event(
        &make, RECORDING_APART,
        (struct recording_event){.time_ns = 5, .bytes = 50 * MIB, .limit = RECORDING_APART_OTHERS});
    recording_make_event(&make, RECORDING_REFUSAL,
                         (struct recording_event){.time_ns = 5,
                                                  .address = 400 * MIB,
                                                  .bytes = 290 * MIB,
                                                  .other = 158 * MIB,
                                                  .limit = RECORDING_LIMIT_PROCESS});
    recording_make_close(&make, 10, true);
    struct spawn_result result = CLI_RUN(NULL, "why", path);
    cli_expect_out("limit        350 MiB, limit of the process; at most 158 MiB would have fitted\n",
                   &result);
    cli_expect_out("would fit    with a limit 132 MiB higher\n"
                   "               and the limit of the job, 400 MiB, 132 MiB higher\n",
                   &result);
    cli_expect_out("Try:  gpucap run --max=640M --each=512M ...\n", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "neighbours"), result.out);
    spawn_result_free(&result);
}

/* A process with one block, on a card that it numbers 0. */
static void make_neighbour(const char *name, const char *uuid, uint32_t pid, bool is_refused)
{
    struct recording_make make;
    char card[64];
    const int bytes = snprintf(card, sizeof(card), "card%c%s%c%d", 0, uuid, 0, 99999999) + 1;

    TEST_ASSERT_TRUE(recording_make_open(&make, name, (struct recording_head){.pid = pid}, RECORDING_PLAIN));
    recording_make_name(&make, RECORDING_DEVICE, 0, card, (size_t)bytes);
    recording_make_event(
        &make, RECORDING_ALLOC,
        (struct recording_event){.time_ns = 1, .address = 4096, .bytes = 3 * MIB, .kind = RECORDING_ASYNC});
    if (is_refused)
        recording_make_event(
            &make, RECORDING_REFUSAL,
            (struct recording_event){.time_ns = 5, .bytes = MIB, .limit = RECORDING_LIMIT_JOB});
    recording_make_close(&make, 10, true);
}

/* With CUDA_VISIBLE_DEVICES the same number means different cards. */
static void test_neighbours_are_those_of_the_same_card(void)
{
    char second[256];

    snprintf(second, sizeof(second), "%s", cli_path("b.gpucap"));
    make_neighbour(path, "GPU-1", 7, true);
    make_neighbour(second, "GPU-1", 8, false);
    struct spawn_result result = CLI_RUN(NULL, "why", path, second);
    cli_expect_out("neighbours   process 8 had 3 MiB", &result);
    spawn_result_free(&result);
    make_neighbour(second, "GPU-2", 8, false);
    result = CLI_RUN(NULL, "why", path, second);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "process 8"), result.out);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "summary", path, second);
    cli_expect_out("GPU 0 card (...PU-1), ", &result);
    cli_expect_out("GPU 0 card (...PU-2), ", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "summary", path);
    cli_expect_out("GPU 0 card, ", &result);
    spawn_result_free(&result);
}

/* A limit that only adds what was asked for would refuse again: the reserve is missing as well. */
static void test_what_would_fit_counts_the_reserve_where_nothing_was_left(void)
{
    struct recording_make make = begin();

    recording_make_event(
        &make, RECORDING_LIMIT,
        (struct recording_event){.time_ns = 1, .bytes = 100 * MIB, .other = RECORDING_LIMIT_PROCESS});
    recording_make_event(&make, RECORDING_CONTEXT,
                         (struct recording_event){.time_ns = 2, .bytes = 64 * MIB, .other = 1});
    recording_make_event(
        &make, RECORDING_REFUSAL,
        (struct recording_event){.time_ns = 5, .bytes = 10 * MIB, .limit = RECORDING_LIMIT_PROCESS});
    recording_make_close(&make, 10, true);
    struct spawn_result result = CLI_RUN(NULL, "why", path);
    cli_expect_out("would fit    with a limit 38 MiB higher\n", &result);
    cli_expect_out("Try:  gpucap run --each=256M ...\n", &result);
    spawn_result_free(&result);
}

/* A setting is for all cards, and a replay has one. */
static void test_of_several_cards_advice_and_replay_say_which_they_mean(void)
{
    struct recording_make make = begin();

    for (uint16_t device = 0; device < 2; device++) {
        recording_make_event(
            &make, RECORDING_LIMIT,
            (struct recording_event){
                .time_ns = 1, .bytes = 100 * MIB, .other = RECORDING_LIMIT_JOB, .device = device});
        recording_make_event(&make, RECORDING_ALLOC,
                             (struct recording_event){.time_ns = 2,
                                                      .address = 4096,
                                                      .bytes = 64 * MIB,
                                                      .kind = RECORDING_MALLOC,
                                                      .device = device});
    }
    recording_make_event(
        &make, RECORDING_REFUSAL,
        (struct recording_event){.time_ns = 5, .bytes = 80 * MIB, .limit = RECORDING_LIMIT_JOB, .device = 1});
    recording_make_close(&make, 10, true);
    struct spawn_result result = CLI_RUN(NULL, "why", path);
    cli_expect_out(" ...   (for every card)\n", &result);
    spawn_result_free(&result);
    struct spawn_env *env = cli_env_real();
    result = CLI_RUN(env, "run", "--sim=1x4G", "--", spawn_build_path("gpucap"), "replay", path);
    cli_expect_status(0, &result);
    cli_expect_err("replay: note: of 2 cards in ", &result);
    spawn_result_free(&result);
    result = CLI_RUN(env, "summary", "--fit", path);
    cli_expect_err("that is only a lower bound: only the first card of a recording is replayed\n", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

/* A colour alone says nothing to many readers. */
static void test_a_picture_says_what_its_red_marks_mean(void)
{
    struct spawn_result result = why_job_refused(400 * MIB, 900 * MIB, 120 * MIB);

    spawn_result_free(&result);
    result = CLI_RUN(NULL, "export", "--to=svg", path);
    cli_expect_out(">refused</text>", &result);
    spawn_result_free(&result);
    recording_make_training(path, &(struct recording_training){.events = 2000, .process = 1});
    result = CLI_RUN(NULL, "export", "--to=svg", path);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, ">refused</text>"), "nothing was refused");
    spawn_result_free(&result);
}

/* A wait is a span of time, not a moment. */
static void test_view_marks_a_wait_from_its_begin_to_its_end(void)
{
    struct recording_make make = begin();
    char marks[41];

    recording_make_event(
        &make, RECORDING_ALLOC,
        (struct recording_event){.time_ns = 1, .address = 4096, .bytes = 20 * MIB, .kind = RECORDING_ASYNC});
    recording_make_event(&make, RECORDING_WAIT,
                         (struct recording_event){.time_ns = 8 * S, .bytes = MIB, .other = 6 * S});
    recording_make_close(&make, 10 * S, true);
    struct spawn_result result = CLI_RUN(NULL, "view", path);
    cli_expect_status(0, &result);
    memset(marks, '~', sizeof(marks) - 1); /* six tenths of 70 columns */
    marks[sizeof(marks) - 1] = '\0';
    cli_expect_out(marks, &result);
    cli_expect_out("~ waited", &result);
    spawn_result_free(&result);
}

static void test_a_pool_without_idle_memory_is_said_in_words(void)
{
    struct recording_make make = begin();

    recording_make_event(&make, RECORDING_GROW,
                         (struct recording_event){.time_ns = 1, .bytes = 2 * MIB, .other = 2 * MIB});
    recording_make_event(
        &make, RECORDING_ALLOC,
        (struct recording_event){.time_ns = 2, .address = 4096, .bytes = 2 * MIB, .kind = RECORDING_MALLOC});
    recording_make_close(&make, 20, true);
    struct spawn_result result = CLI_RUN(NULL, "summary", path);
    cli_expect_out("idle         nothing in the pool\n", &result);
    spawn_result_free(&result);
}

static void test_no_limit_is_drawn_before_the_first_one(void)
{
    struct recording_make make = begin();

    recording_make_event(
        &make, RECORDING_ALLOC,
        (struct recording_event){.time_ns = S, .address = 4096, .bytes = MIB, .kind = RECORDING_ASYNC});
    recording_make_close(&make, 2 * S, true);
    struct spawn_result result = CLI_RUN(NULL, "view", path);
    cli_expect_out("\n       0  ", &result);
    spawn_result_free(&result);
}

static void test_of_many_refusals_the_first_are_named_and_the_others_counted(void)
{
    static const char *const last[] = {"3 MiB for program", "and 1 more\n"};

    for (uint64_t count = 3; count <= 4; count++) {
        struct recording_make make = begin();

        for (uint64_t i = 1; i <= count; i++)
            recording_make_event(
                &make, RECORDING_REFUSAL,
                (struct recording_event){.time_ns = i, .bytes = i * MIB, .limit = RECORDING_LIMIT_PROCESS});
        recording_make_close(&make, 20, true);
        struct spawn_result result = CLI_RUN(NULL, "summary", path);
        cli_expect_out(last[count - 3], &result);
        TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "4 MiB for"), result.out);
        if (count == 3)
            TEST_ASSERT_NULL_MESSAGE(strstr(result.out, " more\n"), result.out);
        spawn_result_free(&result);
    }
}

/* What `why` says is idle for a request of 90 MiB. */
static void expect_idle(const uint64_t apart[RECORDING_APART_COUNT], uint64_t hole, const char *expected)
{
    struct recording_make make = begin();

    recording_make_event(&make, RECORDING_GROW,
                         (struct recording_event){.time_ns = 1, .bytes = 50 * MIB, .other = 50 * MIB});
    for (uint64_t i = 0; i < 2; i++)
        recording_make_event(&make, RECORDING_ALLOC,
                             (struct recording_event){.time_ns = 2 + i,
                                                      .address = (i + 1) * MIB + i * hole,
                                                      .bytes = MIB,
                                                      .kind = RECORDING_MALLOC});
    for (int i = RECORDING_APART_IDLE; apart && i < RECORDING_APART_COUNT; i++) {
        if (apart[i])
            recording_make_event(&make, RECORDING_APART,
                                 (struct recording_event){.time_ns = 5,
                                                          .bytes = apart[i],
                                                          .other = i == RECORDING_APART_IDLE ? *apart : 0,
                                                          .limit = (uint8_t)i});
    }
    recording_make_event(
        &make, RECORDING_REFUSAL,
        (struct recording_event){.time_ns = 5, .bytes = 90 * MIB, .limit = RECORDING_LIMIT_PROCESS});
    recording_make_close(&make, 20, true);
    struct spawn_result result = CLI_RUN(NULL, "why", path);
    cli_expect_out(expected, &result);
    spawn_result_free(&result);
}

static void test_idle_memory_is_said_with_its_pieces_or_its_holes(void)
{
    uint64_t apart[RECORDING_APART_COUNT] = {
        [RECORDING_APART_PIECES] = 1, [RECORDING_APART_IDLE] = 48 * MIB, [RECORDING_APART_JOINED] = 48 * MIB};

    expect_idle(apart, 0, "  idle         48 MiB in its pool; at most 48 MiB in one block\n");
    apart[RECORDING_APART_PIECES] = 2;
    expect_idle(apart, 0, "  idle         48 MiB in its pool, in 2 pieces; at most 48 MiB in one block\n");
    expect_idle(NULL, 0, "  idle         48 MiB in its pool\n");
    expect_idle(NULL, 9 * MIB,
                "  idle         48 MiB in its pool; the largest hole between blocks is 9 MiB\n");
}

/* As other programs do: where stdout is no terminal, COLUMNS says how wide it is. */
static void test_view_in_a_pipe_is_as_wide_as_columns_says(void)
{
    struct spawn_env *env = cli_env();
    size_t widest = 0;

    recording_make_training(path, &(struct recording_training){.events = 2000});
    spawn_env_set(env, "COLUMNS", "50");
    spawn_env_set(env, "LC_ALL", "C");
    struct spawn_result result = CLI_RUN(env, "view", path);
    cli_expect_status(0, &result);
    for (const char *line = result.out; *line; line += strcspn(line, "\n") + 1)
        widest = strcspn(line, "\n") > widest ? strcspn(line, "\n") : widest;
    TEST_ASSERT_TRUE_MESSAGE(widest <= 50 && widest > 40, result.out);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_what_is_no_recording_is_named_as_what_it_is(void)
{
    TEST_ASSERT_EQUAL_INT(0, mkdir(path, 0700));
    struct spawn_result result = CLI_RUN(NULL, "summary", path);
    cli_expect_status(125, &result);
    cli_expect_err("a.gpucap is a folder; name the recordings in it\n", &result);
    spawn_result_free(&result);
    snprintf(path, sizeof(path), "%s", cli_path("b.gpucap"));
    fclose(fopen(path, "we"));
    result = CLI_RUN(NULL, "why", path);
    cli_expect_status(125, &result);
    cli_expect_err("b.gpucap is empty: nothing was recorded in it\n", &result);
    spawn_result_free(&result);
    struct spawn_env *env = cli_env(); /* a word could also be a job */
    const char *script = "cd \"$HOME\" && echo text >a.log && exec \"$CLI\" why a.log $SECOND";
    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    result = spawn_run(env, (const char *[]){"/bin/sh", "-c", script, NULL}, NULL);
    cli_expect_status(1, &result);
    cli_expect_err("the file of that name here is no recording\n", &result);
    spawn_result_free(&result);
    spawn_env_set(env, "SECOND", path);
    result = spawn_run(env, (const char *[]){"/bin/sh", "-c", script, NULL}, NULL);
    cli_expect_status(125, &result);
    cli_expect_err("a.log is no recording of gpucap; it is left out\n", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

/* It is in neither the pictures nor the tables: without the note it would just be missing. */
static void test_of_several_recordings_one_without_events_is_noted(void)
{
    char second[256];
    struct recording_make make = begin();

    recording_make_close(&make, 0, false);
    snprintf(second, sizeof(second), "%s", cli_path("b.gpucap"));
    recording_make_training(second, &(struct recording_training){.events = 200});
    struct spawn_result result = CLI_RUN(NULL, "summary", second, path);
    cli_expect_status(0, &result);
    cli_expect_err("a.gpucap has no events\n", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.err, "b.gpucap has no events"), result.err);
    spawn_result_free(&result);
}

/* One that is empty or damaged as a whole hides none of the others; the status tells scripts of it. */
static void test_of_several_recordings_what_cannot_be_read_is_left_out(void)
{
    char good[256], damaged[256];

    fclose(fopen(path, "we"));
    snprintf(good, sizeof(good), "%s", cli_path("good.gpucap"));
    snprintf(damaged, sizeof(damaged), "%s", cli_path("damaged.gpucap"));
    recording_make_training(good, &(struct recording_training){.events = 200});
    cli_write(damaged, "no recording", 12, 0600);
    struct spawn_result result = CLI_RUN(NULL, "page", path, good, damaged, "-o", cli_path("out.html"));
    cli_expect_status(1, &result);
    cli_expect_err("a.gpucap is empty: nothing was recorded in it; it is left out\n", &result);
    cli_expect_err("damaged.gpucap is no recording of gpucap; it is left out\n", &result);
    TEST_ASSERT_EQUAL_INT(0, access(cli_path("out.html"), R_OK));
    spawn_result_free(&result);
    struct spawn_result alone = CLI_RUN(NULL, "summary", good);
    result = CLI_RUN(NULL, "summary", path, good);
    cli_expect_status(1, &result);
    TEST_ASSERT_EQUAL_STRING(alone.out, result.out);
    spawn_result_free(&alone);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "page", path, damaged, "-o", cli_path("none.html"));
    cli_expect_status(125, &result);
    TEST_ASSERT_NOT_EQUAL_INT(0, access(cli_path("none.html"), F_OK));
    spawn_result_free(&result);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_why_names_the_limit_of_the_job_that_refused);
    RUN_TEST(test_the_name_of_a_recording_does_not_act_on_a_terminal);
    RUN_TEST(test_why_names_the_limit_of_the_job_beside_that_of_a_process);
    RUN_TEST(test_what_would_fit_counts_the_reserve_where_nothing_was_left);
    RUN_TEST(test_of_several_cards_advice_and_replay_say_which_they_mean);
    RUN_TEST(test_a_picture_says_what_its_red_marks_mean);
    RUN_TEST(test_neighbours_are_those_of_the_same_card);
    RUN_TEST(test_view_marks_a_wait_from_its_begin_to_its_end);
    RUN_TEST(test_a_pool_without_idle_memory_is_said_in_words);
    RUN_TEST(test_no_limit_is_drawn_before_the_first_one);
    RUN_TEST(test_of_many_refusals_the_first_are_named_and_the_others_counted);
    RUN_TEST(test_idle_memory_is_said_with_its_pieces_or_its_holes);
    RUN_TEST(test_view_in_a_pipe_is_as_wide_as_columns_says);
    RUN_TEST(test_what_is_no_recording_is_named_as_what_it_is);
    RUN_TEST(test_of_several_recordings_one_without_events_is_noted);
    RUN_TEST(test_of_several_recordings_what_cannot_be_read_is_left_out);
    return UNITY_END();
}
