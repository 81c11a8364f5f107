/* The elements, the update and the smaller models on the GPU against the CPU reference: parameters of many
 * sizes in one call, bad gradients, loss scaling, copies in every type; operations whose every bit is given
 * must agree to the bit. */
#include "kernels_support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARAMS = 9 };

static const uint64_t param_counts[PARAMS] = {1, 3, 64, 1000, 16384, 16385, 100003, 5, 40000};

struct update {
    struct buffer weight[PARAMS], first[PARAMS], second[PARAMS], grad[PARAMS], copy[PARAMS];
    struct buffer params, scalars;
    uint64_t largest;
};

static struct update make_update(enum ops_type copy_type)
{
    struct ops_param host[PARAMS], device[PARAMS];
    struct ops_scalars scalars = {.rate = 0.01f, .scale = 4.0f, .step = 2};
    struct update u = {.largest = 100003};

    memset(host, 0, sizeof(host));
    for (int p = 0; p < PARAMS; p++) {
        size_t count = param_counts[p];

        kernels_shift = p % 3 == 2; /* addresses that packs cannot use, too */
        u.weight[p] = kernels_random(OPS_F32, count, 1.0f);
        u.first[p] = kernels_random(OPS_F32, count, 1.0f);
        u.second[p] = kernels_positive(count, 0.01f, 1.0f);
        u.grad[p] = kernels_random(OPS_F32, count, 1.0f);
        u.copy[p] = kernels_random(copy_type, count, 1.0f);
        host[p] = (struct ops_param){u.weight[p].at[0],
                                     u.first[p].at[0],
                                     u.second[p].at[0],
                                     u.grad[p].at[0],
                                     p == 4 ? NULL : u.copy[p].at[0],
                                     count,
                                     p % 2 ? 1.0f : 0.0f,
                                     p % 2};
        device[p] = (struct ops_param){u.weight[p].at[1],
                                       u.first[p].at[1],
                                       u.second[p].at[1],
                                       u.grad[p].at[1],
                                       p == 4 ? NULL : u.copy[p].at[1],
                                       count,
                                       p % 2 ? 1.0f : 0.0f,
                                       p % 2};
    }
    kernels_shift = 0;
    u.params = kernels_bytes(host, sizeof(host));
    TEST_ASSERT_EQUAL_INT(0, kernels_upload(u.params.at[ON_DEVICE], device, sizeof(device)));
    u.scalars = kernels_bytes(&scalars, sizeof(scalars));
    return u;
}

static void run_begin(const struct update *u, int side, float clip, const struct buffer *workspace)
{
    struct op_grad_check check = {.params = u->params.at[side],
                                  .scalars = u->scalars.at[side],
                                  .count = PARAMS,
                                  .largest = u->largest,
                                  .workspace = workspace ? workspace->at[side] : NULL,
                                  .workspace_bytes = workspace ? workspace->bytes : 0};
    struct op_step_begin begin = {.scalars = u->scalars.at[side],
                                  .clip = clip,
                                  .dynamic = 1,
                                  .growth = 2,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.999f};

    KERNELS_RUN(grad_check, side, check);
    KERNELS_RUN(step_begin, side, begin);
}

static void expect_scalars(const struct update *u)
{
    const struct ops_scalars *host = u->scalars.at[ON_HOST];
    struct ops_scalars device;

    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(kernels_stream));
    TEST_ASSERT_EQUAL_INT(
        0, cudaMemcpy(&device, u->scalars.at[ON_DEVICE], sizeof(device), cudaMemcpyDeviceToHost));
    TEST_ASSERT_EQUAL_UINT64(host->step, device.step);
    TEST_ASSERT_EQUAL_FLOAT(host->scale, device.scale);
    TEST_ASSERT_EQUAL_FLOAT(host->found_bad, device.found_bad);
    TEST_ASSERT_EQUAL_FLOAT(host->good_steps, device.good_steps);
    TEST_ASSERT_EQUAL_FLOAT(host->skipped, device.skipped);
    TEST_ASSERT_EQUAL_UINT64(host->bad_step, device.bad_step);
    if (host->found_bad == 0.0f) {
        TEST_ASSERT_FLOAT_WITHIN(1e-5f * host->norm, host->norm, device.norm);
        TEST_ASSERT_FLOAT_WITHIN(1e-5f * host->multiplier, host->multiplier, device.multiplier);
        TEST_ASSERT_FLOAT_WITHIN(1e-6f, host->correction1, device.correction1);
        TEST_ASSERT_FLOAT_WITHIN(1e-6f, host->correction2, device.correction2);
    }
}

static void expect_parameters(const struct update *u, enum ops_type copy_type)
{
    for (int p = 0; p < PARAMS; p++) {
        kernels_expect_close(&u->weight[p], OPS_F32, param_counts[p], 1e-5, "weight");
        kernels_expect_close(&u->first[p], OPS_F32, param_counts[p], 1e-5, "first");
        kernels_expect_close(&u->second[p], OPS_F32, param_counts[p], 1e-5, "second");
        kernels_expect_close(&u->copy[p], copy_type, param_counts[p], kernels_limit(copy_type), "copy");
    }
}

