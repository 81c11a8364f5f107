/* Pictures prepared by the operation image_prepare on the device from a pipeline's bytes and cuts are those
 * that the pipeline prepares on the host, for images and pairs, in training and validation. The batches
 * travel through pinned memory and the copy stream, as in train. */
#include "harness/data/feed.h"
#include "kernels_support.h"

enum { BATCH = 32, STEPS = 6, SIDE = 48, RAW = 61, C = 3, FLOATS = BATCH * SIDE * SIDE * C };

static struct dataset *dataset;
static uint8_t *raw;
static struct ops_crop *crops;
static float *prepared;
static float result[FLOATS];

static void prepare_on_device(struct feed *feed, const struct batch *batch, const uint8_t *bytes)
{
    const struct data_spec *spec = dataset_spec(dataset);
    struct op_image_prepare args = {.x = raw,
                                    .crops = crops,
                                    .out = prepared,
                                    .type = OPS_F32,
                                    .n = (int)batch->count,
                                    .h = spec->raw_h,
                                    .w = spec->raw_w,
                                    .c = spec->c,
                                    .oh = spec->h,
                                    .ow = spec->w};

    for (int c = 0; c < C; c++) {
        args.mean[c] = spec->mean[c];
        args.deviation[c] = spec->deviation[c];
    }
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_begin(feed, kernels_stream));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_copy(feed, raw, bytes, batch->count * RAW * RAW * C));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_copy(feed, crops, batch->crops, batch->count * sizeof(*crops)));
    /* The batch is kept until the test has compared it: compute waits for the copies by hand. */
    TEST_ASSERT_EQUAL_INT(0, cudaDeviceSynchronize());
    TEST_ASSERT_EQUAL_INT(0, kernels_ops->image_prepare(kernels_ops, kernels_stream, &args));
    TEST_ASSERT_EQUAL_INT(
        0, cudaMemcpyAsync(result, prepared, sizeof(result), cudaMemcpyDeviceToHost, kernels_stream));
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(kernels_stream));
}

static void assert_close(const float *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        TEST_ASSERT_FLOAT_WITHIN(1e-4f, expected[i], result[i]);
}

static void compare(enum data_kind kind, enum data_split split, bool augment)
{
    struct data_config data = {.kind = kind, .image = SIDE, .raw = RAW, .samples = 600, .seed = 3};
    struct pipeline_config config = {
        .split = split, .batch = BATCH, .seed = 5, .shuffle = UINT64_MAX, .augment = augment, .workers = 4};
    struct feed *feed;
    struct pipeline *host;

    TEST_ASSERT_EQUAL_INT(STATUS_OK, dataset_open(&dataset, &data));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_open(&feed, dataset, &config));
    config.prepare = PREPARE_CPU;
    TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_open(&host, dataset, &config));
    for (int i = 0; i < STEPS; i++) {
        struct batch *bytes, *floats;
        cudaEvent_t copied;

        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_next(feed, &bytes));
        TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(host, &floats));
        prepare_on_device(feed, bytes, bytes->bytes);
        assert_close(floats->floats, bytes->count * SIDE * SIDE * C);
        if (kind == DATA_PAIRS) {
            prepare_on_device(feed, bytes, bytes->target_bytes);
            assert_close(floats->target_floats, bytes->count * SIDE * SIDE * C);
        }
        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_end(feed, bytes, &copied));
        pipeline_release(host, floats);
    }
    pipeline_close(host);
    feed_close(feed);
    dataset_close(dataset);
}

static void test_training_pictures_are_the_same_from_device_and_host(void)
{
    compare(DATA_IMAGES, DATA_TRAIN, true);
}

static void test_validation_pictures_are_the_same_from_device_and_host(void)
{
    compare(DATA_IMAGES, DATA_VALIDATION, false);
}

static void test_pairs_are_the_same_from_device_and_host(void)
{
    compare(DATA_PAIRS, DATA_TRAIN, true);
}

int main(void)
{
    int status = kernels_open();

    if (status)
        return status;
    if (cudaMalloc((void **)&raw, (size_t)BATCH * RAW * RAW * C) ||
        cudaMalloc((void **)&crops, BATCH * sizeof(*crops)) || cudaMalloc((void **)&prepared, sizeof(result)))
        return kernels_close(1);
    UNITY_BEGIN();
    RUN_TEST(test_training_pictures_are_the_same_from_device_and_host);
    RUN_TEST(test_validation_pictures_are_the_same_from_device_and_host);
    RUN_TEST(test_pairs_are_the_same_from_device_and_host);
    status = UNITY_END();
    cudaFree(raw);
    cudaFree(crops);
    cudaFree(prepared);
    return kernels_close(status);
}
