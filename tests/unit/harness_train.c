/* `train` as a whole on the simulated GPU: it learns, its result does not depend on how it takes memory, and
 * it ends with the promised status and message when it cannot run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spawn.h"
#include "unity.h"

enum { BAD = 1, NO_MEMORY = 2, MAX_ARGUMENTS = 12 };

static struct spawn_result result;

void setUp(void) {}

void tearDown(void)
{
    spawn_result_free(&result);
}

/* Runs train with the arguments (ended by NULL) on a simulated card of that size. */
static void run_train(const char *card, const char *const *arguments)
{
    struct spawn_env *env = spawn_env_new();
    const char *argv[MAX_ARGUMENTS + 2] = {spawn_build_path("train")};

    for (int i = 0; arguments[i] && i < MAX_ARGUMENTS; i++)
        argv[i + 1] = arguments[i];
    spawn_sim(env, card, NULL);
    spawn_result_free(&result);
    result = spawn_run(env, argv, NULL);
    spawn_env_free(env);
}

#define TRAIN(card, ...) run_train(card, (const char *const[]){__VA_ARGS__, NULL})

/* The value of key in the result line, in a static buffer. */
static const char *field(const char *key)
{
    static char value[128];
    size_t length = strlen(key);

    for (const char *at = result.out; (at = strstr(at, key)); at++) {
        if ((at == result.out || at[-1] == ' ') && at[length] == '=') {
            snprintf(value, sizeof(value), "%.*s", (int)strcspn(at + length + 1, " \n"), at + length + 1);
            return value;
        }
    }
    TEST_FAIL_MESSAGE(result.err);
    return NULL;
}

static void test_loss_goes_down(void)
{
    double first, last;

    TRAIN("1x1G", "--steps=60", "--batch=32", "--hidden=64");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, result.status, result.err);
    first = atof(field("loss_first"));
    last = atof(field("loss_last"));
    TEST_ASSERT_TRUE_MESSAGE(first > 1.5 && first < 5.0, result.out);
    TEST_ASSERT_TRUE_MESSAGE(last < 0.5 * first, result.out);
    TEST_ASSERT_EQUAL_STRING("60", field("steps"));
    TEST_ASSERT_EQUAL_STRING("naive", field("alloc"));
    TEST_ASSERT_EQUAL_STRING("simgpu", field("device"));
    TEST_ASSERT_TRUE(atof(field("step_ms")) > 0.0);
    TEST_ASSERT_NOT_NULL(strstr(result.err, "step 60/60 loss "));
}

static void test_losses_are_equal_to_the_bit_in_every_allocation_mode(void)
{
    static const char *const modes[] = {"--alloc=naive", "--alloc=arena", "--alloc=static"};
    char first[32] = "", last[32] = "";

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        TRAIN("1x256M", "--steps=12", "--batch=33", "--hidden=40,24", "--quiet", modes[i]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, result.status, result.err);
        TEST_ASSERT_EQUAL_STRING_MESSAGE("", result.err, "--quiet");
        if (i == 0) {
            strcpy(first, field("loss_first"));
            strcpy(last, field("loss_last"));
        }
        TEST_ASSERT_EQUAL_STRING(first, field("loss_first"));
        TEST_ASSERT_EQUAL_STRING(last, field("loss_last"));
        TEST_ASSERT_TRUE(atoll(field("peak_bytes")) > 0);
    }
}

static void test_the_seed_decides_the_run(void)
{
    char last[32];

    TRAIN("1x256M", "--steps=3", "--hidden=16", "--seed=9");
    strcpy(last, field("loss_last"));
    TRAIN("1x256M", "--steps=3", "--hidden=16", "--seed=9");
    TEST_ASSERT_EQUAL_STRING(last, field("loss_last"));
    TRAIN("1x256M", "--steps=3", "--hidden=16", "--seed=10");
    TEST_ASSERT_TRUE(strcmp(last, field("loss_last")) != 0);
}

