/* A pipeline at its limits: back-pressure, stopping, failures, corrupt data, memory. */
#include <dirent.h>
#include <stdlib.h>

#include "tests/unit/harness/harness_fake.h"

static void test_workers_wait_when_all_buffers_are_full(void)
{
    struct pipeline_config config = usual(4);
    struct pipeline *pipeline = open_or_fail(&config);
    struct pipeline_stats stats;

    pipeline_get_stats(pipeline, &stats);
    TEST_ASSERT_EQUAL_INT(5, stats.slots);
    do
        usleep(1000);
    while (atomic_load(&fake.reads) < (uint64_t)stats.slots * BATCH);
    usleep(20000);
    TEST_ASSERT_EQUAL_UINT64((uint64_t)stats.slots * BATCH, atomic_load(&fake.reads));
    pipeline_close(pipeline);
}

static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;

    TEST_ASSERT_NOT_NULL(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void test_closing_at_any_time_leaves_no_thread(void)
{
    struct pipeline_config config = usual(6);
    struct pipeline *pipeline = open_or_fail(&config);
    struct batch *batch;
    int before;

    pipeline_close(pipeline); /* a sanitizer starts a thread of its own with the first of ours */
    before = count_threads();
    fake.slow = 1;
    for (int taken = 0; taken < 8; taken++) {
        pipeline = open_or_fail(&config);
        for (int i = 0; i < taken; i++) {
            TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch));
            if (i + 1 < taken)
                pipeline_release(pipeline, batch);
        }
        pipeline_close(pipeline);
    }
    /* A joined thread may stay in the list for a moment. */
    for (int i = 0; i < 60000 && count_threads() > before; i++)
        usleep(1000);
    TEST_ASSERT_EQUAL_INT(before, count_threads());
}

static void test_a_failure_comes_out_in_its_place_and_stays(void)
{
    struct pipeline_config config = usual(4);
    struct pipeline *pipeline;
    struct batch *batch;

    config.shuffle = 0;
    fake.bad_from = 2 * BATCH + 1;
    fake.bad_to = fake.bad_from + 1;
    pipeline = open_or_fail(&config);
    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch));
        TEST_ASSERT_EQUAL_INT(i * BATCH, batch->labels[0]);
        pipeline_release(pipeline, batch);
    }
    for (int i = 0; i < 3; i++)
        TEST_ASSERT_EQUAL_INT(STATUS_FAILED, pipeline_next(pipeline, &batch));
    pipeline_close(pipeline);
}

static void test_seeking_away_from_a_failure_goes_on(void)
{
    struct pipeline_config config = usual(4);
    struct pipeline_position position = {11, 4 * BATCH};
    struct pipeline *pipeline;
    struct batch *batch;

    config.shuffle = 0;
    fake.slow = 1;
    fake.bad_to = 1;
    pipeline = open_or_fail(&config);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, pipeline_next(pipeline, &batch));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_seek(pipeline, &position));
    for (int i = 4; i < 7; i++) {
        TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch));
        TEST_ASSERT_EQUAL_INT(i * BATCH, batch->labels[0]);
        pipeline_release(pipeline, batch);
    }
    pipeline_close(pipeline);
}

static void test_another_sample_takes_the_place_of_a_corrupt_one_in_training(void)
{
    static float first[MAX_STREAM * FLOATS], other[MAX_STREAM * FLOATS];
    struct pipeline_stats stats;

    fake.dataset.corrupt = CORRUPT_SKIP;
    fake.bad_from = 5;
    fake.bad_to = 9;
    for (int workers = 1; workers <= 4; workers += 3) {
        struct pipeline_config config = usual(workers);
        struct pipeline *pipeline = open_or_fail(&config);

        take_floats(pipeline, 30, workers == 1 ? first : other);
        pipeline_get_stats(pipeline, &stats);
        TEST_ASSERT_EQUAL_UINT64(4, stats.corrupt);
        pipeline_close(pipeline);
    }
    TEST_ASSERT_EQUAL_MEMORY(first, other, 30 * BATCH * FLOATS * sizeof(float));
    for (int i = 0; i < 30 * BATCH; i++)
        TEST_ASSERT_TRUE(first[i * FLOATS] < 5 || first[i * FLOATS] >= 9);
}

