/* Layer norm and embedding of the CPU table against double precision and finite differences. */
#include "kernels_check.h"

#include <math.h>
#include <string.h>

#include "kernels/types.h"
#include "unity.h"

static struct ops *ops;
static const double epsilon = 1e-5;

void setUp(void)
{
    ops = check_open();
}

void tearDown(void)
{
    check_release();
}

struct norm {
    int rows, cols;
    const double *gamma, *beta;
    const double *weight; /* of each result in the loss */
};

static double normalized(const struct norm *n, const double *row, int col)
{
    double mean = 0.0, variance = 0.0;

    for (int c = 0; c < n->cols; c++)
        mean += row[c] / n->cols;
    for (int c = 0; c < n->cols; c++)
        variance += (row[c] - mean) * (row[c] - mean) / n->cols;
    return (row[col] - mean) / sqrt(variance + epsilon);
}

static void check_forward(int rows, int cols, enum ops_type type, int residual)
{
    size_t count = (size_t)rows * (size_t)cols;
    struct check_buffer x = check_values(type, count), r = check_values(type, count);
    struct check_buffer sum = check_results(type, count), y = check_results(type, count);
    struct check_buffer gamma = check_values(OPS_F32, (size_t)cols),
                        beta = check_values(OPS_F32, (size_t)cols);
    struct check_buffer mean = check_results(OPS_F32, (size_t)rows),
                        rstd = check_results(OPS_F32, (size_t)rows);
    struct norm n = {.rows = rows, .cols = cols};
    double *expected = check_doubles(count), *sizes = check_doubles(count), *sums = check_doubles(count);
    struct op_layernorm_forward args = {.x = x.data,
                                        .residual = residual ? r.data : NULL,
                                        .sum = residual ? sum.data : NULL,
                                        .y = y.data,
                                        .gamma = gamma.data,
                                        .beta = beta.data,
                                        .mean = mean.data,
                                        .rstd = rstd.data,
                                        .type = type,
                                        .rows = rows,
                                        .cols = cols,
                                        .epsilon = (float)epsilon};

    TEST_ASSERT_EQUAL_INT(0, ops->layernorm_forward(ops, NULL, &args));
    for (size_t i = 0; residual && i < count; i++)
        sums[i] = x.exact[i] + r.exact[i];
    if (residual)
        check_close("sum", &sum, sums, NULL);
    check_refresh(&sum);
    for (size_t i = 0; i < count; i++) {
        size_t row = i / (size_t)cols, col = i % (size_t)cols;
        const double *values = (residual ? sum.exact : x.exact) + row * (size_t)cols;
        double xhat = normalized(&n, values, (int)col);

        expected[i] = xhat * gamma.exact[col] + beta.exact[col];
        /* A row of nearly equal values is divided by little. */
        sizes[i] = fabs(beta.exact[col]) +
                   fabs(gamma.exact[col]) * (fabs(xhat) + 2.0 * (double)((float *)rstd.data)[row]);
    }
    check_close("y", &y, expected, sizes);
}

static void test_layernorm_normalizes_the_stored_sum(void)
{
    for (int t = 0; t < 3; t++) {
        for (int residual = 0; residual < 2; residual++) {
            check_forward(1, 1, check_types[t], residual);
            check_forward(9, 5, check_types[t], residual);
            check_forward(3, 1531, check_types[t], residual);
        }
    }
}

/* The loss as a function of x, then of gamma, then of beta. */
static double loss_of_x(const void *context, const double *x)
{
    const struct norm *n = context;
    double sum = 0.0;

    for (int r = 0; r < n->rows; r++) {
        for (int c = 0; c < n->cols; c++)
            sum +=
                n->weight[r * n->cols + c] * normalized(n, x + (size_t)r * (size_t)n->cols, c) * n->gamma[c];
    }
    return sum;
}

struct gamma_loss {
    struct norm norm;
    const double *x;
};

static double loss_of_gamma(const void *context, const double *gamma)
{
    struct gamma_loss l = *(const struct gamma_loss *)context;

    l.norm.gamma = gamma;
    return loss_of_x(&l.norm, l.x);
}

