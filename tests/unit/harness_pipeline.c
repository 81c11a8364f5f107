/* The pipeline over a source that the tests control: order, resuming, shards, back-pressure, stopping,
 * failures, memory. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "augment.h"
#include "harness_files.h"
#include "pipeline.h"
#include "source.h"
#include "unity.h"

enum { COUNT = 37, VALIDATION = 10, FLOATS = 3, BATCH = 5, MAX_STREAM = 400 };

/* A source of floats: the sample's number, a random draw, the split. */
struct fake {
    struct dataset dataset;
    uint64_t bad_from, bad_to; /* samples that are corrupt */
    int slow;                  /* take a while, different for each sample */
    _Atomic uint64_t reads;
};

static struct fake fake;

static enum source_result fake_read(struct dataset *dataset, enum data_split split, uint64_t index,
                                    struct rng *rng, struct sample *sample, struct scratch *scratch,
                                    char message[SOURCE_MESSAGE_BYTES])
{
    (void)scratch;
    atomic_fetch_add(&fake.reads, 1);
    if (fake.slow)
        usleep((useconds_t)(index * 7919 % 13) * 20);
    if (index >= fake.bad_from && index < fake.bad_to) {
        snprintf(message, SOURCE_MESSAGE_BYTES, "fake sample %d", (int)index);
        return SOURCE_CORRUPT;
    }
    if (dataset->spec.kind == DATA_FLOATS) {
        sample->floats[0] = (float)index;
        sample->floats[1] = rng_symmetric(rng);
        sample->floats[2] = (float)split;
    } else {
        sample->h = 4 + (int)index % 3;
        sample->w = 6;
        for (int y = 0; y < sample->h; y++) {
            for (int i = 0; i < sample->w * dataset->spec.c; i++)
                sample->bytes[y * dataset->spec.raw_w * dataset->spec.c + i] =
                    (uint8_t)(index * 31 + y * 7 + i);
        }
    }
    *sample->labels = (int32_t)index;
    return SOURCE_OK;
}

static void fake_close(struct dataset *dataset)
{
    (void)dataset;
}

void setUp(void)
{
    memset(&fake, 0, sizeof(fake));
    fake.dataset.read = fake_read;
    fake.dataset.close = fake_close;
    fake.dataset.corrupt = CORRUPT_REFUSE;
    fake.dataset.spec = (struct data_spec){
        .kind = DATA_FLOATS, .h = 1, .w = 1, .c = FLOATS, .classes = COUNT, .count = {COUNT, VALIDATION}};
}

void tearDown(void) {}

/* Pictures instead: up to 6 x 6 pixels of 2 channels in 8 x 8 bytes, shown as 5 x 5. */
static void use_pictures(enum data_kind kind)
{
    fake.dataset.spec = (struct data_spec){.kind = kind,
                                           .h = 5,
                                           .w = 5,
                                           .c = 2,
                                           .raw_h = 8,
                                           .raw_w = 8,
                                           .classes = COUNT,
                                           .count = {COUNT, VALIDATION},
                                           .mean = {0.5f, 0.4f},
                                           .deviation = {0.3f, 0.2f}};
    fake.dataset.augment = (struct source_augment){.min_area = 0.5f, .mirror = true};
    fake.dataset.worth_caching = true;
}

static struct pipeline_config usual(int workers)
{
    return (struct pipeline_config){
        .batch = BATCH, .seed = 11, .shuffle = UINT64_MAX, .workers = workers, .prefetch = 3};
}

static struct pipeline *open_or_fail(const struct pipeline_config *config)
{
    struct pipeline *pipeline;

    TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_open(&pipeline, &fake.dataset, config));
    return pipeline;
}

/* The floats of the next samples, one after the other. */
static void take_floats(struct pipeline *pipeline, int batches, float *into)
{
    for (int i = 0; i < batches; i++) {
        struct batch *batch;

        TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch));
        TEST_ASSERT_NOT_NULL(batch);
        memcpy(into, batch->floats, batch->count * FLOATS * sizeof(float));
        into += batch->count * FLOATS;
        pipeline_release(pipeline, batch);
    }
}

