/* `train` as a whole on the simulated GPU: it learns, its result does not depend on how it takes memory, and
 * it ends with the promised status and message when it cannot run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/harness/harness_support.h"
#include "unity.h"

void setUp(void) {}

void tearDown(void)
{
    train_forget();
}

static void test_loss_goes_down(void)
{
    double first, last;

    TRAIN("1x1G", "--steps=60", "--batch=32", "--hidden=64");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    first = atof(train_field("loss_first"));
    last = atof(train_field("loss_last"));
    TEST_ASSERT_TRUE_MESSAGE(first > 1.5 && first < 5.0, train_said.out);
    TEST_ASSERT_TRUE_MESSAGE(last < 0.5 * first, train_said.out);
    TEST_ASSERT_EQUAL_STRING("60", train_field("steps"));
    TEST_ASSERT_EQUAL_STRING("naive", train_field("alloc"));
    TEST_ASSERT_EQUAL_STRING("simgpu", train_field("device"));
    TEST_ASSERT_TRUE(atof(train_field("step_ms")) > 0.0);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "model=mlp step=60/60 loss="));
}

static void test_the_log_tells_the_run_from_start_to_end(void)
{
    const char *folder = train_make_folder();
    char option[600], line[800];

    snprintf(option, sizeof(option), "--log=%s/run.log", folder);
    /* A search for the batch validates too, but that is not the run. */
    TRAIN("1x256M", "--steps=6", "--hidden=16", "--validate-every=3", "--report-every=2", "--batch=4",
          "--find-batch", "--quiet", option);
    train_went_well();
    TEST_ASSERT_EQUAL_STRING("", train_said.err);
    snprintf(line, sizeof(line),
             "grep -o '\"event\":\"[a-z]*\"\\|\"step\":[0-9]*' %s/run.log | cut -d: -f2 | tr -d '\n\"'",
             folder);
    train_shell("1x256M", line, 0);
    TEST_ASSERT_EQUAL_STRING("start0step1step2validation3step4step6validation6end", train_said.out);
    train_remove_folder(folder);
    TRAIN("1x256M", "--steps=1", "--log=/nonexistent/folder/log");
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "--log=/nonexistent/folder/log: No such file"),
                                 train_said.err);
}

static void test_losses_are_equal_to_the_bit_in_every_allocation_mode(void)
{
    static const char *const modes[] = {"--alloc=naive", "--alloc=cache", "--alloc=arena", "--alloc=async",
                                        "--alloc=static"};
    char first[32] = "", last[32] = "";

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        TRAIN("1x256M", "--steps=12", "--batch=33", "--hidden=40,24", "--quiet", modes[i]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
        TEST_ASSERT_EQUAL_STRING_MESSAGE("", train_said.err, "--quiet");
        if (i == 0) {
            strcpy(first, train_field("loss_first"));
            strcpy(last, train_field("loss_last"));
        }
        TEST_ASSERT_EQUAL_STRING(first, train_field("loss_first"));
        TEST_ASSERT_EQUAL_STRING(last, train_field("loss_last"));
        TEST_ASSERT_TRUE(atoll(train_field("peak_bytes")) > 0);
    }
}

static void test_the_seed_decides_the_run(void)
{
    char last[32];

    TRAIN("1x256M", "--steps=3", "--hidden=16", "--seed=9");
    strcpy(last, train_field("loss_last"));
    TRAIN("1x256M", "--steps=3", "--hidden=16", "--seed=9");
    TEST_ASSERT_EQUAL_STRING(last, train_field("loss_last"));
    TRAIN("1x256M", "--steps=3", "--hidden=16", "--seed=10");
    TEST_ASSERT_TRUE(strcmp(last, train_field("loss_last")) != 0);
}

static void test_the_arena_takes_its_share_of_what_is_free(void)
{
    long long half, most;

    TRAIN("1x1G", "--steps=1", "--hidden=16", "--alloc=arena", "--fraction=0.5");
    half = atoll(train_field("peak_bytes"));
    TRAIN("1x1G", "--steps=1", "--hidden=16", "--alloc=arena");
    most = atoll(train_field("peak_bytes"));
    TEST_ASSERT_TRUE_MESSAGE(most > half && half > most / 2, train_said.out);
    TEST_ASSERT_TRUE_MESSAGE(most <= 1LL << 30, train_said.out);
}

