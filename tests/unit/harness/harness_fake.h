/* A source of data that the tests of the pipeline control, and ways to open a pipeline on it. Included once
 * per test program. */
#ifndef TESTS_HARNESS_FAKE_H
#define TESTS_HARNESS_FAKE_H

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/data/pipeline.h"
#include "harness/data/dataset_source.h"
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
static inline void use_pictures(enum data_kind kind)
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

static inline struct pipeline_config usual(int workers)
{
    return (struct pipeline_config){
        .batch = BATCH, .seed = 11, .shuffle = UINT64_MAX, .workers = workers, .prefetch = 3};
}

static inline struct pipeline *open_or_fail(const struct pipeline_config *config)
{
    struct pipeline *pipeline;

    TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_open(&pipeline, &fake.dataset, config));
    return pipeline;
}

/* The floats of the next samples, one after the other. */
static inline void take_floats(struct pipeline *pipeline, int batches, float *into)
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

#endif
