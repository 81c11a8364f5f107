/* Smaller models in files: int8 weights stay int8 in the checkpoint and come back the same, pruned weights
 * stay zero while the rest is trained on and leave a sparse one, and both are for evaluation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit/harness/harness_support.h"
#include "unity.h"

#define CARD "1x256M"
#define MLP  "--model=mlp", "--hidden=64"

enum { MODEL_WORDS = 5 };

static const char *const models[][MODEL_WORDS] = {
    {MLP, "--batch=8", "--quiet", "--seed=1"},
    {"--model=resnet18", "--width=4", "--image=16", "--batch=4", "--quiet"},
    {"--model=gpt", "--layers=2", "--width=32", "--heads=2", "--length=16"},
};

static const char *folder;
static char save[600], other[600], resume[600];

void setUp(void)
{
    folder = train_make_folder();
    snprintf(save, sizeof(save), "--save=%s/run", folder);
    snprintf(other, sizeof(other), "--save=%s/other", folder);
}

void tearDown(void)
{
    train_forget();
    train_remove_folder(folder);
}

static double number(const char *key)
{
    return atof(train_field(key));
}

static void resume_from(const char *name)
{
    snprintf(resume, sizeof(resume), "--resume=%s/%s", folder, name);
}

static long long size_of(const char *name)
{
    char path[600];
    struct stat info;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, stat(path, &info), path);
    return (long long)info.st_size;
}

static int shell(const char *format, const char *a, const char *b)
{
    char line[2048];

    snprintf(line, sizeof(line), format, folder, a, folder, b);
    return system(line);
}

#define SAVED(...)                                                                                           \
    do {                                                                                                     \
        TRAIN(CARD, __VA_ARGS__, "--val-batches=2", "--quiet");                                              \
        train_went_well();                                                                                   \
    } while (0)

/* Trains, keeps bytes, evaluates what the file has, and writes it again. */
static void check_bytes_in_the_file(const char *const *model, const char *precision)
{
    char loss[32];
    double before;

    SAVED(model[0], model[1], model[2], model[3], model[4], precision, "--steps=3", "--quantize=int8", save);
    strcpy(loss, train_field("val_loss_after"));
    before = number("held_before");
    TEST_ASSERT_EQUAL_INT64(size_of("run.int8"), atoll(train_field("file_bytes")));
    /* Bytes for floats, and no moments. */
    TEST_ASSERT_LESS_THAN_INT64(size_of("run") / 4, size_of("run.int8"));
    resume_from("run.int8");
    SAVED(model[0], model[1], model[2], model[3], model[4], precision, "--steps=0", "--quantize=int8", resume,
          other);
    TEST_ASSERT_EQUAL_STRING(loss, train_field("val_loss"));
    TEST_ASSERT_EQUAL_STRING(train_field("bytes_before"), train_field("bytes_after"));
    TEST_ASSERT_TRUE_MESSAGE(number("held_before") < 0.5 * before, train_said.out);
    TEST_ASSERT_EQUAL_INT(0, shell("cmp %s/%s %s/%s", "run.int8", "other.int8"));
}

static void test_int8_stays_int8_in_the_file_and_comes_back_the_same(void)
{
    check_bytes_in_the_file(models[0], "--precision=fp32");
    check_bytes_in_the_file(models[1], "--precision=bf16");
    check_bytes_in_the_file(models[2], "--precision=fp16");
}

/* Weights of 3.2 MB, and as much for moments: the budget holds neither, but the bytes and one layer's floats.
 */
static void test_int8_weights_are_evaluated_where_floats_and_moments_do_not_fit(void)
{
    char loss[32];

    SAVED("--hidden=1024", "--steps=1", "--batch=4", "--quantize=int8", save);
    strcpy(loss, train_field("val_loss_after"));
    resume_from("run");
    TRAIN(CARD, "--hidden=1024", "--steps=0", "--batch=4", "--budget=5M", "--quiet", resume);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    resume_from("run.int8");
    SAVED("--hidden=1024", "--steps=0", "--batch=4", "--budget=5M", resume);
    TEST_ASSERT_EQUAL_STRING(loss, train_field("val_loss"));
    TEST_ASSERT_TRUE_MESSAGE(number("peak_parameters") < 1e6, train_said.out);
}

