/* The convolutions of the CPU table against sums in double precision, for every type, with odd sizes, strides
 * and padding; gradients against finite differences. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels_check.h"
#include "unity.h"

static struct ops *ops;

static const struct ops_conv shapes[] = {
    /*  n   h   w   c   k  r  s stride pad type tf32 */
    {1, 1, 1, 1, 1, 1, 1, 1, 0, OPS_F32, 0},   {2, 7, 5, 3, 17, 3, 3, 1, 1, OPS_F32, 0},
    {1, 9, 11, 1, 4, 5, 5, 1, 2, OPS_F32, 0},  {2, 8, 8, 16, 16, 3, 3, 2, 1, OPS_F32, 0},
    {1, 13, 9, 3, 20, 7, 7, 2, 3, OPS_F32, 0}, {3, 6, 6, 5, 33, 1, 1, 1, 0, OPS_F32, 0},
    {2, 9, 8, 19, 6, 1, 1, 2, 0, OPS_F32, 0},  {1, 10, 7, 4, 9, 3, 2, 3, 2, OPS_F32, 0},
    {1, 4, 4, 2, 3, 1, 1, 1, 2, OPS_F32, 0},   {1, 5, 5, 18, 66, 3, 3, 1, 1, OPS_F32, 0},
    {5, 3, 3, 2, 130, 2, 2, 1, 0, OPS_F32, 0}, {1, 12, 3, 2, 2, 4, 1, 4, 1, OPS_F32, 0},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

void setUp(void)
{
    ops = check_open();
}

void tearDown(void)
{
    check_release();
}

static int out_h(const struct ops_conv *s)
{
    return (s->h + 2 * s->pad - s->r) / s->stride + 1;
}

static int out_w(const struct ops_conv *s)
{
    return (s->w + 2 * s->pad - s->s) / s->stride + 1;
}

static size_t x_count(const struct ops_conv *s)
{
    return (size_t)s->n * s->h * s->w * s->c;
}

static size_t w_count(const struct ops_conv *s)
{
    return (size_t)s->k * s->r * s->s * s->c;
}

static size_t y_count(const struct ops_conv *s)
{
    return (size_t)s->n * out_h(s) * out_w(s) * s->k;
}

enum direction { FORWARD, DATA, FILTER };

/* Adds every product of the convolution to the place that the direction names: of y, x or w. size, unless it
 * is NULL, gets the absolute values. */
static void reference(const struct ops_conv *s, enum direction direction, double *x, double *w, double *y,
                      double *size)
{
    size_t depth = (size_t)s->r * s->s * s->c;
    double *result = direction == FORWARD ? y : direction == DATA ? x : w;

    for (size_t yi = 0; yi < y_count(s); yi++) {
        int k = (int)(yi % s->k), ow = (int)(yi / s->k % out_w(s));
        int oh = (int)(yi / s->k / out_w(s) % out_h(s)), n = (int)(yi / s->k / out_w(s) / out_h(s));

        for (size_t tap = 0; tap < depth; tap++) {
            int h = oh * s->stride - s->pad + (int)(tap / s->c / s->s);
            int column = ow * s->stride - s->pad + (int)(tap / s->c % s->s);
            size_t xi = (((size_t)n * s->h + h) * s->w + column) * s->c + tap % s->c, wi = k * depth + tap;
            size_t at = direction == FORWARD ? yi : direction == DATA ? xi : wi;
            double product;

            if (h < 0 || h >= s->h || column < 0 || column >= s->w)
                continue;
            product = direction == FORWARD ? x[xi] * w[wi]
                      : direction == DATA  ? y[yi] * w[wi]
                                           : x[xi] * y[yi];
            result[at] += product;
            if (size)
                size[at] += fabs(product);
        }
    }
}

static double *copy(const double *from, size_t count, int absolute)
{
    double *to = check_doubles(count);

    for (size_t i = 0; from && i < count; i++)
        to[i] = absolute ? fabs(from[i]) : from[i];
    return to;
}

static void check_forward(const struct ops_conv *s)
{
    struct check_buffer x = check_values(s->type, x_count(s)), w = check_values(s->type, w_count(s));
    struct check_buffer y = check_results(s->type, y_count(s));
    double *expected = copy(NULL, y.count, 0), *size = copy(NULL, y.count, 0);

    reference(s, FORWARD, x.exact, w.exact, expected, size);
    TEST_ASSERT_EQUAL_INT(
        0, ops->conv_forward(ops, NULL, &(struct op_conv_forward){*s, x.data, w.data, y.data, NULL, 0}));
    check_close("conv_forward", &y, expected, size);
}

static void check_data(const struct ops_conv *s, int accumulate)
{
    struct check_buffer dy = check_values(s->type, y_count(s)), w = check_values(s->type, w_count(s));
    struct check_buffer dx =
        accumulate ? check_values(s->type, x_count(s)) : check_results(s->type, x_count(s));
    double *expected = copy(accumulate ? dx.exact : NULL, dx.count, 0);
    double *size = copy(accumulate ? dx.exact : NULL, dx.count, 1);

    reference(s, DATA, expected, w.exact, dy.exact, size);
    TEST_ASSERT_EQUAL_INT(0, ops->conv_backward_data(ops, NULL,
                                                     &(struct op_conv_backward_data){
                                                         *s, dy.data, w.data, dx.data, accumulate, NULL, 0}));
    check_close("conv_backward_data", &dx, expected, size);
}

