/* Pooling, resizing, channels, picture preparation and mean squared error of the CPU table against double
 * precision, for every type; gradients against finite differences. */
#include <math.h>
#include <string.h>

#include "kernels_check.h"
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

static void next_case(void)
{
    check_release();
    ops = check_open();
}

struct window {
    int n, h, w, c, size, stride, pad;
};

static const struct window windows[] = {{2, 6, 6, 4, 2, 2, 0},  {1, 7, 9, 3, 3, 2, 1},
                                        {2, 5, 4, 17, 3, 1, 1}, {1, 12, 11, 2, 5, 3, 2},
                                        {1, 4, 4, 1, 4, 4, 0},  {1, 5, 5, 1100, 2, 2, 0}};
enum { WINDOWS = sizeof(windows) / sizeof(windows[0]) };

static int out_size(int size, const struct window *s)
{
    return (size + 2 * s->pad - s->size) / s->stride + 1;
}

/* y in double, and the index in x of each largest; padding never wins, the first of several does. */
static void max_reference(const struct window *s, const double *x, double *y, size_t *from)
{
    int oh = out_size(s->h, s), ow = out_size(s->w, s);

    for (size_t i = 0; i < (size_t)s->n * oh * ow * s->c; i++) {
        int c = (int)(i % s->c), left = (int)(i / s->c % ow), top = (int)(i / s->c / ow % oh);
        size_t image = i / s->c / ow / oh;

        y[i] = -INFINITY;
        for (int p = 0; p < s->size * s->size; p++) {
            int row = top * s->stride - s->pad + p / s->size, col = left * s->stride - s->pad + p % s->size;
            size_t at = ((image * s->h + row) * s->w + col) * s->c + c;

            if (row >= 0 && row < s->h && col >= 0 && col < s->w && x[at] > y[i]) {
                y[i] = x[at];
                from[i] = at;
            }
        }
    }
}

static void check_maxpool(const struct window *s, enum ops_type type)
{
    size_t results = (size_t)s->n * out_size(s->h, s) * out_size(s->w, s) * s->c;
    struct check_buffer x = check_values(type, (size_t)s->n * s->h * s->w * s->c);
    struct check_buffer y = check_results(type, results), dy = check_values(type, results);
    struct check_buffer dx = check_results(type, x.count);
    uint8_t *where = check_bytes(results);
    double *expected = check_doubles(results), *gradient = check_doubles(x.count),
           *size = check_doubles(x.count);
    size_t *from = check_bytes(results * sizeof(*from));

    max_reference(s, x.exact, expected, from);
    for (size_t i = 0; i < results; i++) {
        gradient[from[i]] += dy.exact[i];
        size[from[i]] += fabs(dy.exact[i]);
    }
    TEST_ASSERT_EQUAL_INT(
        0, ops->maxpool_forward(ops, NULL,
                                &(struct op_maxpool_forward){x.data, y.data, where, type, s->n, s->h, s->w,
                                                             s->c, s->size, s->stride, s->pad}));
    TEST_ASSERT_EQUAL_INT(
        0, ops->maxpool_backward(ops, NULL,
                                 &(struct op_maxpool_backward){dy.data, where, dx.data, type, s->n, s->h,
                                                               s->w, s->c, s->size, s->stride, s->pad}));
    check_close("maxpool y", &y, expected, size);
    check_close("maxpool dx", &dx, gradient, size);
    next_case();
}

static void test_maxpool_agrees_and_its_gradient_goes_to_the_largest(void)
{
    for (int i = 0; i < WINDOWS; i++) {
        for (int type = 0; type < 3; type++)
            check_maxpool(&windows[i], check_types[type]);
    }
}