static void test_batches_do_not_depend_on_the_number_of_workers(void)
{
    static float first[MAX_STREAM * FLOATS], other[MAX_STREAM * FLOATS];
    static const int workers[] = {1, 3, 8};

    fake.slow = 1;
    for (size_t i = 0; i < sizeof(workers) / sizeof(workers[0]); i++) {
        struct pipeline_config config = usual(workers[i]);
        struct pipeline *pipeline = open_or_fail(&config);

        take_floats(pipeline, 40, i ? other : first);
        pipeline_close(pipeline);
        if (i)
            TEST_ASSERT_EQUAL_MEMORY(first, other, 40 * BATCH * FLOATS * sizeof(float));
    }
}

static void test_every_sample_comes_once_per_epoch_in_another_order(void)
{
    static float stream[MAX_STREAM * FLOATS];
    struct pipeline_config config = usual(4);
    struct pipeline *pipeline = open_or_fail(&config);
    int same = 0;

    take_floats(pipeline, 2 * COUNT / BATCH + 1, stream);
    pipeline_close(pipeline);
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[COUNT] = {0};

        for (int i = 0; i < COUNT; i++)
            seen[(int)stream[(epoch * COUNT + i) * FLOATS]]++;
        for (int i = 0; i < COUNT; i++)
            TEST_ASSERT_EQUAL_INT(1, seen[i]);
    }
    for (int i = 0; i < COUNT; i++)
        same += stream[i * FLOATS] == stream[(COUNT + i) * FLOATS];
    TEST_ASSERT_LESS_THAN_INT(COUNT / 2, same);
}

static void test_a_resumed_run_sees_what_would_have_come_also_in_other_batches(void)
{
    static float whole[MAX_STREAM * FLOATS], rest[MAX_STREAM * FLOATS];
    struct pipeline_config config = usual(2);
    struct pipeline_position position;
    struct pipeline *pipeline = open_or_fail(&config);

    take_floats(pipeline, 9, whole);
    pipeline_tell(pipeline, &position);
    TEST_ASSERT_EQUAL_UINT64(9 * BATCH, position.samples);
    take_floats(pipeline, 20, whole);
    pipeline_close(pipeline);
    for (size_t batch = 1; batch <= 10; batch += 9) {
        config.batch = batch;
        config.workers = 5;
        config.seed = 999; /* the position has the seed that counts */
        pipeline = open_or_fail(&config);
        take_floats(pipeline, 2, rest);
        TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_seek(pipeline, &position));
        take_floats(pipeline, (int)(20 * BATCH / batch), rest);
        TEST_ASSERT_EQUAL_MEMORY(whole, rest, 20 * BATCH * FLOATS * sizeof(float));
        pipeline_close(pipeline);
    }
}

static void test_a_damaged_position_is_refused(void)
{
    struct pipeline_config config = usual(1);
    struct pipeline_position position = {11, UINT64_MAX - 3};
    struct pipeline *pipeline = open_or_fail(&config);

    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, pipeline_seek(pipeline, &position));
    pipeline_close(pipeline);
}

static void test_shards_together_are_the_whole(void)
{
    static float whole[MAX_STREAM * FLOATS], part[MAX_STREAM * FLOATS];
    struct pipeline_config config = usual(2);
    struct pipeline *pipeline;

    config.batch = 2 * BATCH;
    pipeline = open_or_fail(&config);
    take_floats(pipeline, 10, whole);
    pipeline_close(pipeline);
    config.batch = BATCH;
    config.shards = 2;
    for (config.shard = 0; config.shard < 2; config.shard++) {
        pipeline = open_or_fail(&config);
        take_floats(pipeline, 10, part);
        for (size_t i = 0; i < 10; i++)
            TEST_ASSERT_EQUAL_MEMORY(whole + (2 * i + config.shard) * BATCH * FLOATS,
                                     part + i * BATCH * FLOATS, BATCH * FLOATS * sizeof(float));
        pipeline_close(pipeline);
    }
}

static void test_a_single_pass_ends_and_can_be_made_again(void)
{
    struct pipeline_config config = {
        .split = DATA_VALIDATION, .batch = 4, .seed = 1, .once = true, .workers = 3};
    struct pipeline_position start = {1, 0}, position;
    struct pipeline *pipeline = open_or_fail(&config);
    struct batch *batch;

    for (int pass = 0; pass < 3; pass++) {
        for (size_t done = 0; done < VALIDATION; done += batch->count) {
            TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch));
            TEST_ASSERT_NOT_NULL(batch);
            TEST_ASSERT_EQUAL_size_t(done == 8 ? 2 : 4, batch->count);
            TEST_ASSERT_EQUAL_INT((int)done, batch->labels[0]);
            TEST_ASSERT_EQUAL_FLOAT(1.0f, batch->floats[2]);
            pipeline_release(pipeline, batch);
        }
        for (int i = 0; i < 2; i++) {
            TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch));
            TEST_ASSERT_NULL(batch);
        }
        pipeline_tell(pipeline, &position);
        TEST_ASSERT_EQUAL_UINT64(VALIDATION, position.samples);
        TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_seek(pipeline, &start));
    }
    pipeline_close(pipeline);
}

