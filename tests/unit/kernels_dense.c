/* Matrix products, bias and activation of the CPU table against double precision and finite differences: all
 * transposes and types, odd shapes, batches, epilogues, accumulation, and what the contract says is not read.
 */
#include "kernels_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static double activate(double x, enum ops_act act)
{
    if (act == OPS_ACT_RELU)
        return x > 0.0 ? x : 0.0;
    if (act == OPS_ACT_GELU)
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    return x;
}

/* before[i] = what goes into the activation of element i of c, sizes[i] the sum of its absolute terms. */
static void exact_product(const struct op_gemm *g, const double *a, const double *b, const double *c,
                          const double *bias, double *before, double *sizes)
{
    for (int i = 0; i < g->m; i++) {
        for (int j = 0; j < g->n; j++) {
            double sum = g->beta == 0.0f ? 0.0 : (double)g->beta * c[i * g->n + j];
            double size = fabs(sum);

            for (int p = 0; p < g->k; p++) {
                double term = (double)g->alpha * (g->trans_a ? a[p * g->m + i] : a[i * g->k + p]) *
                              (g->trans_b ? b[j * g->k + p] : b[p * g->n + j]);

                sum += term;
                size += fabs(term);
            }
            before[i * g->n + j] = sum + (bias ? bias[j] : 0.0);
            sizes[i * g->n + j] = size + (bias ? fabs(bias[j]) : 0.0);
        }
    }
}

static void check_gemm(struct op_gemm g, int with_bias, int with_aux)
{
    size_t batch = g.batch > 1 ? (size_t)g.batch : 1;
    size_t a_count = (size_t)g.m * (size_t)g.k, b_count = (size_t)g.k * (size_t)g.n,
           c_count = (size_t)g.m * (size_t)g.n;
    struct check_buffer a = check_values(g.type, batch * a_count), b = check_values(g.type, batch * b_count);
    struct check_buffer c =
        g.beta == 0.0f ? check_results(g.c_type, batch * c_count) : check_values(g.c_type, batch * c_count);
    struct check_buffer bias = check_values(g.type, (size_t)g.n),
                        aux = check_results(g.c_type, batch * c_count);
    double *before = check_doubles(batch * c_count), *sizes = check_doubles(batch * c_count);
    double *after = check_doubles(batch * c_count);
    char what[120];

    g.a = a.data, g.b = b.data, g.c = c.data;
    g.bias = with_bias ? bias.data : NULL;
    g.aux = with_aux ? aux.data : NULL;
    g.stride_a = a_count, g.stride_b = b_count, g.stride_c = c_count;
    TEST_ASSERT_EQUAL_INT(OPS_OK, ops->gemm(ops, NULL, &g));
    for (size_t i = 0; i < batch; i++)
        exact_product(&g, a.exact + i * a_count, b.exact + i * b_count, c.exact + i * c_count,
                      with_bias ? bias.exact : NULL, before + i * c_count, sizes + i * c_count);
    for (size_t i = 0; i < batch * c_count; i++)
        after[i] = activate(before[i], g.act);
    snprintf(what, sizeof(what), "%dx%dx%d, transposes %d%d, act %d, bias %d, beta %g", g.m, g.n, g.k,
             g.trans_a, g.trans_b, (int)g.act, with_bias, (double)g.beta);
    check_close(what, &c, after, sizes);
    if (with_aux)
        check_close(what, &aux, before, sizes);
    check_release();
    ops = check_open();
}

static void test_gemm_is_right_for_all_transposes_types_and_odd_shapes(void)
{
    static const int shape[][3] = {{1, 1, 1},    {1, 10, 7},     {3, 5, 2},   {8, 12, 256},
                                   {9, 13, 257}, {97, 101, 130}, {130, 1, 64}};

    for (size_t s = 0; s < sizeof(shape) / sizeof(shape[0]); s++) {
        for (int t = 0; t < 3 * 4; t++) {
            struct op_gemm g = {.m = shape[s][0],
                                .n = shape[s][1],
                                .k = shape[s][2],
                                .trans_a = t & 1,
                                .trans_b = t >> 1 & 1,
                                .type = check_types[t / 4],
                                .c_type = check_types[t / 4],
                                .alpha = 1.0f};

            check_gemm(g, 0, 0);
            g.alpha = -0.5f, g.beta = 0.25f, g.c_type = OPS_F32;
            check_gemm(g, 0, 0);
        }
    }
}

