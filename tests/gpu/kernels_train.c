/* `train` on a real GPU: it finds its kernels, learns, and gives the same losses to the bit however it takes
 * its memory, because every kernel sums in one fixed order. Exit status 77 without a GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn.h"
#include "unity.h"

static struct spawn_env *env;

void setUp(void) {}

void tearDown(void) {}

static struct spawn_result run_train(const char *alloc)
{
    return spawn_run(env,
                     (const char *const[]){spawn_build_path("train"), "--steps=200", "--batch=256",
                                           "--hidden=512,128", "--fraction=0.2", "--quiet", alloc, NULL},
                     NULL);
}

static void test_training_learns_the_same_in_every_allocation_mode(void)
{
    static const char *const modes[] = {"--alloc=naive", "--alloc=arena", "--alloc=static"};
    char expected[128] = "";

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct spawn_result result = run_train(modes[i]);
        float first = 0.0f, last = 0.0f;
        char losses[128];

        TEST_ASSERT_EQUAL_INT_MESSAGE(0, result.status, result.err);
        TEST_ASSERT_EQUAL_INT(2, sscanf(result.out, "loss_first=%f loss_last=%f", &first, &last));
        TEST_ASSERT_TRUE_MESSAGE(last < 0.5f * first, result.out);
        snprintf(losses, sizeof(losses), "%.*s", (int)strcspn(result.out, " "), result.out);
        snprintf(losses + strlen(losses), sizeof(losses) - strlen(losses), " %.9g", (double)last);
        if (i == 0)
            strcpy(expected, losses);
        TEST_ASSERT_EQUAL_STRING(expected, losses);
        printf("%s", result.out);
        spawn_result_free(&result);
    }
}

int main(void)
{
    struct spawn_result probe;
    int status;

    env = spawn_env_new();
    probe =
        spawn_run(env, (const char *const[]){spawn_build_path("train"), "--steps=1", "--quiet", NULL}, NULL);
    if (probe.status && strstr(probe.err, "looking for CUDA devices")) {
        printf("no GPU: skipped\n");
        return SPAWN_SKIP;
    }
    spawn_result_free(&probe);
    UNITY_BEGIN();
    RUN_TEST(test_training_learns_the_same_in_every_allocation_mode);
    status = UNITY_END();
    spawn_env_free(env);
    return status;
}
