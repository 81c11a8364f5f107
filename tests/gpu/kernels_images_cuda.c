/* Batch normalization, pooling, resizing, picture preparation and mean squared error of the CUDA table
 * against the CPU reference, for every type, aligned and not, with and without workspace. Exit status 77
 * without a GPU.
 */
#include <math.h>
#include <string.h>

#include "kernels_mirror.h"
#include "resnet50.h"

static const enum ops_type types[] = {OPS_F32, OPS_BF16, OPS_F16};
enum { WORKSPACE = 8 << 20 };

struct norm {
    struct mirror x, residual, y, dy, dx, dresidual;
    struct mirror gamma, beta, running_mean, running_variance, mean, rstd, dgamma, dbeta;
};

static struct norm norm_of(enum ops_type type, int rows, int cols)
{
    size_t count = (size_t)rows * cols;
    struct norm t = {mirror_values(type, count),   mirror_values(type, count),   mirror_values(type, count),
                     mirror_values(type, count),   mirror_values(type, count),   mirror_values(type, count),
                     mirror_values(OPS_F32, cols), mirror_values(OPS_F32, cols), mirror_values(OPS_F32, cols),
                     mirror_values(OPS_F32, cols), mirror_values(OPS_F32, cols), mirror_values(OPS_F32, cols),
                     mirror_values(OPS_F32, cols), mirror_values(OPS_F32, cols)};

    for (int c = 0; c < cols; c++) /* a variance is not negative */
        ((float *)t.running_variance.host)[c] = 0.5f + fabsf(((float *)t.running_variance.host)[c]);
    TEST_ASSERT_EQUAL_INT(
        0, kernels_upload(t.running_variance.device, t.running_variance.host, cols * sizeof(float)));
    return t;
}

#define SIDE(m) (side ? (m).device : (m).host)

static struct op_batchnorm_forward forward_of(const struct norm *t, int side, int rows, int cols,
                                              int residual, int relu, int training, size_t bytes)
{
    return (struct op_batchnorm_forward){
        .x = SIDE(t->x),
        .residual = residual ? SIDE(t->residual) : NULL,
        .y = SIDE(t->y),
        .gamma = SIDE(t->gamma),
        .beta = SIDE(t->beta),
        .running_mean = SIDE(t->running_mean),
        .running_variance = SIDE(t->running_variance),
        .mean = SIDE(t->mean),
        .rstd = SIDE(t->rstd),
        .type = t->x.type,
        .act = relu ? OPS_ACT_RELU : OPS_ACT_NONE,
        .rows = rows,
        .cols = cols,
        .epsilon = 1e-5f,
        .momentum = 0.1f,
        .training = training,
        .workspace = side && bytes ? mirror_workspace(bytes) : NULL,
        .workspace_bytes = side ? bytes : 0,
    };
}

static struct op_batchnorm_backward backward_of(const struct norm *t, int side, int rows, int cols,
                                                int residual, int relu, int accumulate, size_t bytes)
{
    return (struct op_batchnorm_backward){
        .dy = SIDE(t->dy),
        .x = SIDE(t->x),
        .y = SIDE(t->y),
        .dx = residual ? SIDE(t->dx) : SIDE(t->dy), /* in place where it may be */
        .dresidual = residual ? SIDE(t->dresidual) : NULL,
        .gamma = SIDE(t->gamma),
        .beta = residual ? NULL : SIDE(t->beta),
        .mean = SIDE(t->mean),
        .rstd = SIDE(t->rstd),
        .dgamma = SIDE(t->dgamma),
        .dbeta = SIDE(t->dbeta),
        .type = t->x.type,
        .act = relu ? OPS_ACT_RELU : OPS_ACT_NONE,
        .rows = rows,
        .cols = cols,
        .accumulate = accumulate,
        .workspace = side && bytes ? mirror_workspace(bytes) : NULL,
        .workspace_bytes = side ? bytes : 0,
    };
}

/* Gives the backward pass the same y, mean and rstd on both sides, so that the rectifier decides alike. */
static void same_forward_results(struct norm *t)
{
    struct mirror *results[] = {&t->y, &t->mean, &t->rstd};

    for (int i = 0; i < 3; i++)
        TEST_ASSERT_EQUAL_INT(0, kernels_upload(results[i]->device, results[i]->host,
                                                results[i]->count * ops_type_bytes(results[i]->type)));
}

/* Clears the gradient where the argument of the rectifier is close to 0: there the two tables may rightly
 * decide differently. */
