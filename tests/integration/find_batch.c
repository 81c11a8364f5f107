/* `train --find-batch` under a cap: the batch that is found trains to the end, validations included, without
 * a smaller one being tried after all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_support.h"
#include "unity.h"

#define WORDS 32

/* A context of simgpu takes most of it. */
#define CAP "--max=80M"
/* The driver's stream-ordered pool grows by 32 MiB at a time. */
#define CAP_ASYNC "--max=144M"

enum mode { NAIVE = 1, CACHE = 2, ARENA = 4, STATIC = 8 };

static const char *const modes[] = {"--alloc=naive", "--alloc=cache", "--alloc=arena", "--alloc=static"};
enum { MODES = sizeof(modes) / sizeof(*modes) };

static struct spawn_result said;
static const char *ledger;

/* Most searches are no job: in one, each of many requests that do not fit is tried for a while. */
void setUp(void)
{
    cli_set_up();
    ledger = "--ledger=off";
}

void tearDown(void)
{
    spawn_result_free(&said);
    memset(&said, 0, sizeof(said));
    cli_tear_down();
}

/* Memory that goes back after some seconds, and comes again in other places, would make what fits into these
 * few pages a matter of how fast the machine is. */
static void train(const char *cap, const char *mode, const char *const *arguments)
{
    const char *argv[WORDS] = {
        spawn_build_path("gpucap"), "run", "--sim=1x1G", cap, "--reserve=0", "--decay=off", ledger, "--",
        spawn_build_path("train"),  mode};
    struct spawn_env *env = cli_env_real();
    int count = 10;

    while (*arguments)
        argv[count++] = *arguments++;
    spawn_result_free(&said);
    said = spawn_run(env, argv, NULL);
    spawn_env_free(env);
}

/* The batch that the result line names. */
static long batch_of_result(void)
{
    const char *at = strstr(said.out, " batch=");

    TEST_ASSERT_NOT_NULL_MESSAGE(at, said.err);
    return strtol(at + strlen(" batch="), NULL, 10);
}

static void expect_held(void)
{
    cli_expect_status(0, &said);
    TEST_ASSERT_NULL_MESSAGE(strstr(said.err, "after all"), said.err);
    TEST_ASSERT_NULL_MESSAGE(strstr(said.err, "out of memory"), said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said.err, "does not fit"), "the card is too large for this test");
    TEST_ASSERT_TRUE_MESSAGE(batch_of_result() >= 1, said.out);
}

static void search_in(unsigned wanted, const char *const *arguments)
{
    for (int i = 0; i < MODES; i++) {
        if (!(wanted & 1u << i))
            continue;
        train(CAP, modes[i], arguments);
        expect_held();
    }
}

/* Each model, each way to allocate and each option at least once: all of them together take minutes. */
#define SEARCH_IN(wanted, ...) search_in(wanted, (const char *const[]){__VA_ARGS__, NULL})
#define SEARCH                 "--find-batch", "--batch=4096", "--steps=5", "--validate-every=2", "--fraction=0.6"
#define CNN                    "--model=cnn", "--width=8", "--image=32"
#define GPT                    "--model=gpt", "--layers=2", "--width=32", "--heads=2", "--length=32"

static void test_the_batch_found_holds_for_the_perceptron(void)
{
    SEARCH_IN(CACHE | STATIC, "--model=mlp", "--hidden=64", "--image=64", SEARCH);
}

static void test_the_batch_found_holds_for_the_cnn(void)
{
    SEARCH_IN(NAIVE | STATIC, CNN, SEARCH);
}

static void test_the_batch_found_holds_in_a_job(void)
{
    static char folder[512];

    snprintf(folder, sizeof(folder), "--ledger=%s", cli_path("ledger"));
    ledger = folder;
    SEARCH_IN(ARENA, CNN, SEARCH);
}

static void test_the_batch_found_holds_for_the_residual_network(void)
{
    SEARCH_IN(CACHE, "--model=resnet18", "--width=8", "--image=32", SEARCH);
}

static void test_the_batch_found_holds_for_the_transformer(void)
{
    SEARCH_IN(NAIVE | CACHE, GPT, SEARCH);
}

static void test_the_batch_found_holds_for_the_unet(void)
{
    SEARCH_IN(STATIC, "--model=unet", "--layers=2", "--width=8", "--image=32", SEARCH);
}

static void test_the_batch_found_holds_in_the_drivers_pool(void)
{
    train(CAP_ASYNC, "--alloc=async", (const char *const[]){GPT, SEARCH, NULL});
    expect_held();
}

/* A validation may need more than a step. */
static void test_a_large_validation_is_part_of_the_trial(void)
{
    SEARCH_IN(CACHE, CNN, SEARCH, "--val-batch=16", "--checkpoint-activations");
}

static void test_accumulated_gradients_are_part_of_the_trial(void)
{
    SEARCH_IN(NAIVE, CNN, SEARCH, "--accumulate=2", "--precision=bf16", "--optimizer=adam", "--clip=1");
}

static void test_graphs_are_part_of_the_trial(void)
{
    SEARCH_IN(STATIC, CNN, SEARCH, "--graph", "--augment=gpu");
}

static void test_batches_that_vary_are_part_of_the_trial(void)
{
    SEARCH_IN(CACHE, GPT, SEARCH, "--vary");
}

/* The device cannot even be opened: that is one message, and no search. */
static void test_a_card_without_room_for_a_context_is_reported_once(void)
{
    train("--max=16M", modes[0], (const char *const[]){CNN, SEARCH, NULL});
    cli_expect_status(3, &said);
    TEST_ASSERT_NULL_MESSAGE(strstr(said.err, "after all"), said.err);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_batch_found_holds_for_the_perceptron);
    RUN_TEST(test_the_batch_found_holds_for_the_cnn);
    RUN_TEST(test_the_batch_found_holds_in_a_job);
    RUN_TEST(test_the_batch_found_holds_for_the_residual_network);
    RUN_TEST(test_the_batch_found_holds_for_the_transformer);
    RUN_TEST(test_the_batch_found_holds_for_the_unet);
    RUN_TEST(test_the_batch_found_holds_in_the_drivers_pool);
    RUN_TEST(test_a_large_validation_is_part_of_the_trial);
    RUN_TEST(test_accumulated_gradients_are_part_of_the_trial);
    RUN_TEST(test_graphs_are_part_of_the_trial);
    RUN_TEST(test_batches_that_vary_are_part_of_the_trial);
    RUN_TEST(test_a_card_without_room_for_a_context_is_reported_once);
    return UNITY_END();
}
