/* Every operation of the CPU table against a reference in double precision, written the slow and obvious way.
 * The table is used as the harness uses it, with a launcher that runs the work at once. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops_cpu.h"
#include "unity.h"

/* Errors are measured against the sum of the absolute terms, which is what rounding is proportional to. */
static const double rounding_limit = 64 * FLT_EPSILON;

static struct ops *ops;
static uint64_t random_state;

static int run_now(ops_stream stream, void (*fn)(void *arg), void *arg)
{
    (void)stream;
    fn(arg);
    return 0;
}

static int refuse_launch(ops_stream stream, void (*fn)(void *arg), void *arg)
{
    const int some_error = 700;

    (void)stream, (void)fn, (void)arg;
    return some_error;
}

void setUp(void)
{
    random_state = 1;
    TEST_ASSERT_EQUAL_INT(OPS_OK, ops_cpu_open(run_now, &ops));
}

void tearDown(void)
{
    ops->close(ops);
}

static float random_float(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) / (float)(1u << 31);
}

static float *random_floats(size_t count)
{
    float *values = malloc((count ? count : 1) * sizeof(float));

    TEST_ASSERT_NOT_NULL(values);
    for (size_t i = 0; i < count; i++)
        values[i] = random_float();
    return values;
}

static int32_t *random_labels(int rows, int classes)
{
    int32_t *labels = malloc((size_t)rows * sizeof(*labels));

    TEST_ASSERT_NOT_NULL(labels);
    for (int r = 0; r < rows; r++)
        labels[r] = (int32_t)((random_float() + 1.0f) / 2.0f * (float)classes) % classes;
    return labels;
}

static void expect_near(double expected, double scale, float got)
{
    char message[128];

    if (fabs(expected - (double)got) <= rounding_limit * scale + FLT_MIN)
        return;
    snprintf(message, sizeof(message), "expected %.9g, got %.9g", expected, (double)got);
    TEST_FAIL_MESSAGE(message);
}

static void check_gemm(int m, int n, int k, int trans_a, int trans_b, float alpha, float beta)
{
    float *a = random_floats((size_t)m * k);
    float *b = random_floats((size_t)k * n);
    float *c = random_floats((size_t)m * n);
    float *before = malloc((size_t)m * n * sizeof(float));

    TEST_ASSERT_NOT_NULL(before);
    memcpy(before, c, (size_t)m * n * sizeof(float));
    TEST_ASSERT_EQUAL_INT(
        0, ops->gemm(ops, NULL, &(struct op_gemm){a, b, c, m, n, k, trans_a, trans_b, alpha, beta}));
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            double sum = (double)beta * before[i * n + j];
            double scale = fabs(sum);

            for (int p = 0; p < k; p++) {
                double term = (double)alpha * (trans_a ? a[p * m + i] : a[i * k + p]) *
                              (trans_b ? b[j * k + p] : b[p * n + j]);

                sum += term;
                scale += fabs(term);
            }
            expect_near(sum, scale, c[i * n + j]);
        }
    }
    free(a);
    free(b);
    free(c);
    free(before);
}

static void test_gemm_is_right_for_all_transposes_and_odd_shapes(void)
{
    static const int shape[][3] = {{1, 1, 1},    {1, 10, 7},    {3, 5, 2},      {4, 16, 128},
                                   {5, 17, 129}, {64, 65, 130}, {33, 200, 257}, {130, 1, 64}};

    for (size_t s = 0; s < sizeof(shape) / sizeof(shape[0]); s++) {
        for (int transposes = 0; transposes < 4; transposes++) {
            int m = shape[s][0], n = shape[s][1], k = shape[s][2];

            check_gemm(m, n, k, transposes & 1, transposes >> 1, 1.0f, 0.0f);
            check_gemm(m, n, k, transposes & 1, transposes >> 1, -0.5f, 1.0f);
            check_gemm(m, n, k, transposes & 1, transposes >> 1, 2.0f, 0.25f);
        }
    }
}

static void test_gemm_with_beta_zero_does_not_read_the_result(void)
{
    float a = 2.0f, b = 3.0f, c = NAN;

    TEST_ASSERT_EQUAL_INT(0, ops->gemm(ops, NULL, &(struct op_gemm){&a, &b, &c, 1, 1, 1, 0, 0, 1.0f, 0.0f}));
    TEST_ASSERT_EQUAL_FLOAT(6.0f, c);
}

static void test_gemm_without_depth_only_scales(void)
{
    float c[2] = {2.0f, 4.0f};

    TEST_ASSERT_EQUAL_INT(0,
                          ops->gemm(ops, NULL, &(struct op_gemm){NULL, NULL, c, 1, 2, 0, 0, 0, 1.0f, 0.5f}));
    TEST_ASSERT_EQUAL_FLOAT(1.0f, c[0]);
    TEST_ASSERT_EQUAL_FLOAT(2.0f, c[1]);
}

