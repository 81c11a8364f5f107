/* Attention of the CPU table against double precision, forward by the definition and backward by finite
 * differences. */
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

struct shape {
    int batch, length, heads, dim, causal;
    const double *weight; /* of each result in the loss */
};

static const double *vector(const struct shape *s, const double *qkv, int b, int t, int part, int h)
{
    return qkv + (((b * s->length + t) * 3 + part) * s->heads + h) * s->dim;
}

/* out[dim] and the logarithm of the sum for one row of one head. */
static double exact_row(const struct shape *s, const double *qkv, int b, int t, int h, double *out)
{
    int keys = s->causal ? t + 1 : s->length;
    double sum = 0.0;

    for (int d = 0; d < s->dim; d++)
        out[d] = 0.0;
    for (int j = 0; j < keys; j++) {
        double score = 0.0;

        for (int d = 0; d < s->dim; d++)
            score += vector(s, qkv, b, t, 0, h)[d] * vector(s, qkv, b, j, 1, h)[d];
        score = exp(score / sqrt((double)s->dim));
        sum += score;
        for (int d = 0; d < s->dim; d++)
            out[d] += score * vector(s, qkv, b, j, 2, h)[d];
    }
    for (int d = 0; d < s->dim; d++)
        out[d] /= sum;
    return log(sum);
}

static void exact_attention(const struct shape *s, const double *qkv, double *out, double *lse)
{
    for (int b = 0; b < s->batch; b++) {
        for (int t = 0; t < s->length; t++) {
            for (int h = 0; h < s->heads; h++)
                lse[(b * s->heads + h) * s->length + t] =
                    exact_row(s, qkv, b, t, h, out + ((b * s->length + t) * s->heads + h) * s->dim);
        }
    }
}

static void check_forward(struct shape s, enum ops_type type)
{
    size_t rows = (size_t)s.batch * (size_t)s.length * (size_t)s.heads, count = rows * (size_t)s.dim;
    struct check_buffer qkv = check_values(type, 3 * count), out = check_results(type, count),
                        lse = check_results(OPS_F32, rows);
    double *expected = check_doubles(count), *exact_lse = check_doubles(rows), *sizes = check_doubles(count);

    TEST_ASSERT_EQUAL_INT(
        0, ops->attention_forward(ops, NULL,
                                  &(struct op_attention_forward){qkv.data, out.data, lse.data, type, s.batch,
                                                                 s.length, s.heads, s.dim, s.causal}));
    exact_attention(&s, qkv.exact, expected, exact_lse);
    for (size_t i = 0; i < count; i++)
        sizes[i] = 4.0;
    check_close("out", &out, expected, sizes);
    check_close("lse", &lse, exact_lse, sizes);
}

static void test_attention_is_the_weighted_mean_of_the_values(void)
{
    for (int t = 0; t < 3; t++) {
        for (int causal = 0; causal < 2; causal++) {
            check_forward((struct shape){.batch = 1, .length = 1, .heads = 1, .dim = 1, .causal = causal},
                          check_types[t]);
            check_forward((struct shape){.batch = 2, .length = 67, .heads = 3, .dim = 13, .causal = causal},
                          check_types[t]);
            check_forward((struct shape){.batch = 1, .length = 130, .heads = 1, .dim = 64, .causal = causal},
                          check_types[t]);
            check_forward((struct shape){.batch = 1, .length = 9, .heads = 2, .dim = 128, .causal = causal},
                          check_types[t]);
        }
    }
}

static double loss(const void *context, const double *qkv)
{
    const struct shape *s = context;
    int width = s->heads * s->dim;
    double out[128], sum = 0.0;

    for (int b = 0; b < s->batch; b++) {
        for (int t = 0; t < s->length; t++) {
            for (int h = 0; h < s->heads; h++) {
                exact_row(s, qkv, b, t, h, out);
                for (int d = 0; d < s->dim; d++)
                    sum += out[d] * s->weight[(b * s->length + t) * width + h * s->dim + d];
            }
        }
    }
    return sum;
}

static void check_backward(struct shape s, enum ops_type type)
{
    size_t rows = (size_t)s.batch * (size_t)s.length * (size_t)s.heads, count = rows * (size_t)s.dim;
    struct check_buffer qkv = check_values(type, 3 * count), out = check_results(type, count),
                        dout = check_values(type, count);
    struct check_buffer dqkv = check_results(type, 3 * count);
    float *lse = check_bytes(rows * sizeof(float)), *delta = check_bytes(rows * sizeof(float));
    struct op_attention_forward forward = {qkv.data, out.data, lse,   type,    s.batch,
                                           s.length, s.heads,  s.dim, s.causal};
    struct op_attention_backward backward = {qkv.data, out.data, dout.data, lse,     dqkv.data, delta,
                                             type,     s.batch,  s.length,  s.heads, s.dim,     s.causal};

    s.weight = dout.exact;
    TEST_ASSERT_EQUAL_INT(0, ops->attention_forward(ops, NULL, &forward));
    TEST_ASSERT_EQUAL_INT(0, ops->attention_backward(ops, NULL, &backward));
    if (type == OPS_F32) {
        check_gradient("dqkv", loss, &s, qkv.exact, 3 * count, dqkv.data);
        return;
    }
    /* Rounding of out and dqkv to 16 bits leaves no more than two or three digits. */
    for (size_t i = 0; i < 3 * count; i += 7) {
        double value = qkv.exact[i], difference;
        const double step = 1e-5;

        qkv.exact[i] = value + step;
        difference = loss(&s, qkv.exact);
        qkv.exact[i] = value - step;
        difference = (difference - loss(&s, qkv.exact)) / (2.0 * step);
        qkv.exact[i] = value;
        TEST_ASSERT_DOUBLE_WITHIN(0.03, difference, (double)types_load(dqkv.data, type, i));
    }
}

static void test_gradients_of_attention_agree_with_finite_differences(void)
{
    for (int t = 0; t < 3; t++) {
        for (int causal = 0; causal < 2; causal++) {
            check_backward((struct shape){.batch = 2, .length = 5, .heads = 2, .dim = 3, .causal = causal},
                           check_types[t]);
            check_backward((struct shape){.batch = 1, .length = 19, .heads = 1, .dim = 8, .causal = causal},
                           check_types[t]);
        }
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_attention_is_the_weighted_mean_of_the_values);
    RUN_TEST(test_gradients_of_attention_agree_with_finite_differences);
    return UNITY_END();
}