static void test_gemm_adds_bias_and_activates_and_keeps_what_went_in(void)
{
    for (int t = 0; t < 3; t++) {
        for (int act = OPS_ACT_NONE; act <= OPS_ACT_GELU; act++) {
            struct op_gemm g = {.m = 19,
                                .n = 23,
                                .k = 17,
                                .type = check_types[t],
                                .c_type = check_types[t],
                                .act = (enum ops_act)act,
                                .alpha = 1.0f,
                                .batch = 3};

            check_gemm(g, 1, 1);
            g.beta = 1.0f;
            check_gemm(g, 1, 0);
        }
    }
}

static void test_gemm_with_beta_zero_does_not_read_the_result(void)
{
    float a = 2.0f, b = 3.0f, c = NAN;

    TEST_ASSERT_EQUAL_INT(
        0, ops->gemm(ops, NULL,
                     &(struct op_gemm){.a = &a, .b = &b, .c = &c, .m = 1, .n = 1, .k = 1, .alpha = 1.0f}));
    TEST_ASSERT_EQUAL_FLOAT(6.0f, c);
}

static void test_gemm_without_depth_only_scales(void)
{
    float c[2] = {2.0f, 4.0f};

    TEST_ASSERT_EQUAL_INT(
        0, ops->gemm(ops, NULL, &(struct op_gemm){.c = c, .m = 1, .n = 2, .alpha = 1.0f, .beta = 0.5f}));
    TEST_ASSERT_EQUAL_FLOAT(1.0f, c[0]);
    TEST_ASSERT_EQUAL_FLOAT(2.0f, c[1]);
}

static void test_gemm_gives_the_same_bits_at_any_address(void)
{
    enum { M = 107, N = 119, K = 333, SHIFT = 1 };
    struct check_buffer a = check_values(OPS_F32, M * K), b = check_values(OPS_F32, K * N);
    float *shifted_a = (float *)check_bytes((M * K + SHIFT) * sizeof(float)) + SHIFT;
    float *shifted_b = (float *)check_bytes((K * N + SHIFT) * sizeof(float)) + SHIFT;
    float *c = check_bytes(M * N * sizeof(float));
    float *shifted_c = (float *)check_bytes((M * N + SHIFT) * sizeof(float)) + SHIFT;
    struct op_gemm g = {.a = a.data, .b = b.data, .c = c, .m = M, .n = N, .k = K, .alpha = 1.0f};

    memcpy(shifted_a, a.data, M * K * sizeof(float));
    memcpy(shifted_b, b.data, K * N * sizeof(float));
    TEST_ASSERT_EQUAL_INT(0, ops->gemm(ops, NULL, &g));
    g.a = shifted_a, g.b = shifted_b, g.c = shifted_c;
    TEST_ASSERT_EQUAL_INT(0, ops->gemm(ops, NULL, &g));
    TEST_ASSERT_EQUAL_MEMORY(c, shifted_c, M * N * sizeof(float));
}

static void check_bias_act(int rows, int cols, enum ops_type type, enum ops_act act, int in_place)
{
    size_t count = (size_t)rows * (size_t)cols;
    struct check_buffer x = check_values(type, count), bias = check_values(type, (size_t)cols);
    struct check_buffer y = in_place ? x : check_results(type, count);
    double *expected = check_doubles(count);

    for (size_t i = 0; i < count; i++)
        expected[i] = activate(x.exact[i] + bias.exact[i % (size_t)cols], act);
    TEST_ASSERT_EQUAL_INT(
        0, ops->bias_act_forward(
               ops, NULL, &(struct op_bias_act_forward){x.data, bias.data, y.data, type, act, rows, cols}));
    check_close("bias and activation", &y, expected, NULL);
}

static void test_bias_and_activation_are_right_also_in_place(void)
{
    for (int t = 0; t < 3; t++) {
        for (int act = OPS_ACT_NONE; act <= OPS_ACT_GELU; act++) {
            check_bias_act(1, 1, check_types[t], (enum ops_act)act, 0);
            check_bias_act(7, 13, check_types[t], (enum ops_act)act, act != OPS_ACT_GELU);
            check_bias_act(3, 2500, check_types[t], (enum ops_act)act, 0);
        }
    }
}

