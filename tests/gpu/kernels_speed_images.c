/* How fast the CUDA table is on the shapes of ResNet-50: each distinct convolution and batch normalization in
 * each direction, in microseconds with TFLOP/s or GB/s, and the sum over the network. A measurement, not a
 * test.
 *
 * usage: kernels_speed_images [BATCH [TYPE]]     TYPE: bf16 (default), f16, f32, tf32
 *
 * Repeated calls find part of their operands in the cache, so sums are a little better than in training. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels_mirror.h"
#include "resnet50.h"

enum { WARM_UP = 2, REPEATS = 10, DIRECTIONS = 3 };
static size_t workspace_bytes; /* what the table asks for */

static int batch = 128;
static enum ops_type type = OPS_BF16;
static int tf32;
static void *workspace;
static cudaEvent_t begin, end;
static double first_call_ms; /* of all first calls together: plans are made there */

typedef int (*run_fn)(const void *args);

/* Microseconds of one call. */
static double measure(run_fn run, const void *args)
{
    float ms = 0.0f;

    cudaEventRecord(begin, kernels_stream);
    TEST_ASSERT_EQUAL_INT(0, run(args));
    cudaEventRecord(end, kernels_stream);
    TEST_ASSERT_EQUAL_INT(0, cudaEventSynchronize(end));
    cudaEventElapsedTime(&ms, begin, end);
    first_call_ms += (double)ms;
    for (int i = 0; i < WARM_UP; i++)
        run(args);
    cudaEventRecord(begin, kernels_stream);
    for (int i = 0; i < REPEATS; i++)
        run(args);
    cudaEventRecord(end, kernels_stream);
    TEST_ASSERT_EQUAL_INT(0, cudaEventSynchronize(end));
    cudaEventElapsedTime(&ms, begin, end);
    return 1000.0 * (double)ms / REPEATS;
}

static int run_forward(const void *args)
{
    return mirror_cuda->conv_forward(mirror_cuda, mirror_stream, args);
}

static int run_data(const void *args)
{
    return mirror_cuda->conv_backward_data(mirror_cuda, mirror_stream, args);
}

static int run_filter(const void *args)
{
    return mirror_cuda->conv_backward_filter(mirror_cuda, mirror_stream, args);
}

/* Adds what the network needs of this convolution to sums. */
static void measure_conv(const struct resnet50_conv *r, double *sums)
{
    struct ops_conv s = {batch, r->h, r->h, r->c, r->k, r->r, r->r, r->stride, r->pad, type, tf32};
    int o = (r->h + 2 * r->pad - r->r) / r->stride + 1;
    void *x = mirror_device(type, (size_t)s.n * s.h * s.w * s.c);
    void *w = mirror_device(type, (size_t)s.k * s.r * s.s * s.c);
    void *y = mirror_device(type, (size_t)s.n * o * o * s.k);
    float *dw = mirror_device(OPS_F32, (size_t)s.k * s.r * s.s * s.c);
    double operations = 2.0 * s.n * o * o * s.k * s.r * s.s * s.c;
    double us[DIRECTIONS], added = 0.0;

    us[0] = measure(run_forward, &(struct op_conv_forward){s, x, w, y, workspace, workspace_bytes});
    us[1] = r->c == 3 ? 0.0
                      : measure(run_data,
                                &(struct op_conv_backward_data){s, y, w, x, 0, workspace, workspace_bytes});
    us[2] =
        measure(run_filter, &(struct op_conv_backward_filter){s, x, y, dw, 0, workspace, workspace_bytes});
    if (r->c != 3)
        added = measure(run_data, &(struct op_conv_backward_data){s, y, w, x, 1, workspace, workspace_bytes});
    printf(
        "conv h=%d c=%d k=%d r=%d stride=%d times=%d us=%.0f,%.0f,%.0f added_us=%.0f tflops=%.0f,%.0f,%.0f\n",
        r->h, r->c, r->k, r->r, r->stride, r->times, us[0], us[1], us[2], added, operations / us[0] * 1e-6,
        us[1] > 0.0 ? operations / us[1] * 1e-6 : 0.0, operations / us[2] * 1e-6);
    for (int i = 0; i < DIRECTIONS; i++)
        sums[i] += us[i] * r->times;
    fflush(stdout);
}

/* First layers of smaller networks, which have few channels. */
static const struct resnet50_conv first_layers[] = {{32, 3, 64, 3, 1, 1, 0}, {28, 1, 32, 3, 1, 1, 0}};

static int run_norm(const void *args)
{
    return mirror_cuda->batchnorm_forward(mirror_cuda, mirror_stream, args);
}

static int run_norm_back(const void *args)
{
    return mirror_cuda->batchnorm_backward(mirror_cuda, mirror_stream, args);
}

