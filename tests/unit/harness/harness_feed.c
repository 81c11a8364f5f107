/* Batches that reach the device are those of the pipeline, though buffers are filled again while copies and
 * work are under way; ending early and at the end of a pass. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/simgpu/simgpu_cudart_support.h"
#include "harness/data/feed.h"

enum { BATCH = 16, SIDE = 12, STEPS = 60, SETS = 2, BYTES = BATCH * SIDE * SIDE * 3 };

static struct dataset *dataset;
static struct pipeline_config config;
static atomic_int gate;

static void wait_for_gate(void *unused)
{
    (void)unused;
    while (!atomic_load(&gate))
        usleep(1000);
}

void setUp(void)
{
    struct data_config data = {.kind = DATA_IMAGES, .image = SIDE, .samples = 120, .seed = 3};

    TEST_ASSERT_EQUAL_INT(STATUS_OK, dataset_open(&dataset, &data));
    config = (struct pipeline_config){
        .batch = BATCH, .seed = 5, .shuffle = UINT64_MAX, .augment = true, .workers = 3};
}

void tearDown(void)
{
    dataset_close(dataset);
}

static void test_the_device_sees_every_batch_unharmed(void)
{
    uint8_t *device[SETS], *seen = malloc((size_t)STEPS * BYTES);
    struct pipeline *plain;
    struct feed *feed;
    struct batch *batch;
    cudaEvent_t copied;
    cudaStream_t compute;

    TEST_ASSERT_NOT_NULL(seen);
    OK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_open(&feed, dataset, &config));
    for (int i = 0; i < SETS; i++)
        OK(cudaMalloc((void **)&device[i], BYTES));
    for (int i = 0; i < STEPS; i++) {
        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_next(feed, &batch));
        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_begin(feed, compute));
        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_copy(feed, device[i % SETS], batch->bytes, BYTES));
        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_end(feed, batch, &copied));
        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_wait(copied, compute));
        OK(cudaMemcpyAsync(seen + (size_t)i * BYTES, device[i % SETS], BYTES, cudaMemcpyDeviceToHost,
                           compute));
    }
    OK(cudaStreamSynchronize(compute));
    feed_close(feed);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_open(&plain, dataset, &config));
    for (int i = 0; i < STEPS; i++) {
        TEST_ASSERT_EQUAL_INT(STATUS_OK, pipeline_next(plain, &batch));
        TEST_ASSERT_EQUAL_MEMORY(batch->bytes, seen + (size_t)i * BYTES, BYTES);
        pipeline_release(plain, batch);
    }
    pipeline_close(plain);
    for (int i = 0; i < SETS; i++)
        OK(cudaFree(device[i]));
    OK(cudaStreamDestroy(compute));
    free(seen);
}

/* A copy that is under way while compute is held up: only a stream of its own can end it. */
static void test_copies_go_on_while_the_device_computes(void)
{
    uint8_t *device;
    struct feed *feed;
    struct batch *batch;
    cudaEvent_t copied;
    cudaStream_t compute;

    OK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    OK(cudaMalloc((void **)&device, BYTES));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_open(&feed, dataset, &config));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_next(feed, &batch));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_begin(feed, compute));
    OK(cudaLaunchHostFunc(compute, wait_for_gate, NULL)); /* the work on this batch */
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_copy(feed, device, batch->bytes, BYTES));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_end(feed, batch, &copied));
    OK(cudaEventSynchronize(copied));
    TEST_ASSERT_EQUAL_INT(cudaErrorNotReady, cudaStreamQuery(compute));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_wait(copied, compute));
    atomic_store(&gate, 1);
    OK(cudaStreamSynchronize(compute));
    feed_close(feed);
    OK(cudaFree(device));
    OK(cudaStreamDestroy(compute));
}

static void test_batches_lie_in_pinned_memory(void)
{
    struct cudaPointerAttributes attributes;
    struct feed *feed;
    struct batch *batch;

    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_open(&feed, dataset, &config));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_next(feed, &batch));
    OK(cudaPointerGetAttributes(&attributes, batch->bytes + BYTES - 1));
    TEST_ASSERT_EQUAL_INT(cudaMemoryTypeHost, attributes.type);
    feed_close(feed);
}

static void test_the_fewest_buffers_are_enough(void)
{
    struct pipeline_stats stats;
    struct feed *feed;
    struct batch *batch;
    cudaEvent_t copied;
    uint8_t *device;

    config.budget = 3 * BYTES - 1;
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_open(&feed, dataset, &config));
    pipeline_get_stats(feed_pipeline(feed), &stats);
    TEST_ASSERT_EQUAL_INT(2, stats.slots);
    OK(cudaMalloc((void **)&device, BYTES));
    for (int i = 0; i < STEPS; i++) {
        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_next(feed, &batch));
        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_copy(feed, device, batch->bytes, BYTES));
        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_end(feed, batch, &copied));
    }
    feed_close(feed);
    OK(cudaFree(device));
}

static void test_closing_with_copies_under_way_is_clean(void)
{
    uint8_t *device;

    OK(cudaMalloc((void **)&device, BYTES));
    for (int steps = 0; steps < 4; steps++) {
        struct feed *feed;
        struct batch *batch;
        cudaEvent_t copied;

        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_open(&feed, dataset, &config));
        for (int i = 0; i < steps; i++) {
            TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_next(feed, &batch));
            TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_copy(feed, device, batch->bytes, BYTES));
            if (i + 1 < steps)
                TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_end(feed, batch, &copied));
        }
        feed_close(feed);
    }
    OK(cudaFree(device));
}

static void test_a_pass_ends_for_the_device_too(void)
{
    struct feed *feed;
    struct batch *batch;
    cudaEvent_t copied;
    size_t samples = 0;

    config.split = DATA_VALIDATION;
    config.once = true;
    TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_open(&feed, dataset, &config));
    do {
        TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_next(feed, &batch));
        samples += batch ? batch->count : 0;
        if (batch)
            TEST_ASSERT_EQUAL_INT(STATUS_OK, feed_end(feed, batch, &copied));
    } while (batch);
    TEST_ASSERT_EQUAL_size_t(20, samples);
    feed_close(feed);
}

int main(void)
{
#ifdef TEST_ON_GPU
    int devices = 0;

    if (cudaGetDeviceCount(&devices) || devices == 0)
        return 77;
#else
    cudart_own_machine("1x1GiB");
#endif
    UNITY_BEGIN();
    RUN_TEST(test_the_device_sees_every_batch_unharmed);
    RUN_TEST(test_copies_go_on_while_the_device_computes);
    RUN_TEST(test_batches_lie_in_pinned_memory);
    RUN_TEST(test_the_fewest_buffers_are_enough);
    RUN_TEST(test_closing_with_copies_under_way_is_clean);
    RUN_TEST(test_a_pass_ends_for_the_device_too);
    return UNITY_END();
}
