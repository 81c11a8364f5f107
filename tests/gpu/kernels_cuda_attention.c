/* Attention on the GPU against the CPU reference, forward and backward: the tensor-core kernels, the tiled
 * ones of floats and the plain ones, odd lengths, every dim that is treated apart, causal and not, scores
 * whose exponentials no float holds; and that a run repeats to the bit. */
#include "kernels_support.h"

#include <stdio.h>
#include <stdlib.h>

/* Values of qkv unless a test says otherwise. */
static const float USUAL = 1.5f;

struct shape {
    int batch, length, heads, dim, causal;
};

struct buffers {
    struct buffer qkv, out, lse, dout, dqkv, delta;
};

static struct buffers make_buffers(const struct shape *s, enum ops_type type, float scale)
{
    size_t rows = (size_t)s->batch * (size_t)s->length, width = (size_t)s->heads * (size_t)s->dim;
    size_t statistics = rows * (size_t)s->heads;

    return (struct buffers){
        .qkv = kernels_random(type, rows * 3 * width, scale),
        .out = kernels_random(type, rows * width, 1.0f),
        .lse = kernels_random(OPS_F32, statistics, 1.0f),
        .dout = kernels_random(type, rows * width, 1.0f),
        .dqkv = kernels_random(type, rows * 3 * width, 1.0f),
        .delta = kernels_random(OPS_F32, statistics, 1.0f),
    };
}

static void run(const struct shape *s, enum ops_type type, const struct buffers *b, enum kernels_side side)
{
    struct op_attention_forward forward = {.qkv = b->qkv.at[side],
                                           .out = b->out.at[side],
                                           .lse = b->lse.at[side],
                                           .type = type,
                                           .batch = s->batch,
                                           .length = s->length,
                                           .heads = s->heads,
                                           .dim = s->dim,
                                           .causal = s->causal};
    struct op_attention_backward backward = {.qkv = b->qkv.at[side],
                                             .out = b->out.at[side],
                                             .dout = b->dout.at[side],
                                             .lse = b->lse.at[side],
                                             .dqkv = b->dqkv.at[side],
                                             .delta = b->delta.at[side],
                                             .type = type,
                                             .batch = s->batch,
                                             .length = s->length,
                                             .heads = s->heads,
                                             .dim = s->dim,
                                             .causal = s->causal};

    KERNELS_RUN(attention_forward, side, forward);
    KERNELS_RUN(attention_backward, side, backward);
}

static void check_scaled(struct shape s, enum ops_type type, float scale)
{
    struct buffers b = make_buffers(&s, type, scale);
    size_t rows = (size_t)s.batch * (size_t)s.length, width = (size_t)s.heads * (size_t)s.dim;
    /* The tensor cores take probabilities as 16 bits too. In the gradients, out as 16 bits limits both sides:
     * it makes delta, which is subtracted. */
    double limit = type == OPS_F32 ? 1e-4 : 2.5 * kernels_limit(type);
    char what[128];

    run(&s, type, &b, ON_HOST);
    run(&s, type, &b, ON_DEVICE);
    snprintf(what, sizeof(what), "type %d, %dx%d, %d heads of %d, causal %d: out", (int)type, s.batch,
             s.length, s.heads, s.dim, s.causal);
    kernels_expect_close(&b.out, type, rows * width, limit, what);
    kernels_expect_close(&b.lse, OPS_F32, rows * (size_t)s.heads, 1e-3, "lse");
    snprintf(what, sizeof(what), "type %d, %dx%d, %d heads of %d, causal %d: dqkv", (int)type, s.batch,
             s.length, s.heads, s.dim, s.causal);
    kernels_expect_rows_close(&b.dqkv, type, rows * 3 * width, (size_t)s.dim, 2 * limit, what);
    kernels_free_all();
}

static void check(struct shape s, enum ops_type type)
{
    check_scaled(s, type, USUAL);
}

static void check_types(struct shape s)
{
    for (int type = OPS_F32; type <= OPS_F16; type++) {
        for (s.causal = 0; s.causal < 2; s.causal++)
            check(s, (enum ops_type)type);
    }
}

