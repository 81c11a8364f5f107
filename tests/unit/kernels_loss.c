/* The cross-entropy and the evaluation of the CPU table against double precision and finite differences. */
#include "kernels_check.h"

#include <math.h>

#include "kernels/types.h"
#include "unity.h"

static struct ops *ops;

void setUp(void)
{
    ops = check_open();
}

void tearDown(void)
{
    check_release();
}

struct problem {
    int rows, cols;
    const int32_t *labels;
};

static double exact_lse(const double *row, int cols)
{
    double max = row[0], sum = 0.0;

    for (int c = 1; c < cols; c++)
        max = fmax(max, row[c]);
    for (int c = 0; c < cols; c++)
        sum += exp(row[c] - max);
    return max + log(sum);
}

/* The mean over all rows, those that are left out too: scale is 1 / rows. */
static double mean_loss(const void *context, const double *logits)
{
    const struct problem *p = context;
    double sum = 0.0;

    for (int r = 0; r < p->rows; r++) {
        const double *row = logits + (size_t)r * (size_t)p->cols;

        if (p->labels[r] >= 0)
            sum += exact_lse(row, p->cols) - row[p->labels[r]];
    }
    return sum / p->rows;
}

static void check_forward(int rows, int cols, enum ops_type type, float spread)
{
    size_t count = (size_t)rows * (size_t)cols;
    struct check_buffer logits = check_values(type, count), losses = check_results(OPS_F32, (size_t)rows),
                        lse = check_results(OPS_F32, (size_t)rows);
    double *expected = check_doubles((size_t)rows), *expected_lse = check_doubles((size_t)rows),
           *sizes = check_doubles((size_t)rows);
    int32_t *labels = check_bytes((size_t)rows * sizeof(*labels));

    for (size_t i = 0; i < count; i++)
        types_store(logits.data, type, i, (float)logits.exact[i] * spread);
    check_refresh(&logits);
    for (int r = 0; r < rows; r++) {
        const double *row = logits.exact + (size_t)r * (size_t)cols;

        labels[r] = r % 3 == 2 ? -1 - r : r * 7 % cols;
        expected_lse[r] = exact_lse(row, cols);
        expected[r] = labels[r] < 0 ? 0.0 : expected_lse[r] - row[labels[r]];
        sizes[r] = fabs(expected_lse[r]) + (double)spread;
    }
    TEST_ASSERT_EQUAL_INT(
        0, ops->softmax_xent_forward(ops, NULL,
                                     &(struct op_softmax_xent_forward){logits.data, labels, losses.data,
                                                                       lse.data, type, rows, cols}));
    check_close("losses", &losses, expected, sizes);
    check_close("lse", &lse, expected_lse, sizes);
}

static void test_losses_are_right_for_small_and_huge_logits(void)
{
    for (int t = 0; t < 3; t++) {
        check_forward(1, 1, check_types[t], 1.0f);
        check_forward(17, 10, check_types[t], 5.0f);
        check_forward(4, 2503, check_types[t], 30.0f);
        check_forward(5, 7, check_types[t], 10000.0f);
    }
}

static void test_gradient_of_the_loss_agrees_with_finite_differences(void)
{
    enum { ROWS = 7, COLS = 5, COUNT = ROWS * COLS };
    static const int32_t labels[ROWS] = {0, 4, 2, -1, 1, 3, -5};
    const float scale_by = 4.0f;
    struct check_buffer logits = check_values(OPS_F32, COUNT);
    float losses[ROWS], lse[ROWS], d[COUNT];
    struct problem p = {ROWS, COLS, labels};
    struct op_softmax_xent_backward back = {.logits = logits.data,
                                            .labels = labels,
                                            .lse = lse,
                                            .dlogits = d,
                                            .rows = ROWS,
                                            .cols = COLS,
                                            .scale = 1.0f / ROWS};

    TEST_ASSERT_EQUAL_INT(
        0, ops->softmax_xent_forward(
               ops, NULL,
               &(struct op_softmax_xent_forward){logits.data, labels, losses, lse, OPS_F32, ROWS, COLS}));
    TEST_ASSERT_EQUAL_INT(0, ops->softmax_xent_backward(ops, NULL, &back));
    check_gradient("dlogits", mean_loss, &p, logits.exact, COUNT, d);
    back.dlogits = logits.data, back.scale_by = &scale_by;
    TEST_ASSERT_EQUAL_INT(0, ops->softmax_xent_backward(ops, NULL, &back));
    for (int i = 0; i < COUNT; i++)
        TEST_ASSERT_FLOAT_WITHIN(1e-6f, scale_by * d[i], ((float *)logits.data)[i]);
    for (int i = 3 * COLS; i < 4 * COLS; i++)
        TEST_ASSERT_EQUAL_FLOAT(0.0f, d[i]);
}

