/* `train` on a real GPU: it finds its kernels, every model learns, and the losses are the same to the bit
 * however it takes its memory, replayed from a graph or not, and after a resume, because every kernel sums in
 * one fixed order. Exit status 77 without a GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spawn.h"
#include "train_probe.h"
#include "unity.h"

enum { MAX_ARGUMENTS = 32 };

static struct spawn_env *env;
static struct spawn_result result;

void setUp(void) {}

void tearDown(void)
{
    spawn_result_free(&result);
    memset(&result, 0, sizeof(result));
}

/* Runs train with what all of them have in common, then the arguments of two lists, each ended by NULL. */
static void run_train(const char *const *model, const char *const *more)
{
    const char *argv[MAX_ARGUMENTS + 1] = {spawn_build_path("train"), "--quiet", "--fraction=0.2",
                                           "--val-batches=1"};
    int count = 4;

    for (int i = 0; model[i] && count < MAX_ARGUMENTS; i++)
        argv[count++] = model[i];
    for (int i = 0; more[i] && count < MAX_ARGUMENTS; i++)
        argv[count++] = more[i];
    spawn_result_free(&result);
    result = spawn_run(env, argv, NULL);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, result.status, result.err);
}

#define RUN(model, ...) run_train(model, (const char *const[]){__VA_ARGS__, NULL})

static const char *field(const char *key)
{
    static char value[64];
    const char *at = strstr(result.out, key);

    TEST_ASSERT_NOT_NULL_MESSAGE(at, result.out);
    at += strlen(key);
    snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, " \n"), at);
    return value;
}

static const char *const perceptron[] = {"--hidden=512,128", "--batch=256", NULL};
static const char *const cnn[] = {"--model=cnn", "--image=32", "--batch=32", NULL};
static const char *const resnet[] = {"--model=resnet18", "--image=64", "--batch=16", "--width=32", NULL};
static const char *const gpt[] = {"--model=gpt",   "--layers=3",        "--width=128",
                                  "--heads=4",     "--length=128",      "--batch=8",
                                  "--dropout=0.1", "--optimizer=adamw", NULL};
static const char *const unet[] = {"--model=unet", "--image=64", "--batch=8", "--width=16", NULL};
/* Starting a process on a GPU takes most of a second: what does not depend on the model is shown on two. */
static const char *const *const models[] = {resnet, gpt, unet, cnn, perceptron};

enum { MODELS = sizeof(models) / sizeof(models[0]), FEW_MODELS = 2 };

static void test_every_model_learns_in_half_precision(void)
{
    static const char *const types[] = {"--precision=bf16", "--precision=fp16"};

    for (size_t m = 0; m < MODELS; m++) {
        for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
            double first;

            RUN(models[m], "--steps=60", "--alloc=cache", types[t]);
            first = atof(field("loss_first="));
            TEST_ASSERT_TRUE_MESSAGE(atof(field("loss_last=")) < 0.95 * first, result.out);
        }
    }
}

static void test_losses_are_equal_to_the_bit_in_every_allocation_mode(void)
{
    static const char *const modes[] = {"--alloc=naive", "--alloc=cache", "--alloc=arena", "--alloc=async",
                                        "--alloc=static"};

    for (size_t m = 0; m < FEW_MODELS; m++) {
        char expected[64] = "";

        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
            RUN(models[m], "--steps=6", "--precision=bf16", modes[i]);
            if (i == 0)
                strcpy(expected, field("loss_last="));
            TEST_ASSERT_EQUAL_STRING_MESSAGE(expected, field("loss_last="), result.out);
        }
    }
}

static void test_a_replayed_graph_and_repeated_activations_give_the_same_bits(void)
{
    for (size_t m = 0; m < FEW_MODELS; m++) {
        char expected[64];

        RUN(models[m], "--steps=8", "--precision=bf16", "--alloc=cache");
        strcpy(expected, field("loss_last="));
        RUN(models[m], "--steps=8", "--precision=bf16", "--alloc=cache", "--graph");
        TEST_ASSERT_EQUAL_STRING_MESSAGE(expected, field("loss_last="), result.out);
        RUN(models[m], "--steps=8", "--precision=bf16", "--alloc=cache", "--checkpoint-activations");
        TEST_ASSERT_EQUAL_STRING_MESSAGE(expected, field("loss_last="), result.out);
    }
}

/* The trials must leave accumulated gradients and a captured step alone. */
static void test_a_tuned_run_differs_by_rounding_only(void)
{
    double expected;

    RUN(gpt, "--steps=8", "--precision=bf16", "--alloc=cache", "--accumulate=2");
    expected = atof(field("loss_last="));
    RUN(gpt, "--steps=8", "--precision=bf16", "--alloc=cache", "--accumulate=2", "--graph", "--tune");
    TEST_ASSERT_TRUE_MESSAGE(fabs(atof(field("loss_last=")) - expected) < 0.01 * expected, result.out);
}

