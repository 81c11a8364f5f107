/* Matrix products, bias and activation on the GPU against the CPU reference: all transposes, types, odd
 * shapes, batches, epilogues and accumulation, with algorithms that were measured too; and that a run repeats
 * to the bit. */
#include "kernels_support.h"

#include <math.h>
#include <stdio.h>

struct dense {
    int m, n, k, trans_a, trans_b, batch;
    enum ops_type type, c_type;
    enum ops_act act;
    int bias, aux, tf32;
    float alpha, beta;
};

static void check_gemm(struct dense d)
{
    size_t batch = d.batch > 1 ? (size_t)d.batch : 1;
    size_t a_count = (size_t)d.m * (size_t)d.k, b_count = (size_t)d.k * (size_t)d.n,
           c_count = (size_t)d.m * (size_t)d.n;
    struct buffer a = kernels_random(d.type, batch * a_count, 1.0f),
                  b = kernels_random(d.type, batch * b_count, 1.0f);
    struct buffer c = kernels_random(d.c_type, batch * c_count, 1.0f);
    struct buffer bias = kernels_random(d.type, (size_t)d.n, 1.0f),
                  aux = kernels_random(d.c_type, batch * c_count, 1.0f);
    struct buffer workspace = kernels_workspace();
    double limit = d.tf32 ? 2e-3 : kernels_limit(d.c_type);
    char what[160];

    for (int side = 0; side < KERNELS_SIDES; side++) {
        struct op_gemm args = {.a = a.at[side],
                               .b = b.at[side],
                               .c = c.at[side],
                               .bias = d.bias ? bias.at[side] : NULL,
                               .aux = d.aux ? aux.at[side] : NULL,
                               .type = d.type,
                               .c_type = d.c_type,
                               .act = d.act,
                               .m = d.m,
                               .n = d.n,
                               .k = d.k,
                               .trans_a = d.trans_a,
                               .trans_b = d.trans_b,
                               .alpha = d.alpha,
                               .beta = d.beta,
                               .batch = d.batch,
                               .stride_a = a_count,
                               .stride_b = b_count,
                               .stride_c = c_count,
                               .tf32 = d.tf32,
                               .workspace = workspace.at[side],
                               .workspace_bytes = workspace.bytes};

        KERNELS_RUN(gemm, side, args);
    }
    snprintf(what, sizeof(what),
             "type %d to %d, %dx%dx%d, transposes %d%d, batch %d, act %d, bias %d, aux %d, beta %g",
             (int)d.type, (int)d.c_type, d.m, d.n, d.k, d.trans_a, d.trans_b, d.batch, (int)d.act, d.bias,
             d.aux, (double)d.beta);
    kernels_expect_close(&c, d.c_type, batch * c_count, limit, what);
    if (d.aux)
        kernels_expect_close(&aux, d.c_type, batch * c_count, limit, what);
    kernels_free_all();
}

static void test_gemm_agrees_for_all_transposes_types_and_odd_shapes(void)
{
    static const int shape[][3] = {{1, 1, 1},     {1, 10, 7},     {3, 5, 2},   {64, 64, 64},
                                   {65, 17, 129}, {128, 200, 72}, {130, 1, 64}};

    for (size_t s = 0; s < sizeof(shape) / sizeof(shape[0]); s++) {
        for (int type = OPS_F32; type <= OPS_F16; type++) {
            for (int t = 0; t < 4; t++) {
                struct dense d = {.m = shape[s][0],
                                  .n = shape[s][1],
                                  .k = shape[s][2],
                                  .trans_a = t & 1,
                                  .trans_b = t >> 1,
                                  .type = (enum ops_type)type,
                                  .c_type = (enum ops_type)type,
                                  .alpha = 1.0f};

                check_gemm(d);
                d.alpha = -0.5f, d.beta = 1.0f, d.c_type = OPS_F32;
                check_gemm(d);
            }
        }
    }
}

