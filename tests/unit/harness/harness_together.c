/* Several trainings in one process: pairs and replicas train as they would alone, in every way that they can
 * share a card and its memory. */
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

#define GPT "--model=gpt", "--layers=2", "--width=16", "--heads=2", "--length=16"

/* The n-th value of loss_last in the output. */
static double loss_of(int n)
{
    const char *at = train_said.out;

    for (int i = 0; i <= n; i++) {
        at = strstr(at, "loss_last=");
        TEST_ASSERT_NOT_NULL_MESSAGE(at, train_said.err);
        at += strlen("loss_last=");
    }
    return atof(at);
}

static void test_a_pair_trains_as_each_would_alone(void)
{
    static const char *const ways[] = {"--pair-mode=interleaved", "--pair-mode=streams",
                                       "--pair-mode=threads"};
    static const char *const modes[] = {"--alloc=arena", "--alloc=cache"};
    double first, second;

    TRAIN("1x256M", "--hidden=16", "--steps=4", "--batch=8", "--seed=1", "--quiet");
    first = loss_of(0);
    TRAIN("1x256M", GPT, "--steps=4", "--batch=8", "--seed=2", "--quiet");
    second = loss_of(0);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        for (size_t j = 0; j < sizeof(modes) / sizeof(modes[0]); j++) {
            TRAIN("1x256M", "--pair", "mlp", "gpt", "--hidden=16", "--layers=2", "--width=16", "--heads=2",
                  "--length=16", "--steps=4", "--batch=8", "--quiet", ways[i], modes[j],
                  j % 2 ? "--pair-memory=private" : "--pair-memory=shared");
            train_went_well();
            TEST_ASSERT_TRUE_MESSAGE(loss_of(0) == first && loss_of(1) == second, train_said.out);
            TEST_ASSERT_NOT_NULL(strstr(train_said.out, "\npair="));
        }
    }
}

/* The line of a model's validation at a step, with its loss; fails the test if there is none. */
static const char *validation_of(const char *model, int step)
{
    static char found[256];
    char start[64];
    const char *at;

    snprintf(start, sizeof(start), "%s step %d validation loss ", model, step);
    at = strstr(train_said.err, start);
    TEST_ASSERT_NOT_NULL_MESSAGE(at, train_said.err);
    snprintf(found, sizeof(found), "%.*s", (int)strcspn(at, "\n"), at);
    return found;
}

#define PAIR  "--pair", "mlp", "gpt", "--hidden=16", "--layers=2", "--width=16", "--heads=2", "--length=16"
#define SHORT "--steps=5", "--batch=8", "--validate-every=2", "--val-batches=1"

static void test_a_pair_validates_as_each_would_alone_in_every_mode(void)
{
    static const char *const ways[] = {"--pair-mode=interleaved", "--pair-mode=streams",
                                       "--pair-mode=threads"};
    char expected[2][3][256];

    TRAIN("1x256M", "--hidden=16", SHORT, "--seed=1");
    for (int v = 0; v < 3; v++)
        strcpy(expected[0][v], validation_of("mlp", v < 2 ? 2 * v + 2 : 5));
    TRAIN("1x256M", GPT, SHORT, "--seed=2");
    for (int v = 0; v < 3; v++)
        strcpy(expected[1][v], validation_of("gpt", v < 2 ? 2 * v + 2 : 5));
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        TRAIN("1x256M", PAIR, SHORT, ways[i]);
        train_went_well();
        for (int v = 0; v < 3; v++) {
            TEST_ASSERT_EQUAL_STRING(expected[0][v], validation_of("mlp", v < 2 ? 2 * v + 2 : 5));
            TEST_ASSERT_EQUAL_STRING(expected[1][v], validation_of("gpt", v < 2 ? 2 * v + 2 : 5));
        }
    }
}

/* With --pair-mode=threads: a pair of which one model has failed has no result, so the other must not train
 * on. */
static void test_a_model_that_fails_ends_the_other_of_its_pair(void)
{
    train_shell("1x256M",
                "timeout 200 \"$TRAIN\" --pair gpt mlp --pair-mode=threads --layers=1 --width=32 --heads=2 "
                "--length=16 --hidden=32 --batch=4 --rate=10 --momentum=0.99 --steps=1000000 --quiet",
                0);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NOT_FINITE, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "(mlp) is not finite"), train_said.err);
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
}

