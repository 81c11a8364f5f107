/* Batch normalization of the CPU table against double precision, for every type: training and inference,
 * residual and rectifier, in place, accumulating; gradients against finite differences. */
#include <math.h>
#include <string.h>

#include "kernels_check.h"
#include "kernels/types.h"
#include "unity.h"

static const double epsilon = 1e-5, momentum = 0.1;

static struct ops *ops;

void setUp(void)
{
    ops = check_open();
}

void tearDown(void)
{
    check_release();
}

struct norm {
    int rows, cols, residual, relu;
    struct check_buffer x, add, gamma, beta, running_mean, running_variance;
    struct check_buffer y, mean, rstd;
};

static struct norm norm_of(enum ops_type type, int rows, int cols, int residual, int relu)
{
    size_t count = (size_t)rows * cols;
    struct norm t = {
        .rows = rows,
        .cols = cols,
        .residual = residual,
        .relu = relu,
        .x = check_values(type, count),
        .add = check_values(type, count),
        .gamma = check_values(OPS_F32, cols),
        .beta = check_values(OPS_F32, cols),
        .running_mean = check_values(OPS_F32, cols),
        .running_variance = check_values(OPS_F32, cols),
        .y = check_results(type, count),
        .mean = check_results(OPS_F32, cols),
        .rstd = check_results(OPS_F32, cols),
    };

    for (int c = 0; c < cols; c++) /* a variance is not negative */
        ((float *)t.running_variance.data)[c] = 0.5f + fabsf(((float *)t.running_variance.data)[c]);
    check_refresh(&t.running_variance);
    return t;
}

static struct op_batchnorm_forward forward_of(const struct norm *t, int training)
{
    return (struct op_batchnorm_forward){
        .x = t->x.data,
        .residual = t->residual ? t->add.data : NULL,
        .y = t->y.data,
        .gamma = t->gamma.data,
        .beta = t->beta.data,
        .running_mean = t->running_mean.data,
        .running_variance = t->running_variance.data,
        .mean = t->mean.data,
        .rstd = t->rstd.data,
        .type = t->x.type,
        .act = t->relu ? OPS_ACT_RELU : OPS_ACT_NONE,
        .rows = t->rows,
        .cols = t->cols,
        .epsilon = (float)epsilon,
        .momentum = (float)momentum,
        .training = training,
    };
}

/* Mean and variance of one column. */
static void column(const double *x, int rows, int cols, int c, double *mean, double *variance)
{
    double sum = 0.0, squares = 0.0;

    for (int r = 0; r < rows; r++)
        sum += x[(size_t)r * cols + c];
    *mean = sum / rows;
    for (int r = 0; r < rows; r++)
        squares += (x[(size_t)r * cols + c] - *mean) * (x[(size_t)r * cols + c] - *mean);
    *variance = squares / rows;
}

/* y in double, with the batch's statistics or the given ones. */
static void reference(const double *x, const double *add, const double *gamma, const double *beta,
                      const double *running_mean, const double *running_variance, int rows, int cols,
                      int relu, double *y)
{
    for (int c = 0; c < cols; c++) {
        double mean, variance;

        column(x, rows, cols, c, &mean, &variance);
        if (running_mean) {
            mean = running_mean[c];
            variance = running_variance[c];
        }
        for (int r = 0; r < rows; r++) {
            size_t i = (size_t)r * cols + c;
            double v = gamma[c] * (x[i] - mean) / sqrt(variance + epsilon) + beta[c] + (add ? add[i] : 0.0);

            y[i] = relu && v < 0.0 ? 0.0 : v;
        }
    }
}

/* The size of the sum behind each element, for the allowed rounding: mean and rstd are off by some roundings,
 * times the largest x. */
static double *sizes(size_t count, double size)
{
    double *all = check_doubles(count);

    for (size_t i = 0; i < count; i++)
        all[i] = size;
    return all;
}

static void check_training(enum ops_type type, int rows, int cols, int residual, int relu)
{
    struct norm t = norm_of(type, rows, cols, residual, relu);
    struct op_batchnorm_forward args = forward_of(&t, 1);
    double *mean = check_doubles(cols), *rstd = check_doubles(cols), *y = check_doubles(t.y.count);
    double *running_mean = check_doubles(cols), *running_variance = check_doubles(cols);

    for (int c = 0; c < cols; c++) {
        double variance;

        column(t.x.exact, rows, cols, c, &mean[c], &variance);
        rstd[c] = 1.0 / sqrt(variance + epsilon);
        running_mean[c] = (1.0 - momentum) * t.running_mean.exact[c] + momentum * mean[c];
        running_variance[c] = (1.0 - momentum) * t.running_variance.exact[c] +
                              momentum * variance * rows / (rows > 1 ? rows - 1 : 1);
    }
    reference(t.x.exact, residual ? t.add.exact : NULL, t.gamma.exact, t.beta.exact, NULL, NULL, rows, cols,
              relu, y);
    TEST_ASSERT_EQUAL_INT(0, ops->batchnorm_forward(ops, NULL, &args));
    check_close("mean", &t.mean, mean, sizes(cols, 1.0));
    check_close("rstd", &t.rstd, rstd, NULL);
    check_close("running mean", &t.running_mean, running_mean, sizes(cols, 1.0));
    check_close("running variance", &t.running_variance, running_variance, sizes(cols, 1.0));
    check_close("y", &t.y, y, sizes(t.y.count, 4.0));
    check_release();
    ops = check_open();
}

