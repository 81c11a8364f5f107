/* Every allocation of the data side and every start of a thread is made to fail, one after the other: a
 * dataset or a pipeline then says so and leaves nothing behind (the leak check of ASan), or does without.
 * Linked with --wrap for the functions that fail. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/harness/harness_files.h"
#include "harness/data/pipeline.h"
#include "unity.h"

enum { MOST_CALLS = 400, BATCHES = 3 };

/* Calls until the one that fails; far below 0: none does. */
static _Atomic long countdown = -1000000;
static _Atomic int failures;
static bool thread_failed;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                          void *argument);

static int fails_now(void)
{
    if (atomic_fetch_sub(&countdown, 1) != 0)
        return 0;
    atomic_fetch_add(&failures, 1);
    return 1;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *block, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(block, bytes);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                          void *argument)
{
    if (!fails_now())
        return __real_pthread_create(thread, attributes, start, argument);
    thread_failed = true;
    return EAGAIN;
}

static char folder[FILES_PATH];

void setUp(void)
{
    files_make_folder(folder);
}

void tearDown(void)
{
    files_remove_folder(folder);
}

/* Opens, takes some batches, closes. */
static enum status run_once(const struct data_config *data, const struct pipeline_config *config)
{
    struct dataset *dataset = NULL;
    struct pipeline *pipeline = NULL;
    enum status status = dataset_open(&dataset, data);

    if (!status)
        status = pipeline_open(&pipeline, dataset, config);
    for (int i = 0; i < BATCHES && !status; i++) {
        struct batch *batch;

        status = pipeline_next(pipeline, &batch);
        if (!status)
            pipeline_release(pipeline, batch);
    }
    pipeline_close(pipeline);
    dataset_close(dataset);
    return status;
}

/* The number that the next descriptor would get. */
static int next_fd(void)
{
    const int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

/* With the first call failing, then the second, until a run has no call left to fail. */
static void fail_each(const struct data_config *data, enum pipeline_prepare prepare)
{
    struct pipeline_config config = {.batch = 4,
                                     .seed = 1,
                                     .shuffle = UINT64_MAX,
                                     .augment = true,
                                     .prepare = prepare,
                                     .workers = 2,
                                     .cache = 1 << 20};
    int failed = 0;
    const int before = next_fd();

    for (long call = 0; call < MOST_CALLS; call++) {
        enum status status;

        atomic_store(&failures, 0);
        thread_failed = false;
        atomic_store(&countdown, call);
        status = run_once(data, &config);
        atomic_store(&countdown, -1000000);
        failed += status != STATUS_OK;
        TEST_ASSERT_TRUE(status == STATUS_OK || atomic_load(&failures) == 1);
        TEST_ASSERT_TRUE(status != STATUS_FAILED || thread_failed);
        if (atomic_load(&failures) == 0)
            break;
    }
    TEST_ASSERT_GREATER_THAN_INT(4, failed);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, run_once(data, &config));
    TEST_ASSERT_EQUAL_INT_MESSAGE(before, next_fd(), "a file is left open");
}

static void test_synthetic_data(void)
{
    static const enum data_kind kinds[] = {DATA_IMAGES, DATA_PAIRS, DATA_TOKENS, DATA_FLOATS};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct data_config data = {.kind = kinds[i], .image = 8, .length = 8, .samples = 40};

        fail_each(&data, PREPARE_CPU);
    }
}

static void test_idx_and_cifar_files(void)
{
    struct data_config data = {.path = folder, .kind = DATA_IMAGES};

    files_write_cifar(folder, 3);
    fail_each(&data, PREPARE_GPU);
    files_write_idx(folder, 6, 20, 4);
    data.format = DATA_IDX;
    fail_each(&data, PREPARE_CPU);
}

static void test_folders_of_pictures(void)
{
    /* a picture for which there was no memory is not a corrupt one */
    struct data_config data = {.path = folder, .kind = DATA_IMAGES, .image = 8, .corrupt = CORRUPT_REFUSE};

    for (int i = 0; i < 3; i++) {
        char name[32];

        snprintf(name, sizeof(name), "a/%d.png", i);
        files_write_picture(folder, name, 20, 20, 0, 0, 200);
        snprintf(name, sizeof(name), "b/%d.jpg", i);
        files_write_picture(folder, name, 20, 20, 200, 0, 0);
    }
    fail_each(&data, PREPARE_GPU);
    data.kind = DATA_PAIRS;
    fail_each(&data, PREPARE_CPU);
}

static void test_text(void)
{
    char path[FILES_PATH], text[1000];
    struct data_config data = {.path = files_path(path, folder, "text"), .kind = DATA_TOKENS, .length = 16};

    memset(text, 'x', sizeof(text));
    files_write(folder, "text", text, sizeof(text));
    fail_each(&data, PREPARE_GPU);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_synthetic_data);
    RUN_TEST(test_idx_and_cifar_files);
    RUN_TEST(test_folders_of_pictures);
    RUN_TEST(test_text);
    return UNITY_END();
}
