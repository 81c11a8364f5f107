/* Attention on the GPU against the CPU reference, forward and backward: the tensor-core kernels and the plain
 * ones, odd lengths, every dim that is treated apart, causal and not; and that a run repeats to the bit. */
#include "kernels_support.h"

#include <stdio.h>
#include <stdlib.h>

struct shape {
    int batch, length, heads, dim, causal;
};

struct buffers {
    struct buffer qkv, out, lse, dout, dqkv, delta;
};

static struct buffers make_buffers(const struct shape *s, enum ops_type type)
{
    size_t rows = (size_t)s->batch * (size_t)s->length, width = (size_t)s->heads * (size_t)s->dim;
    size_t statistics = rows * (size_t)s->heads;

    return (struct buffers){
        .qkv = kernels_random(type, rows * 3 * width, 1.5f),
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

static void check(struct shape s, enum ops_type type)
{
    struct buffers b = make_buffers(&s, type);
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

static void test_attention_agrees_at_addresses_that_packs_cannot_use(void)
{
    kernels_shift = 1;
    check((struct shape){.batch = 1, .length = 70, .heads = 2, .dim = 64, .causal = 1}, OPS_BF16);
}

static void test_attention_agrees_at_full_size(void)
{
    if (kernels_quick())
        return;
    check((struct shape){.batch = 1, .length = 1024, .heads = 12, .dim = 64, .causal = 1}, OPS_BF16);
    check((struct shape){.batch = 1, .length = 1000, .heads = 4, .dim = 128, .causal = 1}, OPS_F16);
}

static void test_attention_repeats_to_the_bit(void)
{
    struct shape s = {.batch = 2, .length = 300, .heads = 4, .dim = 64, .causal = 1};
    struct buffers b = make_buffers(&s, OPS_BF16);

    run(&s, OPS_BF16, &b, ON_DEVICE);
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(kernels_stream));
    TEST_ASSERT_EQUAL_INT(
        0, cudaMemcpy(b.dqkv.at[ON_HOST], b.dqkv.at[ON_DEVICE], b.dqkv.bytes, cudaMemcpyDeviceToHost));
    TEST_ASSERT_EQUAL_INT(
        0, cudaMemcpy(b.out.at[ON_HOST], b.out.at[ON_DEVICE], b.out.bytes, cudaMemcpyDeviceToHost));
    run(&s, OPS_BF16, &b, ON_DEVICE);
    kernels_expect_same(&b.out, "out");
    kernels_expect_same(&b.dqkv, "dqkv");
}

int main(void)
{
    int status = kernels_open();

    if (status)
        return status;
    UNITY_BEGIN();
    RUN_TEST(test_attention_agrees_for_odd_lengths);
    RUN_TEST(test_attention_agrees_for_every_dim);
    RUN_TEST(test_attention_agrees_at_addresses_that_packs_cannot_use);
    RUN_TEST(test_attention_agrees_at_full_size);
    RUN_TEST(test_attention_repeats_to_the_bit);
    return kernels_close(UNITY_END());
}