static void test_workers_wait_when_all_buffers_are_full(void)
{
    struct pipeline_config config = usual(4);
    struct pipeline *pipeline = open_or_fail(&config);
    struct pipeline_stats stats;

    do {
        usleep(1000);
        pipeline_get_stats(pipeline, &stats);
    } while (stats.samples < (uint64_t)stats.slots * BATCH);
    usleep(20000);
    pipeline_get_stats(pipeline, &stats);
    TEST_ASSERT_EQUAL_INT(5, stats.slots);
    TEST_ASSERT_EQUAL_UINT64((uint64_t)stats.slots * BATCH, stats.samples);
    TEST_ASSERT_EQUAL_UINT64(stats.samples, atomic_load(&fake.reads));
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
    for (int i = 0; i < 2000 && count_threads() > before; i++)
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

static void test_a_cache_spares_reads_within_its_budget_and_changes_nothing(void)
{
    enum { ROUNDS = 30, BYTES = BATCH * 8 * 8 * 2, ENTRY = 12 + 6 * 6 * 2, TABLE = 64 + COUNT * 8 };
    static uint8_t without[ROUNDS * BYTES], with[ROUNDS * BYTES];
    static const size_t budgets[] = {0, TABLE + 10 * ENTRY, 1 << 20, 10};

    use_pictures(DATA_IMAGES);
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        struct pipeline_config config = usual(3);
        struct pipeline_stats stats;
        struct pipeline *pipeline;

        config.augment = true;
        config.cache = budgets[i];
        pipeline = open_or_fail(&config);
        for (int b = 0; b < ROUNDS; b++) {
            struct batch *batch;

            TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch));
            memcpy((i ? with : without) + b * BYTES, batch->bytes, BYTES);
            pipeline_release(pipeline, batch);
        }
        pipeline_get_stats(pipeline, &stats);
        pipeline_close(pipeline);
        TEST_ASSERT_LESS_OR_EQUAL_size_t(budgets[i], stats.cache_bytes);
        if (i == 0 || i == 3)
            TEST_ASSERT_EQUAL_UINT64(0, stats.cache_hits);
        else
            TEST_ASSERT_GREATER_THAN_UINT64(9, stats.cache_hits);
        if (i == 2) /* two workers may read the same new sample only if it comes twice at once */
            TEST_ASSERT_GREATER_THAN_UINT64(ROUNDS * BATCH - COUNT - BATCH, stats.cache_hits);
        if (i)
            TEST_ASSERT_EQUAL_MEMORY(without, with, sizeof(with));
    }
}

static void test_pictures_prepared_here_are_what_the_device_would_make_of_the_bytes(void)
{
    static const enum data_kind kinds[] = {DATA_IMAGES, DATA_PAIRS};

    for (int k = 0; k < 2; k++) {
        struct pipeline_config config = usual(2);
        struct pipeline *device, *host;
        const struct data_spec *spec = &fake.dataset.spec;

        use_pictures(kinds[k]);
        config.augment = true;
        device = open_or_fail(&config);
        config.prepare = PREPARE_CPU;
        host = open_or_fail(&config);
        for (int b = 0; b < 10; b++) {
            struct batch *raw, *done;
            float expected[5 * 5 * 2];

            TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(device, &raw));
            TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(host, &done));
            TEST_ASSERT_TRUE(raw->bytes && raw->crops && !raw->floats && done->floats && !done->bytes);
            TEST_ASSERT_TRUE(k ? raw->target_bytes && !raw->labels : raw->labels && !raw->target_bytes);
            for (size_t i = 0; i < BATCH; i++) {
                augment_prepare(spec, &raw->crops[i], raw->bytes + i * 8 * 8 * 2, expected);
                TEST_ASSERT_EQUAL_MEMORY(expected, done->floats + i * 50, sizeof(expected));
                if (!k)
                    continue;
                augment_prepare(spec, &raw->crops[i], raw->target_bytes + i * 8 * 8 * 2, expected);
                TEST_ASSERT_EQUAL_MEMORY(expected, done->target_floats + i * 50, sizeof(expected));
            }
            TEST_ASSERT_TRUE(!k || memcmp(raw->bytes, raw->target_bytes, BATCH * 8 * 8 * 2));
            pipeline_release(device, raw);
            pipeline_release(host, done);
        }
        pipeline_close(device);
        pipeline_close(host);
    }
}