/* L = the sum of weight * act(values + bias), for the gradient of values. */
struct act_loss {
    const double *weight;
    size_t count;
    enum ops_act act;
};

static double act_loss(const void *context, const double *values)
{
    const struct act_loss *l = context;
    double sum = 0.0;

    for (size_t i = 0; i < l->count; i++)
        sum += l->weight[i] * activate(values[i], l->act);
    return sum;
}

static void test_gradients_of_activations_agree_with_finite_differences(void)
{
    enum { ROWS = 5, COLS = 11, COUNT = ROWS * COLS };

    for (int act = OPS_ACT_NONE; act <= OPS_ACT_GELU; act++) {
        struct check_buffer in = check_values(OPS_F32, COUNT), dy = check_values(OPS_F32, COUNT);
        struct check_buffer dx = check_results(OPS_F32, COUNT), y = check_results(OPS_F32, COUNT);
        struct check_buffer dbias = check_values(OPS_F32, COLS);
        struct act_loss loss = {dy.exact, COUNT, (enum ops_act)act};
        double sums[COLS], sizes[COLS];

        TEST_ASSERT_EQUAL_INT(
            0, ops->bias_act_forward(
                   ops, NULL,
                   &(struct op_bias_act_forward){
                       .x = in.data, .y = y.data, .act = (enum ops_act)act, .rows = ROWS, .cols = COLS}));
        TEST_ASSERT_EQUAL_INT(0, ops->bias_act_backward(ops, NULL,
                                                        &(struct op_bias_act_backward){
                                                            .dy = dy.data,
                                                            .saved = act == OPS_ACT_GELU ? in.data : y.data,
                                                            .dx = dx.data,
                                                            .dbias = dbias.data,
                                                            .act = (enum ops_act)act,
                                                            .rows = ROWS,
                                                            .cols = COLS,
                                                            .accumulate = 1}));
        check_gradient("dx", act_loss, &loss, in.exact, COUNT, dx.data);
        for (int c = 0; c < COLS; c++) {
            sums[c] = dbias.exact[c], sizes[c] = 4.0;
            for (int r = 0; r < ROWS; r++)
                sums[c] += (double)((float *)dx.data)[r * COLS + c];
        }
        check_close("dbias, added to what was there", &dbias, sums, sizes);
    }
}

static void test_backward_of_bias_may_overwrite_its_input_and_leave_out_the_bias(void)
{
    float dy[4] = {1.0f, 2.0f, 3.0f, 4.0f}, y[4] = {0.0f, 1.0f, 0.0f, 2.0f}, dbias[2] = {9.0f, 9.0f};
    struct op_bias_act_backward args = {
        .dy = dy, .saved = y, .dx = dy, .act = OPS_ACT_RELU, .rows = 2, .cols = 2};

    TEST_ASSERT_EQUAL_INT(0, ops->bias_act_backward(ops, NULL, &args));
    TEST_ASSERT_EQUAL_FLOAT(0.0f, dy[0]);
    TEST_ASSERT_EQUAL_FLOAT(2.0f, dy[1]);
    args.act = OPS_ACT_NONE, args.dbias = dbias, args.saved = NULL;
    TEST_ASSERT_EQUAL_INT(0, ops->bias_act_backward(ops, NULL, &args));
    TEST_ASSERT_EQUAL_FLOAT(0.0f, dbias[0]);
    TEST_ASSERT_EQUAL_FLOAT(6.0f, dbias[1]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_gemm_is_right_for_all_transposes_types_and_odd_shapes);
    RUN_TEST(test_gemm_adds_bias_and_activates_and_keeps_what_went_in);
    RUN_TEST(test_gemm_with_beta_zero_does_not_read_the_result);
    RUN_TEST(test_gemm_without_depth_only_scales);
    RUN_TEST(test_gemm_gives_the_same_bits_at_any_address);
    RUN_TEST(test_bias_and_activation_are_right_also_in_place);
    RUN_TEST(test_gradients_of_activations_agree_with_finite_differences);
    RUN_TEST(test_backward_of_bias_may_overwrite_its_input_and_leave_out_the_bias);
    return UNITY_END();
}