static void test_maxpool_takes_the_first_of_several_and_never_the_padding(void)
{
    float x[4] = {-2.0f, -1.0f, -1.0f, -3.0f}, y[4], dy[4] = {1.0f, 2.0f, 3.0f, 4.0f}, dx[4];
    uint8_t where[4];
    const float expected[4] = {-1.0f, -1.0f, -1.0f, -1.0f}, gradient[4] = {0.0f, 10.0f, 0.0f, 0.0f};

    /* 2 x 2 pixels, windows of 3 x 3 that see them all. */
    ops->maxpool_forward(ops, NULL, &(struct op_maxpool_forward){x, y, where, OPS_F32, 1, 2, 2, 1, 3, 1, 1});
    ops->maxpool_backward(ops, NULL,
                          &(struct op_maxpool_backward){dy, where, dx, OPS_F32, 1, 2, 2, 1, 3, 1, 1});
    TEST_ASSERT_EQUAL_MEMORY(expected, y, sizeof(y));
    TEST_ASSERT_EQUAL_MEMORY(gradient, dx, sizeof(dx));
}

static void check_avgpool(enum ops_type type, int n, int h, int w, int c)
{
    struct check_buffer x = check_values(type, (size_t)n * h * w * c), y = check_results(type, (size_t)n * c);
    struct check_buffer dy = check_values(type, (size_t)n * c), dx = check_results(type, x.count);
    double *mean = check_doubles(y.count), *back = check_doubles(x.count), *size = check_doubles(y.count);

    for (size_t i = 0; i < x.count; i++) {
        size_t result = i / ((size_t)h * w * c) * c + i % c;

        mean[result] += x.exact[i] / (h * w);
        size[result] += fabs(x.exact[i]) / (h * w);
        back[i] = dy.exact[result] / (h * w);
    }
    TEST_ASSERT_EQUAL_INT(
        0, ops->avgpool_forward(ops, NULL, &(struct op_avgpool_forward){x.data, y.data, type, n, h, w, c}));
    TEST_ASSERT_EQUAL_INT(
        0,
        ops->avgpool_backward(ops, NULL, &(struct op_avgpool_backward){dy.data, dx.data, type, n, h, w, c}));
    check_close("avgpool y", &y, mean, size);
    check_close("avgpool dx", &dx, back, NULL);
    next_case();
}

static void test_avgpool_agrees_in_both_directions(void)
{
    for (int type = 0; type < 3; type++) {
        check_avgpool(check_types[type], 3, 7, 7, 20);
        check_avgpool(check_types[type], 1, 1, 5, 3);
        check_avgpool(check_types[type], 2, 2, 2, 1100);
    }
}

static void check_upsample(enum ops_type type, int n, int h, int w, int c)
{
    struct check_buffer x = check_values(type, (size_t)n * h * w * c), y = check_results(type, x.count * 4);
    struct check_buffer dy = check_values(type, x.count * 4), dx = check_results(type, x.count);
    double *up = check_doubles(y.count), *back = check_doubles(x.count), *size = check_doubles(x.count);

    for (size_t i = 0; i < y.count; i++) {
        size_t column = i / c % (2 * (size_t)w), row = i / c / (2 * (size_t)w);
        size_t from = (row / 2 * w + column / 2) * c + i % c;

        up[i] = x.exact[from];
        back[from] += dy.exact[i];
        size[from] += fabs(dy.exact[i]);
    }
    TEST_ASSERT_EQUAL_INT(
        0, ops->upsample_forward(ops, NULL, &(struct op_upsample_forward){x.data, y.data, type, n, h, w, c}));
    TEST_ASSERT_EQUAL_INT(
        0, ops->upsample_backward(ops, NULL,
                                  &(struct op_upsample_backward){dy.data, dx.data, type, n, h, w, c}));
    check_close("upsample y", &y, up, NULL);
    check_close("upsample dx", &dx, back, size);
    next_case();
}

static void test_upsample_agrees_in_both_directions(void)
{
    for (int type = 0; type < 3; type++) {
        check_upsample(check_types[type], 2, 3, 5, 7);
        check_upsample(check_types[type], 1, 4, 2, 1030);
    }
}