static void measure_norm(const struct resnet50_norm *r, double *sums)
{
    int rows = batch * r->h * r->h;
    size_t count = (size_t)rows * r->c;
    double bytes = (double)count * ops_type_bytes(type);
    void *x = mirror_device(type, count), *y = mirror_device(type, count),
         *residual = mirror_device(type, count);
    float *columns[8];
    uint8_t *mask = type != OPS_F32 && r->residual && r->relu && r->c % 8 == 0
                        ? mirror_device(OPS_F32, count / 32 + 1)
                        : NULL;
    enum ops_act act = r->relu ? OPS_ACT_RELU : OPS_ACT_NONE;
    double us[2];

    for (int i = 0; i < 8; i++)
        columns[i] = mirror_device(OPS_F32, r->c);
    us[0] = measure(run_norm, &(struct op_batchnorm_forward){x, r->residual ? residual : NULL, y, columns[0],
                                                             columns[1], columns[2], columns[3], columns[4],
                                                             columns[5], type, act, rows, r->c, 1e-5f, 0.1f,
                                                             1, workspace, workspace_bytes, mask});
    us[1] = measure(run_norm_back, &(struct op_batchnorm_backward){.dy = residual,
                                                                   .x = x,
                                                                   .y = y,
                                                                   .dx = residual,
                                                                   .dresidual = r->residual ? y : NULL,
                                                                   .gamma = columns[0],
                                                                   .beta = r->residual ? NULL : columns[1],
                                                                   .mean = columns[4],
                                                                   .rstd = columns[5],
                                                                   .dgamma = columns[6],
                                                                   .dbeta = columns[7],
                                                                   .mask = mask,
                                                                   .type = type,
                                                                   .act = act,
                                                                   .rows = rows,
                                                                   .cols = r->c,
                                                                   .workspace = workspace,
                                                                   .workspace_bytes = workspace_bytes});
    printf("norm h=%d c=%d residual=%d relu=%d times=%d us=%.0f,%.0f gbs=%.0f,%.0f\n", r->h, r->c,
           r->residual, r->relu, r->times, us[0], us[1], bytes * (3 + r->residual) / us[0] * 1e-3,
           bytes * (r->residual ? 7 : 5) / us[1] * 1e-3);
    for (int i = 0; i < 2; i++)
        sums[i] += us[i] * r->times;
    fflush(stdout);
}

static int run_maxpool(const void *args)
{
    return mirror_cuda->maxpool_forward(mirror_cuda, mirror_stream, args);
}

static int run_maxpool_back(const void *args)
{
    return mirror_cuda->maxpool_backward(mirror_cuda, mirror_stream, args);
}

static double measure_pool(void)
{
    size_t in = (size_t)batch * 112 * 112 * 64, out = in / 4;
    void *x = mirror_device(type, in), *y = mirror_device(type, out);
    uint8_t *where = mirror_device(OPS_BF16, out / 2);
    double forward =
        measure(run_maxpool, &(struct op_maxpool_forward){x, y, where, type, batch, 112, 112, 64, 3, 2, 1});
    double back = measure(run_maxpool_back,
                          &(struct op_maxpool_backward){y, where, x, type, batch, 112, 112, 64, 3, 2, 1});
    double bytes = (double)(in + out) * ops_type_bytes(type) + (double)out;

    printf("maxpool us=%.0f,%.0f gbs=%.0f,%.0f\n", forward, back, bytes / forward * 1e-3,
           bytes / back * 1e-3);
    return forward + back;
}

static void measure_all(void)
{
    double conv[DIRECTIONS] = {0}, norm[2] = {0}, pool;

    for (int i = 0; i < RESNET50_CONVS; i++) {
        workspace = mirror_workspace(workspace_bytes);
        measure_conv(&resnet50_convs[i], conv);
        mirror_release();
    }
    for (int i = 0; i < 2; i++) {
        workspace = mirror_workspace(workspace_bytes);
        measure_conv(&first_layers[i], conv);
        mirror_release();
    }
    printf("sum conv_ms=%.3f,%.3f,%.3f first_calls_ms=%.0f\n", conv[0] / 1000, conv[1] / 1000, conv[2] / 1000,
           first_call_ms);
    for (int i = 0; i < RESNET50_NORMS; i++) {
        workspace = mirror_workspace(workspace_bytes);
        measure_norm(&resnet50_norms[i], norm);
        mirror_release();
    }
    pool = measure_pool();
    mirror_release();
    printf("sum norm_ms=%.3f,%.3f pool_ms=%.3f total_ms=%.3f\n", norm[0] / 1000, norm[1] / 1000, pool / 1000,
           (conv[0] + conv[1] + conv[2] + norm[0] + norm[1] + pool) / 1000);
}

int main(int argc, char **argv)
{
    int status = mirror_open();

    if (status)
        return status;
    batch = argc > 1 ? atoi(argv[1]) : batch;
    if (argc > 2) {
        tf32 = strcmp(argv[2], "tf32") == 0;
        type = strcmp(argv[2], "f16") == 0 ? OPS_F16 : strcmp(argv[2], "bf16") == 0 ? OPS_BF16 : OPS_F32;
    }
    if (batch < 1 || cudaEventCreate(&begin) || cudaEventCreate(&end)) {
        fprintf(stderr, "usage: kernels_speed_images [BATCH [bf16|f16|f32|tf32]]\n");
        return EXIT_FAILURE;
    }
    workspace_bytes = mirror_cuda->workspace_bytes;
    UNITY_BEGIN();
    RUN_TEST(measure_all);
    return UNITY_END();
}