static void test_buffers_stay_within_the_budget(void)
{
    struct pipeline_config config = usual(2);
    struct pipeline_stats stats;
    struct pipeline *pipeline = open_or_fail(&config);
    size_t one;

    pipeline_get_stats(pipeline, &stats);
    pipeline_close(pipeline);
    one = stats.buffer_bytes / (size_t)stats.slots;
    config.budget = 3 * one + one / 2;
    pipeline = open_or_fail(&config);
    pipeline_get_stats(pipeline, &stats);
    TEST_ASSERT_EQUAL_INT(3, stats.slots);
    TEST_ASSERT_LESS_OR_EQUAL_size_t(config.budget, stats.buffer_bytes);
    pipeline_close(pipeline);
    config.budget = one;
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, pipeline_open(&pipeline, &fake.dataset, &config));
    TEST_ASSERT_NULL(pipeline);
}

static int blocks_left, blocks_live;

static void *scarce_alloc(void *owner, size_t bytes)
{
    (void)owner;
    if (blocks_left == 0)
        return NULL;
    blocks_left--;
    blocks_live++;
    return malloc(bytes);
}

static void scarce_free(void *owner, void *block)
{
    (void)owner;
    blocks_live--;
    free(block);
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
    TEST_ASSERT_EQUAL_UINT64(5, batch[5]->number);
    pipeline_close(pipeline);
}

static void test_seeking_again_and_again_never_mixes_batches(void)
{
    static float whole[MAX_STREAM * FLOATS], part[MAX_STREAM * FLOATS];
    struct pipeline_config config = usual(4);
    struct pipeline *pipeline;

    fake.slow = 1;
    pipeline = open_or_fail(&config);
    take_floats(pipeline, 40, whole);
    for (uint64_t i = 0; i < 60; i++) {
        struct pipeline_position position = {11, i * 17 % 35 * BATCH};

        TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_seek(pipeline, &position));
        take_floats(pipeline, 2, part);
        TEST_ASSERT_EQUAL_MEMORY(whole + position.samples * FLOATS, part, 2 * BATCH * FLOATS * sizeof(float));
    }
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
    RUN_TEST(test_batches_do_not_depend_on_the_number_of_workers);
    RUN_TEST(test_every_sample_comes_once_per_epoch_in_another_order);
    RUN_TEST(test_a_resumed_run_sees_what_would_have_come_also_in_other_batches);
    RUN_TEST(test_a_damaged_position_is_refused);
    RUN_TEST(test_shards_together_are_the_whole);
    RUN_TEST(test_a_single_pass_ends_and_can_be_made_again);
    RUN_TEST(test_workers_wait_when_all_buffers_are_full);
    RUN_TEST(test_closing_at_any_time_leaves_no_thread);
    RUN_TEST(test_a_failure_comes_out_in_its_place_and_stays);
    RUN_TEST(test_another_sample_takes_the_place_of_a_corrupt_one_in_training);
    RUN_TEST(test_a_corrupt_sample_counts_for_nothing_in_validation);
    RUN_TEST(test_data_that_is_all_corrupt_ends_the_run);
    RUN_TEST(test_a_cache_spares_reads_within_its_budget_and_changes_nothing);
    RUN_TEST(test_pictures_prepared_here_are_what_the_device_would_make_of_the_bytes);
    RUN_TEST(test_buffers_stay_within_the_budget);
    RUN_TEST(test_memory_that_runs_out_gives_fewer_buffers_or_a_message);
    RUN_TEST(test_taking_more_than_there_is_fails_instead_of_hanging);
    RUN_TEST(test_seeking_again_and_again_never_mixes_batches);
    RUN_TEST(test_a_split_without_samples_is_refused);
    return UNITY_END();
}