static void test_out_of_memory_says_what_was_asked_and_free(void)
{
    static const char *const modes[] = {"--alloc=naive", "--alloc=cache", "--alloc=arena", "--alloc=async",
                                        "--alloc=static"};

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        /* The weights alone are 784 x 4096 floats, 12 MiB, and their velocities as much. */
        TRAIN("1x24M", "--steps=1", "--batch=1", "--hidden=4096", modes[i]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
        TEST_ASSERT_EQUAL_STRING("", train_said.out);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "out of memory: asked for "), train_said.err);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, " bytes free of "), train_said.err);
    }
}

/* static takes memory once. An address that changes would also be in a captured graph that goes on using it.
 * The 600th allocation fails: no model needs so many, unless it takes some in every step. */
static void test_static_takes_no_memory_after_the_first_step(void)
{
    static const char *const models[] = {
        "--model=cnn --width=2 --image=8", "--model=resnet18 --width=2 --image=16",
        "--model=gpt --layers=2 --width=8 --heads=2 --length=4 --dropout=0.1",
        "--model=unet --layers=2 --width=2 --image=8"};

    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        char line[512];

        snprintf(line, sizeof(line),
                 "GPUCAP_SIM_FAULT=cuMemAlloc_v2:600=2 \"$TRAIN\" %s --alloc=static --batch=2 --steps=200 "
                 "--val-batches=1 --quiet",
                 models[i]);
        train_shell("1x256M", line, 0);
        train_went_well();
    }
}

static double samples_of_a_step(void)
{
    return atof(train_field("samples_per_s")) * atof(train_field("step_ms")) / 1e3;
}

/* --vary takes from a quarter to all of a batch. */
static void test_the_speed_is_that_of_the_samples_that_were_used(void)
{
    const char *line;
    double ms, tokens;

    TRAIN("1x256M", "--hidden=64", "--batch=32", "--accumulate=2", "--steps=30", "--quiet");
    TEST_ASSERT_DOUBLE_WITHIN(2.0, 64.0, samples_of_a_step());
    TRAIN("1x256M", "--hidden=64", "--batch=32", "--accumulate=2", "--steps=30", "--quiet", "--vary");
    TEST_ASSERT_DOUBLE_WITHIN(10.0, 40.0, samples_of_a_step());
    TRAIN("1x256M", "--model=gpt", "--layers=1", "--width=16", "--heads=2", "--length=64", "--batch=16",
          "--steps=30", "--report-every=30", "--val-batches=1", "--vary");
    line = strstr(train_said.err, "step=30/30");
    TEST_ASSERT_NOT_NULL_MESSAGE(line, train_said.err);
    ms = atof(strstr(line, "ms=") + 3);
    tokens = atof(strstr(line, "tokens_per_s=") + 13);
    TEST_ASSERT_DOUBLE_WITHIN(110.0, 400.0, tokens * ms / 1e3); /* 10 of 16 samples, 40 of 64 tokens */
}

static void test_options_that_contradict_each_other_are_refused(void)
{
    TRAIN("1x256M", "--find-batch", "--auto-accum");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "choose one"), train_said.err);
    TRAIN("2x256M", "--replicas=all", "--device=1");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "CUDA_VISIBLE_DEVICES"), train_said.err);
    TRAIN("1x256M", "--save=run", "--log=run");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "--save and --log name the same file: run"),
                                 train_said.err);
}

/* A training that ignores what it was told looks like one that follows it. */
static void test_options_without_effect_are_named(void)
{
    TRAIN("1x256M", "--hidden=16", "--steps=1", "--dropout=0.5", "--width=64", "--loss-scale=4",
          "--val-batches=1");
    train_went_well();
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(train_said.err, "note: --dropout=0.5 has no effect here: it needs --model=gpt"),
        train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "note: --width=64 has"), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "note: --loss-scale=4 has"), train_said.err);
    TRAIN("1x256M", "--pair=mlp,gpt", "--hidden=16", "--layers=1", "--width=16", "--heads=2", "--length=8",
          "--batch=4", "--steps=1", "--val-batches=1", "--precision=fp16", "--loss-scale=4");
    train_went_well();
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "note: "), train_said.err);
    TRAIN("1x256M", "--hidden=16", "--batch=4", "--steps=2", "--warmup=2", "--val-batches=1", "--beta2=0.9",
          "--validation=0.5", "--val-batch=5", "--graph", "--alloc=static");
    train_went_well();
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "note: --beta2=0.9 has"), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "note: --validation=0.5 has"), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "note: --val-batch=5 has"), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "note: --warmup=2 is not over"), train_said.err);
}

