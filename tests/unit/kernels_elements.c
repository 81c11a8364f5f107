/* The plain operations of the CPU table: types and their rounding, fill, cast, add, dropout, average, pruning
 * and quantization. */
#include "kernels_check.h"

#include <math.h>
#include <string.h>

#include "kernels/types.h"
#include "unity.h"

enum { COUNT = 70001 }; /* more than one piece of a loop, and no multiple of anything */

static struct ops *ops;

void setUp(void)
{
    ops = check_open();
}

void tearDown(void)
{
    check_release();
}

static float from_bits(uint16_t bits, enum ops_type type)
{
    return type == OPS_BF16 ? types_from_bf16(bits) : types_from_f16(bits);
}

static uint16_t to_bits(float value, enum ops_type type)
{
    return type == OPS_BF16 ? types_to_bf16(value) : types_to_f16(value);
}

static void test_every_16_bit_number_survives_the_way_through_float(void)
{
    for (int t = 1; t < 3; t++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            float value = from_bits((uint16_t)bits, check_types[t]);

            if (isnan(value))
                TEST_ASSERT_TRUE(isnan(from_bits(to_bits(value, check_types[t]), check_types[t])));
            else
                TEST_ASSERT_EQUAL_HEX16(bits, to_bits(value, check_types[t]));
        }
    }
    TEST_ASSERT_EQUAL_FLOAT(65504.0f, types_from_f16(0x7bff));
    TEST_ASSERT_EQUAL_FLOAT(0x1p-24f, types_from_f16(0x0001));
    TEST_ASSERT_EQUAL_FLOAT(-2.0f, types_from_bf16(0xc000));
}

/* Between two neighbours a value goes to the nearer one, and from the middle to the even one. */
static void test_rounding_is_to_nearest_and_halves_to_even(void)
{
    for (int t = 1; t < 3; t++) {
        uint16_t infinite = check_types[t] == OPS_BF16 ? 0x7f80 : 0x7c00;

        for (uint16_t low = 0; low + 1 < infinite; low++) {
            double a = (double)from_bits(low, check_types[t]),
                   b = (double)from_bits((uint16_t)(low + 1), check_types[t]);
            float middle = (float)((a + b) / 2.0);

            if ((double)middle != (a + b) / 2.0)
                continue;
            TEST_ASSERT_EQUAL_HEX16(low % 2 ? low + 1 : low, to_bits(middle, check_types[t]));
            TEST_ASSERT_EQUAL_HEX16(low, to_bits(nextafterf(middle, 0.0f), check_types[t]));
            TEST_ASSERT_EQUAL_HEX16(low + 1, to_bits(nextafterf(middle, INFINITY), check_types[t]));
            TEST_ASSERT_EQUAL_HEX16((low % 2 ? low + 1 : low) | 0x8000, to_bits(-middle, check_types[t]));
        }
    }
    TEST_ASSERT_EQUAL_HEX16(0x7c00, to_bits(65520.0f, OPS_F16));
    TEST_ASSERT_EQUAL_HEX16(0x7bff, to_bits(65519.0f, OPS_F16));
    TEST_ASSERT_EQUAL_HEX16(0x7f80, to_bits(3.4e38f, OPS_BF16));
}

static void test_fill_sets_exactly_the_elements_asked_for(void)
{
    for (int t = 0; t < 3; t++) {
        struct check_buffer out = check_results(check_types[t], COUNT);
        size_t size = ops_type_bytes(check_types[t]);

        TEST_ASSERT_EQUAL_INT(
            0, ops->fill(ops, NULL,
                         &(struct op_fill){(char *)out.data + size, check_types[t], COUNT - 2, -0.5f}));
        for (size_t i = 1; i < COUNT - 1; i++)
            TEST_ASSERT_EQUAL_FLOAT(-0.5f, types_load(out.data, check_types[t], i));
        TEST_ASSERT_EQUAL_FLOAT((float)out.exact[0], types_load(out.data, check_types[t], 0));
        TEST_ASSERT_EQUAL_FLOAT((float)out.exact[COUNT - 1], types_load(out.data, check_types[t], COUNT - 1));
        TEST_ASSERT_EQUAL_INT(0, ops->fill(ops, NULL, &(struct op_fill){NULL, check_types[t], 0, 1.0f}));
    }
}