static double loss_of_beta(const void *context, const double *beta)
{
    const struct norm *n = context;
    double sum = 0.0;

    for (int i = 0; i < n->rows * n->cols; i++)
        sum += n->weight[i] * beta[i % n->cols];
    return sum;
}

static void test_gradients_of_layernorm_agree_with_finite_differences(void)
{
    enum { ROWS = 4, COLS = 7, COUNT = ROWS * COLS };
    struct check_buffer x = check_values(OPS_F32, COUNT), dy = check_values(OPS_F32, COUNT),
                        y = check_results(OPS_F32, COUNT);
    struct check_buffer gamma = check_values(OPS_F32, COLS), beta = check_values(OPS_F32, COLS);
    struct check_buffer dx = check_results(OPS_F32, COUNT), dgamma = check_results(OPS_F32, COLS),
                        dbeta = check_results(OPS_F32, COLS);
    float mean[ROWS], rstd[ROWS];
    struct norm n = {ROWS, COLS, gamma.exact, beta.exact, dy.exact};
    struct gamma_loss of_gamma = {n, x.exact};
    struct op_layernorm_backward back = {.dy = dy.data,
                                         .x = x.data,
                                         .dx = dx.data,
                                         .gamma = gamma.data,
                                         .mean = mean,
                                         .rstd = rstd,
                                         .dgamma = dgamma.data,
                                         .dbeta = dbeta.data,
                                         .rows = ROWS,
                                         .cols = COLS};

    TEST_ASSERT_EQUAL_INT(0,
                          ops->layernorm_forward(ops, NULL,
                                                 &(struct op_layernorm_forward){.x = x.data,
                                                                                .y = y.data,
                                                                                .gamma = gamma.data,
                                                                                .beta = beta.data,
                                                                                .mean = mean,
                                                                                .rstd = rstd,
                                                                                .rows = ROWS,
                                                                                .cols = COLS,
                                                                                .epsilon = (float)epsilon}));
    TEST_ASSERT_EQUAL_INT(0, ops->layernorm_backward(ops, NULL, &back));
    check_gradient("dx", loss_of_x, &n, x.exact, COUNT, dx.data);
    check_gradient("dgamma", loss_of_gamma, &of_gamma, gamma.exact, COLS, dgamma.data);
    check_gradient("dbeta", loss_of_beta, &n, beta.exact, COLS, dbeta.data);
}

static void test_layernorm_backward_adds_dsum_and_may_overwrite_it(void)
{
    enum { ROWS = 6, COLS = 300, COUNT = ROWS * COLS };
    struct check_buffer x = check_values(OPS_BF16, COUNT), dy = check_values(OPS_BF16, COUNT),
                        dsum = check_values(OPS_BF16, COUNT);
    struct check_buffer dx = check_results(OPS_BF16, COUNT), gamma = check_values(OPS_F32, COLS);
    struct check_buffer dgamma = check_results(OPS_F32, COLS), again = check_values(OPS_F32, COLS);
    float *mean = check_bytes(ROWS * sizeof(float)), *rstd = check_bytes(ROWS * sizeof(float)),
          *dbeta = check_bytes(COLS * sizeof(float));
    struct op_layernorm_backward back = {.dy = dy.data,
                                         .x = x.data,
                                         .dx = dx.data,
                                         .gamma = gamma.data,
                                         .mean = mean,
                                         .rstd = rstd,
                                         .dgamma = dgamma.data,
                                         .dbeta = dbeta,
                                         .type = OPS_BF16,
                                         .rows = ROWS,
                                         .cols = COLS};
    double *expected = check_doubles(COUNT), *sums = check_doubles(COLS);

    for (int r = 0; r < ROWS; r++)
        rstd[r] = 1.5f;
    TEST_ASSERT_EQUAL_INT(0, ops->layernorm_backward(ops, NULL, &back));
    check_refresh(&dx);
    for (int i = 0; i < COUNT; i++)
        expected[i] = dx.exact[i] + dsum.exact[i];
    for (int c = 0; c < COLS; c++)
        sums[c] = (double)((float *)dgamma.data)[c] + again.exact[c];
    back.dsum = dsum.data, back.dx = dsum.data, back.accumulate = 1, back.dgamma = again.data;
    TEST_ASSERT_EQUAL_INT(0, ops->layernorm_backward(ops, NULL, &back));
    /* dx was rounded once before it was added here: that much may be missing. */
    for (int i = 0; i < COUNT; i++)
        TEST_ASSERT_TRUE(fabs((double)types_load(dsum.data, OPS_BF16, (size_t)i) - expected[i]) <=
                         0x1p-7 * (fabs(expected[i]) + fabs(dx.exact[i])) + 1e-6);
    check_close("dgamma, added to what was there", &again, sums, NULL);
}