static void test_gemm_agrees_with_every_epilogue(void)
{
    for (int n = 61; n <= 64; n += 3) {
        for (int type = OPS_F32; type <= OPS_F16; type++) {
            for (int wide = 0; wide < 2; wide++) {
                for (int act = OPS_ACT_NONE; act <= OPS_ACT_GELU; act++) {
                    for (int with = 0; with < 4; with++)
                        check_gemm((struct dense){.m = 48,
                                                  .n = n,
                                                  .k = 40,
                                                  .type = (enum ops_type)type,
                                                  .c_type = wide ? OPS_F32 : (enum ops_type)type,
                                                  .act = (enum ops_act)act,
                                                  .bias = with & 1,
                                                  .aux = with >> 1,
                                                  .alpha = 0.5f});
                }
            }
        }
    }
}

static void test_gemm_agrees_for_batches_and_tf32(void)
{
    struct dense d = {
        .m = 33, .n = 40, .k = 24, .batch = 3, .act = OPS_ACT_GELU, .bias = 1, .aux = 1, .alpha = 1.0f};

    for (int type = OPS_F32; type <= OPS_F16; type++) {
        d.type = d.c_type = (enum ops_type)type;
        check_gemm(d);
    }
    check_gemm((struct dense){.m = 256, .n = 256, .k = 256, .tf32 = 1, .alpha = 1.0f});
}

static void test_gemm_agrees_at_large_sizes(void)
{
    if (kernels_quick())
        return;
    check_gemm((struct dense){.m = 1024,
                              .n = 768,
                              .k = 3072,
                              .trans_b = 1,
                              .type = OPS_BF16,
                              .c_type = OPS_BF16,
                              .bias = 1,
                              .alpha = 1.0f});
    check_gemm((struct dense){.m = 1024,
                              .n = 3072,
                              .k = 768,
                              .trans_b = 1,
                              .type = OPS_BF16,
                              .c_type = OPS_BF16,
                              .bias = 1,
                              .aux = 1,
                              .act = OPS_ACT_GELU,
                              .alpha = 1.0f});
    check_gemm((struct dense){.m = 768,
                              .n = 1024,
                              .k = 2048,
                              .trans_a = 1,
                              .type = OPS_BF16,
                              .c_type = OPS_F32,
                              .alpha = 1.0f,
                              .beta = 1.0f});
}

static void test_gemm_without_depth_only_scales_and_without_beta_reads_nothing(void)
{
    float before[2] = {NAN, 4.0f}, a = 2.0f, b = 3.0f, after[2];
    struct buffer c = kernels_bytes(before, sizeof(before)), x = kernels_bytes(&a, sizeof(a)),
                  y = kernels_bytes(&b, sizeof(b));
    struct op_gemm product = {
        .a = x.at[1], .b = y.at[1], .c = c.at[1], .m = 1, .n = 1, .k = 1, .alpha = 1.0f};
    struct op_gemm scale = {.c = (float *)c.at[1] + 1, .m = 1, .n = 1, .alpha = 1.0f, .beta = 0.5f};

    KERNELS_RUN(gemm, ON_DEVICE, product);
    KERNELS_RUN(gemm, ON_DEVICE, scale);
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(kernels_stream));
    TEST_ASSERT_EQUAL_INT(0, cudaMemcpy(after, c.at[1], sizeof(after), cudaMemcpyDeviceToHost));
    TEST_ASSERT_EQUAL_FLOAT(6.0f, after[0]);
    TEST_ASSERT_EQUAL_FLOAT(2.0f, after[1]);
}

static void test_a_plain_product_of_more_rows_than_a_grid_has_blocks_along_y(void)
{
    const int rows = 65535 * 64 + 1;
    struct buffer c = kernels_random(OPS_F32, (size_t)rows, 1.0f);

    for (int side = 0; side < KERNELS_SIDES; side++) {
        struct op_gemm scale = {.c = c.at[side], .m = rows, .n = 1, .alpha = 1.0f, .beta = 0.5f};

        KERNELS_RUN(gemm, side, scale);
    }
    kernels_expect_close(&c, OPS_F32, (size_t)rows, kernels_limit(OPS_F32), "a plain product of many rows");
    kernels_free_all();
}