static void test_gemm_gives_the_same_bits_at_any_address(void)
{
    enum { M = 7, N = 19, K = 33, SHIFT = 1 };
    float *a = random_floats(M * K + SHIFT);
    float *b = random_floats(K * N + SHIFT);
    float *first = random_floats(M * N), *second = random_floats(M * N + SHIFT);

    TEST_ASSERT_EQUAL_INT(0, ops->gemm(ops, NULL, &(struct op_gemm){a, b, first, M, N, K, 0, 0, 1.0f, 0.0f}));
    memmove(a + SHIFT, a, M * K * sizeof(float));
    memmove(b + SHIFT, b, K * N * sizeof(float));
    TEST_ASSERT_EQUAL_INT(
        0, ops->gemm(ops, NULL,
                     &(struct op_gemm){a + SHIFT, b + SHIFT, second + SHIFT, M, N, K, 0, 0, 1.0f, 0.0f}));
    TEST_ASSERT_EQUAL_MEMORY(first, second + SHIFT, M * N * sizeof(float));
    free(a);
    free(b);
    free(first);
    free(second);
}

static void check_bias_relu(int rows, int cols, int relu)
{
    size_t count = (size_t)rows * cols;
    float *x = random_floats(count), *bias = random_floats(cols), *y = random_floats(count);
    float *dy = random_floats(count), *dx = random_floats(count), *dbias = random_floats(cols);

    TEST_ASSERT_EQUAL_INT(
        0, ops->bias_relu_forward(ops, NULL, &(struct op_bias_relu_forward){x, bias, y, rows, cols, relu}));
    TEST_ASSERT_EQUAL_INT(
        0, ops->bias_relu_backward(ops, NULL,
                                   &(struct op_bias_relu_backward){dy, y, dx, dbias, rows, cols, relu}));
    for (int c = 0; c < cols; c++) {
        double sum = 0.0, scale = 0.0;

        for (int r = 0; r < rows; r++) {
            size_t i = (size_t)r * cols + c;
            double z = (double)x[i] + bias[c];
            double g = relu && !(y[i] > 0.0f) ? 0.0 : dy[i];

            expect_near(relu && z < 0.0 ? 0.0 : z, fabs((double)x[i]) + fabs((double)bias[c]), y[i]);
            TEST_ASSERT_EQUAL_FLOAT(g, dx[i]);
            sum += g;
            scale += fabs(g);
        }
        expect_near(sum, scale, dbias[c]);
    }
    free(x), free(bias), free(y), free(dy), free(dx), free(dbias);
}

static void test_bias_relu_is_right_in_both_directions(void)
{
    check_bias_relu(1, 1, 1);
    check_bias_relu(64, 10, 0);
    check_bias_relu(33, 257, 1);
}

static void test_bias_relu_works_in_place(void)
{
    float x[2] = {-1.0f, 0.5f}, bias[2] = {0.25f, 0.25f}, dy[2] = {3.0f, 4.0f}, dbias[2];

    ops->bias_relu_forward(ops, NULL, &(struct op_bias_relu_forward){x, bias, x, 1, 2, 1});
    TEST_ASSERT_EQUAL_FLOAT(0.0f, x[0]);
    TEST_ASSERT_EQUAL_FLOAT(0.75f, x[1]);
    ops->bias_relu_backward(ops, NULL, &(struct op_bias_relu_backward){dy, x, dy, dbias, 1, 2, 1});
    TEST_ASSERT_EQUAL_FLOAT(0.0f, dy[0]);
    TEST_ASSERT_EQUAL_FLOAT(4.0f, dy[1]);
    TEST_ASSERT_EQUAL_FLOAT(0.0f, dbias[0]);
    TEST_ASSERT_EQUAL_FLOAT(4.0f, dbias[1]);
}

static void check_softmax_row(const float *logits, int32_t label, const float *probs, float loss, int cols)
{
    double max = logits[0], sum = 0.0;

    for (int c = 1; c < cols; c++)
        max = fmax(max, logits[c]);
    for (int c = 0; c < cols; c++)
        sum += exp(logits[c] - max);
    for (int c = 0; c < cols; c++)
        expect_near(exp(logits[c] - max) / sum, 1.0, probs[c]);
    expect_near(log(sum) - (logits[label] - max), 1.0 + fabs(logits[label] - max), loss);
}