static void test_cast_rounds_once_and_add_may_overwrite_an_operand(void)
{
    for (int from = 0; from < 3; from++) {
        struct check_buffer x = check_values(check_types[from], COUNT),
                            y = check_values(check_types[from], COUNT);
        double *sums = check_doubles(COUNT);

        for (int to = 0; to < 3; to++) {
            struct check_buffer out = check_results(check_types[to], COUNT);

            TEST_ASSERT_EQUAL_INT(
                0, ops->cast(ops, NULL,
                             &(struct op_cast){x.data, out.data, check_types[from], check_types[to], COUNT}));
            check_close("cast", &out, x.exact, NULL);
        }
        for (size_t i = 0; i < COUNT; i++)
            sums[i] = x.exact[i] + y.exact[i];
        TEST_ASSERT_EQUAL_INT(
            0, ops->add(ops, NULL, &(struct op_add){x.data, y.data, x.data, check_types[from], COUNT}));
        check_close("add", &x, sums, NULL);
    }
}

/* How many elements of a dropout are 0, after checking that the others are scaled. */
static size_t dropped(const float *x, const float *y, float factor)
{
    size_t zeros = 0;

    for (size_t i = 0; i < COUNT; i++) {
        if (y[i] == 0.0f)
            zeros++;
        else
            TEST_ASSERT_EQUAL_FLOAT(x[i] * factor, y[i]);
    }
    return zeros;
}

static void test_dropout_drops_its_share_and_chooses_by_seed_and_step_alone(void)
{
    struct check_buffer x = check_values(OPS_F32, COUNT), y = check_results(OPS_F32, COUNT),
                        z = check_results(OPS_F32, COUNT);
    uint64_t step = 3;
    struct op_dropout args = {x.data, y.data, OPS_F32, COUNT, 0.25f, 99, &step};

    TEST_ASSERT_EQUAL_INT(0, ops->dropout(ops, NULL, &args));
    TEST_ASSERT_UINT64_WITHIN(COUNT / 100, COUNT / 4, dropped(x.data, y.data, 1.0f / 0.75f));
    args.y = z.data;
    TEST_ASSERT_EQUAL_INT(0, ops->dropout(ops, NULL, &args));
    TEST_ASSERT_EQUAL_MEMORY(y.data, z.data, COUNT * sizeof(float));
    step = 4;
    TEST_ASSERT_EQUAL_INT(0, ops->dropout(ops, NULL, &args));
    TEST_ASSERT_TRUE(memcmp(y.data, z.data, COUNT * sizeof(float)) != 0);
    step = 3, args.seed = 98;
    TEST_ASSERT_EQUAL_INT(0, ops->dropout(ops, NULL, &args));
    TEST_ASSERT_TRUE(memcmp(y.data, z.data, COUNT * sizeof(float)) != 0);
    args.rate = 0.0f, args.y = x.data, args.step = NULL;
    TEST_ASSERT_EQUAL_INT(0, ops->dropout(ops, NULL, &args));
    for (size_t i = 0; i < COUNT; i++)
        TEST_ASSERT_EQUAL_FLOAT((float)x.exact[i], ((float *)x.data)[i]);
}

static void test_average_gives_every_part_the_mean(void)
{
    struct op_average args = {.count = 3, .elements = COUNT};
    struct check_buffer parts[3];
    double *mean = check_doubles(COUNT), *sizes = check_doubles(COUNT);

    for (int p = 0; p < 3; p++) {
        parts[p] = check_values(OPS_F32, COUNT);
        args.parts[p] = parts[p].data;
        for (size_t i = 0; i < COUNT; i++) {
            mean[i] += parts[p].exact[i] / 3.0;
            sizes[i] = 1.0;
        }
    }
    TEST_ASSERT_EQUAL_INT(0, ops->average(ops, NULL, &args));
    check_close("average", &parts[0], mean, sizes);
    TEST_ASSERT_EQUAL_MEMORY(parts[0].data, parts[1].data, COUNT * sizeof(float));
    TEST_ASSERT_EQUAL_MEMORY(parts[0].data, parts[2].data, COUNT * sizeof(float));
}