/* The trials must damage neither what a product adds to nor a capture. The first use adds; the last one adds
 * with what was chosen in between. */
static void test_tuned_products_agree(void)
{
    static const enum ops_act acts[] = {OPS_ACT_NONE, OPS_ACT_GELU};

    kernels_ops->tune = 1;
    for (int type = OPS_F32; type <= OPS_F16; type++) {
        struct dense d = {.m = 144,
                          .n = 136,
                          .k = 520,
                          .trans_a = 1,
                          .type = (enum ops_type)type,
                          .c_type = OPS_F32,
                          .alpha = 1.0f};

        d.beta = 1.0f;
        check_gemm(d);
        d.beta = 0.0f;
        check_gemm(d);
        d.beta = 1.0f;
        check_gemm(d);
        for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
            check_gemm((struct dense){.m = 264,
                                      .n = 72,
                                      .k = 136,
                                      .trans_b = 1,
                                      .type = (enum ops_type)type,
                                      .c_type = (enum ops_type)type,
                                      .act = acts[i],
                                      .bias = 1,
                                      .aux = acts[i] == OPS_ACT_GELU,
                                      .alpha = 1.0f});
    }
    kernels_ops->tune = 0;
}

static void test_a_product_is_not_tuned_in_a_capture(void)
{
    enum { SIDE = 88 };
    struct buffer a = kernels_random(OPS_BF16, (size_t)SIDE * SIDE, 1.0f),
                  c = kernels_random(OPS_BF16, (size_t)SIDE * SIDE, 1.0f), workspace = kernels_workspace();
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;

    kernels_ops->tune = 1;
    TEST_ASSERT_EQUAL_INT(0, cudaStreamBeginCapture(kernels_stream, cudaStreamCaptureModeRelaxed));
    for (int side = 0; side < KERNELS_SIDES; side++) {
        struct op_gemm g = {.a = a.at[side],
                            .b = a.at[side],
                            .c = c.at[side],
                            .type = OPS_BF16,
                            .c_type = OPS_BF16,
                            .m = SIDE,
                            .n = SIDE,
                            .k = SIDE,
                            .alpha = 1.0f,
                            .workspace = workspace.at[side],
                            .workspace_bytes = workspace.bytes};

        KERNELS_RUN(gemm, side, g);
    }
    TEST_ASSERT_EQUAL_INT(0, cudaStreamEndCapture(kernels_stream, &graph));
    TEST_ASSERT_EQUAL_INT(0, cudaGraphInstantiate(&ready, graph, 0));
    TEST_ASSERT_EQUAL_INT(0, cudaGraphLaunch(ready, kernels_stream));
    kernels_expect_close(&c, OPS_BF16, (size_t)SIDE * SIDE, kernels_limit(OPS_BF16), "in a capture");
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    kernels_free_all();
    kernels_ops->tune = 0;
}