static void test_adamw_and_sgd_agree_over_all_parameters(void)
{
    for (int type = OPS_F32; type <= OPS_F16; type++) {
        struct update u = make_update((enum ops_type)type);
        struct buffer workspace = kernels_workspace();

        for (int side = 0; side < KERNELS_SIDES; side++) {
            struct op_adamw adamw = {.params = u.params.at[side],
                                     .scalars = u.scalars.at[side],
                                     .count = PARAMS,
                                     .largest = u.largest,
                                     .copy_type = (enum ops_type)type,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.999f,
                                     .epsilon = 1e-8f,
                                     .decay = 0.1f,
                                     .decoupled = 1};
            struct op_sgd sgd = {.params = u.params.at[side],
                                 .scalars = u.scalars.at[side],
                                 .count = PARAMS,
                                 .largest = u.largest,
                                 .copy_type = (enum ops_type)type,
                                 .momentum = 0.9f,
                                 .decay = 0.01f};

            for (int p = 0; p < PARAMS; p++) {
                struct op_prune prune = {u.weight[p].at[side], param_counts[p], 0.3f};

                KERNELS_RUN(prune, side, prune); /* zeros, which stay where keep_zeros is set */
            }
            run_begin(&u, side, 1.0f, &workspace);
            KERNELS_RUN(adamw, side, adamw);
            adamw.decoupled = 0;
            KERNELS_RUN(adamw, side, adamw);
            run_begin(&u, side, 0.0f, NULL);
            KERNELS_RUN(sgd, side, sgd);
        }
        expect_scalars(&u);
        expect_parameters(&u, (enum ops_type)type);
        kernels_free_all();
    }
}

static void test_a_bad_gradient_leaves_the_update_out(void)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (size_t b = 0; b < sizeof(bad) / sizeof(bad[0]); b++) {
        struct update u = make_update(OPS_BF16);
        struct buffer workspace = kernels_workspace();
        size_t place = b == 0 ? 100002 : b; /* the last element of the largest, then of a small one */
        int param = b == 0 ? 6 : 1;

        ((float *)u.grad[param].at[ON_HOST])[place] = bad[b];
        TEST_ASSERT_EQUAL_INT(
            0, kernels_upload((float *)u.grad[param].at[ON_DEVICE] + place, &bad[b], sizeof(float)));
        for (int side = 0; side < KERNELS_SIDES; side++) {
            struct op_adamw adamw = {.params = u.params.at[side],
                                     .scalars = u.scalars.at[side],
                                     .count = PARAMS,
                                     .largest = u.largest,
                                     .copy_type = OPS_BF16};

            run_begin(&u, side, 1.0f, &workspace);
            KERNELS_RUN(adamw, side, adamw);
        }
        TEST_ASSERT_EQUAL_FLOAT(1.0f, ((struct ops_scalars *)u.scalars.at[ON_HOST])->found_bad);
        expect_scalars(&u);
        for (int p = 0; p < PARAMS; p++)
            kernels_expect_same(&u.weight[p], "weight");
        kernels_free_all();
    }
}

/* Without grad_check: the update itself notices it, wherever it is. */
static void test_the_update_notes_a_gradient_that_is_not_finite(void)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (int p = 0; p < PARAMS; p++) {
        struct update u = make_update(OPS_BF16);
        size_t place = p % 2 ? 0 : param_counts[p] - 1;
        float value = bad[p % 3];

        ((float *)u.grad[p].at[ON_HOST])[place] = value;
        TEST_ASSERT_EQUAL_INT(
            0, kernels_upload((float *)u.grad[p].at[ON_DEVICE] + place, &value, sizeof(value)));
        for (int side = 0; side < KERNELS_SIDES; side++) {
            struct op_step_begin begin = {.scalars = u.scalars.at[side], .beta1 = 0.9f, .beta2 = 0.999f};
            struct op_adamw adamw = {.params = u.params.at[side],
                                     .scalars = u.scalars.at[side],
                                     .count = PARAMS,
                                     .largest = u.largest,
                                     .copy_type = OPS_BF16};
            struct op_sgd sgd = {.params = u.params.at[side],
                                 .scalars = u.scalars.at[side],
                                 .count = PARAMS,
                                 .largest = u.largest,
                                 .copy_type = OPS_BF16};

            KERNELS_RUN(step_begin, side, begin);
            if (p % 2)
                KERNELS_RUN(adamw, side, adamw);
            else
                KERNELS_RUN(sgd, side, sgd);
        }
        TEST_ASSERT_EQUAL_UINT64(3, ((struct ops_scalars *)u.scalars.at[ON_HOST])->bad_step);
        expect_scalars(&u);
        kernels_free_all();
    }
}

