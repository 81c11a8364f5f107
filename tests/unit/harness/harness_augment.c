/* Cutting, mirroring, resizing and normalizing on the host against the formula in doubles; random cuts stay
 * where they may be; the computed order of samples is an order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/data/augment.h"
#include "harness/data/shuffle.h"
#include "unity.h"

enum { RAW_H = 13, RAW_W = 17, C = 3, OUT_H = 8, OUT_W = 9 };

static const struct data_spec spec = {.kind = DATA_IMAGES,
                                      .h = OUT_H,
                                      .w = OUT_W,
                                      .c = C,
                                      .raw_h = RAW_H,
                                      .raw_w = RAW_W,
                                      .mean = {0.4f, 0.5f, 0.6f},
                                      .deviation = {0.2f, 0.25f, 0.3f}};
static uint8_t raw[RAW_H * RAW_W * C];

void setUp(void)
{
    struct rng rng = rng_derive(3, 0);

    for (size_t i = 0; i < sizeof(raw); i++)
        raw[i] = (uint8_t)rng_next(&rng);
}

void tearDown(void) {}

static double raw_at(int y, int x, int c)
{
    y = y < 0 ? 0 : y >= RAW_H ? RAW_H - 1 : y;
    x = x < 0 ? 0 : x >= RAW_W ? RAW_W - 1 : x;
    return raw[(y * RAW_W + x) * C + c];
}

/* The formula of image_prepare, with the edge repeated without end. */
static double reference(const struct ops_crop *crop, int oy, int ox, int c)
{
    double y = crop->top + (oy + 0.5) * crop->height / OUT_H - 0.5;
    double x = crop->left + ((crop->mirror ? OUT_W - 1 - ox : ox) + 0.5) * crop->width / OUT_W - 0.5;
    int y0 = (int)floor(y), x0 = (int)floor(x);
    double wy = y - y0, wx = x - x0;
    double value = (1 - wy) * ((1 - wx) * raw_at(y0, x0, c) + wx * raw_at(y0, x0 + 1, c)) +
                   wy * ((1 - wx) * raw_at(y0 + 1, x0, c) + wx * raw_at(y0 + 1, x0 + 1, c));

    return (value / 255.0 - spec.mean[c]) / spec.deviation[c];
}

static void test_preparing_follows_the_formula(void)
{
    static const struct ops_crop crops[] = {
        {0, 0, RAW_H, RAW_W, 0}, {0, 0, RAW_H, RAW_W, 1},         {2.5f, 3.25f, 6, 7, 0},
        {-3, -4, 10, 12, 1},     {5, 9, RAW_H - 5, RAW_W - 9, 0}, {8, 10, 9, 11, 1},
    };
    float out[OUT_H * OUT_W * C];

    for (size_t i = 0; i < sizeof(crops) / sizeof(crops[0]); i++) {
        augment_prepare(&spec, &crops[i], raw, out);
        for (int y = 0; y < OUT_H; y++) {
            for (int x = 0; x < OUT_W; x++) {
                for (int c = 0; c < C; c++)
                    TEST_ASSERT_FLOAT_WITHIN(2e-5f, (float)reference(&crops[i], y, x, c),
                                             out[(y * OUT_W + x) * C + c]);
            }
        }
    }
}

static void test_a_picture_of_its_own_size_is_only_normalized(void)
{
    struct data_spec same = spec;
    struct ops_crop crop;
    float out[RAW_H * RAW_W * C];

    same.h = RAW_H;
    same.w = RAW_W;
    crop = augment_middle(&same, RAW_H, RAW_W);
    augment_prepare(&same, &crop, raw, out);
    for (int i = 0; i < RAW_H * RAW_W * C; i++)
        TEST_ASSERT_EQUAL_FLOAT(((float)raw[i] / 255.0f - spec.mean[i % C]) / spec.deviation[i % C], out[i]);
}

static void test_what_lies_around_a_smaller_picture_is_its_edge(void)
{
    enum { H = 5, W = 6 };
    uint8_t bytes[sizeof(raw)];

    memcpy(bytes, raw, sizeof(raw));
    augment_extend(&spec, bytes, H, W);
    for (int y = 0; y < RAW_H; y++) {
        for (int x = 0; x < RAW_W; x++) {
            for (int c = 0; c < C; c++)
                TEST_ASSERT_EQUAL_UINT8(raw[((y < H ? y : H - 1) * RAW_W + (x < W ? x : W - 1)) * C + c],
                                        bytes[(y * RAW_W + x) * C + c]);
        }
    }
}

static void test_random_cuts_lie_inside_and_differ(void)
{
    static const struct source_augment allowed = {.min_area = 0.35f, .mirror = true};
    struct rng rng = rng_derive(1, 1);
    float least_top = 1e9f, most_top = -1e9f;
    int mirrored = 0;

    for (int i = 0; i < 1000; i++) {
        struct ops_crop crop = augment_random(&spec, &allowed, 12, 10, &rng);

        TEST_ASSERT_TRUE(crop.top >= 0 && crop.top + crop.height <= 12.0001f);
        TEST_ASSERT_TRUE(crop.left >= 0 && crop.left + crop.width <= 10.0001f);
        TEST_ASSERT_TRUE(crop.height * crop.width >= 0.3499f * 120.0f);
        least_top = fminf(least_top, crop.top);
        most_top = fmaxf(most_top, crop.top);
        mirrored += crop.mirror;
    }
    TEST_ASSERT_TRUE(most_top - least_top > 1.0f);
    TEST_ASSERT_INT_WITHIN(100, 500, mirrored);
}