static void test_no_loss_is_told_where_no_step_was_done(void)
{
    TRAIN("1x256M", "--hidden=16", "--steps=0", "--quiet", "--val-batches=1");
    train_went_well();
    TEST_ASSERT_EQUAL_STRING("nan", train_field("loss_first"));
    TEST_ASSERT_EQUAL_STRING("nan", train_field("loss_last"));
}

/* A message says in which part of the run memory was short, and what needs less. */
static void test_out_of_memory_says_what_needs_less(void)
{
    const char *folder = train_make_folder();
    char save[TRAIN_OPTION], text[TRAIN_OPTION];

    snprintf(save, sizeof(save), "--save=%s/run", folder);
    TRAIN("1x256M", "--hidden=16", "--batch=4096", "--steps=2", "--budget=4M", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "a smaller --batch (now 4096)"), train_said.err);
    TRAIN("1x256M", "--hidden=16", "--batch=4", "--val-batch=4096", "--steps=2", "--budget=4M", "--quiet",
          save);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "in the validation at step 2, with batches of 4096"),
                                 train_said.err);
    snprintf(text, sizeof(text), "go on with --resume=%s/run, it has all steps", folder);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, text), train_said.err);
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "a smaller --batch"), train_said.err);
    train_remove_folder(folder);
}

static void test_bad_options_end_with_a_message(void)
{
    TRAIN("1x256M", "--batch=0");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "--batch=0: expected N from 1 to "));
    TRAIN("1x256M", "--graph", "--alloc=naive");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "--graph needs memory whose addresses"));
    TRAIN("1x256M", "--model=gpt", "--width=30", "--heads=4");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "--width=30 --heads=4"));
    TRAIN("1x256M", "--model=unet", "--image=36");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "--image=36"));
    TRAIN("1x256M", "--optimizer=adam", "--momentum=1"); /* corrected by 1 - 1^step: nothing but nan */
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "--momentum=1: expected R from 0 to 0.999999"));
    TRAIN("1x256M", "--format=synthetic", "--data=/nonexistent");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "does not read --data=/nonexistent"));
    TRAIN("1x256M", "--format=idx");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "--format=idx needs --data=PATH"));
    TRAIN("1x256M", "--device=7");
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "--device=7"));
    TRAIN("1x256M", "--data=/nonexistent");
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "/nonexistent"));
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
}

static void test_an_impossible_batch_is_reported(void)
{
    TRAIN("1x256M", "--model=resnet18", "--image=224", "--width=2", "--batch=1048576", "--steps=1");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "--batch=1048576"), train_said.err);
    TRAIN("1x64M", "--model=cnn", "--batch=100000", "--steps=1", "--data-budget=8G", "--image=16");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "out of memory: asked for "), train_said.err);
}

static void test_a_budget_is_kept_to(void)
{
    TRAIN("1x256M", "--steps=2", "--hidden=256", "--budget=1M");
    TEST_ASSERT_EQUAL_INT(TRAIN_NO_MEMORY, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "--budget is 1048576 bytes"), train_said.err);
    TRAIN("1x256M", "--steps=2", "--hidden=256", "--budget=8M", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_TRUE(atoll(train_field("peak_bytes")) <= 8 << 20);
}

/* On a small simulated card a context takes a sixteenth of it. */
static void test_a_cap_below_the_size_of_the_context_is_reported(void)
{
    struct spawn_env *env = spawn_env_new();
    const char *const argv[] = {spawn_build_path("train"), "--hidden=16", "--steps=1", NULL};

    spawn_sim(env, "1x1G", NULL);
    spawn_wrapped(env);
    spawn_cap(env, "10M");
    train_forget();
    train_said = spawn_run(env, argv, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(train_said.err, "out of memory: the CUDA context itself does not fit"), train_said.err);
}