static void no_gradient_at_the_kink(struct norm *t, int cols)
{
    const float *mean = t->mean.host, *rstd = t->rstd.host, *gamma = t->gamma.host, *beta = t->beta.host;

    for (size_t i = 0; i < t->x.count; i++) {
        size_t c = i % (size_t)cols;

        if (fabsf(gamma[c] * (types_load(t->x.host, t->x.type, i) - mean[c]) * rstd[c] + beta[c]) < 1e-4f)
            types_store(t->dy.host, t->dy.type, i, 0.0f);
    }
    TEST_ASSERT_EQUAL_INT(0,
                          kernels_upload(t->dy.device, t->dy.host, t->dy.count * ops_type_bytes(t->dy.type)));
}

static void check_norm(enum ops_type type, int rows, int cols, int residual, int relu, int accumulate,
                       size_t bytes)
{
    struct norm t = norm_of(type, rows, cols);
    struct op_batchnorm_forward forward[2];
    struct op_batchnorm_backward backward[2];

    for (int side = 0; side < 2; side++) {
        struct ops *ops = side ? mirror_cuda : mirror_cpu;

        forward[side] = forward_of(&t, side, rows, cols, residual, relu, 1, bytes);
        TEST_ASSERT_EQUAL_INT(0, ops->batchnorm_forward(ops, mirror_stream, &forward[side]));
    }
    mirror_compare("batchnorm mean", &t.mean, 64.0);
    mirror_compare("batchnorm rstd", &t.rstd, 128.0);
    mirror_compare("batchnorm running mean", &t.running_mean, 64.0);
    mirror_compare("batchnorm running variance", &t.running_variance, 128.0);
    mirror_compare("batchnorm y", &t.y, 512.0);
    same_forward_results(&t);
    if (relu && !residual)
        no_gradient_at_the_kink(&t, cols);
    for (int side = 0; side < 2; side++) {
        struct ops *ops = side ? mirror_cuda : mirror_cpu;

        backward[side] = backward_of(&t, side, rows, cols, residual, relu, accumulate, bytes);
        TEST_ASSERT_EQUAL_INT(0, ops->batchnorm_backward(ops, mirror_stream, &backward[side]));
    }
    mirror_compare("batchnorm dx", residual ? &t.dx : &t.dy, 512.0);
    if (residual)
        mirror_compare("batchnorm dresidual", &t.dresidual, 0.0);
    mirror_compare("batchnorm dgamma", &t.dgamma, 16.0 + rows);
    mirror_compare("batchnorm dbeta", &t.dbeta, 16.0 + rows);
    mirror_release();
}

static void keep_result(struct mirror *m)
{
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(mirror_stream));
    TEST_ASSERT_EQUAL_INT(
        0, cudaMemcpy(m->host, m->device, m->count * ops_type_bytes(m->type), cudaMemcpyDeviceToHost));
}

/* The bits that the forward pass leaves say what y says: the gradients are the same to the bit. */
static void check_norm_mask(enum ops_type type, int rows, int cols, size_t bytes)
{
    struct norm t = norm_of(type, rows, cols);
    struct op_batchnorm_forward forward = forward_of(&t, 1, rows, cols, 1, 1, 1, bytes);
    struct op_batchnorm_backward backward = backward_of(&t, 1, rows, cols, 1, 1, 0, bytes);
    void *mask = NULL;

    TEST_ASSERT_EQUAL_INT(0, cudaMalloc(&mask, (size_t)rows * (size_t)cols / 8));
    TEST_ASSERT_EQUAL_INT(0, cudaMemset(mask, 0xa5, (size_t)rows * (size_t)cols / 8));
    TEST_ASSERT_EQUAL_INT(0, cudaDeviceSynchronize());
    forward.mask = mask;
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->batchnorm_forward(mirror_cuda, mirror_stream, &forward));
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->batchnorm_backward(mirror_cuda, mirror_stream, &backward));
    keep_result(&t.dx);
    keep_result(&t.dresidual);
    keep_result(&t.dgamma);
    backward.mask = mask;
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->batchnorm_backward(mirror_cuda, mirror_stream, &backward));
    mirror_compare("batchnorm dx by bits", &t.dx, 0.0);
    mirror_compare("batchnorm dresidual by bits", &t.dresidual, 0.0);
    mirror_compare("batchnorm dgamma by bits", &t.dgamma, 0.0);
    forward.cols = cols - 1;
    TEST_ASSERT_EQUAL_INT(OPS_INVALID, mirror_cuda->batchnorm_forward(mirror_cuda, mirror_stream, &forward));
    TEST_ASSERT_EQUAL_INT(0, cudaFree(mask));
    mirror_release();
}