static void test_embedding_looks_up_and_sums_back(void)
{
    enum { ROWS = 24, LENGTH = 8, COLS = 67, VOCABULARY = 5 };

    for (int t = 0; t < 3; t++) {
        struct check_buffer table = check_values(check_types[t], VOCABULARY * COLS),
                            positions = check_values(check_types[t], LENGTH * COLS);
        struct check_buffer out = check_results(check_types[t], ROWS * COLS),
                            dout = check_values(check_types[t], ROWS * COLS);
        struct check_buffer dtable = check_results(OPS_F32, VOCABULARY * COLS),
                            dpositions = check_values(OPS_F32, LENGTH * COLS);
        double *expected = check_doubles(ROWS * COLS), *tokens_sum = check_doubles(VOCABULARY * COLS),
               *sizes = check_doubles(LENGTH * COLS);
        int32_t tokens[ROWS];
        struct op_embedding_backward back = {.tokens = tokens,
                                             .dout = dout.data,
                                             .dtokens_table = dtable.data,
                                             .type = check_types[t],
                                             .rows = ROWS,
                                             .cols = COLS,
                                             .length = LENGTH,
                                             .vocabulary = VOCABULARY};

        for (int r = 0; r < ROWS; r++)
            tokens[r] = r * r % (VOCABULARY - 1); /* the last one never occurs */
        TEST_ASSERT_EQUAL_INT(0, ops->embedding_forward(ops, NULL,
                                                        &(struct op_embedding_forward){
                                                            tokens, table.data, positions.data, out.data,
                                                            check_types[t], ROWS, COLS, LENGTH, VOCABULARY}));
        for (int i = 0; i < ROWS * COLS; i++) {
            int r = i / COLS, c = i % COLS;

            expected[i] = table.exact[tokens[r] * COLS + c] + positions.exact[r % LENGTH * COLS + c];
            tokens_sum[tokens[r] * COLS + c] += dout.exact[i];
            dpositions.exact[r % LENGTH * COLS + c] += dout.exact[i];
        }
        check_close("out", &out, expected, NULL);
        TEST_ASSERT_EQUAL_INT(0, ops->embedding_backward(ops, NULL, &back));
        for (int i = 0; i < VOCABULARY * COLS; i++)
            sizes[i] = ROWS;
        check_close("dtokens_table", &dtable, tokens_sum, sizes);
        /* Once more, on top of it and with positions. */
        for (int i = 0; i < VOCABULARY * COLS; i++)
            tokens_sum[i] *= 2.0;
        back.accumulate = 1, back.dpositions_table = dpositions.data;
        TEST_ASSERT_EQUAL_INT(0, ops->embedding_backward(ops, NULL, &back));
        check_close("dtokens_table, added up", &dtable, tokens_sum, sizes);
        for (int i = 0; i < LENGTH * COLS; i++)
            sizes[i] = ROWS;
        check_close("dpositions_table", &dpositions, dpositions.exact, sizes);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_layernorm_normalizes_the_stored_sum);
    RUN_TEST(test_gradients_of_layernorm_agree_with_finite_differences);
    RUN_TEST(test_layernorm_backward_adds_dsum_and_may_overwrite_it);
    RUN_TEST(test_embedding_looks_up_and_sums_back);
    return UNITY_END();
}
