/* Validations within one training, on the simulated GPU: the second finds what the first has opened and
 * decoded. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/train/shrink_model.h"
#include "harness/train/stop.h"
#include "harness/train/trainer.h"
#include "tests/unit/harness/harness_files.h"
#include "unity.h"

static char folder[FILES_PATH];
static struct budget budget;
static struct supply supply;
static struct cuda_device device;
static struct trainer trainer;

static void write_pictures(void)
{
    for (int i = 0; i < 12; i++) {
        char name[32];

        snprintf(name, sizeof(name), "%s/%d.png", i % 2 ? "light" : "dark", i);
        files_write_picture(folder, name, 12, 12, (uint8_t)(i % 2 ? 250 - i : i), 40, (uint8_t)(10 * i));
    }
}

void setUp(void)
{
    files_make_folder(folder);
    write_pictures();
    TEST_ASSERT_EQUAL_INT(STATUS_OK, cuda_device_open(&device, 0));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, supply_open(&supply, ALLOC_NAIVE, 0.5, &budget));
}

void tearDown(void)
{
    trainer_close(&trainer);
    supply_close(&supply);
    cuda_device_close(&device);
    TEST_ASSERT_EQUAL_size_t(0, budget.used);
}

static void open_with(int count, char **arguments)
{
    struct train_options options;

    TEST_ASSERT_EQUAL_INT(STATUS_OK, train_options_parse(&options, count, arguments));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, trainer_open(&trainer, &options, &device, &supply, 0, 0));
}

static void open_trainer(const char *more)
{
    static char data[FILES_PATH + 16], last[32];
    static char program[] = "train", model[] = "--model=cnn", image[] = "--image=8", batch[] = "--batch=4",
                part[] = "--validation=0.5", quiet[] = "--quiet", workers[] = "--workers=3",
                width[] = "--width=2";
    char *arguments[] = {program, model, image, batch, part, quiet, workers, width, data, last};

    snprintf(data, sizeof(data), "--data=%s", folder);
    snprintf(last, sizeof(last), "%s", more);
    open_with(10, arguments);
}

/* The numbers of this process's threads, added up and counted. */
static void list_threads(uint64_t *sum, int *count)
{
    DIR *stream = opendir("/proc/self/task");
    const struct dirent *entry;

    *sum = 0;
    *count = 0;
    TEST_ASSERT_NOT_NULL(stream);
    while ((entry = readdir(stream))) {
        if (entry->d_name[0] == '.')
            continue;
        *sum += strtoull(entry->d_name, NULL, 10);
        *count += 1;
    }
    closedir(stream);
}

static void test_the_second_validation_reads_no_file_and_keeps_threads_and_buffers(void)
{
    struct trainer_evaluation one, two;
    uint64_t threads, same;
    const struct feed *feed;
    int count, again;

    open_trainer("--validate-every=1");
    TEST_ASSERT_EQUAL_INT(STATUS_OK, trainer_evaluate(&trainer, &one));
    TEST_ASSERT_EQUAL_UINT64(6, one.rows);
    feed = trainer.val_input.feed;
    list_threads(&threads, &count);
    files_remove_folder(folder);
    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT(STATUS_OK, trainer_evaluate(&trainer, &two));
        TEST_ASSERT_EQUAL_UINT64(one.rows, two.rows);
        TEST_ASSERT_TRUE(one.loss == two.loss && one.accuracy == two.accuracy);
    }
    list_threads(&same, &again);
    TEST_ASSERT_EQUAL_UINT64(threads, same);
    TEST_ASSERT_EQUAL_INT(count, again);
    TEST_ASSERT_TRUE(feed == trainer.val_input.feed);
}

static void test_without_a_cache_files_are_read_again(void)
{
    struct trainer_evaluation one, two;

    open_trainer("--val-cache=0");
    TEST_ASSERT_EQUAL_INT(STATUS_OK, trainer_evaluate(&trainer, &one));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, trainer_evaluate(&trainer, &two));
    TEST_ASSERT_TRUE(one.loss == two.loss);
    files_remove_folder(folder);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, trainer_evaluate(&trainer, &two));
    TEST_ASSERT_EQUAL_INT(0, mkdir(folder, 0700));
    write_pictures();
    TEST_ASSERT_EQUAL_INT(STATUS_OK, trainer_evaluate(&trainer, &two)); /* a failure is not for good */
    TEST_ASSERT_TRUE(one.loss == two.loss);
    files_remove_folder(folder);
}

/* Device memory is given back between validations, as it always was. */
static void test_between_validations_no_device_memory_is_held_for_them(void)
{
    struct trainer_evaluation one;
    size_t before;

    open_trainer("--validate-every=1");
    before = trainer.mem.live[MEM_INPUT];
    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT(STATUS_OK, trainer_evaluate(&trainer, &one));
        TEST_ASSERT_EQUAL_size_t(before, trainer.mem.live[MEM_INPUT]);
        TEST_ASSERT_EQUAL_size_t(0, trainer.val_input.beside.live[MEM_INPUT]);
    }
    files_remove_folder(folder);
}

enum { TIMES = 16 };

/* Counts each row TIMES times as right, one by one as the kernel does. */
static int count_often(struct ops *ops, ops_stream stream, const struct op_evaluate *args)
{
    float right;

    (void)ops;
    TEST_ASSERT_EQUAL_INT(cudaSuccess, cudaStreamSynchronize(stream));
    right = args->total[TOTAL_RIGHT];
    for (int i = 0; i < TIMES * args->rows; i++)
        right += 1.0f;
    args->total[TOTAL_RIGHT] = right;
    args->total[TOTAL_ROWS] += (float)(TIMES * args->rows);
    return OPS_OK;
}

/* 2^24 + 1 is no float. */
static void test_many_rows_are_counted(void)
{
    static char program[] = "train", hidden[] = "--hidden=1", image[] = "--image=1", quiet[] = "--quiet",
                batch[] = "--batch=262144", count[] = "--val-batches=5", samples[] = "--samples=100000000";
    char *arguments[] = {program, hidden, image, quiet, batch, count, samples};
    int (*evaluate)(struct ops *, ops_stream, const struct op_evaluate *) = device.ops->evaluate;
    struct trainer_evaluation found;

    open_with(7, arguments);
    device.ops->evaluate = count_often;
    TEST_ASSERT_EQUAL_INT(STATUS_OK, trainer_evaluate(&trainer, &found));
    device.ops->evaluate = evaluate;
    TEST_ASSERT_EQUAL_UINT64(5 * TIMES * 262144, found.rows);
    TEST_ASSERT_TRUE(found.accuracy == 1.0);
    files_remove_folder(folder);
}

/* It has not seen all samples. The signal stays for the tests after this one. */
static void test_an_evaluation_of_a_smaller_model_that_a_signal_ends_has_no_result(void)
{
    open_trainer("--quantize=int8");
    stop_watch();
    TEST_ASSERT_EQUAL_INT(0, raise(SIGTERM));
    TEST_ASSERT_EQUAL_INT(STATUS_STOPPED, shrink_model_evaluate(&trainer));
    files_remove_folder(folder);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_second_validation_reads_no_file_and_keeps_threads_and_buffers);
    RUN_TEST(test_without_a_cache_files_are_read_again);
    RUN_TEST(test_between_validations_no_device_memory_is_held_for_them);
    RUN_TEST(test_many_rows_are_counted);
    RUN_TEST(test_an_evaluation_of_a_smaller_model_that_a_signal_ends_has_no_result);
    return UNITY_END();
}