static const int shape[][2] = {{8, 1}, {7, 5}, {64, 17}, {200, 8}, {1031, 3}, {10, 1100}, {640, 64}};
enum { SHAPES = sizeof(shape) / sizeof(shape[0]) };

static void test_training_agrees_for_all_types(void)
{
    for (int i = 0; i < SHAPES; i++) {
        for (int variant = 0; variant < 12; variant++)
            check_training(check_types[variant % 3], shape[i][0], shape[i][1], variant / 3 & 1, variant / 6);
    }
}

static void test_inference_uses_the_running_statistics_and_writes_only_the_result(void)
{
    for (int variant = 0; variant < 6; variant++) {
        struct norm t = norm_of(check_types[variant % 3], 33, 12, variant / 3, variant / 3);
        struct op_batchnorm_forward args = forward_of(&t, 0);
        double *y = check_doubles(t.y.count);

        reference(t.x.exact, t.residual ? t.add.exact : NULL, t.gamma.exact, t.beta.exact,
                  t.running_mean.exact, t.running_variance.exact, t.rows, t.cols, t.relu, y);
        TEST_ASSERT_EQUAL_INT(0, ops->batchnorm_forward(ops, NULL, &args));
        check_close("y", &t.y, y, sizes(t.y.count, 4.0));
        check_close("running mean", &t.running_mean, t.running_mean.exact, sizes(t.cols, 0.0));
        check_close("running variance", &t.running_variance, t.running_variance.exact, sizes(t.cols, 0.0));
        check_close("mean", &t.mean, t.mean.exact, sizes(t.cols, 0.0));
        check_close("rstd", &t.rstd, t.rstd.exact, sizes(t.cols, 0.0));
    }
}

/* The mean is a thousand times the deviation. */
static void test_a_large_mean_does_not_cancel_the_variance(void)
{
    struct norm t = norm_of(OPS_F32, 500, 4, 0, 0);
    struct op_batchnorm_forward args = forward_of(&t, 1);
    double *rstd = check_doubles(4);

    for (size_t i = 0; i < t.x.count; i++)
        ((float *)t.x.data)[i] = 1000.0f + (float)check_random();
    check_refresh(&t.x);
    for (int c = 0; c < 4; c++) {
        double mean, variance;

        column(t.x.exact, 500, 4, c, &mean, &variance);
        rstd[c] = 1.0 / sqrt(variance + epsilon);
    }
    TEST_ASSERT_EQUAL_INT(0, ops->batchnorm_forward(ops, NULL, &args));
    check_close("rstd", &t.rstd, rstd, NULL);
}

struct backward {
    struct check_buffer dy, dx, dresidual, dgamma, dbeta;
};

static void run_backward(const struct norm *t, const struct backward *b, int in_place, int accumulate)
{
    TEST_ASSERT_EQUAL_INT(0, ops->batchnorm_backward(ops, NULL,
                                                     &(struct op_batchnorm_backward){
                                                         .dy = b->dy.data,
                                                         .x = t->x.data,
                                                         .y = t->y.data,
                                                         .dx = in_place ? b->dy.data : b->dx.data,
                                                         .dresidual = t->residual ? b->dresidual.data : NULL,
                                                         .gamma = t->gamma.data,
                                                         .mean = t->mean.data,
                                                         .rstd = t->rstd.data,
                                                         .dgamma = b->dgamma.data,
                                                         .dbeta = b->dbeta.data,
                                                         .type = t->x.type,
                                                         .act = t->relu ? OPS_ACT_RELU : OPS_ACT_NONE,
                                                         .rows = t->rows,
                                                         .cols = t->cols,
                                                         .accumulate = accumulate,
                                                     }));
}

