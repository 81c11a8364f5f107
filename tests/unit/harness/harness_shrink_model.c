/* Smaller models: with --quantize=int8 the device holds bytes instead of floats while it evaluates, in every
 * model, precision and allocation mode, and says what that costs in loss and accuracy. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/harness/harness_support.h"
#include "unity.h"

#define CARD "1x256M"
#define MLP  "--model=mlp", "--hidden=64"
#define GPT  "--model=gpt", "--layers=2", "--width=32", "--heads=2", "--length=16"

enum { MODEL_WORDS = 5 };

static const char *const models[][MODEL_WORDS] = {
    {MLP, "--batch=8", "--quiet", "--seed=1"},
    {"--model=cnn", "--width=8", "--image=16", "--batch=8", "--quiet"},
    {"--model=resnet18", "--width=4", "--image=16", "--batch=4", "--quiet"},
    {GPT},
    {"--model=unet", "--layers=2", "--width=8", "--image=16", "--batch=2"},
};
static const char *const modes[] = {"--alloc=naive", "--alloc=cache", "--alloc=arena", "--alloc=async",
                                    "--alloc=static"};
enum { MODELS = sizeof(models) / sizeof(models[0]), MODES = sizeof(modes) / sizeof(modes[0]) };

void setUp(void) {}

void tearDown(void)
{
    train_forget();
}

static void run(const char *const *model, const char *mode, const char *precision)
{
    const char *arguments[MODEL_WORDS + 6] = {mode, precision, "--steps=4", "--quantize=int8", "--quiet"};

    memcpy(arguments + 5, model, MODEL_WORDS * sizeof(*model));
    train_run_on(CARD, arguments);
    train_went_well();
}

static double number(const char *key)
{
    return atof(train_field(key));
}

static void test_bytes_take_the_place_of_floats_on_the_device(void)
{
    for (int m = 0; m < MODELS; m++) {
        char loss[32] = "";

        for (int i = 0; i < MODES; i++) {
            run(models[m], modes[i], "--precision=fp32");
            /* A byte for four of them, with the scales and vectors that stay floats. */
            TEST_ASSERT_TRUE_MESSAGE(number("bytes_after") < 0.45 * number("bytes_before"), train_said.out);
            TEST_ASSERT_TRUE_MESSAGE(number("bytes_after") > 0.25 * number("bytes_before"), train_said.out);
            TEST_ASSERT_TRUE_MESSAGE(fabs(number("val_loss_after") - number("val_loss_before")) <
                                         0.05 * number("val_loss_before"),
                                     train_said.out);
            TEST_ASSERT_TRUE_MESSAGE(strcmp(train_field("val_loss_after"), "0") != 0, train_said.out);
            if (i > 0)
                TEST_ASSERT_EQUAL_STRING_MESSAGE(loss, train_field("val_loss_after"), modes[i]);
            snprintf(loss, sizeof(loss), "%s", train_field("val_loss_after"));
        }
    }
}

/* What the process has from the device shrinks by all that the parameters shrink. */
static void test_the_device_gets_the_difference_back(void)
{
    static const char *const exact[] = {"--alloc=naive", "--alloc=async", "--alloc=static"};

    for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++) {
        run(models[0], exact[i], "--precision=bf16");
        TEST_ASSERT_EQUAL_INT64(atoll(train_field("bytes_before")) - (long long)number("bytes_after"),
                                atoll(train_field("held_before")) - (long long)number("held_after"));
    }
    /* A cache gives back whole segments: here that of the largest weight, which a graph had pinned. */
    TRAIN(CARD, "--hidden=3072,3072", "--batch=2", "--steps=5", "--alloc=cache", "--quantize=int8",
          "--graph");
    train_went_well();
    TEST_ASSERT_TRUE_MESSAGE(number("held_after") < number("held_before"), train_said.out);
}

