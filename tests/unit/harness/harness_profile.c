/* train --profile and --nvtx: what they print, what they refuse, and that a training computes the same with
 * and without them. tests/page/profile_reader.py reads the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/harness/harness_support.h"
#include "unity.h"

static const char *folder;
static char file[600], option[700];

void setUp(void)
{
    folder = train_make_folder();
    snprintf(file, sizeof(file), "%s/steps.pftrace", folder);
    snprintf(option, sizeof(option), "--profile=%s", file);
}

void tearDown(void)
{
    train_forget();
    train_remove_folder(folder);
}

#define GPT "--model=gpt", "--layers=2", "--width=16", "--heads=2", "--length=16", "--batch=4"

static double last_loss(void)
{
    train_went_well();
    return atof(train_field("loss_last"));
}

/* Eager steps, accumulated graphs, recomputed activations and replicas on one card. */
static void test_a_profile_changes_no_bit(void)
{
    static const char *const ways[][3] = {
        {"--alloc=naive", "--vary", "--steps=6"},
        {"--alloc=cache", "--graph", "--accumulate=2"},
        {"--alloc=static", "--checkpoint-activations", "--dropout=0.2"},
        {"--alloc=cache", "--replicas=2", "--clip=1"},
    };

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        double loss;

        TRAIN("1x256M", GPT, "--quiet", "--steps=10", ways[i][0], ways[i][1], ways[i][2]);
        loss = last_loss();
        TRAIN("1x256M", GPT, "--quiet", "--steps=10", "--nvtx", option, ways[i][0], ways[i][1], ways[i][2]);
        TEST_ASSERT_TRUE_MESSAGE(last_loss() == loss, train_said.out);
        TEST_ASSERT_EQUAL_INT(0, access(file, R_OK));
        TEST_ASSERT_EQUAL_INT(0, unlink(file));
    }
}

static const char *said(const char *text)
{
    const char *at = strstr(train_said.err, text);

    TEST_ASSERT_NOT_NULL_MESSAGE(at, train_said.err);
    return at;
}

/* An MLP has nine operations, fewer than the table has rows: each is shown, however long it took. */
static void test_table_names_operations_and_memory(void)
{
    TRAIN("1x256M", "--model=mlp", "--hidden=8", "--image=8", "--steps=10", "--alloc=cache",
          "--profile-steps=4", option);
    train_went_well();
    said("\nprofile of steps 4 to 7: ");
    said("\n  input    fill                      2 ");
    said("\n  forward  gemm                      2 ");
    said("\n  forward  softmax_xent_forward      1 ");
    said("\n  backward gemm                      3 ");
    said("\n  backward bias_act_backward         2 ");
    said("\n  update   sgd                       1 ");
    said("\n  memory at its peak: ");
    said("\n  activations ");
    TEST_ASSERT_NULL(strstr(train_said.err, "all others"));
}

/* A GPT has more operations than rows. Which are among the longest is a matter of time. */
static void test_table_has_ten_rows_of_80_columns_and_the_others_in_one(void)
{
    int rows = 0;
    const char *at;

    TRAIN("1x256M", GPT, "--steps=10", "--alloc=cache", "--profile-steps=4", option);
    train_went_well();
    for (at = said("\n  pass     operation "); at < said("\n  all others "); at = strchr(at + 1, '\n'))
        rows++;
    TEST_ASSERT_EQUAL_INT(1 + 10, rows);
    at = said("\nprofile of steps 4 to 7: ");
    while (*at) {
        size_t length = strcspn(at, "\n");

        TEST_ASSERT_TRUE_MESSAGE(length <= 80, at);
        at += length + (at[length] != '\0');
    }
}

static void test_graphs_begin_after_the_profile(void)
{
    TRAIN("1x256M", GPT, "--steps=12", "--alloc=cache", "--graph", option);
    train_went_well();
    said("profile of steps 4 to 8: ");
    said("(without the CUDA graph, which later steps use)");
}