static void check_channels(enum ops_type type, const int *p, int accumulate)
{
    enum { ROWS = 13 };
    int cols = p[0], x_cols = p[1], x_from = p[2], out_cols = p[3], out_from = p[4];
    struct check_buffer x = check_values(type, (size_t)ROWS * x_cols),
                        out = check_values(type, (size_t)ROWS * out_cols);
    double *expected = check_doubles(out.count), *size = check_doubles(out.count);

    memcpy(expected, out.exact, out.count * sizeof(double));
    for (int i = 0; i < ROWS * cols; i++) {
        double value = x.exact[i / cols * x_cols + x_from + i % cols];
        double *to = &expected[i / cols * out_cols + out_from + i % cols];

        *to = accumulate ? *to + value : value;
    }
    TEST_ASSERT_EQUAL_INT(
        0, ops->channels_copy(ops, NULL,
                              &(struct op_channels_copy){x.data, out.data, type, ROWS, cols, x_cols, x_from,
                                                         out_cols, out_from, accumulate}));
    check_close("channels_copy", &out, expected, size);
    next_case();
}

static void test_channels_are_copied_and_added_and_the_others_left_alone(void)
{
    static const int places[][5] = {
        {4, 4, 0, 12, 4}, {5, 9, 3, 5, 0}, {1100, 1100, 0, 1200, 100}, {0, 3, 0, 3, 0}};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        for (int variant = 0; variant < 6; variant++)
            check_channels(check_types[variant % 3], places[i], variant / 3);
    }
}

/* One coordinate of a bilinear sample: the pixels around it and the second one's weight. */
static double sample_weight(double from, double length, int index, int count, int size, int *low, int *high)
{
    double at = from + (index + 0.5) * length / count - 0.5;

    at = fmin(fmax(at, 0.0), size - 1.0);
    *low = (int)floor(at);
    *high = *low + 1 < size ? *low + 1 : *low;
    return at - *low;
}

static void check_prepare(enum ops_type type, int n, int h, int w, int c, int oh, int ow,
                          struct ops_crop *crops)
{
    struct check_buffer out = check_results(type, (size_t)n * oh * ow * c);
    struct op_image_prepare args = {.out = out.data,
                                    .crops = crops,
                                    .type = type,
                                    .n = n,
                                    .h = h,
                                    .w = w,
                                    .c = c,
                                    .oh = oh,
                                    .ow = ow,
                                    .mean = {0.4f, 0.5f, 0.6f, 0.1f},
                                    .deviation = {0.25f, 0.5f, 0.75f, 1.0f}};
    uint8_t *x = check_bytes((size_t)n * h * w * c);
    double *expected = check_doubles(out.count), *size = check_doubles(out.count);

    for (size_t i = 0; i < (size_t)n * h * w * c; i++)
        x[i] = (uint8_t)(127.5 + 127.5 * check_random());
    for (size_t i = 0; i < out.count; i++) {
        int channel = (int)(i % c), column = (int)(i / c % ow), row = (int)(i / c / ow % oh), low[2], high[2];
        size_t image = i / c / ow / oh;
        struct ops_crop crop = crops ? crops[image] : (struct ops_crop){0, 0, (float)h, (float)w, 0};
        double down = sample_weight((double)crop.top, (double)crop.height, row, oh, h, &low[0], &high[0]);
        double across = sample_weight((double)crop.left, (double)crop.width,
                                      crop.mirror ? ow - 1 - column : column, ow, w, &low[1], &high[1]);
        const uint8_t *p = x + image * h * w * c + channel;
        double top = p[(low[0] * w + low[1]) * c] * (1 - across) + p[(low[0] * w + high[1]) * c] * across;
        double bottom =
            p[(high[0] * w + low[1]) * c] * (1 - across) + p[(high[0] * w + high[1]) * c] * across;

        expected[i] = ((top * (1 - down) + bottom * down) / 255.0 - (double)args.mean[channel]) /
                      (double)args.deviation[channel];
        size[i] = 16.0; /* positions are rounded too, and the picture is steep */
    }
    args.x = x;
    TEST_ASSERT_EQUAL_INT(0, ops->image_prepare(ops, NULL, &args));
    check_close("image_prepare", &out, expected, size);
}

static void test_pictures_are_cut_resized_mirrored_and_normalized(void)
{
    struct ops_crop crops[3] = {
        {0.0f, 0.0f, 20.0f, 17.0f, 1}, {2.5f, 1.25f, 10.0f, 8.0f, 0}, {-3.0f, 9.0f, 9.0f, 12.0f, 1}};

    for (int type = 0; type < 3; type++) {
        check_prepare(check_types[type], 3, 20, 17, 3, 8, 8, crops);
        check_prepare(check_types[type], 2, 9, 31, 4, 17, 15, NULL);
        next_case();
    }
}