static void test_one_weight_at_a_time_is_unpacked(void)
{
    const double largest = 784.0 * 64.0;

    run(models[0], "--alloc=naive", "--precision=fp32");
    TEST_ASSERT_EQUAL_DOUBLE(4.0 * largest, number("workspace_after") - number("workspace_before"));
    run(models[0], "--alloc=static", "--precision=bf16");
    TEST_ASSERT_EQUAL_DOUBLE(2.0 * largest, number("workspace_after") - number("workspace_before"));
}

static void test_copies_of_other_types_go_too(void)
{
    static const char *const types[] = {"--precision=tf32", "--precision=bf16", "--precision=fp16"};

    for (int m = 0; m < MODELS; m++) {
        double plain;

        run(models[m], "--alloc=cache", types[0]);
        plain = number("bytes_after");
        for (int t = 1; t < 3; t++) {
            run(models[m], "--alloc=cache", types[t]);
            TEST_ASSERT_TRUE_MESSAGE(number("bytes_after") < 0.3 * number("bytes_before"), train_said.out);
            TEST_ASSERT_TRUE_MESSAGE(number("bytes_after") < 1.1 * plain, train_said.out);
        }
    }
}

static void test_a_graph_of_the_training_does_not_hold_the_floats(void)
{
    static const char *const fixed[] = {"--alloc=cache", "--alloc=arena", "--alloc=static"};

    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        TRAIN(CARD, GPT, "--batch=2", "--steps=8", "--quantize=int8", "--graph", "--quiet", fixed[i]);
        train_went_well();
        TEST_ASSERT_TRUE_MESSAGE(number("bytes_after") < 0.4 * number("bytes_before"), train_said.out);
    }
}

static void test_shrinking_says_bytes_and_accuracy(void)
{
    TRAIN(CARD, "--hidden=64", "--steps=60", "--batch=32", "--prune=0.5", "--quantize=int8");
    train_went_well();
    TEST_ASSERT_EQUAL_STRING("prune", train_field("shrink"));
    TEST_ASSERT_TRUE(number("bytes_after") < 0.6 * number("bytes_before"));
    TEST_ASSERT_TRUE(number("accuracy_after") > 0.5 * number("accuracy_before"));
    TEST_ASSERT_NOT_NULL(strstr(train_said.out, "shrink=int8 bytes_before="));
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "int8: parameters 198.8 KiB before, 50.2 KiB after; loss "));
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "; accuracy "));
}

/* Without a step there were no gradients: the budget holds weights and moments, but not the bytes beside
 * them.
 */
static void test_running_out_of_memory_while_shrinking_is_reported(void)
{
    TRAIN(CARD, "--hidden=1024", "--steps=0", "--batch=4", "--budget=6700K", "--quiet");
    train_went_well();
    TRAIN(CARD, "--hidden=1024", "--steps=0", "--batch=4", "--budget=6700K", "--quiet", "--quantize=int8",
          "--find-batch");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    TRAIN(CARD, "--hidden=1024", "--steps=0", "--batch=4", "--budget=6700K", "--quiet", "--quantize=int8");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "--quantize=int8: the training is done"),
                                 train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "bytes of parameters"), train_said.err);
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.out, "shrink="), train_said.out);
}

static void test_shrinking_goes_with_one_model(void)
{
    TRAIN(CARD, "--pair", "mlp", "mlp", "--quantize=int8");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
    TRAIN(CARD, "--replicas=2", "--prune=0.5");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_bytes_take_the_place_of_floats_on_the_device);
    RUN_TEST(test_the_device_gets_the_difference_back);
    RUN_TEST(test_one_weight_at_a_time_is_unpacked);
    RUN_TEST(test_copies_of_other_types_go_too);
    RUN_TEST(test_a_graph_of_the_training_does_not_hold_the_floats);
    RUN_TEST(test_shrinking_says_bytes_and_accuracy);
    RUN_TEST(test_running_out_of_memory_while_shrinking_is_reported);
    RUN_TEST(test_shrinking_goes_with_one_model);
    return UNITY_END();
}
