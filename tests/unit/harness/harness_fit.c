/* Fitting into memory: accumulation is the large batch, the batch search recovers from every out-of-memory,
 * and a captured step and other types train alike. */
#include <math.h>
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

static void test_accumulation_is_the_large_batch(void)
{
    double first, last, val;

    TRAIN("1x256M", "--batch=128", "--steps=4", "--hidden=32", "--val-batch=64", "--quiet");
    train_went_well();
    first = atof(train_field("loss_first"));
    last = atof(train_field("loss_last"));
    val = atof(train_field("val_loss"));
    TRAIN("1x256M", "--batch=32", "--accumulate=4", "--steps=4", "--hidden=32", "--val-batch=64", "--quiet");
    train_went_well();
    train_is_near(first, "loss_first");
    train_is_near(last, "loss_last");
    train_is_near(val, "val_loss");
    TRAIN("1x256M", GPT, "--batch=16", "--steps=3", "--optimizer=sgd", "--val-batch=8", "--quiet");
    last = atof(train_field("loss_last"));
    TRAIN("1x256M", GPT, "--batch=4", "--accumulate=4", "--steps=3", "--optimizer=sgd", "--val-batch=8",
          "--quiet");
    train_went_well();
    train_is_near(last, "loss_last");
}

static void test_the_batch_search_finds_what_fits(void)
{
    long long batch, peak;

    TRAIN("1x24M", "--model=cnn", "--width=8", "--image=32", "--batch=2048", "--find-batch", "--steps=2",
          "--val-batches=1");
    train_went_well();
    batch = atoll(train_field("batch"));
    TEST_ASSERT_TRUE_MESSAGE(batch > 4 && batch < 2048, train_said.out);
    TEST_ASSERT_NOT_NULL(strstr(train_said.err, "does not fit"));
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "out of memory: asked"), train_said.err);
    TRAIN("1x256M", "--hidden=16", "--batch=24", "--find-batch", "--steps=1", "--quiet");
    train_went_well();
    TEST_ASSERT_EQUAL_STRING("24", train_field("batch"));
    /* The peak is the training's: a trial's is higher, because it holds memory back. */
    peak = atoll(train_field("peak_bytes"));
    TRAIN("1x256M", "--hidden=16", "--batch=24", "--steps=1", "--quiet");
    TEST_ASSERT_EQUAL_INT64(peak, atoll(train_field("peak_bytes")));
    TRAIN("1x24M", "--hidden=4096", "--batch=8", "--find-batch", "--steps=1", "--quiet");
    TEST_ASSERT_EQUAL_INT(TRAIN_NO_MEMORY, train_said.status);
}

static void test_accumulation_keeps_the_effective_batch(void)
{
    TRAIN("1x24M", "--model=cnn", "--width=8", "--image=32", "--batch=256", "--auto-accum", "--steps=1",
          "--val-batches=1", "--alloc=cache", "--quiet");
    train_went_well();
    TEST_ASSERT_TRUE(atoll(train_field("accumulate")) > 1);
    TEST_ASSERT_EQUAL_INT64(256, atoll(train_field("batch")) * atoll(train_field("accumulate")));
}

/* Memory runs out after 15 of 30 steps, which are saved. */
static void test_a_batch_that_does_not_fit_after_all_loses_no_saved_step(void)
{
    const char *folder = train_make_folder();
    char line[2048];
    const char *again;

    snprintf(
        line, sizeof(line),
        "GPUCAP_SIM_FAULT=cuMemAlloc_v2:400=2 \"$TRAIN\" --hidden=16 --batch=8 --steps=30 --save-every=5 "
        "--save=%s/run --auto-accum --val-batches=1 --report-every=1",
        folder);
    train_shell("1x256M", line, 0);
    train_remove_folder(folder);
    train_went_well();
    again = strstr(train_said.err, "batch 8 does not fit after all: trying 4 from ");
    TEST_ASSERT_NOT_NULL_MESSAGE(again, train_said.err);
    TEST_ASSERT_NULL_MESSAGE(strstr(again, "step=1/30"), again);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(again, "step=30/30"), again);
}

static void test_a_captured_step_gives_the_same_bits(void)
{
    static const char *const modes[] = {"--alloc=cache", "--alloc=arena", "--alloc=static"};
    char loss[32];

    TRAIN("1x256M", GPT, "--steps=8", "--batch=4", "--dropout=0.1", "--accumulate=2", "--val-batches=1",
          "--validate-every=3", "--quiet");
    train_went_well();
    strcpy(loss, train_field("loss_last"));
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        TRAIN("1x256M", GPT, "--steps=8", "--batch=4", "--dropout=0.1", "--accumulate=2", "--val-batches=1",
              "--validate-every=3", "--val-batch=16", "--quiet", "--graph", modes[i]);
        train_went_well();
        TEST_ASSERT_EQUAL_STRING(loss, train_field("loss_last"));
    }
}

static void test_every_precision_learns(void)
{
    static const char *const types[] = {"--precision=tf32", "--precision=bf16", "--precision=fp16"};
    double loss;

    TRAIN("1x256M", GPT, "--steps=10", "--batch=8", "--quiet");
    train_went_well();
    loss = atof(train_field("loss_last"));
    TEST_ASSERT_TRUE(loss < 0.99 * atof(train_field("loss_first")));
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        TRAIN("1x256M", GPT, "--steps=10", "--batch=8", "--quiet", types[i]);
        train_went_well();
        TEST_ASSERT_TRUE_MESSAGE(fabs(atof(train_field("loss_last")) - loss) < 0.02, train_said.out);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_accumulation_is_the_large_batch);
    RUN_TEST(test_the_batch_search_finds_what_fits);
    RUN_TEST(test_accumulation_keeps_the_effective_batch);
    RUN_TEST(test_a_batch_that_does_not_fit_after_all_loses_no_saved_step);
    RUN_TEST(test_a_captured_step_gives_the_same_bits);
    RUN_TEST(test_every_precision_learns);
    return UNITY_END();
}