static void test_an_uncut_picture_of_the_same_size_is_only_normalized(void)
{
    uint8_t x[6] = {0, 51, 102, 153, 204, 255};
    float out[6];

    ops->image_prepare(ops, NULL,
                       &(struct op_image_prepare){.x = x,
                                                  .out = out,
                                                  .type = OPS_F32,
                                                  .n = 1,
                                                  .h = 2,
                                                  .w = 3,
                                                  .c = 1,
                                                  .oh = 2,
                                                  .ow = 3,
                                                  .mean = {0.0f},
                                                  .deviation = {1.0f}});
    for (int i = 0; i < 6; i++)
        TEST_ASSERT_EQUAL_FLOAT((float)x[i] / 255.0f, out[i]);
}

static void check_mse(enum ops_type type, int rows, int cols)
{
    struct check_buffer x = check_values(type, (size_t)rows * cols), target = check_values(type, x.count);
    struct check_buffer losses = check_results(OPS_F32, rows);
    double *expected = check_doubles(rows), *gradient = check_doubles(x.count);
    float scale_by = 8.0f;

    for (size_t i = 0; i < x.count; i++) {
        double d = x.exact[i] - target.exact[i];

        expected[i / cols] += d * d / cols;
        gradient[i] = 0.5 * 8.0 * 2.0 / cols * d;
    }
    TEST_ASSERT_EQUAL_INT(
        0, ops->mse_forward(ops, NULL,
                            &(struct op_mse_forward){x.data, target.data, losses.data, type, rows, cols}));
    TEST_ASSERT_EQUAL_INT(0, ops->mse_backward(ops, NULL,
                                               &(struct op_mse_backward){x.data, target.data, x.data, type,
                                                                         rows, cols, 0.5f, &scale_by}));
    check_close("mse losses", &losses, expected, NULL);
    check_close("mse dx", &x, gradient, NULL);
    next_case();
}

static void test_mean_squared_error_agrees_in_both_directions_and_in_place(void)
{
    for (int type = 0; type < 3; type++) {
        check_mse(check_types[type], 5, 2500);
        check_mse(check_types[type], 300, 3);
    }
}

/* A network of all of them: upsample, maxpool, avgpool, mean squared error. Values are x and target. */
enum { H = 4, W = 3, C = 2, UP = 4 * H * W * C };

static double chain_loss(const void *context, const double *x)
{
    const double *target = context;
    const struct window s = {1, 2 * H, 2 * W, C, 3, 2, 1};
    double up[UP], pooled[UP], loss = 0.0;
    size_t from[UP], pixels = (size_t)out_size(s.h, &s) * out_size(s.w, &s);

    for (int i = 0; i < UP; i++)
        up[i] = x[(i / C / (2 * W) / 2 * W + i / C % (2 * W) / 2) * C + i % C];
    max_reference(&s, up, pooled, from);
    for (int c = 0; c < C; c++) {
        double mean = 0.0;

        for (size_t p = 0; p < pixels; p++)
            mean += pooled[p * C + c] / (double)pixels;
        loss += (mean - target[c]) * (mean - target[c]) / C;
    }
    return loss;
}

static void test_gradients_agree_with_finite_differences(void)
{
    struct check_buffer x = check_values(OPS_F32, (size_t)H * W * C), target = check_values(OPS_F32, C);
    float up[UP], pooled[UP], mean[C], dmean[C], dpooled[UP], dup[UP], dx[H * W * C];
    uint8_t where[UP];

    ops->upsample_forward(ops, NULL, &(struct op_upsample_forward){x.data, up, OPS_F32, 1, H, W, C});
    ops->maxpool_forward(
        ops, NULL, &(struct op_maxpool_forward){up, pooled, where, OPS_F32, 1, 2 * H, 2 * W, C, 3, 2, 1});
    ops->avgpool_forward(ops, NULL, &(struct op_avgpool_forward){pooled, mean, OPS_F32, 1, H, W, C});
    ops->mse_backward(ops, NULL,
                      &(struct op_mse_backward){mean, target.data, dmean, OPS_F32, 1, C, 1.0f, NULL});
    ops->avgpool_backward(ops, NULL, &(struct op_avgpool_backward){dmean, dpooled, OPS_F32, 1, H, W, C});
    ops->maxpool_backward(
        ops, NULL, &(struct op_maxpool_backward){dpooled, where, dup, OPS_F32, 1, 2 * H, 2 * W, C, 3, 2, 1});
    ops->upsample_backward(ops, NULL, &(struct op_upsample_backward){dup, dx, OPS_F32, 1, H, W, C});
    check_gradient("chain", chain_loss, target.exact, x.exact, x.count, dx);
}

