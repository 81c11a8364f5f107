/* Layer norm, embedding and the cross-entropy on the GPU against the CPU reference: narrow and wide rows, hot
 * and rare tokens, with and without workspace, aliases that the contract allows. */
#include "kernels_support.h"

#include <stdio.h>

static void check_layernorm(int rows, int cols, enum ops_type type, int residual, int workspace_used)
{
    size_t count = (size_t)rows * (size_t)cols;
    struct buffer x = kernels_random(type, count, 2.0f), r = kernels_random(type, count, 2.0f);
    struct buffer sum = kernels_random(type, count, 1.0f), y = kernels_random(type, count, 1.0f);
    struct buffer gamma = kernels_random(OPS_F32, (size_t)cols, 1.0f),
                  beta = kernels_random(OPS_F32, (size_t)cols, 1.0f);
    struct buffer mean = kernels_random(OPS_F32, (size_t)rows, 1.0f),
                  rstd = kernels_random(OPS_F32, (size_t)rows, 1.0f);
    struct buffer dy = kernels_random(type, count, 1.0f), dsum = kernels_random(type, count, 1.0f);
    struct buffer dgamma = kernels_random(OPS_F32, (size_t)cols, 1.0f),
                  dbeta = kernels_random(OPS_F32, (size_t)cols, 1.0f);
    struct buffer workspace = kernels_workspace();
    char what[128];

    for (int side = 0; side < KERNELS_SIDES; side++) {
        struct op_layernorm_forward forward = {.x = x.at[side],
                                               .residual = residual ? r.at[side] : NULL,
                                               .sum = residual ? sum.at[side] : NULL,
                                               .y = y.at[side],
                                               .gamma = gamma.at[side],
                                               .beta = beta.at[side],
                                               .mean = mean.at[side],
                                               .rstd = rstd.at[side],
                                               .type = type,
                                               .rows = rows,
                                               .cols = cols,
                                               .epsilon = 1e-5f};
        struct op_layernorm_backward backward = {.dy = dy.at[side],
                                                 .dsum = residual ? dsum.at[side] : NULL,
                                                 .x = residual ? sum.at[side] : x.at[side],
                                                 .dx = residual ? dsum.at[side] : dy.at[side],
                                                 .gamma = gamma.at[side],
                                                 .mean = mean.at[side],
                                                 .rstd = rstd.at[side],
                                                 .dgamma = dgamma.at[side],
                                                 .dbeta = dbeta.at[side],
                                                 .type = type,
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .accumulate = residual,
                                                 .workspace = workspace_used ? workspace.at[side] : NULL,
                                                 .workspace_bytes = workspace_used ? workspace.bytes : 0};

        KERNELS_RUN(layernorm_forward, side, forward);
        KERNELS_RUN(layernorm_backward, side, backward);
    }
    snprintf(what, sizeof(what), "type %d, %dx%d, residual %d, workspace %d", (int)type, rows, cols, residual,
             workspace_used);
    /* One or two columns: the gradients cancel, and rounding is all there is. */
    if (cols > 2) {
        kernels_expect_close(&y, type, count, kernels_limit(type), what);
        kernels_expect_close(residual ? &dsum : &dy, type, count, 5 * kernels_limit(type), what);
        kernels_expect_close(&dgamma, OPS_F32, (size_t)cols, 1e-3, what);
    }
    kernels_expect_close(&sum, type, count, kernels_limit(type), what);
    kernels_expect_close(&mean, OPS_F32, (size_t)rows, 1e-5, what);
    kernels_expect_close(&dbeta, OPS_F32, (size_t)cols, 1e-4, what);
    kernels_free_all();
}

static void test_layernorm_agrees_in_both_directions(void)
{
    static const int shape[][2] = {{1, 1},     {3, 2},    {5, 31},    {70, 256}, {40, 500},
                                   {300, 768}, {9, 1024}, {17, 1030}, {50, 4096}};

    for (size_t s = 0; s < sizeof(shape) / sizeof(shape[0]); s++) {
        for (int type = OPS_F32; type <= OPS_F16; type++) {
            check_layernorm(shape[s][0], shape[s][1], (enum ops_type)type, 0, 1);
            check_layernorm(shape[s][0], shape[s][1], (enum ops_type)type, 1, 0);
        }
    }
    check_layernorm(2000, 768, OPS_BF16, 1, 1);
    kernels_shift = 1;
    check_layernorm(20, 768, OPS_BF16, 1, 1);
}