static void test_a_short_training_is_profiled_at_its_end(void)
{
    TRAIN("1x256M", GPT, "--steps=1", option);
    train_went_well();
    said("profile of step 1: ");
    TRAIN("1x256M", GPT, "--steps=3", option);
    train_went_well();
    said("profile of steps 2 to 3: ");
    TRAIN("1x256M", GPT, "--steps=6", option);
    train_went_well();
    said("profile of steps 2 to 6: ");
}

static void test_what_cannot_be_profiled_is_refused_before_it_begins(void)
{
    char nowhere[700];

    snprintf(nowhere, sizeof(nowhere), "--profile=%s/none/steps.pftrace", folder);
    TRAIN("1x256M", GPT, "--steps=2", nowhere);
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    said("it cannot be written: No such file or directory");
    TRAIN("1x256M", GPT, "--steps=2", "--profile=/dev/null");
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    said("it exists and is not a regular file, so it is not replaced");
    TRAIN("1x256M", GPT, "--steps=0", option);
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TRAIN("1x256M", "--pair", "mlp", "cnn", "--steps=2", option);
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
    TEST_ASSERT_NOT_EQUAL(0, access(file, F_OK));
}

static void test_a_trial_of_batches_is_not_profiled(void)
{
    TRAIN("1x64M", GPT, "--steps=10", "--batch=64", "--find-batch", "--alloc=cache", option);
    train_went_well();
    said("profile of steps 4 to 8: ");
}

/* What the tool of nvtx_tool.c wrote during a run. */
static char *ranges(const char *arguments)
{
    static char text[1 << 18];
    char line[2000];
    FILE *opened;
    size_t count;

    snprintf(
        line, sizeof(line),
        "NVTX_INJECTION64_PATH=%s NVTX_TOOL_OUT=%s/ranges $TRAIN --model=mlp --hidden=8 --batch=4 --quiet %s",
        spawn_build_path("nvtx_tool.so"), folder, arguments);
    train_shell("1x256M", line, 0);
    train_went_well();
    snprintf(line, sizeof(line), "%s/ranges", folder);
    opened = fopen(line, "re");
    if (!opened)
        return strcpy(text, "");
    count = fread(text, 1, sizeof(text) - 1, opened);
    text[count] = '\0';
    fclose(opened);
    unlink(line);
    return text;
}

static int count_of(const char *text, const char *what)
{
    int count = 0;

    for (const char *at = text; (at = strstr(at, what)); at++)
        count++;
    return count;
}

static void test_ranges_lie_within_steps_and_only_when_asked_for(void)
{
    const char *text;

    if (access(spawn_build_path("nvtx_tool.so"), R_OK))
        TEST_IGNORE_MESSAGE("built without the toolkit's header of NVTX");
    TEST_ASSERT_EQUAL_STRING("", ranges("--steps=2"));
    text = ranges("--steps=2 --nvtx");
    TEST_ASSERT_EQUAL_INT(2, count_of(text, "begin step\nbegin input\n"));
    TEST_ASSERT_EQUAL_INT(2, count_of(text, "begin forward\nbegin layers.0\nbegin gemm\nend\n"));
    TEST_ASSERT_EQUAL_INT(2, count_of(text, "begin backward\nbegin loss\n"));
    TEST_ASSERT_EQUAL_INT(2, count_of(text, "begin sgd\nend\nend\nend\n"));
    TEST_ASSERT_EQUAL_INT(count_of(text, "begin "), count_of(text, "end\n"));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_profile_changes_no_bit);
    RUN_TEST(test_table_names_operations_and_memory);
    RUN_TEST(test_table_has_ten_rows_of_80_columns_and_the_others_in_one);
    RUN_TEST(test_graphs_begin_after_the_profile);
    RUN_TEST(test_a_short_training_is_profiled_at_its_end);
    RUN_TEST(test_what_cannot_be_profiled_is_refused_before_it_begins);
    RUN_TEST(test_a_trial_of_batches_is_not_profiled);
    RUN_TEST(test_ranges_lie_within_steps_and_only_when_asked_for);
    return UNITY_END();
}