static void check_backward(enum ops_type type, int rows, int cols, int residual, int relu, int accumulate)
{
    struct norm t = norm_of(type, rows, cols, residual, relu);
    struct op_batchnorm_forward args = forward_of(&t, 1);
    size_t count = t.x.count;
    struct backward b = {check_values(type, count), check_results(type, count), check_results(type, count),
                         accumulate ? check_values(OPS_F32, cols) : check_results(OPS_F32, cols),
                         accumulate ? check_values(OPS_F32, cols) : check_results(OPS_F32, cols)};
    double *g = check_doubles(count), *dx = check_doubles(count);
    double *dgamma = check_doubles(cols), *dbeta = check_doubles(cols);

    TEST_ASSERT_EQUAL_INT(0, ops->batchnorm_forward(ops, NULL, &args));
    check_refresh(&t.y);
    check_refresh(&t.mean);
    check_refresh(&t.rstd);
    for (size_t i = 0; i < count; i++) {
        int c = (int)(i % cols);

        g[i] = relu && !(t.y.exact[i] > 0.0) ? 0.0 : b.dy.exact[i];
        dgamma[c] += g[i] * (t.x.exact[i] - t.mean.exact[c]) * t.rstd.exact[c];
        dbeta[c] += g[i];
    }
    for (size_t i = 0; i < count; i++) {
        int c = (int)(i % cols);
        double hat = (t.x.exact[i] - t.mean.exact[c]) * t.rstd.exact[c];

        dx[i] = t.gamma.exact[c] * t.rstd.exact[c] * (g[i] - dbeta[c] / rows - hat * dgamma[c] / rows);
    }
    for (int c = 0; accumulate && c < cols; c++) {
        dgamma[c] += b.dgamma.exact[c];
        dbeta[c] += b.dbeta.exact[c];
    }
    run_backward(&t, &b, !residual, accumulate);
    check_close("dx", residual ? &b.dx : &b.dy, dx, sizes(count, 8.0));
    if (residual)
        check_close("dresidual", &b.dresidual, g, sizes(count, 0.0));
    check_close("dgamma", &b.dgamma, dgamma, sizes(cols, 1.0));
    check_close("dbeta", &b.dbeta, dbeta, sizes(cols, 1.0));
    check_release();
    ops = check_open();
}

static void test_backward_agrees_for_all_types_in_place_and_accumulating(void)
{
    for (int i = 0; i < SHAPES; i++) {
        for (int variant = 0; variant < 12; variant++)
            check_backward(check_types[variant % 3], shape[i][0], shape[i][1], variant / 3 & 1, variant / 6,
                           variant % 2);
    }
}

/* The loss is the sum of y * g; values are x, residual, gamma, beta. */
enum { ROWS = 9, COLS = 5, COUNT = ROWS * COLS };

static double norm_loss(const void *context, const double *v)
{
    const double *g = context;
    double y[COUNT], total = 0.0;

    reference(v, v + COUNT, v + 2 * COUNT, v + 2 * COUNT + COLS, NULL, NULL, ROWS, COLS, 1, y);
    for (int i = 0; i < COUNT; i++)
        total += y[i] * g[i];
    return total;
}

static void test_gradients_agree_with_finite_differences(void)
{
    struct norm t = norm_of(OPS_F32, ROWS, COLS, 1, 1);
    struct op_batchnorm_forward args = forward_of(&t, 1);
    struct backward b = {check_values(OPS_F32, COUNT), check_results(OPS_F32, COUNT),
                         check_results(OPS_F32, COUNT), check_results(OPS_F32, COLS),
                         check_results(OPS_F32, COLS)};
    double values[2 * COUNT + 2 * COLS];
    float gradient[2 * COUNT + 2 * COLS];

    ops->batchnorm_forward(ops, NULL, &args);
    run_backward(&t, &b, 0, 0);
    memcpy(values, t.x.exact, COUNT * sizeof(double));
    memcpy(values + COUNT, t.add.exact, COUNT * sizeof(double));
    memcpy(values + 2 * COUNT, t.gamma.exact, COLS * sizeof(double));
    memcpy(values + 2 * COUNT + COLS, t.beta.exact, COLS * sizeof(double));
    memcpy(gradient, b.dx.data, COUNT * sizeof(float));
    memcpy(gradient + COUNT, b.dresidual.data, COUNT * sizeof(float));
    memcpy(gradient + 2 * COUNT, b.dgamma.data, COLS * sizeof(float));
    memcpy(gradient + 2 * COUNT + COLS, b.dbeta.data, COLS * sizeof(float));
    check_gradient("batchnorm", norm_loss, b.dy.exact, values, 2 * COUNT + 2 * COLS, gradient);
}

static void test_the_mask_has_a_bit_for_each_element_above_zero(void)
{
    enum { TALL = 37, WIDE = 24, BITS = 8 };

    for (int type = OPS_BF16; type <= OPS_F16; type++) {
        struct norm t = norm_of((enum ops_type)type, TALL, WIDE, 1, 1);
        struct op_batchnorm_forward args = forward_of(&t, 1);
        uint8_t mask[TALL * WIDE / BITS];

        memset(mask, 0xa5, sizeof(mask));
        args.mask = mask;
        TEST_ASSERT_EQUAL_INT(0, ops->batchnorm_forward(ops, NULL, &args));
        for (size_t i = 0; i < (size_t)TALL * WIDE; i++)
            TEST_ASSERT_EQUAL_INT(types_load(t.y.data, t.y.type, i) > 0.0f, mask[i / BITS] >> i % BITS & 1);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_training_agrees_for_all_types);
    RUN_TEST(test_the_mask_has_a_bit_for_each_element_above_zero);
    RUN_TEST(test_inference_uses_the_running_statistics_and_writes_only_the_result);
    RUN_TEST(test_a_large_mean_does_not_cancel_the_variance);
    RUN_TEST(test_backward_agrees_for_all_types_in_place_and_accumulating);
    RUN_TEST(test_gradients_agree_with_finite_differences);
    return UNITY_END();
}