static void test_a_loss_that_is_not_finite_is_noted_and_can_leave_the_update_out(void)
{
    static const float losses[] = {1.0f, INFINITY, NAN};

    for (int i = 0; i < 6; i++) {
        struct update u = make_update(OPS_F32);
        struct buffer loss = kernels_bytes(&losses[i / 2], sizeof(float));

        for (int side = 0; side < KERNELS_SIDES; side++) {
            struct op_step_begin begin = {.scalars = u.scalars.at[side],
                                          .beta1 = 0.9f,
                                          .beta2 = 0.999f,
                                          .loss = loss.at[side],
                                          .skip_loss = i % 2};

            KERNELS_RUN(step_begin, side, begin);
        }
        TEST_ASSERT_EQUAL_UINT64(i < 2 ? 0 : 3, ((struct ops_scalars *)u.scalars.at[ON_HOST])->bad_step);
        expect_scalars(&u);
        kernels_free_all();
    }
}

static void check_elements(size_t count, enum ops_type type)
{
    uint64_t step = 7;
    struct buffer a = kernels_random(type, count, 3.0f), b = kernels_random(type, count, 3.0f),
                  out = kernels_random(type, count, 1.0f);
    struct buffer dropped = kernels_random(type, count, 1.0f), filled = kernels_random(type, count, 1.0f);
    struct buffer steps = kernels_bytes(&step, sizeof(step));
    struct buffer casts[3];

    for (int to = OPS_F32; to <= OPS_F16; to++)
        casts[to] = kernels_random((enum ops_type)to, count, 1.0f);
    for (int side = 0; side < KERNELS_SIDES; side++) {
        struct op_add add = {a.at[side], b.at[side], out.at[side], type, count};
        struct op_dropout dropout = {a.at[side], dropped.at[side], type, count, 0.25f, 42, steps.at[side]};
        struct op_fill fill = {filled.at[side], type, count, 0.3f};

        KERNELS_RUN(add, side, add);
        add.out = b.at[side];
        KERNELS_RUN(add, side, add);
        KERNELS_RUN(dropout, side, dropout);
        KERNELS_RUN(fill, side, fill);
        for (int to = OPS_F32; to <= OPS_F16; to++) {
            struct op_cast cast = {a.at[side], casts[to].at[side], type, (enum ops_type)to, count};

            KERNELS_RUN(cast, side, cast);
        }
    }
    kernels_expect_same(&out, "add");
    kernels_expect_same(&b, "add in place");
    kernels_expect_close(&dropped, type, count, 1e-6, "dropout");
    kernels_expect_same(&filled, "fill");
    for (int to = OPS_F32; to <= OPS_F16; to++)
        kernels_expect_same(&casts[to], "cast");
    kernels_free_all();
}

static void test_elements_agree_to_the_bit(void)
{
    static const size_t counts[] = {1, 7, 8, 1000, 100003};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int type = OPS_F32; type <= OPS_F16; type++) {
            kernels_shift = (int)i % 2;
            check_elements(counts[i], (enum ops_type)type);
        }
    }
}

static void test_averages_pruning_and_bytes_agree_to_the_bit(void)
{
    enum { ROWS = 37, COLS = 301, COUNT = ROWS * COLS, PARTS = 5 };
    struct buffer parts[PARTS], x = kernels_random(OPS_F32, COUNT, 2.0f), q = kernels_bytes(NULL, COUNT);
    struct buffer scale = kernels_random(OPS_F32, ROWS, 1.0f), back = kernels_random(OPS_BF16, COUNT, 1.0f);

    for (int p = 0; p < PARTS; p++)
        parts[p] = kernels_random(OPS_F32, COUNT, 1.0f);
    for (int side = 0; side < KERNELS_SIDES; side++) {
        struct op_average average = {.count = PARTS, .elements = COUNT};
        struct op_prune prune = {x.at[side], COUNT, 0.5f};
        struct op_quantize quantize = {x.at[side], q.at[side], scale.at[side], ROWS, COLS};
        struct op_dequantize dequantize = {q.at[side], scale.at[side], back.at[side], OPS_BF16, ROWS, COLS};

        for (int p = 0; p < PARTS; p++)
            average.parts[p] = parts[p].at[side];
        KERNELS_RUN(average, side, average);
        KERNELS_RUN(prune, side, prune);
        KERNELS_RUN(quantize, side, quantize);
        KERNELS_RUN(dequantize, side, dequantize);
    }
    for (int p = 0; p < PARTS; p++)
        kernels_expect_same(&parts[p], "average");
    kernels_expect_same(&x, "prune");
    kernels_expect_same(&scale, "scale");
    kernels_expect_same(&q, "quantize");
    kernels_expect_same(&back, "dequantize");
}

int main(void)
{
    int status = kernels_open();

    if (status)
        return status;
    UNITY_BEGIN();
    RUN_TEST(test_elements_agree_to_the_bit);
    RUN_TEST(test_averages_pruning_and_bytes_agree_to_the_bit);
    RUN_TEST(test_adamw_and_sgd_agree_over_all_parameters);
    RUN_TEST(test_a_bad_gradient_leaves_the_update_out);
    RUN_TEST(test_the_update_notes_a_gradient_that_is_not_finite);
    RUN_TEST(test_a_loss_that_is_not_finite_is_noted_and_can_leave_the_update_out);
    return kernels_close(UNITY_END());
}