static void check_softmax(int rows, int cols, float spread)
{
    size_t count = (size_t)rows * cols;
    float *logits = random_floats(count), *probs = random_floats(count), *dlogits = random_floats(count);
    float *losses = random_floats(rows);
    int32_t *labels = random_labels(rows, cols);
    const float scale = 0.125f;

    for (size_t i = 0; i < count; i++)
        logits[i] *= spread;
    TEST_ASSERT_EQUAL_INT(
        0, ops->softmax_xent_forward(
               ops, NULL, &(struct op_softmax_xent_forward){logits, labels, probs, losses, rows, cols}));
    TEST_ASSERT_EQUAL_INT(
        0, ops->softmax_xent_backward(
               ops, NULL, &(struct op_softmax_xent_backward){probs, labels, dlogits, rows, cols, scale}));
    for (int r = 0; r < rows; r++) {
        const float *p = probs + (size_t)r * cols;

        check_softmax_row(logits + (size_t)r * cols, labels[r], p, losses[r], cols);
        for (int c = 0; c < cols; c++)
            expect_near((double)scale * (p[c] - (c == labels[r])), scale, dlogits[(size_t)r * cols + c]);
    }
    free(logits), free(probs), free(dlogits), free(losses), free(labels);
}

static void test_softmax_cross_entropy_is_right_in_both_directions(void)
{
    check_softmax(1, 1, 1.0f);
    check_softmax(64, 10, 4.0f);
    check_softmax(7, 1000, 20.0f);
}

static void test_softmax_survives_logits_that_exp_does_not(void)
{
    float logits[3] = {1000.0f, -1000.0f, 999.0f}, probs[3], loss;
    int32_t label = 1;

    ops->softmax_xent_forward(ops, NULL,
                              &(struct op_softmax_xent_forward){logits, &label, probs, &loss, 1, 3});
    check_softmax_row(logits, label, probs, loss, 3);
    TEST_ASSERT_TRUE(isfinite(loss));
    ops->softmax_xent_forward(ops, NULL,
                              &(struct op_softmax_xent_forward){logits, &label, logits, &loss, 1, 3});
    TEST_ASSERT_EQUAL_MEMORY(probs, logits, sizeof(probs));
}

static void test_sgd_follows_its_formula_for_several_steps(void)
{
    enum { COUNT = 1001, STEPS = 5 };
    const double rate = 0.0625, momentum = 0.75;
    float *weight = random_floats(COUNT), *velocity = random_floats(COUNT);
    double w[COUNT], v[COUNT];

    for (int i = 0; i < COUNT; i++) {
        w[i] = weight[i];
        v[i] = velocity[i];
    }
    for (int step = 0; step < STEPS; step++) {
        float *grad = random_floats(COUNT);

        TEST_ASSERT_EQUAL_INT(
            0, ops->sgd(ops, NULL,
                        &(struct op_sgd){weight, velocity, grad, COUNT, (float)rate, (float)momentum}));
        for (int i = 0; i < COUNT; i++) {
            v[i] = momentum * v[i] + grad[i];
            w[i] -= rate * v[i];
        }
        free(grad);
    }
    for (int i = 0; i < COUNT; i++) {
        expect_near(v[i], 4.0, velocity[i]);
        expect_near(w[i], 4.0, weight[i]);
    }
    free(weight), free(velocity);
}

static void test_fill_writes_all_and_no_more(void)
{
    float out[5] = {1, 1, 1, 1, 1};

    TEST_ASSERT_EQUAL_INT(0, ops->fill(ops, NULL, &(struct op_fill){out + 1, 3, 2.5f}));
    TEST_ASSERT_EQUAL_INT(0, ops->fill(ops, NULL, &(struct op_fill){out, 0, 9.0f}));
    TEST_ASSERT_EQUAL_FLOAT(1.0f, out[0]);
    TEST_ASSERT_EQUAL_FLOAT(2.5f, out[1]);
    TEST_ASSERT_EQUAL_FLOAT(2.5f, out[3]);
    TEST_ASSERT_EQUAL_FLOAT(1.0f, out[4]);
}

static void test_failed_launch_is_reported_and_runs_nothing(void)
{
    struct ops *failing;
    float out = 1.0f;

    TEST_ASSERT_EQUAL_INT(OPS_OK, ops_cpu_open(refuse_launch, &failing));
    TEST_ASSERT_EQUAL_INT(700, failing->fill(failing, NULL, &(struct op_fill){&out, 1, 2.0f}));
    TEST_ASSERT_EQUAL_FLOAT(1.0f, out);
    failing->close(failing);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_gemm_is_right_for_all_transposes_and_odd_shapes);
    RUN_TEST(test_gemm_with_beta_zero_does_not_read_the_result);
    RUN_TEST(test_gemm_without_depth_only_scales);
    RUN_TEST(test_gemm_gives_the_same_bits_at_any_address);
    RUN_TEST(test_bias_relu_is_right_in_both_directions);
    RUN_TEST(test_bias_relu_works_in_place);
    RUN_TEST(test_softmax_cross_entropy_is_right_in_both_directions);
    RUN_TEST(test_softmax_survives_logits_that_exp_does_not);
    RUN_TEST(test_sgd_follows_its_formula_for_several_steps);
    RUN_TEST(test_fill_writes_all_and_no_more);
    RUN_TEST(test_failed_launch_is_reported_and_runs_nothing);
    return UNITY_END();
}