static void test_batchnorm_by_bits_is_the_same(void)
{
    static const int shape[][2] = {{7, 8}, {300, 16}, {1000, 24}, {4096, 64}, {777, 256}, {6272, 520}};

    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        check_norm_mask(OPS_BF16, shape[i][0], shape[i][1], WORKSPACE);
        check_norm_mask(OPS_F16, shape[i][0], shape[i][1], i % 2 ? 0 : WORKSPACE);
    }
}

static void test_batchnorm_agrees_in_both_directions(void)
{
    static const int shape[][2] = {{16, 5},    {7, 8},     {50, 3},    {300, 16},   {1000, 24},
                                   {4096, 64}, {5000, 20}, {777, 256}, {6272, 520}, {12544, 33}};

    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        for (int type = 0; type < 3; type++) {
            for (int variant = 0; variant < 4; variant++)
                check_norm(types[type], shape[i][0], shape[i][1], variant & 1, variant >> 1, variant == 1,
                           variant == 3 ? 0 : WORKSPACE);
        }
    }
}

static void test_unaligned_batchnorm_agrees(void)
{
    kernels_shift = 1;
    check_norm(OPS_BF16, 700, 64, 1, 1, 1, WORKSPACE);
    check_norm(OPS_F16, 100, 8, 0, 1, 0, 0);
    kernels_shift = 0;
}

static void test_batchnorm_of_resnet50_agrees(void)
{
    for (int i = 0; i < (kernels_quick() ? 4 : RESNET50_NORMS); i++) {
        const struct resnet50_norm *r = &resnet50_norms[i];

        check_norm(OPS_BF16, 2 * r->h * r->h, r->c, r->residual, r->relu, 0, WORKSPACE);
    }
}

static void test_batchnorm_uses_the_running_statistics_in_inference(void)
{
    for (int type = 0; type < 3; type++) {
        struct norm t = norm_of(types[type], 333, 40);
        struct op_batchnorm_forward host = forward_of(&t, 0, 333, 40, 1, 1, 0, 0);
        struct op_batchnorm_forward device = forward_of(&t, 1, 333, 40, 1, 1, 0, 0);

        mirror_cpu->batchnorm_forward(mirror_cpu, NULL, &host);
        TEST_ASSERT_EQUAL_INT(0, mirror_cuda->batchnorm_forward(mirror_cuda, mirror_stream, &device));
        mirror_compare("batchnorm y", &t.y, 16.0);
        mirror_compare("running mean", &t.running_mean, 0.0);
        mirror_compare("mean", &t.mean, 0.0);
        mirror_release();
    }
}

static void check_maxpool(enum ops_type type, int n, int h, int w, int c, int size, int stride, int pad)
{
    int oh = (h + 2 * pad - size) / stride + 1, ow = (w + 2 * pad - size) / stride + 1;
    size_t results = (size_t)n * oh * ow * c;
    struct mirror x = mirror_values(type, (size_t)n * h * w * c), dx = mirror_values(type, x.count);
    struct mirror y = mirror_values(type, results), dy = mirror_values(type, results);
    uint8_t *where[2], *got;

    where[0] = mirror_bytes(results, &where[1]);
    for (int side = 0; side < 2; side++) {
        struct ops *ops = side ? mirror_cuda : mirror_cpu;

        TEST_ASSERT_EQUAL_INT(
            0, ops->maxpool_forward(ops, mirror_stream,
                                    &(struct op_maxpool_forward){SIDE(x), SIDE(y), where[side], type, n, h, w,
                                                                 c, size, stride, pad}));
        TEST_ASSERT_EQUAL_INT(
            0, ops->maxpool_backward(ops, mirror_stream,
                                     &(struct op_maxpool_backward){SIDE(dy), where[side], SIDE(dx), type, n,
                                                                   h, w, c, size, stride, pad}));
    }
    mirror_compare("maxpool y", &y, 0.0);
    mirror_compare("maxpool dx", &dx, 8.0);
    got = mirror_download(&(struct mirror){OPS_F32, results / 4, NULL, where[1]});
    TEST_ASSERT_EQUAL_MEMORY(where[0], got, results / 4 * 4);
    mirror_release();
}

static void test_maxpool_agrees_in_both_directions(void)
{
    for (int type = 0; type < 3; type++) {
        check_maxpool(types[type], 2, 14, 14, 16, 2, 2, 0);
        check_maxpool(types[type], 2, 15, 13, 64, 3, 2, 1);
        check_maxpool(types[type], 3, 9, 7, 5, 3, 1, 1);
        check_maxpool(types[type], 1, 12, 12, 8, 5, 3, 2);
        check_maxpool(types[type], 2, 112, 112, 64, 3, 2, 1);
    }
}

