/* What a pipeline gives out: order, resuming, shards, single passes, the cache, pictures for device and host.
 */
#include <stdlib.h>

#include "harness/data/augment.h"
#include "tests/unit/harness/harness_fake.h"

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
        for (size_t done = 0, count; done < VALIDATION; done += count) {
            TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch));
            TEST_ASSERT_NOT_NULL(batch);
            count = batch->count; /* after its release the batch is another's */
            TEST_ASSERT_EQUAL_size_t(done == 8 ? 2 : 4, count);
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

static void test_a_cache_spares_reads_within_its_budget_and_changes_nothing(void)
{
    enum { ROUNDS = 30, TAKEN = ROUNDS * BATCH, BYTES = BATCH * 8 * 8 * 2, TABLE = 64 + COUNT * 8 };
    enum { LARGEST = 12 + 6 * 6 * 2, SMALLEST = 12 + 4 * 6 * 2, SOME = 12, FIT = SOME * LARGEST / SMALLEST };
    static uint8_t without[ROUNDS * BYTES], with[ROUNDS * BYTES];
    static const size_t budgets[] = {0, TABLE + SOME * LARGEST, 1 << 20, 10};

    use_pictures(DATA_IMAGES);
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        struct pipeline_config config = usual(3);
        const uint64_t before = atomic_load(&fake.reads);
        struct pipeline *pipeline;
        uint64_t reads;

        config.augment = true;
        config.cache = budgets[i];
        pipeline = open_or_fail(&config);
        for (int b = 0; b < ROUNDS; b++) {
            struct batch *batch;

            TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(pipeline, &batch));
            memcpy((i ? with : without) + b * BYTES, batch->bytes, BYTES);
            pipeline_release(pipeline, batch);
        }
        pipeline_close(pipeline);
        reads = atomic_load(&fake.reads) - before; /* also for batches that were not taken */
        if (i == 0 || i == 3)
            TEST_ASSERT_GREATER_OR_EQUAL_UINT64(TAKEN, reads);
        if (i == 1) /* in each epoch all but those that fit */
            TEST_ASSERT_GREATER_OR_EQUAL_UINT64(TAKEN / COUNT * (COUNT - FIT), reads);
        if (i == 1)
            TEST_ASSERT_LESS_THAN_UINT64(TAKEN, reads);
        if (i == 2) /* two workers may read the same new sample only if it comes twice at once */
            TEST_ASSERT_LESS_OR_EQUAL_UINT64(COUNT + BATCH, reads);
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

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_batches_do_not_depend_on_the_number_of_workers);
    RUN_TEST(test_every_sample_comes_once_per_epoch_in_another_order);
    RUN_TEST(test_a_resumed_run_sees_what_would_have_come_also_in_other_batches);
    RUN_TEST(test_a_damaged_position_is_refused);
    RUN_TEST(test_shards_together_are_the_whole);
    RUN_TEST(test_a_single_pass_ends_and_can_be_made_again);
    RUN_TEST(test_a_cache_spares_reads_within_its_budget_and_changes_nothing);
    RUN_TEST(test_pictures_prepared_here_are_what_the_device_would_make_of_the_bytes);
    RUN_TEST(test_seeking_again_and_again_never_mixes_batches);
    return UNITY_END();
}