static void test_gradient_of_the_loss_is_right_in_16_bits(void)
{
    enum { ROWS = 3, COLS = 1200, COUNT = ROWS * COLS };

    for (int t = 1; t < 3; t++) {
        struct check_buffer logits = check_values(check_types[t], COUNT),
                            d = check_results(check_types[t], COUNT);
        const int32_t labels[ROWS] = {0, 1199, 600};
        float losses[ROWS], lse[ROWS];
        double *expected = check_doubles(COUNT), *sizes = check_doubles(COUNT);

        TEST_ASSERT_EQUAL_INT(
            0, ops->softmax_xent_forward(ops, NULL,
                                         &(struct op_softmax_xent_forward){logits.data, labels, losses, lse,
                                                                           check_types[t], ROWS, COLS}));
        TEST_ASSERT_EQUAL_INT(
            0, ops->softmax_xent_backward(ops, NULL,
                                          &(struct op_softmax_xent_backward){.logits = logits.data,
                                                                             .labels = labels,
                                                                             .lse = lse,
                                                                             .dlogits = d.data,
                                                                             .type = check_types[t],
                                                                             .rows = ROWS,
                                                                             .cols = COLS,
                                                                             .scale = 1.0f}));
        for (int i = 0; i < COUNT; i++) {
            const double *row = logits.exact + i / COLS * COLS;

            expected[i] =
                exp(logits.exact[i] - exact_lse(row, COLS)) - (i % COLS == labels[i / COLS] ? 1.0 : 0.0);
            sizes[i] = 1.0;
        }
        check_close("dlogits", &d, expected, sizes);
    }
}

static void test_evaluation_counts_the_first_of_equal_logits_and_leaves_rows_out(void)
{
    const float logits[4][3] = {
        {1.0f, 3.0f, 3.0f}, {2.0f, 1.0f, 0.0f}, {5.0f, 9.0f, 1.0f}, {-2.0f, -1.0f, -3.0f}};
    const float losses[4] = {0.5f, 0.25f, 100.0f, 1.0f};
    const int32_t labels[4] = {2, 0, -1, 1};
    float total[3] = {10.0f, 20.0f, 30.0f};
    uint16_t halves[12];
    struct op_evaluate args = {losses, logits, labels, total, OPS_F32, 4, 3};

    TEST_ASSERT_EQUAL_INT(0, ops->evaluate(ops, NULL, &args));
    TEST_ASSERT_EQUAL_FLOAT(11.75f, total[0]);
    TEST_ASSERT_EQUAL_FLOAT(22.0f, total[1]); /* the first row's label is the second of two equal ones */
    TEST_ASSERT_EQUAL_FLOAT(33.0f, total[2]);
    for (int i = 0; i < 12; i++)
        halves[i] = types_to_f16(logits[i / 3][i % 3]);
    args.logits = halves, args.type = OPS_F16;
    TEST_ASSERT_EQUAL_INT(0, ops->evaluate(ops, NULL, &args));
    TEST_ASSERT_EQUAL_FLOAT(24.0f, total[1]);
    args.logits = NULL, args.labels = NULL;
    TEST_ASSERT_EQUAL_INT(0, ops->evaluate(ops, NULL, &args));
    TEST_ASSERT_EQUAL_FLOAT(115.25f, total[0]);
    TEST_ASSERT_EQUAL_FLOAT(24.0f, total[1]);
    TEST_ASSERT_EQUAL_FLOAT(40.0f, total[2]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_losses_are_right_for_small_and_huge_logits);
    RUN_TEST(test_gradient_of_the_loss_agrees_with_finite_differences);
    RUN_TEST(test_gradient_of_the_loss_is_right_in_16_bits);
    RUN_TEST(test_evaluation_counts_the_first_of_equal_logits_and_leaves_rows_out);
    return UNITY_END();
}