static void test_digits_are_shifted_but_never_mirrored(void)
{
    static const struct source_augment allowed = {.shift = 2.0f, .min_area = 1.0f};
    struct ops_crop middle = augment_middle(&spec, RAW_H, RAW_W);
    struct rng rng = rng_derive(1, 1);
    int seen[5] = {0};

    for (int i = 0; i < 200; i++) {
        struct ops_crop crop = augment_random(&spec, &allowed, RAW_H, RAW_W, &rng);
        int shift = (int)lroundf(crop.top - middle.top);

        TEST_ASSERT_EQUAL_INT(0, crop.mirror);
        TEST_ASSERT_TRUE(shift >= -2 && shift <= 2);
        TEST_ASSERT_EQUAL_FLOAT(middle.height, crop.height);
        seen[shift + 2]++;
    }
    for (int i = 0; i < 5; i++)
        TEST_ASSERT_GREATER_THAN_INT(0, seen[i]);
}

static void test_the_cut_in_the_middle_has_the_wanted_proportions(void)
{
    struct ops_crop crop = augment_middle(&spec, 100, 300);

    TEST_ASSERT_EQUAL_FLOAT(100.0f, crop.height);
    TEST_ASSERT_FLOAT_WITHIN(1e-3f, 112.5f, crop.width);
    TEST_ASSERT_FLOAT_WITHIN(1e-3f, 93.75f, crop.left);
}

static void test_a_worse_copy_differs_within_bounds_and_repeats(void)
{
    uint8_t one[sizeof(raw)], two[sizeof(raw)];
    struct rng rng = rng_derive(5, 5), again = rng;
    int grey = 0, far = 0;

    augment_degrade(&spec, raw, one, RAW_H, RAW_W, &rng);
    augment_degrade(&spec, raw, two, RAW_H, RAW_W, &again);
    TEST_ASSERT_EQUAL_MEMORY(one, two, sizeof(one));
    for (size_t i = 0; i < sizeof(raw); i++) {
        grey += one[i] == 128;
        far += abs(one[i] - raw[i]) > 32;
    }
    TEST_ASSERT_GREATER_OR_EQUAL_INT(3 * 3 * C, grey);
    TEST_ASSERT_LESS_OR_EQUAL_INT(3 * 3 * C, far);
    TEST_ASSERT_NOT_EQUAL_INT(0, memcmp(raw, one, sizeof(raw)));
}

static void test_an_order_has_every_sample_once(void)
{
    static const uint64_t counts[] = {1, 2, 3, 5, 16, 17, 1000, 4097};
    static const uint64_t windows[] = {1, 7, 100, UINT64_MAX};
    uint8_t seen[4097];

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++) {
            memset(seen, 0, sizeof(seen));
            for (uint64_t place = 0; place < counts[c]; place++) {
                uint64_t sample = shuffle_sample(9, 4, place, counts[c], windows[w]);

                TEST_ASSERT_LESS_THAN_UINT64(counts[c], sample);
                if (windows[w] < counts[c])
                    TEST_ASSERT_EQUAL_UINT64(place / windows[w], sample / windows[w]);
                seen[sample]++;
            }
            TEST_ASSERT_EACH_EQUAL_UINT8(1, seen, counts[c]);
        }
    }
}

/* Every sample should come equally often at every place over many epochs: chi-square with 99 degrees of
 * freedom has its 99.99 % point near 161. */
static void test_orders_of_epochs_are_random(void)
{
    enum { COUNT = 100, EPOCHS = 10000 };
    const double expected = (double)EPOCHS / COUNT;
    double chi = 0.0;
    int hits[COUNT] = {0}, fixed = 0;

    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        hits[shuffle_sample(77, epoch, 42, COUNT, UINT64_MAX)]++;
        fixed += shuffle_sample(77, epoch, 42, COUNT, UINT64_MAX) + 1 ==
                 shuffle_sample(77, epoch, 43, COUNT, UINT64_MAX);
    }
    for (int i = 0; i < COUNT; i++)
        chi += (hits[i] - expected) * (hits[i] - expected) / expected;
    TEST_ASSERT_TRUE(chi < 161.0);
    TEST_ASSERT_INT_WITHIN(60, EPOCHS / COUNT, fixed);
    TEST_ASSERT_EQUAL_UINT64(42, shuffle_sample(77, 3, 42, COUNT, 0));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_preparing_follows_the_formula);
    RUN_TEST(test_a_picture_of_its_own_size_is_only_normalized);
    RUN_TEST(test_what_lies_around_a_smaller_picture_is_its_edge);
    RUN_TEST(test_random_cuts_lie_inside_and_differ);
    RUN_TEST(test_digits_are_shifted_but_never_mirrored);
    RUN_TEST(test_the_cut_in_the_middle_has_the_wanted_proportions);
    RUN_TEST(test_a_worse_copy_differs_within_bounds_and_repeats);
    RUN_TEST(test_an_order_has_every_sample_once);
    RUN_TEST(test_orders_of_epochs_are_random);
    return UNITY_END();
}
