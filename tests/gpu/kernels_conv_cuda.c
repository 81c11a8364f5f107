/* The convolutions of the CUDA table against the CPU reference: every shape of ResNet-50, odd sizes, strides
 * and padding, all types, with and without workspace, adding to what is there; the same bits on every run,
 * also in a captured graph. Exit status 77 without a GPU. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels_mirror.h"
#include "resnet50.h"

static const size_t workspace_bytes = (size_t)256 << 20;

static const struct ops_conv odd_shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0, OPS_F32, 0},    {2, 7, 5, 3, 17, 3, 3, 1, 1, OPS_F32, 0},
    {3, 28, 28, 1, 16, 5, 5, 1, 2, OPS_F32, 0}, {2, 8, 8, 16, 16, 3, 3, 2, 1, OPS_F32, 0},
    {1, 13, 9, 3, 20, 7, 7, 2, 3, OPS_F32, 0},  {3, 6, 6, 5, 33, 1, 1, 1, 0, OPS_F32, 0},
    {1, 10, 7, 4, 9, 3, 2, 3, 2, OPS_F32, 0},   {2, 17, 15, 4, 24, 4, 4, 2, 2, OPS_F32, 0},
    {3, 12, 13, 2, 8, 3, 3, 2, 1, OPS_F32, 0},  {2, 32, 32, 24, 40, 3, 3, 1, 1, OPS_F32, 0},
};
enum { ODD_SHAPES = sizeof(odd_shapes) / sizeof(odd_shapes[0]) };

static int out_h(const struct ops_conv *s)
{
    return (s->h + 2 * s->pad - s->r) / s->stride + 1;
}

static int out_w(const struct ops_conv *s)
{
    return (s->w + 2 * s->pad - s->s) / s->stride + 1;
}

struct tensors {
    struct mirror x, w, y, dx, dw;
};

static struct tensors tensors_of(const struct ops_conv *s)
{
    size_t x = (size_t)s->n * s->h * s->w * s->c, w = (size_t)s->k * s->r * s->s * s->c;
    size_t y = (size_t)s->n * out_h(s) * out_w(s) * s->k;

    return (struct tensors){mirror_values(s->type, x), mirror_values(s->type, w), mirror_values(s->type, y),
                            mirror_values(s->type, x), mirror_values(OPS_F32, w)};
}

/* tf32 rounds operands to 10 bits, as f16 does. dw may come from a kernel that rounds it to the operands'
 * type. */
static enum ops_type rounding(const struct ops_conv *s)
{
    return s->tf32 ? OPS_F16 : s->type;
}

/* Float roundings that a sum of count products may be off by. With tf32 each product is rounded to 10 bits at
 * random: the sum is off by some 2^-11 of the root of their number. */
static double terms(const struct ops_conv *s, double count)
{
    return s->tf32 ? 4200.0 * sqrt(count) : 4.0 * count;
}

/* A gradient may be rounded to the operands' type before it is added to what is there. */
static double gradient_terms(const struct ops_conv *s, double count, int accumulate)
{
    double rounding_bits = s->type == OPS_F32 ? 0.0 : s->type == OPS_BF16 ? 0x1p15 : 0x1p12;

    return terms(s, count) + (accumulate ? rounding_bits * (1.0 + 2.0 * sqrt(count)) : 0.0);
}

static void check(const struct ops_conv *s, size_t bytes, int accumulate)
{
    void *workspace = bytes ? mirror_workspace(bytes) : NULL;
    struct tensors t = tensors_of(s);
    struct op_conv_forward forward = {*s, t.x.host, t.w.host, t.y.host, NULL, 0};
    struct op_conv_backward_data data = {*s, t.y.host, t.w.host, t.dx.host, accumulate, NULL, 0};
    struct op_conv_backward_filter filter = {*s, t.x.host, t.y.host, t.dw.host, accumulate, NULL, 0};
    double taps = (double)s->r * s->s;

    /* The gradients first: they read the random y that both sides have. */
    mirror_cpu->conv_backward_data(mirror_cpu, NULL, &data);
    mirror_cpu->conv_backward_filter(mirror_cpu, NULL, &filter);
    mirror_cpu->conv_forward(mirror_cpu, NULL, &forward);
    data =
        (struct op_conv_backward_data){*s, t.y.device, t.w.device, t.dx.device, accumulate, workspace, bytes};
    filter = (struct op_conv_backward_filter){*s,         t.x.device, t.y.device, t.dw.device,
                                              accumulate, workspace,  bytes};
    forward = (struct op_conv_forward){*s, t.x.device, t.w.device, t.y.device, workspace, bytes};
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->conv_backward_data(mirror_cuda, mirror_stream, &data));
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->conv_backward_filter(mirror_cuda, mirror_stream, &filter));
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->conv_forward(mirror_cuda, mirror_stream, &forward));
    mirror_compare_as("conv_backward_data", &t.dx, gradient_terms(s, taps * s->k, accumulate), rounding(s));
    mirror_compare_as("conv_backward_filter", &t.dw,
                      gradient_terms(s, (double)s->n * out_h(s) * out_w(s), accumulate), rounding(s));
    mirror_compare_as("conv_forward", &t.y, terms(s, taps * s->c), rounding(s));
    mirror_release();
}

