/* The floating point operations of a step are those that can be computed by hand from the layers, and cards
 * have the peaks of their data sheets. */
#include <string.h>

#include "harness/base/card_peak.h"
#include "harness/model/flops.h"
#include "harness/model/net.h"
#include "unity.h"

static struct cuda_device device;
static struct budget budget;
static struct supply supply;
static struct mem mem;
static struct model model;

void setUp(void)
{
    memset(&budget, 0, sizeof(budget));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, cuda_device_open(&device, 0));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, supply_open(&supply, ALLOC_NAIVE, 0.5, &budget));
    mem_open(&mem, &supply, device.stream);
}

void tearDown(void)
{
    model_close(&model);
    supply_close(&supply);
    cuda_device_close(&device);
}

static struct flops count(struct train_options options, struct data_spec spec)
{
    struct model_config config = {.device = &device, .mem = &mem, .type = OPS_F32, .blank = true};
    struct flops flops;

    TEST_ASSERT_EQUAL_INT(STATUS_OK, net_fill_options(&options));
    model_open(&model, &config);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, net_build(&model, &options, &spec));
    flops = flops_of_sample(&model, spec.length);
    model_close(&model);
    return flops;
}

/* 4.09 billion multiply-adds forward for a picture of 224 x 224, as torchvision says of this network. The
 * first convolution, 112 x 112 x 64 x 7 x 7 x 3, computes no gradient of the picture. */
static void test_resnet50_has_the_operations_that_are_known_of_it(void)
{
    const uint64_t forward = 2ull * 4089184256ull;
    const uint64_t first = 2ull * 112 * 112 * 64 * 7 * 7 * 3;
    struct flops flops = count((struct train_options){.model = MODEL_RESNET50},
                               (struct data_spec){.h = 224, .w = 224, .c = 3, .classes = 1000});

    TEST_ASSERT_EQUAL_UINT64(forward, flops.forward);
    TEST_ASSERT_EQUAL_UINT64(2 * forward - first, flops.backward);
}

static struct flops gpt(uint64_t layers, int vocabulary)
{
    return count((struct train_options){.model = MODEL_GPT2_SMALL, .layers = layers},
                 (struct data_spec){.kind = DATA_TOKENS, .length = 1024, .vocabulary = vocabulary});
}

/* 6 operations for each weight of a product and token, and attention. The whole network takes half a
 * gigabyte: its count follows from those of smaller ones, as it grows evenly with blocks and vocabulary. */
static void test_gpt2_small_has_six_operations_per_weight_and_token(void)
{
    const uint64_t width = 768, tokens = 1024, blocks = 12, vocabulary = 50304;
    const uint64_t weights = blocks * 12 * width * width + vocabulary * width;
    /* Scores and sum: each of 768 columns, for each pair of a token and one not after it. */
    const uint64_t attention = blocks * 2 * 2 * width * (tokens * (tokens + 1) / 2);
    struct flops one = gpt(1, 64), two = gpt(2, 64), wide = gpt(1, 65);
    uint64_t forward = one.forward + (blocks - 1) * (two.forward - one.forward) +
                       (vocabulary - 64) * (wide.forward - one.forward);
    uint64_t backward = one.backward + (blocks - 1) * (two.backward - one.backward) +
                        (vocabulary - 64) * (wide.backward - one.backward);

    TEST_ASSERT_EQUAL_UINT64(2 * weights * tokens + attention, forward);
    TEST_ASSERT_EQUAL_UINT64(6 * weights * tokens + 3 * attention, forward + backward);
}

/* 28 x 28 x 1 as one row of 784: 784 x 32 and 32 x 10, of which the first has no gradient of its input. */
static void test_a_perceptron_is_counted_by_hand(void)
{
    struct flops flops = count((struct train_options){.hidden = {.count = 1, .item = {32}}},
                               (struct data_spec){.h = 28, .w = 28, .c = 1, .classes = 10});

    TEST_ASSERT_EQUAL_UINT64(2 * (784 * 32 + 320), flops.forward);
    TEST_ASSERT_EQUAL_UINT64(2 * (784 * 32 + 2 * 320), flops.backward);
}

static void test_cards_are_known_by_their_names(void)
{
    TEST_ASSERT_EQUAL_DOUBLE(989e12, card_peak("NVIDIA_H200", PRECISION_BF16));
    TEST_ASSERT_EQUAL_DOUBLE(989e12, card_peak("NVIDIA H100 80GB HBM3", PRECISION_FP16));
    TEST_ASSERT_EQUAL_DOUBLE(756e12, card_peak("NVIDIA_H100_PCIe", PRECISION_BF16));
    TEST_ASSERT_EQUAL_DOUBLE(67e12, card_peak("NVIDIA_H200", PRECISION_FP32));
    TEST_ASSERT_EQUAL_DOUBLE(494.5e12, card_peak("NVIDIA_H200", PRECISION_TF32));
    TEST_ASSERT_EQUAL_DOUBLE(312e12, card_peak("NVIDIA_A100-SXM4-80GB", PRECISION_BF16));
    TEST_ASSERT_EQUAL_DOUBLE(148e12, card_peak("NVIDIA_H20", PRECISION_BF16));
}

static void test_a_card_without_a_known_peak_has_none(void)
{
    TEST_ASSERT_EQUAL_DOUBLE(0, card_peak("simgpu", PRECISION_BF16));
    TEST_ASSERT_EQUAL_DOUBLE(0, card_peak("NVIDIA_H2000", PRECISION_BF16));
    TEST_ASSERT_EQUAL_DOUBLE(0, card_peak("NVIDIA_H200_MIG_1g.18gb", PRECISION_BF16));
    TEST_ASSERT_EQUAL_DOUBLE(0, card_peak("Tesla_T4", PRECISION_BF16));
}

static void test_result_has_a_share_only_of_a_known_peak(void)
{
    char text[64];

    TEST_ASSERT_EQUAL_STRING(" tflops=494.50 mfu=0.5000",
                             card_peak_words("NVIDIA_H200", PRECISION_BF16, 494.5e12, 1, text));
    TEST_ASSERT_EQUAL_STRING(" tflops=494.50 mfu=0.2500",
                             card_peak_words("NVIDIA_H200", PRECISION_BF16, 494.5e12, 2, text));
    TEST_ASSERT_EQUAL_STRING(" tflops=1.50", card_peak_words("Some_Card", PRECISION_BF16, 1.5e12, 1, text));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_resnet50_has_the_operations_that_are_known_of_it);
    RUN_TEST(test_gpt2_small_has_six_operations_per_weight_and_token);
    RUN_TEST(test_a_perceptron_is_counted_by_hand);
    RUN_TEST(test_cards_are_known_by_their_names);
    RUN_TEST(test_a_card_without_a_known_peak_has_none);
    RUN_TEST(test_result_has_a_share_only_of_a_known_peak);
    return UNITY_END();
}