static void check_avgpool(enum ops_type type, int n, int h, int w, int c)
{
    struct mirror x = mirror_values(type, (size_t)n * h * w * c), dx = mirror_values(type, x.count);
    struct mirror y = mirror_values(type, (size_t)n * c), dy = mirror_values(type, y.count);

    for (int side = 0; side < 2; side++) {
        struct ops *ops = side ? mirror_cuda : mirror_cpu;

        TEST_ASSERT_EQUAL_INT(
            0, ops->avgpool_forward(ops, mirror_stream,
                                    &(struct op_avgpool_forward){SIDE(x), SIDE(y), type, n, h, w, c}));
        TEST_ASSERT_EQUAL_INT(
            0, ops->avgpool_backward(ops, mirror_stream,
                                     &(struct op_avgpool_backward){SIDE(dy), SIDE(dx), type, n, h, w, c}));
    }
    mirror_compare("avgpool y", &y, 8.0);
    mirror_compare("avgpool dx", &dx, 1.0);
    mirror_release();
}

static void test_avgpool_agrees_in_both_directions(void)
{
    for (int type = 0; type < 3; type++) {
        check_avgpool(types[type], 2, 7, 7, 2048);
        check_avgpool(types[type], 3, 5, 4, 13);
        check_avgpool(types[type], 1, 1, 1, 8);
        check_avgpool(types[type], 65600, 1, 2, 1); /* more images than a grid has blocks along y */
    }
}

static void check_upsample(enum ops_type type, int n, int h, int w, int c)
{
    struct mirror x = mirror_values(type, (size_t)n * h * w * c), dx = mirror_values(type, x.count);
    struct mirror y = mirror_values(type, x.count * 4), dy = mirror_values(type, x.count * 4);

    for (int side = 0; side < 2; side++) {
        struct ops *ops = side ? mirror_cuda : mirror_cpu;

        TEST_ASSERT_EQUAL_INT(
            0, ops->upsample_forward(ops, mirror_stream,
                                     &(struct op_upsample_forward){SIDE(x), SIDE(y), type, n, h, w, c}));
        TEST_ASSERT_EQUAL_INT(
            0, ops->upsample_backward(ops, mirror_stream,
                                      &(struct op_upsample_backward){SIDE(dy), SIDE(dx), type, n, h, w, c}));
    }
    mirror_compare("upsample y", &y, 0.0);
    mirror_compare("upsample dx", &dx, 8.0);
    mirror_release();
}

static void test_upsample_agrees_in_both_directions(void)
{
    for (int type = 0; type < 3; type++) {
        check_upsample(types[type], 2, 7, 5, 16);
        check_upsample(types[type], 1, 6, 9, 3);
    }
}

static void check_channels(enum ops_type type, int cols, int x_cols, int x_from, int out_cols, int out_from,
                           int accumulate)
{
    struct mirror x = mirror_values(type, (size_t)101 * x_cols),
                  out = mirror_values(type, (size_t)101 * out_cols);

    for (int side = 0; side < 2; side++) {
        struct ops *ops = side ? mirror_cuda : mirror_cpu;

        TEST_ASSERT_EQUAL_INT(
            0, ops->channels_copy(ops, mirror_stream,
                                  &(struct op_channels_copy){SIDE(x), SIDE(out), type, 101, cols, x_cols,
                                                             x_from, out_cols, out_from, accumulate}));
    }
    mirror_compare("channels_copy", &out, 1.0);
    mirror_release();
}

static void test_channels_are_copied_and_added(void)
{
    for (int type = 0; type < 3; type++) {
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            check_channels(types[type], 16, 16, 0, 48, 16, accumulate);
            check_channels(types[type], 8, 32, 24, 8, 0, accumulate);
            check_channels(types[type], 5, 7, 1, 9, 3, accumulate);
        }
    }
}