static void test_pruning_clears_what_is_below_the_threshold_only(void)
{
    float x[5] = {0.5f, -0.49f, 0.0f, -0.5f, 0.4999f};

    TEST_ASSERT_EQUAL_INT(0, ops->prune(ops, NULL, &(struct op_prune){x, 5, 0.5f}));
    TEST_ASSERT_EQUAL_FLOAT(0.5f, x[0]);
    TEST_ASSERT_EQUAL_FLOAT(0.0f, x[1]);
    TEST_ASSERT_EQUAL_FLOAT(-0.5f, x[3]);
    TEST_ASSERT_EQUAL_FLOAT(0.0f, x[4]);
}

static void test_quantized_rows_come_back_within_half_a_step(void)
{
    enum { ROWS = 5, COLS = 301 };
    struct check_buffer x = check_values(OPS_F32, ROWS * COLS);
    int8_t *q = check_bytes(ROWS * COLS);
    float scale[ROWS];

    memset((float *)x.data + 2 * COLS, 0, COLS * sizeof(float)); /* a row of zeros */
    check_refresh(&x);
    TEST_ASSERT_EQUAL_INT(0, ops->quantize(ops, NULL, &(struct op_quantize){x.data, q, scale, ROWS, COLS}));
    TEST_ASSERT_EQUAL_FLOAT(0.0f, scale[2]);
    for (int t = 0; t < 3; t++) {
        struct check_buffer back = check_results(check_types[t], ROWS * COLS);
        double rounding = check_types[t] == OPS_F32 ? 1e-7 : check_types[t] == OPS_BF16 ? 0x1p-9 : 0x1p-12;

        TEST_ASSERT_EQUAL_INT(
            0, ops->dequantize(ops, NULL,
                               &(struct op_dequantize){q, scale, back.data, check_types[t], ROWS, COLS}));
        for (int i = 0; i < ROWS * COLS; i++) {
            double half_step = 0.5 * (double)scale[i / COLS];

            TEST_ASSERT_TRUE(fabs((double)types_load(back.data, check_types[t], (size_t)i) - x.exact[i]) <=
                             half_step * 1.0001 + rounding);
        }
    }
}

static void test_quantization_rounds_halves_to_even_and_uses_the_whole_range(void)
{
    const float x[5] = {127.0f, -127.0f, 2.5f, 3.5f, -0.5f};
    const int8_t expected[5] = {127, -127, 2, 4, 0};
    int8_t q[5];
    float scale;

    TEST_ASSERT_EQUAL_INT(0, ops->quantize(ops, NULL, &(struct op_quantize){x, q, &scale, 1, 5}));
    TEST_ASSERT_EQUAL_FLOAT(1.0f, scale);
    TEST_ASSERT_EQUAL_INT8_ARRAY(expected, q, 5);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_16_bit_number_survives_the_way_through_float);
    RUN_TEST(test_rounding_is_to_nearest_and_halves_to_even);
    RUN_TEST(test_fill_sets_exactly_the_elements_asked_for);
    RUN_TEST(test_cast_rounds_once_and_add_may_overwrite_an_operand);
    RUN_TEST(test_dropout_drops_its_share_and_chooses_by_seed_and_step_alone);
    RUN_TEST(test_average_gives_every_part_the_mean);
    RUN_TEST(test_pruning_clears_what_is_below_the_threshold_only);
    RUN_TEST(test_quantized_rows_come_back_within_half_a_step);
    RUN_TEST(test_quantization_rounds_halves_to_even_and_uses_the_whole_range);
    return UNITY_END();
}