static const enum ops_type types[] = {OPS_F32, OPS_BF16, OPS_F16};

static void test_odd_shapes_agree_with_and_without_workspace(void)
{
    for (int i = 0; i < ODD_SHAPES; i++) {
        for (int type = 0; type < 3; type++) {
            struct ops_conv s = odd_shapes[i];

            s.type = types[type];
            check(&s, workspace_bytes, 0);
            check(&s, workspace_bytes, 1);
            check(&s, 0, 0);
            check(&s, 0, 1);
        }
    }
}

static void check_resnet50(enum ops_type type, int tf32)
{
    for (int i = 0; i < (kernels_quick() ? 3 : RESNET50_CONVS); i++) {
        const struct resnet50_conv *r = &resnet50_convs[i];
        struct ops_conv s = {2, r->h, r->h, r->c, r->k, r->r, r->r, r->stride, r->pad, type, tf32};

        check(&s, workspace_bytes, 0);
    }
}

static void test_resnet50_agrees_in_bf16(void)
{
    check_resnet50(OPS_BF16, 0);
}

static void test_resnet50_agrees_in_f16(void)
{
    check_resnet50(OPS_F16, 0);
}

static void test_resnet50_agrees_in_f32(void)
{
    check_resnet50(OPS_F32, 0);
}

static void test_resnet50_agrees_in_tf32(void)
{
    check_resnet50(OPS_F32, 1);
}

static void run_all(const struct ops_conv *s, const struct tensors *t, void *workspace, size_t bytes)
{
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->conv_backward_data(
                                 mirror_cuda, mirror_stream,
                                 &(struct op_conv_backward_data){*s, t->y.device, t->w.device, t->dx.device,
                                                                 0, workspace, bytes}));
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->conv_backward_filter(
                                 mirror_cuda, mirror_stream,
                                 &(struct op_conv_backward_filter){*s, t->x.device, t->y.device, t->dw.device,
                                                                   0, workspace, bytes}));
}

static void test_a_run_repeats_to_the_bit_also_captured(void)
{
    const struct ops_conv shapes[] = {{4, 28, 28, 64, 128, 3, 3, 2, 1, OPS_BF16, 0},
                                      {4, 56, 56, 3, 64, 7, 7, 2, 3, OPS_BF16, 0}};

    for (int i = 0; i < 2; i++) {
        const struct ops_conv *s = &shapes[i];
        void *workspace = mirror_workspace(workspace_bytes), *dx, *dw;
        struct tensors t = tensors_of(s);
        cudaGraph_t graph;
        cudaGraphExec_t exec;

        run_all(s, &t, workspace, workspace_bytes);
        dx = mirror_download(&t.dx);
        dw = mirror_download(&t.dw);
        TEST_ASSERT_EQUAL_INT(0, cudaStreamBeginCapture(kernels_stream, cudaStreamCaptureModeThreadLocal));
        run_all(s, &t, workspace, workspace_bytes);
        TEST_ASSERT_EQUAL_INT(0, cudaStreamEndCapture(kernels_stream, &graph));
        TEST_ASSERT_EQUAL_INT(0, cudaGraphInstantiate(&exec, graph, 0));
        cudaMemsetAsync(t.dx.device, 0, t.dx.count * 2, kernels_stream);
        cudaMemsetAsync(t.dw.device, 0, t.dw.count * 4, kernels_stream);
        TEST_ASSERT_EQUAL_INT(0, cudaGraphLaunch(exec, kernels_stream));
        TEST_ASSERT_EQUAL_MEMORY(dx, mirror_download(&t.dx), t.dx.count * 2);
        TEST_ASSERT_EQUAL_MEMORY(dw, mirror_download(&t.dw), t.dw.count * 4);
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
        mirror_release();
    }
}

static void test_unaligned_tensors_agree(void)
{
    const struct ops_conv s = {2, 9, 9, 8, 16, 3, 3, 1, 1, OPS_BF16, 0};

    kernels_shift = 1;
    check(&s, workspace_bytes, 0);
    check(&s, workspace_bytes, 1);
    kernels_shift = 0;
}

static void test_no_image_is_no_error(void)
{
    struct ops_conv s = {0, 14, 14, 2, 3, 3, 3, 1, 1, OPS_F32, 0};

    TEST_ASSERT_EQUAL_INT(
        0, mirror_cuda->conv_forward(mirror_cuda, mirror_stream, &(struct op_conv_forward){.shape = s}));
    TEST_ASSERT_EQUAL_INT(0, mirror_cuda->conv_backward_data(mirror_cuda, mirror_stream,
                                                             &(struct op_conv_backward_data){.shape = s}));
}

int main(void)
{
    int status = mirror_open();

    if (status)
        return status;
    UNITY_BEGIN();
    RUN_TEST(test_odd_shapes_agree_with_and_without_workspace);
    RUN_TEST(test_resnet50_agrees_in_bf16);
    RUN_TEST(test_resnet50_agrees_in_f16);
    RUN_TEST(test_resnet50_agrees_in_f32);
    RUN_TEST(test_resnet50_agrees_in_tf32);
    RUN_TEST(test_a_run_repeats_to_the_bit_also_captured);
    RUN_TEST(test_unaligned_tensors_agree);
    RUN_TEST(test_no_image_is_no_error);
    return UNITY_END();
}