static void check_prepare(enum ops_type type, int n, int h, int w, int c, int oh, int ow, int crops)
{
    struct mirror out = mirror_values(type, (size_t)n * oh * ow * c);
    struct op_image_prepare host = {.type = type,
                                    .n = n,
                                    .h = h,
                                    .w = w,
                                    .c = c,
                                    .oh = oh,
                                    .ow = ow,
                                    .mean = {0.4f, 0.5f, 0.6f, 0.1f},
                                    .deviation = {0.2f, 0.3f, 0.25f, 1.0f}};
    struct op_image_prepare device;
    struct ops_crop *host_crops = (struct ops_crop *)mirror_values(OPS_F32, (size_t)n * 5).host;
    uint8_t *x;

    host.x = mirror_bytes((size_t)n * h * w * c, &x);
    device = host;
    device.x = x;
    for (int i = 0; i < n; i++)
        host_crops[i] = (struct ops_crop){0.25f * i, 0.5f, 0.7f * h, 0.6f * w, i % 2};
    if (crops) {
        host.crops = host_crops;
        device.crops = kernels_bytes(host_crops, n * sizeof(*host_crops)).at[ON_DEVICE];
    }
    host.out = out.host;
    device.out = out.device;
    mirror_cpu->image_prepare(mirror_cpu, NULL, &host);
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->image_prepare(mirror_cuda, mirror_stream, &device));
    mirror_compare("image_prepare", &out, 256.0);
    mirror_release();
}

static void test_pictures_are_prepared_alike(void)
{
    for (int type = 0; type < 3; type++) {
        check_prepare(types[type], 3, 40, 37, 3, 32, 32, 1);
        check_prepare(types[type], 2, 28, 28, 1, 28, 28, 0);
        check_prepare(types[type], 2, 9, 31, 4, 17, 15, 0);
    }
}

/* In integers: the same to the bit. */
static void test_pictures_fit_their_places_alike(void)
{
    enum { N = 3, H = 33, W = 29, C = 3, BYTES = N * H * W * C };
    struct ops_picture host[N] = {{NULL, 375, 500, 21, 29}, {NULL, 17, 9, 17, 9}, {NULL, 1, 1, 1, 1}};
    struct ops_picture device[N];
    struct buffer out = kernels_bytes(NULL, BYTES), table;

    memcpy(device, host, sizeof(host));
    for (int i = 0; i + 1 < N; i++) { /* the last place has no picture */
        uint8_t *x;

        host[i].x = mirror_bytes((size_t)host[i].h * (size_t)host[i].w * C, &x);
        device[i].x = x;
    }
    table = kernels_bytes(device, sizeof(device));
    cpu_image_fit(&(struct op_image_fit){host, out.at[ON_HOST], N, H, W, C});
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->image_fit(
                                 mirror_cuda, mirror_stream,
                                 &(struct op_image_fit){table.at[ON_DEVICE], out.at[ON_DEVICE], N, H, W, C}));
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(mirror_stream));
    kernels_expect_same(&out, "image_fit");
    mirror_release();
}

static void check_mse(enum ops_type type, int rows, int cols)
{
    struct mirror x = mirror_values(type, (size_t)rows * cols), target = mirror_values(type, x.count);
    struct mirror losses = mirror_values(OPS_F32, rows), scale = mirror_values(OPS_F32, 1);

    for (int side = 0; side < 2; side++) {
        struct ops *ops = side ? mirror_cuda : mirror_cpu;

        TEST_ASSERT_EQUAL_INT(0, ops->mse_forward(ops, mirror_stream,
                                                  &(struct op_mse_forward){SIDE(x), SIDE(target),
                                                                           SIDE(losses), type, rows, cols}));
        TEST_ASSERT_EQUAL_INT(
            0, ops->mse_backward(ops, mirror_stream,
                                 &(struct op_mse_backward){SIDE(x), SIDE(target), SIDE(x), type, rows, cols,
                                                           100.0f, SIDE(scale)}));
    }
    mirror_compare("mse losses", &losses, 32.0);
    mirror_compare("mse dx", &x, 4.0);
    mirror_release();
}

static void test_mean_squared_error_agrees_in_both_directions(void)
{
    for (int type = 0; type < 3; type++) {
        check_mse(types[type], 5, 1000);
        check_mse(types[type], 300, 7);
    }
}

int main(void)
{
    int status = mirror_open();

    if (status)
        return status;
    UNITY_BEGIN();
    RUN_TEST(test_batchnorm_agrees_in_both_directions);
    RUN_TEST(test_batchnorm_by_bits_is_the_same);
    RUN_TEST(test_unaligned_batchnorm_agrees);
    RUN_TEST(test_batchnorm_of_resnet50_agrees);
    RUN_TEST(test_batchnorm_uses_the_running_statistics_in_inference);
    RUN_TEST(test_maxpool_agrees_in_both_directions);
    RUN_TEST(test_avgpool_agrees_in_both_directions);
    RUN_TEST(test_upsample_agrees_in_both_directions);
    RUN_TEST(test_channels_are_copied_and_added);
    RUN_TEST(test_pictures_are_prepared_alike);
    RUN_TEST(test_pictures_fit_their_places_alike);
    RUN_TEST(test_mean_squared_error_agrees_in_both_directions);
    return UNITY_END();
}