static void test_the_arena_takes_its_share_of_what_is_free(void)
{
    long long half, most;

    TRAIN("1x1G", "--steps=1", "--hidden=16", "--alloc=arena", "--fraction=0.5");
    half = atoll(field("peak_bytes"));
    TRAIN("1x1G", "--steps=1", "--hidden=16", "--alloc=arena");
    most = atoll(field("peak_bytes"));
    TEST_ASSERT_TRUE_MESSAGE(most > half && half > most / 2, result.out);
    TEST_ASSERT_TRUE_MESSAGE(most <= 1LL << 30, result.out);
}

static void test_out_of_memory_says_what_was_asked_and_free(void)
{
    static const char *const modes[] = {"--alloc=naive", "--alloc=arena", "--alloc=static"};

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        /* The weights alone are 784 x 65536 floats, 196 MiB, and their velocities as much. */
        TRAIN("1x256M", "--steps=1", "--batch=1", "--hidden=65536", modes[i]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(NO_MEMORY, result.status, result.err);
        TEST_ASSERT_EQUAL_STRING("", result.out);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.err, "out of memory: asked for "), result.err);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.err, " bytes free of "), result.err);
    }
}

static void test_bad_options_end_with_a_message(void)
{
    TRAIN("1x256M", "--batch=0");
    TEST_ASSERT_EQUAL_INT(BAD, result.status);
    TEST_ASSERT_NOT_NULL(strstr(result.err, "--batch=0: expected N from 1 to "));
    TRAIN("1x256M", "--device=7");
    TEST_ASSERT_EQUAL_INT(BAD, result.status);
    TEST_ASSERT_NOT_NULL(strstr(result.err, "--device=7"));
    TRAIN("1x256M", "--data=/nonexistent");
    TEST_ASSERT_EQUAL_INT(BAD, result.status);
    TEST_ASSERT_NOT_NULL(strstr(result.err, "/nonexistent/train-images-idx3-ubyte"));
    TEST_ASSERT_EQUAL_STRING("", result.out);
}

static void write_file(const char *folder, const char *name, const unsigned char *bytes, size_t count)
{
    char path[96];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_EQUAL_size_t(count, fwrite(bytes, 1, count, file));
    fclose(file);
}

static void test_idx_files_are_learned(void)
{
    /* Four images of 2 x 2 pixels, one bright pixel each. */
    static const unsigned char images[] = {0,   0, 8, 3, 0, 0,   0, 4, 0, 0, 0,   2, 0, 0, 0, 2,
                                           255, 0, 0, 0, 0, 255, 0, 0, 0, 0, 255, 0, 0, 0, 0, 255};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 4, 3, 1, 4, 9};
    char folder[] = "/tmp/harness_train.XXXXXX";
    char option[64], path[96];

    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    write_file(folder, "train-images-idx3-ubyte", images, sizeof(images));
    write_file(folder, "train-labels-idx1-ubyte", labels, sizeof(labels));
    snprintf(option, sizeof(option), "--data=%s", folder);
    TRAIN("1x256M", option, "--steps=200", "--batch=8", "--hidden=16", "--rate=0.1", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, result.status, result.err);
    TEST_ASSERT_TRUE_MESSAGE(atof(field("loss_last")) < 0.2, result.out);
    write_file(folder, "train-images-idx3-ubyte", images, sizeof(images) - 1);
    TRAIN("1x256M", option);
    TEST_ASSERT_EQUAL_INT(BAD, result.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.err, "truncated"), result.err);
    snprintf(path, sizeof(path), "%s/train-images-idx3-ubyte", folder);
    unlink(path);
    snprintf(path, sizeof(path), "%s/train-labels-idx1-ubyte", folder);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_loss_goes_down);
    RUN_TEST(test_losses_are_equal_to_the_bit_in_every_allocation_mode);
    RUN_TEST(test_the_seed_decides_the_run);
    RUN_TEST(test_the_arena_takes_its_share_of_what_is_free);
    RUN_TEST(test_out_of_memory_says_what_was_asked_and_free);
    RUN_TEST(test_bad_options_end_with_a_message);
    RUN_TEST(test_idx_files_are_learned);
    return UNITY_END();
}