static void test_attention_agrees_for_odd_lengths(void)
{
    static const int lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 130, 200};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        check_types((struct shape){.batch = 2, .length = lengths[i], .heads = 3, .dim = 64});
}

static void test_attention_agrees_for_every_dim(void)
{
    static const int dims[] = {1, 7, 16, 32, 48, 64, 100, 128};

    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        check_types((struct shape){.batch = 1, .length = 150, .heads = 2, .dim = dims[i]});
}

/* Around every edge of the tiles of floats: steps of 32, warps of 16 or 32 rows, blocks of 64 or 128. */
static void test_attention_of_floats_agrees_around_tiles(void)
{
    static const int dims[] = {32, 64, 128};
    static const int lengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130, 200, 257};

    for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++) {
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            struct shape s = {.batch = 1 + (int)i % 2, .length = lengths[i], .heads = 3, .dim = dims[d]};

            for (s.causal = 0; s.causal < 2; s.causal++)
                check(s, OPS_F32);
        }
    }
}

/* Scores have a standard deviation of 33 and reach 100, where exp is more than the largest float. */
static void test_attention_agrees_where_exponentials_would_overflow(void)
{
    static const int dims[] = {32, 48, 64, 128};

    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        struct shape s = {.batch = 2, .length = 200, .heads = 2, .dim = dims[i]};

        for (s.causal = 0; s.causal < 2; s.causal++)
            check_scaled(s, OPS_F32, 10.0f);
    }
}

static void test_attention_agrees_at_addresses_that_packs_cannot_use(void)
{
    kernels_shift = 1;
    check((struct shape){.batch = 1, .length = 70, .heads = 2, .dim = 64, .causal = 1}, OPS_BF16);
    check((struct shape){.batch = 1, .length = 70, .heads = 2, .dim = 64, .causal = 1}, OPS_F32);
}

static void test_attention_agrees_at_full_size(void)
{
    if (kernels_quick())
        return;
    check((struct shape){.batch = 1, .length = 1024, .heads = 12, .dim = 64, .causal = 1}, OPS_BF16);
    check((struct shape){.batch = 1, .length = 1000, .heads = 4, .dim = 128, .causal = 1}, OPS_F16);
    check((struct shape){.batch = 1, .length = 1024, .heads = 12, .dim = 64, .causal = 1}, OPS_F32);
}

static void check_repeats(enum ops_type type)
{
    struct shape s = {.batch = 2, .length = 300, .heads = 4, .dim = 64, .causal = 1};
    struct buffers b = make_buffers(&s, type, USUAL);

    run(&s, type, &b, ON_DEVICE);
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(kernels_stream));
    TEST_ASSERT_EQUAL_INT(
        0, cudaMemcpy(b.dqkv.at[ON_HOST], b.dqkv.at[ON_DEVICE], b.dqkv.bytes, cudaMemcpyDeviceToHost));
    TEST_ASSERT_EQUAL_INT(
        0, cudaMemcpy(b.out.at[ON_HOST], b.out.at[ON_DEVICE], b.out.bytes, cudaMemcpyDeviceToHost));
    run(&s, type, &b, ON_DEVICE);
    kernels_expect_same(&b.out, "out");
    kernels_expect_same(&b.dqkv, "dqkv");
    kernels_free_all();
}

static void test_attention_repeats_to_the_bit(void)
{
    check_repeats(OPS_BF16);
    check_repeats(OPS_F32);
}

int main(void)
{
    int status = kernels_open();

    if (status)
        return status;
    UNITY_BEGIN();
    RUN_TEST(test_attention_agrees_for_odd_lengths);
    RUN_TEST(test_attention_agrees_for_every_dim);
    RUN_TEST(test_attention_of_floats_agrees_around_tiles);
    RUN_TEST(test_attention_agrees_where_exponentials_would_overflow);
    RUN_TEST(test_attention_agrees_at_addresses_that_packs_cannot_use);
    RUN_TEST(test_attention_agrees_at_full_size);
    RUN_TEST(test_attention_repeats_to_the_bit);
    return kernels_close(UNITY_END());
}