static void test_two_runs_give_the_same_losses_and_weights_to_the_bit(void)
{
    char folder[] = "/tmp/kernels_twice.XXXXXX";
    char path[2][64], save[80], line[160], expected[64] = "";

    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    for (size_t m = 0; m < MODELS; m++) {
        for (int run = 0; run < 2; run++) {
            snprintf(path[run], sizeof(path[run]), "%s/%d", folder, run);
            snprintf(save, sizeof(save), "--save=%s", path[run]);
            RUN(models[m], "--steps=20", "--precision=bf16", "--alloc=cache", save);
            if (run == 0)
                strcpy(expected, field("loss_last="));
        }
        TEST_ASSERT_EQUAL_STRING_MESSAGE(expected, field("loss_last="), result.out);
        snprintf(line, sizeof(line), "cmp %s %s", path[0], path[1]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, system(line), result.out);
    }
    unlink(path[0]);
    unlink(path[1]);
    rmdir(folder);
}

static void test_a_resumed_run_gives_the_same_bits(void)
{
    char folder[] = "/tmp/kernels_train.XXXXXX";
    char path[64], save[80], resume[80], expected[64];

    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/run.ckpt", folder);
    snprintf(save, sizeof(save), "--save=%s", path);
    snprintf(resume, sizeof(resume), "--resume=%s", path);
    for (size_t m = 0; m < FEW_MODELS; m++) {
        RUN(models[m], "--steps=6", "--precision=fp16", "--alloc=cache");
        strcpy(expected, field("loss_last="));
        RUN(models[m], "--steps=3", "--precision=fp16", "--alloc=cache", save);
        RUN(models[m], "--steps=6", "--precision=fp16", "--alloc=cache", resume);
        TEST_ASSERT_EQUAL_STRING_MESSAGE(expected, field("loss_last="), result.out);
    }
    unlink(path);
    rmdir(folder);
}

static void test_accumulation_is_the_large_batch(void)
{
    double expected;

    RUN(perceptron, "--steps=5", "--batch=128", "--alloc=cache");
    expected = atof(field("loss_last="));
    RUN(perceptron, "--steps=5", "--batch=32", "--accumulate=4", "--alloc=cache");
    TEST_ASSERT_TRUE_MESSAGE(fabs(atof(field("loss_last=")) - expected) <= 1e-4 * expected, result.out);
    RUN(perceptron, "--steps=5", "--batch=32", "--replicas=4", "--alloc=cache");
    TEST_ASSERT_TRUE_MESSAGE(fabs(atof(field("loss_last=")) - expected) <= 1e-4 * expected, result.out);
}

/* By NCCL, where it is installed, with a stream of its own and in a graph. */
static void test_a_replica_on_each_card_is_the_large_batch(void)
{
    enum { EACH = 32 };
    char batch[32];
    double loss, graph;

    RUN(perceptron, "--steps=8", "--batch=32", "--alloc=cache", "--bucket=1K", "--replicas=all");
    loss = atof(field("loss_last="));
    snprintf(batch, sizeof(batch), "--batch=%d", EACH * atoi(field("replicas=")));
    RUN(perceptron, "--steps=8", "--batch=32", "--alloc=cache", "--bucket=1K", "--replicas=all", "--graph");
    graph = atof(field("loss_last="));
    RUN(perceptron, "--steps=8", batch, "--alloc=cache");
    TEST_ASSERT_TRUE_MESSAGE(fabs(atof(field("loss_last=")) - loss) <= 1e-4 * loss, result.out);
    TEST_ASSERT_TRUE_MESSAGE(fabs(graph - loss) <= 1e-4 * loss, result.out);
}

int main(void)
{
    int status;

    env = spawn_env_new();
    if (!train_probe_gpu(env))
        return SPAWN_SKIP;
    UNITY_BEGIN();
    RUN_TEST(test_every_model_learns_in_half_precision);
    RUN_TEST(test_losses_are_equal_to_the_bit_in_every_allocation_mode);
    RUN_TEST(test_a_replayed_graph_and_repeated_activations_give_the_same_bits);
    RUN_TEST(test_a_tuned_run_differs_by_rounding_only);
    RUN_TEST(test_two_runs_give_the_same_losses_and_weights_to_the_bit);
    RUN_TEST(test_a_resumed_run_gives_the_same_bits);
    RUN_TEST(test_accumulation_is_the_large_batch);
    RUN_TEST(test_a_replica_on_each_card_is_the_large_batch);
    status = UNITY_END();
    spawn_env_free(env);
    return status;
}