static void test_a_small_checkpoint_is_for_evaluation(void)
{
    char weights[600];

    SAVED(MLP, "--steps=3", "--prune=0.5", "--quantize=int8", save);
    resume_from("run.int8");
    TRAIN(CARD, MLP, "--steps=9", resume);
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "for evaluation: use --steps=0"), train_said.err);
    TRAIN(CARD, MLP, "--steps=0", "--prune=0.5", resume);
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "--prune starts from a full checkpoint"),
                                 train_said.err);
    snprintf(weights, sizeof(weights), "--save-weights=%s/weights", folder);
    TRAIN(CARD, MLP, "--steps=0", weights, resume);
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "the weights are int8"), train_said.err);
    TRAIN(CARD, MLP, "--steps=0", "--save-best", resume, save); /* bytes are not written as floats */
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_FAILED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "nothing would be saved"), train_said.err);
    /* The full checkpoint beside it still goes on. */
    resume_from("run");
    SAVED(MLP, "--steps=4", resume);
}

static void test_a_damaged_small_checkpoint_is_refused(void)
{
    static const char *const names[] = {"run.int8", "run.pruned"};

    SAVED(MLP, "--steps=2", "--prune=0.3", "--quantize=int8", save);
    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT(0, shell("head -c 3000 %s/%s > %s/%s", names[i], "bad"));
        resume_from("bad");
        TRAIN(CARD, MLP, "--steps=0", resume);
        TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "truncated"), train_said.err);
        TEST_ASSERT_EQUAL_INT(0, shell("cp %s/%s %s/%s", names[i], "bad"));
        TEST_ASSERT_EQUAL_INT(
            0, shell("printf x | dd of=%s/%s bs=1 seek=900 conv=notrunc 2> %s/%s", "bad", "errors"));
        TRAIN(CARD, MLP, "--steps=0", resume);
        TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "checksum"), train_said.err);
    }
}

/* ---- pruning ---- */

static void test_pruned_weights_stay_zero_while_the_rest_is_trained(void)
{
    static const char *const ways[][3] = {{"--optimizer=sgd", "--rate=0.02", "--alloc=naive"},
                                          {"--optimizer=adam", "--rate=0.002", "--alloc=static"},
                                          {"--optimizer=sgd", "--rate=0.02", "--graph"}};
    char loss[32];

    for (int i = 0; i < 3; i++) {
        SAVED("--hidden=64", "--batch=32", "--schedule=constant", "--alloc=cache", ways[i][0], ways[i][1],
              ways[i][2], "--steps=40", "--prune=0.6", "--prune-steps=30", save);
        TEST_ASSERT_FLOAT_WITHIN(0.001, 0.6, number("zeros"));
        TEST_ASSERT_EQUAL_STRING("30", train_field("tune_steps"));
        TEST_ASSERT_EQUAL_STRING("dense", train_field("products"));
        TEST_ASSERT_TRUE_MESSAGE(number("val_loss_tuned") < number("val_loss_after"), train_said.out);
        TEST_ASSERT_EQUAL_INT64(size_of("run.pruned"), atoll(train_field("file_bytes")));
        TEST_ASSERT_TRUE_MESSAGE(number("file_bytes") < 0.5 * number("bytes_before"), train_said.out);
        strcpy(loss, train_field("val_loss_tuned"));
        resume_from("run.pruned");
        SAVED("--hidden=64", "--batch=32", ways[i][0], "--steps=0", resume);
        TEST_ASSERT_EQUAL_STRING(loss, train_field("val_loss"));
    }
}

static void test_two_of_four_is_a_pattern_and_said_to_be_a_study(void)
{
    TRAIN(CARD, MLP, "--steps=5", "--prune=0.5", "--prune-pattern=2:4", "--prune-steps=5",
          "--precision=bf16");
    train_went_well();
    TEST_ASSERT_EQUAL_STRING("2:4", train_field("pattern"));
    TEST_ASSERT_EQUAL_STRING("0.5000", train_field("zeros"));
    TEST_ASSERT_EQUAL_STRING("dense", train_field("products"));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "This is a study"), train_said.err);
    TRAIN(CARD, MLP, "--steps=5", "--prune=0.4", "--prune-pattern=2:4");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TRAIN(CARD, MLP, "--steps=5", "--prune-steps=5");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_int8_stays_int8_in_the_file_and_comes_back_the_same);
    RUN_TEST(test_int8_weights_are_evaluated_where_floats_and_moments_do_not_fit);
    RUN_TEST(test_a_small_checkpoint_is_for_evaluation);
    RUN_TEST(test_a_damaged_small_checkpoint_is_refused);
    RUN_TEST(test_pruned_weights_stay_zero_while_the_rest_is_trained);
    RUN_TEST(test_two_of_four_is_a_pattern_and_said_to_be_a_study);
    return UNITY_END();
}