/* workspace_bytes: of the workspace; 0: none. */
static void check_embedding(int rows, int length, int cols, int vocabulary, int used, enum ops_type type,
                            size_t workspace_bytes)
{
    size_t count = (size_t)rows * (size_t)cols, table_count = (size_t)vocabulary * (size_t)cols;
    struct buffer tokens = kernels_tokens((size_t)rows, 0, used - 1);
    struct buffer table = kernels_random(type, table_count, 1.0f);
    struct buffer positions = kernels_random(type, (size_t)length * (size_t)cols, 1.0f),
                  out = kernels_random(type, count, 1.0f);
    struct buffer dout = kernels_random(type, count, 1.0f),
                  dtable = kernels_random(OPS_F32, table_count, 1.0f);
    struct buffer dpositions = kernels_random(OPS_F32, (size_t)length * (size_t)cols, 1.0f),
                  workspace = kernels_workspace();
    char what[128];

    for (int side = 0; side < KERNELS_SIDES; side++) {
        struct op_embedding_forward forward = {
            tokens.at[side], table.at[side], positions.at[side], out.at[side], type, rows, cols,
            length,          vocabulary};
        struct op_embedding_backward backward = {
            .tokens = tokens.at[side],
            .dout = dout.at[side],
            .dtokens_table = dtable.at[side],
            .dpositions_table = dpositions.at[side],
            .type = type,
            .rows = rows,
            .cols = cols,
            .length = length,
            .vocabulary = vocabulary,
            .accumulate = workspace_bytes > 0,
            .workspace = workspace_bytes ? workspace.at[side] : NULL,
            .workspace_bytes = workspace_bytes < workspace.bytes ? workspace_bytes : workspace.bytes};

        KERNELS_RUN(embedding_forward, side, forward);
        KERNELS_RUN(embedding_backward, side, backward);
    }
    snprintf(what, sizeof(what), "type %d, %d rows of %d, %d of %d tokens, workspace %zu", (int)type, rows,
             cols, used, vocabulary, workspace_bytes);
    kernels_expect_close(&out, type, count, kernels_limit(type), what);
    kernels_expect_close(&dtable, OPS_F32, table_count, 1e-4, what);
    kernels_expect_close(&dpositions, OPS_F32, (size_t)length * (size_t)cols, 1e-4, what);
    kernels_free_all();
}

static void test_embedding_agrees_in_both_directions(void)
{
    static const size_t workspaces[] = {0, 1, SIZE_MAX};

    for (int type = OPS_F32; type <= OPS_F16; type++) {
        for (int i = 0; i < 3; i++) {
            check_embedding(1, 1, 1, 1, 1, (enum ops_type)type, workspaces[i]);
            check_embedding(33, 11, 7, 5, 5, (enum ops_type)type, workspaces[i]);
            check_embedding(500, 100, 64, 1000, 1000, (enum ops_type)type, workspaces[i]);
            check_embedding(600, 100, 96, 256, 3, (enum ops_type)type, workspaces[i]);
            check_embedding(320, 64, 768, 40, 1, (enum ops_type)type, workspaces[i]);
        }
    }
    if (!kernels_quick())
        check_embedding(8192, 1024, 768, 5000, 200, OPS_BF16, SIZE_MAX);
}

/* A workspace that cannot hold all rows: slices of them, the last one shorter, with tokens that go over
 * several. */
static void test_embedding_goes_by_slices_where_the_workspace_is_small(void)
{
    check_embedding(10007, 1, 16, 500, 500, OPS_F32, 200000);
    check_embedding(10007, 100, 24, 3, 2, OPS_BF16, 200000);
    check_embedding(9000, 50, 8, 1 << 20, 1 << 20, OPS_F32, 150000);
    if (!kernels_quick())
        check_embedding(400000, 1024, 64, 50304, 50304, OPS_BF16, (size_t)4 << 20);
}

/* The same input gives the same bits, whatever the workspace held, also where one token is most of the rows.
 */