static void test_replicas_are_one_large_batch(void)
{
    double loss;

    TRAIN("1x256M", "--hidden=32", "--steps=5", "--batch=32", "--quiet");
    loss = loss_of(0);
    TRAIN("1x256M", "--hidden=32", "--steps=5", "--batch=8", "--replicas=4", "--alloc=cache", "--quiet");
    train_went_well();
    train_is_near(loss, "loss_last");
    TEST_ASSERT_EQUAL_STRING("4", train_field("replicas"));
    TRAIN("2x256M", "--hidden=32", "--steps=5", "--batch=16", "--replicas=all", "--quiet");
    train_went_well();
    train_is_near(loss, "loss_last");
    TEST_ASSERT_EQUAL_STRING("2", train_field("replicas"));
}

#define PICTURES "--model=cnn", "--image=16", "--width=8", "--steps=6", "--batch=8", "--quiet"

/* Two and four cards, by NCCL: whatever the size of the buckets, eagerly or in graphs, the bits are the same.
 */
static void test_replicas_give_the_same_bits_in_every_way(void)
{
    static const char *const cards[] = {"2x256M", "4x256M"};

    for (size_t i = 0; i < sizeof(cards) / sizeof(cards[0]); i++) {
        double loss;

        TRAIN(cards[i], PICTURES, "--replicas=all");
        train_went_well();
        loss = loss_of(0);
        TRAIN(cards[i], PICTURES, "--replicas=all", "--bucket=1");
        TEST_ASSERT_TRUE_MESSAGE(loss_of(0) == loss, train_said.out);
        TRAIN(cards[i], PICTURES, "--replicas=all", "--bucket=4K", "--alloc=cache", "--graph");
        TEST_ASSERT_TRUE_MESSAGE(loss_of(0) == loss, train_said.out);
        TRAIN("1x256M", PICTURES, i ? "--replicas=4" : "--replicas=2", "--alloc=cache", "--graph");
        TEST_ASSERT_TRUE_MESSAGE(loss_of(0) == loss, train_said.out);
    }
}

static void test_replicas_accumulate_as_one_does(void)
{
    double loss;

    TRAIN("1x256M", PICTURES, "--accumulate=4");
    loss = loss_of(0);
    TRAIN("2x256M", PICTURES, "--replicas=all", "--bucket=4K", "--accumulate=2", "--alloc=arena", "--graph");
    train_went_well();
    train_is_near(loss, "loss_last");
}

static void test_a_replica_that_runs_out_of_memory_ends_the_run(void)
{
    TRAIN("1x24M", "--hidden=512,512", "--steps=3", "--batch=64", "--replicas=3", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
    /* The others' cards are large enough: they wait for the last one to join them. */
    TRAIN("64M,64M,64M,12M", "--hidden=1024,512", "--steps=3", "--batch=64", "--replicas=all", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "replica 3 of 4 failed: the run ends"),
                                 train_said.err);
}

/* One call in the middle of a training fails: the other replicas wait for it on their streams. */
static void test_a_replica_that_fails_on_the_way_ends_the_others(void)
{
    static const char *const cards[] = {"2x256M", "4x256M"};

    for (size_t i = 0; i < sizeof(cards) / sizeof(cards[0]); i++) {
        train_shell(cards[i],
                    "GPUCAP_SIM_FAULT=cuLaunchHostFunc:2000=2 timeout 200 \"$TRAIN\" --hidden=32 "
                    "--steps=1000000 --replicas=all --quiet",
                    0);
        TEST_ASSERT_TRUE_MESSAGE(train_said.status != 0 && train_said.status != 124, train_said.err);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "failed: the run ends"), train_said.err);
        TEST_ASSERT_EQUAL_STRING("", train_said.out);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_pair_trains_as_each_would_alone);
    RUN_TEST(test_a_pair_validates_as_each_would_alone_in_every_mode);
    RUN_TEST(test_a_model_that_fails_ends_the_other_of_its_pair);
    RUN_TEST(test_replicas_are_one_large_batch);
    RUN_TEST(test_replicas_give_the_same_bits_in_every_way);
    RUN_TEST(test_replicas_accumulate_as_one_does);
    RUN_TEST(test_a_replica_that_runs_out_of_memory_ends_the_run);
    RUN_TEST(test_a_replica_that_fails_on_the_way_ends_the_others);
    return UNITY_END();
}