static void test_a_corrupt_sample_counts_for_nothing_in_validation(void)
{
    struct pipeline_config config = {
        .split = DATA_VALIDATION, .batch = VALIDATION, .once = true, .workers = 2};
    struct pipeline *pipeline;
    struct batch *batch;

    use_pictures(DATA_IMAGES);
    fake.dataset.corrupt = CORRUPT_SKIP;
    fake.bad_from = 3;
    fake.bad_to = 4;
    pipeline = open_or_fail(&config);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch));
    for (int i = 0; i < VALIDATION; i++)
        TEST_ASSERT_EQUAL_INT(i == 3 ? -1 : i, batch->labels[i]);
    TEST_ASSERT_EACH_EQUAL_UINT8(0, batch->bytes + (size_t)3 * 8 * 8 * 2, 8 * 8 * 2);
    pipeline_close(pipeline);
}

static void test_data_that_is_all_corrupt_ends_the_run(void)
{
    struct pipeline_config config = usual(3);
    struct pipeline *pipeline;
    struct batch *batch;

    fake.dataset.corrupt = CORRUPT_SKIP;
    fake.bad_to = COUNT;
    pipeline = open_or_fail(&config);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, pipeline_next(pipeline, &batch));
    pipeline_close(pipeline);
}

static int blocks_left, blocks_live;
static size_t block_bytes; /* of the last one */

static void *scarce_alloc(void *owner, size_t bytes)
{
    (void)owner;
    if (blocks_left == 0)
        return NULL;
    blocks_left--;
    blocks_live++;
    block_bytes = bytes;
    return malloc(bytes);
}

static void scarce_free(void *owner, void *block)
{
    (void)owner;
    blocks_live--;
    free(block);
}

static void test_buffers_stay_within_the_budget(void)
{
    struct pipeline_config config = usual(2);
    struct pipeline *pipeline;

    config.memory = (struct pipeline_memory){scarce_alloc, scarce_free, NULL};
    blocks_left = 100;
    pipeline = open_or_fail(&config);
    pipeline_close(pipeline);
    config.budget = 3 * block_bytes + block_bytes / 2;
    pipeline = open_or_fail(&config);
    TEST_ASSERT_EQUAL_INT(3, blocks_live);
    pipeline_close(pipeline);
    config.budget = block_bytes;
    TEST_ASSERT_EQUAL_INT(STATUS_NO_MEMORY, pipeline_open(&pipeline, &fake.dataset, &config));
    TEST_ASSERT_NULL(pipeline);
}

static void test_memory_that_runs_out_gives_fewer_buffers_or_a_message(void)
{
    for (int blocks = 0; blocks <= 6; blocks++) {
        struct pipeline_config config = usual(2);
        struct pipeline *pipeline = NULL;
        enum status status;

        config.memory = (struct pipeline_memory){scarce_alloc, scarce_free, NULL};
        blocks_left = blocks;
        blocks_live = 0;
        status = pipeline_open(&pipeline, &fake.dataset, &config);
        TEST_ASSERT_EQUAL_INT(blocks < 2 ? STATUS_NO_MEMORY : STATUS_OK, status);
        if (pipeline) {
            static float stream[3 * BATCH * FLOATS];

            take_floats(pipeline, 3, stream);
            pipeline_close(pipeline);
        }
        TEST_ASSERT_EQUAL_INT(0, blocks_live);
    }
}

static void test_taking_more_than_there_is_fails_instead_of_hanging(void)
{
    struct pipeline_config config = usual(2);
    struct pipeline *pipeline = open_or_fail(&config);
    struct batch *batch[6];

    for (int i = 0; i < 5; i++)
        TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch[i]));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, pipeline_next(pipeline, &batch[5]));
    pipeline_release(pipeline, batch[2]);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch[5]));
    TEST_ASSERT_EQUAL_PTR(batch[2], batch[5]);
    pipeline_close(pipeline);
}

static void test_a_split_without_samples_is_refused(void)
{
    struct pipeline_config config = usual(1);
    struct pipeline *pipeline;

    fake.dataset.spec.count[DATA_VALIDATION] = 0;
    config.split = DATA_VALIDATION;
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, pipeline_open(&pipeline, &fake.dataset, &config));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_workers_wait_when_all_buffers_are_full);
    RUN_TEST(test_closing_at_any_time_leaves_no_thread);
    RUN_TEST(test_a_failure_comes_out_in_its_place_and_stays);
    RUN_TEST(test_seeking_away_from_a_failure_goes_on);
    RUN_TEST(test_another_sample_takes_the_place_of_a_corrupt_one_in_training);
    RUN_TEST(test_a_corrupt_sample_counts_for_nothing_in_validation);
    RUN_TEST(test_data_that_is_all_corrupt_ends_the_run);
    RUN_TEST(test_buffers_stay_within_the_budget);
    RUN_TEST(test_memory_that_runs_out_gives_fewer_buffers_or_a_message);
    RUN_TEST(test_taking_more_than_there_is_fails_instead_of_hanging);
    RUN_TEST(test_a_split_without_samples_is_refused);
    return UNITY_END();
}