/* The mean over the area of pixel (y, x), in double precision. */
static double mean_of_area(const struct ops_picture *p, int c, int channels, int y, int x)
{
    double top = (double)y * p->h / p->fit_h, bottom = (double)(y + 1) * p->h / p->fit_h, sum = 0.0;
    double left = (double)x * p->w / p->fit_w, right = (double)(x + 1) * p->w / p->fit_w;

    for (int row = 0; row < p->h; row++) {
        double down = fmin(bottom, row + 1) - fmax(top, row);

        for (int column = 0; column < p->w && down > 0.0; column++) {
            double across = fmin(right, column + 1) - fmax(left, column);

            sum += across > 0.0 ? down * across * p->x[(row * p->w + column) * channels + c] : 0.0;
        }
    }
    return sum / (bottom - top) / (right - left);
}

static void test_pictures_of_any_size_fit_their_places(void)
{
    enum { COUNT = 4, PLACE_H = 9, PLACE_W = 11, RGB = 3 };
    struct ops_picture pictures[COUNT] = {
        {NULL, 23, 28, 9, 10}, {NULL, 5, 7, 5, 7}, {NULL, 1, 1, 1, 1}, {NULL, 3, 3, 3, 3}};
    uint8_t *out = check_bytes(COUNT * PLACE_H * PLACE_W * RGB);

    for (int n = 0; n + 1 < COUNT; n++) { /* the last place has no picture */
        size_t bytes = (size_t)pictures[n].h * (size_t)pictures[n].w * RGB;
        uint8_t *x = check_bytes(bytes);

        for (size_t i = 0; i < bytes; i++)
            x[i] = (uint8_t)(127.5 + 127.5 * check_random());
        pictures[n].x = x;
    }
    memset(out, 0xa5, COUNT * PLACE_H * PLACE_W * RGB);
    TEST_ASSERT_EQUAL_INT(
        0, ops->image_fit(ops, NULL, &(struct op_image_fit){pictures, out, COUNT, PLACE_H, PLACE_W, RGB}));
    for (int i = 0; i < COUNT * PLACE_H * PLACE_W * RGB; i++) {
        const struct ops_picture *p = &pictures[i / RGB / PLACE_W / PLACE_H];
        int y = i / RGB / PLACE_W % PLACE_H, x = i / RGB % PLACE_W;

        if (p->x)
            TEST_ASSERT_DOUBLE_WITHIN(0.5001,
                                      mean_of_area(p, i % RGB, RGB, y < p->fit_h ? y : p->fit_h - 1,
                                                   x < p->fit_w ? x : p->fit_w - 1),
                                      (double)out[i]);
        else
            TEST_ASSERT_EQUAL_UINT8(0xa5, out[i]);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_maxpool_agrees_and_its_gradient_goes_to_the_largest);
    RUN_TEST(test_maxpool_takes_the_first_of_several_and_never_the_padding);
    RUN_TEST(test_avgpool_agrees_in_both_directions);
    RUN_TEST(test_upsample_agrees_in_both_directions);
    RUN_TEST(test_channels_are_copied_and_added_and_the_others_left_alone);
    RUN_TEST(test_pictures_are_cut_resized_mirrored_and_normalized);
    RUN_TEST(test_an_uncut_picture_of_the_same_size_is_only_normalized);
    RUN_TEST(test_mean_squared_error_agrees_in_both_directions_and_in_place);
    RUN_TEST(test_gradients_agree_with_finite_differences);
    RUN_TEST(test_pictures_of_any_size_fit_their_places);
    return UNITY_END();
}
