/* Gradients are handed to NCCL during the backward pass: a bucket as soon as the last of its gradients has
 * been queued, and not before. One rank on the simulated GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory/mem.h"
#include "harness/model/net.h"
#include "harness/train/buckets.h"
#include "unity.h"

enum { SAMPLES = 2, LENGTH = 8, VOCABULARY = 32, WIDTH = 16, LAYERS = 2 };

static struct cuda_device device;
static struct budget budget;
static struct supply supply;
static struct mem mem;
static struct model model;
static struct tensor tokens, labels;
static struct nccl_comm *comm;
static struct buckets buckets;
static int queued_early; /* buckets that were queued before the last layer */

void setUp(void)
{
    struct model_config config = {.device = &device, .mem = &mem, .type = OPS_F32, .seed = 5};
    struct train_options options = {.model = MODEL_GPT,
                                    .layers = LAYERS,
                                    .width = WIDTH,
                                    .heads = 2,
                                    .length = LENGTH,
                                    .vocabulary = VOCABULARY};
    struct data_spec spec = {.kind = DATA_TOKENS, .length = LENGTH, .vocabulary = VOCABULARY};
    struct nccl_id id;

    memset(&budget, 0, sizeof(budget));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, cuda_device_open(&device, 0));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, supply_open(&supply, ALLOC_CACHE, 0.5, &budget));
    mem_open(&mem, &supply, device.stream);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, net_fill_options(&options));
    model_open(&model, &config);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, net_build(&model, &options, &spec));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, nccl_new_id(&id));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, nccl_open(&comm, &id, 0, 1));
}

void tearDown(void)
{
    cudaStreamSynchronize(device.stream);
    buckets_close(&buckets);
    nccl_close(comm);
    model_close(&model);
    mem_drop(&mem, &tokens);
    mem_drop(&mem, &labels);
    supply_close(&supply);
    cuda_device_close(&device);
}

/* The layers that have yet to come must not write a gradient of a bucket that is queued. */
static void check_queued(int layer)
{
    for (int b = 0; b < buckets.next; b++) {
        const struct bucket *bucket = &buckets.bucket[b];

        for (int i = 0; i < bucket->count; i++)
            for (int l = 0; l < layer; l++)
                for (int slot = 0; slot < LAYER_PARAMS; slot++)
                    TEST_ASSERT_TRUE(model.layers[l].param[slot] != buckets.order[bucket->first + i]);
    }
}

static enum status layer_done(void *owner, struct model *of, int layer)
{
    enum status status = buckets_layer_done(owner, of, layer);

    check_queued(layer);
    if (layer > 0)
        queued_early = buckets.next;
    return status;
}

static void run_step(size_t bytes)
{
    struct model_targets targets;
    size_t room = SAMPLES * LENGTH * sizeof(int32_t);

    TEST_ASSERT_EQUAL_INT(STATUS_OK, buckets_open(&buckets, &model, comm, bytes));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, mem_need(&mem, &tokens, room, MEM_INPUT));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, mem_need(&mem, &labels, room, MEM_INPUT));
    cudaStreamSynchronize(device.stream);
    memset(tokens.data, 0, room);
    memset(labels.data, 0, room);
    targets = (struct model_targets){.labels = labels.data};
    model.tokens = tokens.data;
    model.n = SAMPLES;
    model.length = LENGTH;
    model.training = true;
    model.listener = (struct model_listener){layer_done, &buckets};
    TEST_ASSERT_EQUAL_INT(STATUS_OK, model_forward(&model, &targets));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, model_backward(&model, &targets, 1.0f, NULL));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, model_end(&model));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, buckets_join(&buckets, &model));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, cuda_device_status(cudaStreamSynchronize(device.stream), "step"));
}

static void test_small_buckets_are_queued_before_the_backward_pass_ends(void)
{
    run_step(1);
    TEST_ASSERT_EQUAL_INT(model.param_count, buckets.bucket_count);
    /* All but the two tables, of which the first layer writes the gradients. */
    TEST_ASSERT_EQUAL_INT(model.param_count - 2, queued_early);
    TEST_ASSERT_EQUAL_INT(0, buckets.next);
}

static void test_every_gradient_is_in_one_bucket(void)
{
    int *seen = calloc((size_t)model.param_count, sizeof(*seen));

    TEST_ASSERT_NOT_NULL(seen);
    run_step(4096);
    TEST_ASSERT_TRUE(buckets.bucket_count > 1 && buckets.bucket_count < model.param_count);
    for (int b = 0; b < buckets.bucket_count; b++)
        for (int i = 0; i < buckets.bucket[b].count; i++)
            seen[buckets.order[buckets.bucket[b].first + i]]++;
    for (int p = 0; p < model.param_count; p++)
        TEST_ASSERT_EQUAL_INT(1, seen[p]);
    free(seen);
}

static void test_an_aborted_communicator_ends_the_step(void)
{
    nccl_abort(comm);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, buckets_open(&buckets, &model, comm, 1));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, nccl_average(comm, NULL, 0, buckets.stream));
    TEST_ASSERT_FALSE(nccl_has_failed(comm));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_small_buckets_are_queued_before_the_backward_pass_ends);
    RUN_TEST(test_every_gradient_is_in_one_bucket);
    RUN_TEST(test_an_aborted_communicator_ends_the_step);
    return UNITY_END();
}