static void test_embedding_backward_repeats_to_the_bit(void)
{
    enum { ROWS = 20000, COLS = 40, VOCABULARY = 300, TIMES = 3 };
    struct buffer tokens = kernels_tokens(ROWS, 0, VOCABULARY - 1), workspace = kernels_workspace();
    struct buffer dout = kernels_random(OPS_F32, ROWS * COLS, 1.0f);
    struct buffer tables = kernels_random(OPS_F32, 2 * VOCABULARY * COLS, 1.0f);
    size_t bytes = VOCABULARY * COLS * sizeof(float);
    static float results[TIMES][VOCABULARY * COLS];
    static int32_t zeros[ROWS / 2];

    TEST_ASSERT_EQUAL_INT(0, kernels_upload(tokens.at[ON_DEVICE], zeros, sizeof(zeros)));
    for (int i = 0; i < TIMES; i++) {
        struct op_embedding_backward backward = {.tokens = tokens.at[ON_DEVICE],
                                                 .dout = dout.at[ON_DEVICE],
                                                 .dtokens_table = tables.at[ON_DEVICE],
                                                 .type = OPS_F32,
                                                 .rows = ROWS,
                                                 .cols = COLS,
                                                 .length = ROWS,
                                                 .vocabulary = VOCABULARY,
                                                 .workspace = workspace.at[ON_DEVICE],
                                                 .workspace_bytes = workspace.bytes};

        TEST_ASSERT_EQUAL_INT(0, cudaMemset(workspace.at[ON_DEVICE], 17 * i, workspace.bytes));
        KERNELS_RUN(embedding_backward, ON_DEVICE, backward);
        TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(kernels_stream));
        TEST_ASSERT_EQUAL_INT(0, cudaMemcpy(results[i], tables.at[ON_DEVICE], bytes, cudaMemcpyDeviceToHost));
        TEST_ASSERT_EQUAL_MEMORY(results[0], results[i], bytes);
    }
    kernels_free_all();
}

static void check_xent(int rows, int cols, enum ops_type type, float spread, int least)
{
    size_t count = (size_t)rows * (size_t)cols;
    float scale_by = 8.0f;
    struct buffer logits = kernels_random(type, count, spread),
                  labels = kernels_tokens((size_t)rows, least, cols - 1);
    struct buffer losses = kernels_random(OPS_F32, (size_t)rows, 1.0f),
                  lse = kernels_random(OPS_F32, (size_t)rows, 1.0f);
    struct buffer factor = kernels_bytes(&scale_by, sizeof(scale_by)),
                  total = kernels_bytes(NULL, 3 * sizeof(float));
    char what[128];

    for (int side = 0; side < KERNELS_SIDES; side++) {
        struct op_softmax_xent_forward forward = {
            logits.at[side], labels.at[side], losses.at[side], lse.at[side], type, rows, cols};
        struct op_evaluate evaluate = {
            losses.at[side], logits.at[side], labels.at[side], total.at[side], type, rows, cols};
        struct op_softmax_xent_backward backward = {.logits = logits.at[side],
                                                    .labels = labels.at[side],
                                                    .lse = lse.at[side],
                                                    .dlogits = logits.at[side],
                                                    .type = type,
                                                    .rows = rows,
                                                    .cols = cols,
                                                    .scale = 1.0f / (float)rows,
                                                    .scale_by = factor.at[side]};

        KERNELS_RUN(softmax_xent_forward, side, forward);
        KERNELS_RUN(evaluate, side, evaluate);
        KERNELS_RUN(softmax_xent_backward, side, backward);
    }
    snprintf(what, sizeof(what), "type %d, %dx%d, logits to %g", (int)type, rows, cols, (double)spread);
    kernels_expect_close(&losses, OPS_F32, (size_t)rows, 1e-4, what);
    kernels_expect_close(&lse, OPS_F32, (size_t)rows, 1e-4, what);
    kernels_expect_close(&total, OPS_F32, 3, 1e-5, what);
    kernels_expect_close(&logits, type, count, type == OPS_F32 ? 2e-4 : kernels_limit(type), what);
    kernels_free_all();
}

static void test_cross_entropy_and_evaluation_agree(void)
{
    for (int type = OPS_F32; type <= OPS_F16; type++) {
        check_xent(1, 1, (enum ops_type)type, 1.0f, 0);
        check_xent(64, 10, (enum ops_type)type, 4.0f, -2);
        check_xent(13, 1000, (enum ops_type)type, 20.0f, 0);
        check_xent(500, 33, (enum ops_type)type, 100.0f, -3);
        check_xent(7, 2048, (enum ops_type)type, 5.0f, 0);
        check_xent(5, 50257, (enum ops_type)type, 10.0f, 0);
    }
    check_xent(20, 50304, OPS_BF16, 10.0f, -1000);
}

int main(void)
{
    int status = kernels_open();

    if (status)
        return status;
    UNITY_BEGIN();
    RUN_TEST(test_layernorm_agrees_in_both_directions);
    RUN_TEST(test_embedding_agrees_in_both_directions);
    RUN_TEST(test_embedding_goes_by_slices_where_the_workspace_is_small);
    RUN_TEST(test_embedding_backward_repeats_to_the_bit);
    RUN_TEST(test_cross_entropy_and_evaluation_agree);
    return kernels_close(UNITY_END());
}