static void test_without_a_gpu_the_simulated_one_is_named(void)
{
    struct spawn_env *env = spawn_env_new();
    const char *const argv[] = {spawn_build_path("train"), "--hidden=16", "--steps=1", NULL};

    spawn_sim(env, "1x256M", NULL);
    spawn_env_set(env, "CUDA_VISIBLE_DEVICES", "-1");
    train_forget();
    train_said = spawn_run(env, argv, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_FAILED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "gpucap run --sim=1x8G -- train"), train_said.err);
}

static void test_idx_files_are_learned(void)
{
    /* Four images of 2 x 2 pixels, one bright pixel each. */
    static const unsigned char images[] = {0,   0, 8, 3, 0, 0,   0, 4, 0, 0, 0,   2, 0, 0, 0, 2,
                                           255, 0, 0, 0, 0, 255, 0, 0, 0, 0, 255, 0, 0, 0, 0, 255};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 4, 3, 1, 4, 9};
    const char *folder = train_make_folder();
    char option[600];

    train_write_file(folder, "train-images-idx3-ubyte", images, sizeof(images));
    train_write_file(folder, "train-labels-idx1-ubyte", labels, sizeof(labels));
    snprintf(option, sizeof(option), "--data=%s", folder);
    TRAIN("1x256M", option, "--steps=120", "--batch=8", "--hidden=16", "--rate=0.1", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_TRUE_MESSAGE(atof(train_field("loss_last")) < 0.2, train_said.out);
    train_write_file(folder, "train-images-idx3-ubyte", images, sizeof(images) - 1);
    TRAIN("1x256M", option);
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "truncated"), train_said.err);
    train_remove_folder(folder);
}

static void test_a_closed_stream_costs_what_is_said_and_no_more(void)
{
    const char *folder;
    char loss[32], line[2048];

    TRAIN("1x256M", "--hidden=16", "--steps=3");
    train_went_well();
    strcpy(loss, train_field("val_loss"));
    train_shell("1x256M", "exec \"$TRAIN\" --hidden=16 --steps=3 2>&-", 0);
    train_went_well();
    TEST_ASSERT_EQUAL_STRING(loss, train_field("val_loss"));
    /* A pipe whose reader has ended. */
    folder = train_make_folder();
    snprintf(line, sizeof(line),
             "mkfifo %s/pipe; exec 3<>%s/pipe 4>%s/pipe 3<&-; exec \"$TRAIN\" --hidden=16 --steps=3 2>&4",
             folder, folder, folder);
    train_shell("1x256M", line, 0);
    train_remove_folder(folder);
    train_went_well();
    TEST_ASSERT_EQUAL_STRING(loss, train_field("val_loss"));
    train_shell("1x256M", "exec \"$TRAIN\" --hidden=16 --steps=3 >&-", 0);
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "could not be written"), train_said.err);
}

/* What one thread says and counts: ThreadSanitizer would find nothing more there, and take half a minute. */
#ifdef __SANITIZE_THREAD__
#define SLOW_THREADS true
#else
#define SLOW_THREADS false
#endif

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_loss_goes_down);
    RUN_TEST(test_losses_are_equal_to_the_bit_in_every_allocation_mode);
    RUN_TEST(test_the_log_tells_the_run_from_start_to_end);
    RUN_TEST(test_the_seed_decides_the_run);
    RUN_TEST(test_the_arena_takes_its_share_of_what_is_free);
    RUN_TEST(test_out_of_memory_says_what_was_asked_and_free);
    RUN_TEST(test_bad_options_end_with_a_message);
    RUN_TEST(test_an_impossible_batch_is_reported);
    RUN_TEST(test_a_budget_is_kept_to);
    RUN_TEST(test_a_closed_stream_costs_what_is_said_and_no_more);
    RUN_TEST(test_a_cap_below_the_size_of_the_context_is_reported);
    RUN_TEST(test_without_a_gpu_the_simulated_one_is_named);
    RUN_TEST(test_idx_files_are_learned);
    if (!SLOW_THREADS) {
        RUN_TEST(test_static_takes_no_memory_after_the_first_step);
        RUN_TEST(test_the_speed_is_that_of_the_samples_that_were_used);
        RUN_TEST(test_options_that_contradict_each_other_are_refused);
        RUN_TEST(test_options_without_effect_are_named);
        RUN_TEST(test_no_loss_is_told_where_no_step_was_done);
        RUN_TEST(test_out_of_memory_says_what_needs_less);
    }
    return UNITY_END();
}