static void check_filter(const struct ops_conv *s, int accumulate)
{
    struct check_buffer x = check_values(s->type, x_count(s)), dy = check_values(s->type, y_count(s));
    struct check_buffer dw =
        accumulate ? check_values(OPS_F32, w_count(s)) : check_results(OPS_F32, w_count(s));
    double *expected = copy(accumulate ? dw.exact : NULL, dw.count, 0);
    double *size = copy(accumulate ? dw.exact : NULL, dw.count, 1);

    reference(s, FILTER, x.exact, expected, dy.exact, size);
    TEST_ASSERT_EQUAL_INT(
        0,
        ops->conv_backward_filter(
            ops, NULL, &(struct op_conv_backward_filter){*s, x.data, dy.data, dw.data, accumulate, NULL, 0}));
    check_close("conv_backward_filter", &dw, expected, size);
}

static void for_all_shapes(void (*check)(const struct ops_conv *s))
{
    for (int type = 0; type < 3; type++) {
        for (int i = 0; i < SHAPES; i++) {
            struct ops_conv s = shapes[i];

            s.type = check_types[type];
            check(&s);
            check_release();
            ops = check_open();
        }
    }
}

static void test_forward_agrees_for_all_shapes_and_types(void)
{
    for_all_shapes(check_forward);
}

static void check_data_both(const struct ops_conv *s)
{
    check_data(s, 0);
    check_data(s, 1);
}

static void test_the_gradient_of_the_input_agrees_and_accumulates(void)
{
    for_all_shapes(check_data_both);
}

static void check_filter_both(const struct ops_conv *s)
{
    check_filter(s, 0);
    check_filter(s, 1);
}

static void test_the_gradient_of_the_filters_agrees_and_accumulates(void)
{
    for_all_shapes(check_filter_both);
}

/* The loss is the sum of y * g; values are x followed by w. */
struct loss {
    const struct ops_conv *shape;
    const double *g;
    double *y;
};

static double conv_loss(const void *context, const double *values)
{
    const struct loss *l = context;
    double total = 0.0;

    memset(l->y, 0, y_count(l->shape) * sizeof(double));
    reference(l->shape, FORWARD, (double *)values, (double *)values + x_count(l->shape), l->y, NULL);
    for (size_t i = 0; i < y_count(l->shape); i++)
        total += l->y[i] * l->g[i];
    return total;
}

static void test_gradients_agree_with_finite_differences(void)
{
    static const struct ops_conv few[] = {{2, 5, 4, 3, 4, 3, 3, 2, 1, OPS_F32, 0},
                                          {1, 6, 6, 2, 3, 3, 3, 1, 1, OPS_F32, 0}};

    for (size_t i = 0; i < sizeof(few) / sizeof(few[0]); i++) {
        const struct ops_conv *s = &few[i];
        struct check_buffer p = check_values(OPS_F32, x_count(s) + w_count(s));
        struct check_buffer g = check_values(OPS_F32, y_count(s));
        float *x = p.data, *w = x + x_count(s), *gradient = check_bytes(p.count * sizeof(float));
        struct loss loss = {s, g.exact, check_doubles(y_count(s))};

        ops->conv_backward_data(ops, NULL,
                                &(struct op_conv_backward_data){*s, g.data, w, gradient, 0, NULL, 0});
        ops->conv_backward_filter(
            ops, NULL, &(struct op_conv_backward_filter){*s, x, g.data, gradient + x_count(s), 0, NULL, 0});
        check_gradient("convolution", conv_loss, &loss, p.exact, p.count, gradient);
    }
}

static void test_a_run_repeats_to_the_bit(void)
{
    const struct ops_conv s = {8, 14, 14, 32, 48, 3, 3, 1, 1, OPS_F32, 0};
    struct check_buffer x = check_values(OPS_F32, x_count(&s)), dy = check_values(OPS_F32, y_count(&s));
    float *first = check_bytes(w_count(&s) * sizeof(float)),
          *second = check_bytes(w_count(&s) * sizeof(float));

    for (int i = 0; i < 2; i++)
        ops->conv_backward_filter(
            ops, NULL, &(struct op_conv_backward_filter){s, x.data, dy.data, i ? second : first, 0, NULL, 0});
    TEST_ASSERT_EQUAL_MEMORY(first, second, w_count(&s) * sizeof(float));
}

static void test_no_image_is_no_error(void)
{
    const struct ops_conv s = {0, 14, 14, 2, 3, 3, 3, 1, 1, OPS_F32, 0};
    float dw[54] = {1.0f};

    TEST_ASSERT_EQUAL_INT(0, ops->conv_forward(ops, NULL, &(struct op_conv_forward){.shape = s, .w = dw}));
    TEST_ASSERT_EQUAL_INT(
        0, ops->conv_backward_filter(ops, NULL, &(struct op_conv_backward_filter){.shape = s, .dw = dw}));
    TEST_ASSERT_EQUAL_FLOAT(0.0f, dw[0]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_forward_agrees_for_all_shapes_and_types);
    RUN_TEST(test_the_gradient_of_the_input_agrees_and_accumulates);
    RUN_TEST(test_the_gradient_of_the_filters_agrees_and_accumulates);
    RUN_TEST(test_gradients_agree_with_finite_differences);
    RUN_TEST(test_a_run_repeats_to_the_bit);
    RUN_TEST(test_no_image_is_no_error);
    return UNITY_END();
}