static void check_bias_act(int rows, int cols, enum ops_type type, enum ops_act act, int workspace_used)
{
    size_t count = (size_t)rows * (size_t)cols;
    struct buffer x = kernels_random(type, count, 2.0f), y = kernels_random(type, count, 1.0f);
    struct buffer bias = kernels_random(type, (size_t)cols, 1.0f), dy = kernels_random(type, count, 1.0f);
    struct buffer dx = kernels_random(type, count, 1.0f), dbias = kernels_random(OPS_F32, (size_t)cols, 1.0f);
    struct buffer workspace = kernels_workspace();
    char what[128];

    for (int side = 0; side < KERNELS_SIDES; side++) {
        struct op_bias_act_forward forward = {x.at[side], bias.at[side], y.at[side], type, act, rows, cols};
        struct op_bias_act_backward backward = {.dy = dy.at[side],
                                                .saved = act == OPS_ACT_GELU ? x.at[side] : y.at[side],
                                                .dx = dx.at[side],
                                                .dbias = dbias.at[side],
                                                .type = type,
                                                .act = act,
                                                .rows = rows,
                                                .cols = cols,
                                                .accumulate = 1,
                                                .workspace = workspace_used ? workspace.at[side] : NULL,
                                                .workspace_bytes = workspace_used ? workspace.bytes : 0};

        KERNELS_RUN(bias_act_forward, side, forward);
        KERNELS_RUN(bias_act_backward, side, backward);
        backward.dx = dy.at[side], backward.dbias = NULL;
        KERNELS_RUN(bias_act_backward, side, backward);
    }
    snprintf(what, sizeof(what), "type %d, act %d, %dx%d", (int)type, (int)act, rows, cols);
    kernels_expect_close(&y, type, count, kernels_limit(type), what);
    /* Where the two sides round y to 0 or just above it, the slope of relu jumps: dx may then differ. */
    if (act != OPS_ACT_RELU)
        kernels_expect_close(&dx, type, count, kernels_limit(type), what);
    kernels_expect_close(&dbias, OPS_F32, (size_t)cols, kernels_limit(type), what);
    kernels_expect_close(&dy, type, count, kernels_limit(type), what);
    kernels_free_all();
}

static void test_bias_and_activation_agree_in_both_directions(void)
{
    static const int shape[][2] = {{1, 1}, {7, 5}, {64, 96}, {33, 257}, {1000, 768}, {3000, 10}};

    for (size_t s = 0; s < sizeof(shape) / sizeof(shape[0]); s++) {
        for (int type = OPS_F32; type <= OPS_F16; type++) {
            for (int act = OPS_ACT_NONE; act <= OPS_ACT_GELU; act++)
                check_bias_act(shape[s][0], shape[s][1], (enum ops_type)type, (enum ops_act)act,
                               (int)s % 2 == 0);
        }
    }
    kernels_shift = 3;
    check_bias_act(40, 64, OPS_BF16, OPS_ACT_GELU, 1);
}

static void test_a_product_repeats_to_the_bit(void)
{
    enum { M = 200, N = 152, K = 712 };
    struct buffer a = kernels_random(OPS_BF16, (size_t)M * K, 1.0f),
                  b = kernels_random(OPS_BF16, (size_t)K * N, 1.0f);
    struct buffer c = kernels_random(OPS_F32, (size_t)M * N, 1.0f), workspace = kernels_workspace();
    struct op_gemm g = {.a = a.at[1],
                        .b = b.at[1],
                        .c = c.at[1],
                        .type = OPS_BF16,
                        .c_type = OPS_F32,
                        .m = M,
                        .n = N,
                        .k = K,
                        .alpha = 1.0f,
                        .workspace = workspace.at[1],
                        .workspace_bytes = workspace.bytes};

    KERNELS_RUN(gemm, ON_DEVICE, g);
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(kernels_stream));
    TEST_ASSERT_EQUAL_INT(0, cudaMemcpy(c.at[0], c.at[1], c.bytes, cudaMemcpyDeviceToHost));
    KERNELS_RUN(gemm, ON_DEVICE, g);
    kernels_expect_same(&c, "c");
}

int main(void)
{
    int status = kernels_open();

    if (status)
        return status;
    UNITY_BEGIN();
    RUN_TEST(test_gemm_agrees_for_all_transposes_types_and_odd_shapes);
    RUN_TEST(test_gemm_agrees_with_every_epilogue);
    RUN_TEST(test_gemm_agrees_for_batches_and_tf32);
    RUN_TEST(test_gemm_agrees_at_large_sizes);
    RUN_TEST(test_gemm_without_depth_only_scales_and_without_beta_reads_nothing);
    RUN_TEST(test_a_plain_product_of_more_rows_than_a_grid_has_blocks_along_y);
    RUN_TEST(test_tuned_products_agree);
    RUN_TEST(test_a_product_is_not_tuned_in_a_capture);
    RUN_TEST(test_bias_and_activation_agree_in_both_directions);
    RUN_TEST(test_a_product_repeats_to_the_bit);
    return kernels_close(UNITY_END());
}
