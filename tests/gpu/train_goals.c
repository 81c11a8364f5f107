/* What training on a real GPU must reach: digits and text are learned. The data lies in $TRAIN_DATA (mnist/,
 * text/tinyshakespeare.txt); what is not there is left out and said. Exit status 77 without a GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spawn.h"
#include "train_probe.h"
#include "unity.h"

static struct spawn_env *env;
static struct spawn_result result;
static char data[512];

void setUp(void) {}

void tearDown(void)
{
    spawn_result_free(&result);
    memset(&result, 0, sizeof(result));
}

/* "--data=" and a path below $TRAIN_DATA; ignores the test if nothing is there. */
static const char *data_option(const char *name)
{
    const char *folder = getenv("TRAIN_DATA");

    snprintf(data, sizeof(data), "--data=%s/%s", folder ? folder : ".", name);
    if (access(strchr(data, '=') + 1, R_OK))
        TEST_IGNORE_MESSAGE(data);
    return data;
}

static double field(const char *key)
{
    const char *at = strstr(result.out, key);

    TEST_ASSERT_NOT_NULL_MESSAGE(at, result.out);
    return atof(at + strlen(key));
}

#define TRAIN(...)                                                                                           \
    result = spawn_run(env, (const char *const[]){spawn_build_path("train"), __VA_ARGS__, NULL}, NULL)

static void test_the_cnn_reads_99_percent_of_the_digits(void)
{
    TRAIN("--model=cnn", data_option("mnist"), "--batch=128", "--steps=6000", "--augment=gpu",
          "--precision=tf32", "--rate=0.03", "--schedule=cosine", "--decay=0.0005", "--alloc=cache",
          "--graph", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, result.status, result.err);
    printf("%s", result.out);
    TEST_ASSERT_TRUE_MESSAGE(field(" accuracy=") >= 0.99, result.out);
}

static void test_the_transformer_reads_text_at_one_and_a_half_nats(void)
{
    TRAIN("--model=gpt", data_option("text/tinyshakespeare.txt"), "--batch=64", "--steps=2500",
          "--validate-every=250", "--precision=bf16", "--dropout=0.2", "--rate=0.001", "--schedule=cosine",
          "--warmup=100", "--decay=0.1", "--beta2=0.99", "--clip=1", "--alloc=cache", "--graph", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, result.status, result.err);
    printf("%s", result.out);
    TEST_ASSERT_TRUE_MESSAGE(field(" val_best=") <= 1.5, result.out);
}

int main(void)
{
    int status;

    env = spawn_env_new();
    if (!train_probe_gpu(env))
        return SPAWN_SKIP;
    UNITY_BEGIN();
    RUN_TEST(test_the_cnn_reads_99_percent_of_the_digits);
    RUN_TEST(test_the_transformer_reads_text_at_one_and_a_half_nats);
    status = UNITY_END();
    spawn_env_free(env);
    return status;
}
