/* The update of the CPU table against double precision: the check of the gradients, the decision about the
 * step, SGD and AdamW over several parameters. */
#include "kernels_check.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/types.h"
#include "unity.h"

enum { PARAMS = 3, LARGEST = 70001 };

static const size_t counts[PARAMS] = {1, 37, LARGEST};
static struct ops *ops;
static struct ops_param params[PARAMS];
static struct check_buffer weight[PARAMS], first[PARAMS], second[PARAMS], grad[PARAMS], copy[PARAMS];
static struct ops_scalars scalars;

void setUp(void)
{
    ops = check_open();
}

void tearDown(void)
{
    check_release();
}

static void make_parameters(enum ops_type copy_type)
{
    for (int p = 0; p < PARAMS; p++) {
        weight[p] = check_values(OPS_F32, counts[p]);
        first[p] = check_values(OPS_F32, counts[p]);
        second[p] = check_values(OPS_F32, counts[p]);
        for (size_t i = 0; i < counts[p]; i++)
            ((float *)second[p].data)[i] = fabsf(((float *)second[p].data)[i]) + 0.01f;
        check_refresh(&second[p]);
        grad[p] = check_values(OPS_F32, counts[p]);
        copy[p] = check_results(copy_type, counts[p]);
        params[p] = (struct ops_param){weight[p].data, first[p].data, second[p].data,       grad[p].data,
                                       copy[p].data,   counts[p],     p == 1 ? 0.0f : 1.0f, 0};
    }
    scalars = (struct ops_scalars){.rate = 0.05f, .scale = 8.0f};
}

static void check_gradients(void)
{
    TEST_ASSERT_EQUAL_INT(
        0, ops->grad_check(ops, NULL,
                           &(struct op_grad_check){
                               .params = params, .scalars = &scalars, .count = PARAMS, .largest = LARGEST}));
}

static void begin_step(float clip, int dynamic, int growth)
{
    TEST_ASSERT_EQUAL_INT(0, ops->step_begin(ops, NULL,
                                             &(struct op_step_begin){.scalars = &scalars,
                                                                     .clip = clip,
                                                                     .dynamic = dynamic,
                                                                     .growth = growth,
                                                                     .beta1 = 0.9f,
                                                                     .beta2 = 0.99f}));
}

static void test_the_norm_is_that_of_all_gradients_without_the_scale(void)
{
    double squares = 0.0;

    make_parameters(OPS_F32);
    for (int p = 0; p < PARAMS; p++) {
        for (size_t i = 0; i < counts[p]; i++)
            squares += grad[p].exact[i] * grad[p].exact[i];
    }
    check_gradients();
    TEST_ASSERT_EQUAL_FLOAT((float)(sqrt(squares) / 8.0), scalars.norm);
    TEST_ASSERT_EQUAL_FLOAT(0.0f, scalars.found_bad);
}

static void test_a_gradient_that_is_not_finite_is_found_anywhere_and_a_huge_one_is_not_bad(void)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    make_parameters(OPS_F32);
    for (int b = 0; b < 3; b++) {
        for (int p = 0; p < PARAMS; p++) {
            float *last = (float *)grad[p].data + counts[p] - 1;
            float before = *last;

            *last = bad[b];
            check_gradients();
            TEST_ASSERT_EQUAL_FLOAT(1.0f, scalars.found_bad);
            *last = before;
        }
    }
    ((float *)grad[2].data)[5] = FLT_MAX;
    check_gradients();
    TEST_ASSERT_EQUAL_FLOAT(0.0f, scalars.found_bad);
    TEST_ASSERT_EQUAL_FLOAT(FLT_MAX / 8.0f, scalars.norm);
}

static void test_a_step_clips_and_counts_and_corrects(void)
{
    scalars = (struct ops_scalars){.scale = 4.0f, .norm = 10.0f, .step = 2};
    begin_step(0.0f, 0, 0);
    TEST_ASSERT_EQUAL_FLOAT(0.25f, scalars.multiplier);
    TEST_ASSERT_EQUAL_UINT64(3, scalars.step);
    TEST_ASSERT_EQUAL_FLOAT(1.0f - 0.9f * 0.9f * 0.9f, scalars.correction1);
    TEST_ASSERT_FLOAT_WITHIN(1e-6f, 0.029701f, scalars.correction2);
    begin_step(2.0f, 0, 0);
    TEST_ASSERT_EQUAL_FLOAT(0.25f * 0.2f, scalars.multiplier);
    begin_step(20.0f, 0, 0);
    TEST_ASSERT_EQUAL_FLOAT(0.25f, scalars.multiplier);
    TEST_ASSERT_EQUAL_FLOAT(4.0f, scalars.scale);
}

static void test_the_loss_scale_halves_on_a_bad_step_and_doubles_after_good_ones(void)
{
    scalars =
        (struct ops_scalars){.scale = 4.0f, .norm = NAN, .found_bad = 1.0f, .step = 7, .good_steps = 1.0f};
    begin_step(1.0f, 1, 2);
    TEST_ASSERT_EQUAL_FLOAT(2.0f, scalars.scale);
    TEST_ASSERT_EQUAL_FLOAT(0.0f, scalars.multiplier);
    TEST_ASSERT_EQUAL_FLOAT(1.0f, scalars.skipped);
    TEST_ASSERT_EQUAL_UINT64(7, scalars.step);
    scalars.found_bad = 0.0f, scalars.norm = 0.1f;
    begin_step(1.0f, 1, 2);
    TEST_ASSERT_EQUAL_FLOAT(2.0f, scalars.scale);
    begin_step(1.0f, 1, 2);
    TEST_ASSERT_EQUAL_FLOAT(4.0f, scalars.scale);
    TEST_ASSERT_EQUAL_FLOAT(0.5f, scalars.multiplier); /* these gradients still came with the old one */
    TEST_ASSERT_EQUAL_FLOAT(0.0f, scalars.good_steps);
    TEST_ASSERT_EQUAL_UINT64(9, scalars.step);
}

static void check_results_of_update(enum ops_type copy_type)
{
    for (int p = 0; p < PARAMS; p++) {
        double *sizes = check_doubles(counts[p]);

        for (size_t i = 0; i < counts[p]; i++)
            sizes[i] = 4.0;
        check_close("first", &first[p], first[p].exact, sizes);
        check_close("second", &second[p], second[p].exact, sizes);
        check_close("weight", &weight[p], weight[p].exact, sizes);
        for (size_t i = 0; i < counts[p]; i++)
            TEST_ASSERT_EQUAL_FLOAT(copy_type == OPS_F32 ? ((float *)weight[p].data)[i]
                                    : copy_type == OPS_BF16
                                        ? types_from_bf16(types_to_bf16(((float *)weight[p].data)[i]))
                                        : types_from_f16(types_to_f16(((float *)weight[p].data)[i])),
                                    types_load(copy[p].data, copy_type, i));
    }
}

static void test_sgd_follows_its_formula_and_writes_the_copies(void)
{
    const double momentum = (double)0.9f, decay = (double)0.01f;

    for (int t = 0; t < 3; t++) {
        make_parameters(check_types[t]);
        check_gradients();
        begin_step(0.0f, 0, 0);
        TEST_ASSERT_EQUAL_INT(
            0, ops->sgd(ops, NULL,
                        &(struct op_sgd){params, &scalars, PARAMS, LARGEST, check_types[t], 0.9f, 0.01f}));
        for (int p = 0; p < PARAMS; p++) {
            for (size_t i = 0; i < counts[p]; i++) {
                double g = grad[p].exact[i] / 8.0 + decay * (double)params[p].decay * weight[p].exact[i];

                first[p].exact[i] = momentum * first[p].exact[i] + g;
                weight[p].exact[i] -= (double)0.05f * first[p].exact[i];
            }
        }
        check_results_of_update(check_types[t]);
    }
}

static void check_adam(enum ops_type copy_type, int decoupled)
{
    const double beta1 = (double)0.9f, beta2 = (double)0.99f, epsilon = (double)1e-6f, rate = (double)0.05f,
                 decay = (double)0.1f;

    make_parameters(copy_type);
    check_gradients();
    begin_step(0.0f, 0, 0);
    TEST_ASSERT_EQUAL_INT(0, ops->adamw(ops, NULL,
                                        &(struct op_adamw){params, &scalars, PARAMS, LARGEST, copy_type, 0.9f,
                                                           0.99f, 1e-6f, 0.1f, decoupled}));
    for (int p = 0; p < PARAMS; p++) {
        double of_this = decay * (double)params[p].decay;

        for (size_t i = 0; i < counts[p]; i++) {
            double w = weight[p].exact[i], g = grad[p].exact[i] / 8.0 + (decoupled ? 0.0 : of_this * w);

            first[p].exact[i] = beta1 * first[p].exact[i] + (1.0 - beta1) * g;
            second[p].exact[i] = beta2 * second[p].exact[i] + (1.0 - beta2) * g * g;
            weight[p].exact[i] -= rate * (first[p].exact[i] / (1.0 - beta1) /
                                              (sqrt(second[p].exact[i] / (1.0 - beta2)) + epsilon) +
                                          (decoupled ? of_this * w : 0.0));
        }
    }
    check_results_of_update(copy_type);
}

static void test_adam_follows_its_formula_with_both_kinds_of_decay(void)
{
    for (int t = 0; t < 3; t++) {
        check_adam(check_types[t], 1);
        check_adam(check_types[t], 0);
    }
}

/* Every third weight of the first parameter was pruned; the others of it, and zeros elsewhere, move. */
static void test_pruned_weights_stay_zero(void)
{
    for (int adam = 0; adam < 2; adam++) {
        make_parameters(OPS_BF16);
        params[0].keep_zeros = 1;
        for (size_t i = 0; i < counts[0]; i += 3)
            ((float *)weight[0].data)[i] = 0.0f;
        ((float *)weight[1].data)[0] = 0.0f;
        check_gradients();
        begin_step(0.0f, 0, 0);
        TEST_ASSERT_EQUAL_INT(
            0, adam ? ops->adamw(ops, NULL,
                                 &(struct op_adamw){params, &scalars, PARAMS, LARGEST, OPS_BF16, 0.9f, 0.99f,
                                                    1e-6f, 0.1f, 1})
                    : ops->sgd(ops, NULL,
                               &(struct op_sgd){params, &scalars, PARAMS, LARGEST, OPS_BF16, 0.9f, 0.01f}));
        for (size_t i = 0; i < counts[0]; i++) {
            TEST_ASSERT_EQUAL_INT(i % 3 == 0, ((float *)weight[0].data)[i] == 0.0f);
            TEST_ASSERT_EQUAL_INT(i % 3 == 0, types_load(copy[0].data, OPS_BF16, i) == 0.0f);
        }
        TEST_ASSERT_TRUE(((float *)weight[1].data)[0] != 0.0f);
    }
}

static void test_a_bad_step_changes_nothing(void)
{
    make_parameters(OPS_BF16);
    ((float *)grad[1].data)[3] = NAN;
    check_gradients();
    begin_step(1.0f, 1, 10);
    TEST_ASSERT_EQUAL_INT(
        0, ops->sgd(ops, NULL, &(struct op_sgd){params, &scalars, PARAMS, LARGEST, OPS_BF16, 0.9f, 0.01f}));
    TEST_ASSERT_EQUAL_INT(0, ops->adamw(ops, NULL,
                                        &(struct op_adamw){params, &scalars, PARAMS, LARGEST, OPS_BF16, 0.9f,
                                                           0.99f, 1e-6f, 0.1f, 1}));
    for (int p = 0; p < PARAMS; p++) {
        for (size_t i = 0; i < counts[p]; i++) {
            TEST_ASSERT_EQUAL_FLOAT((float)weight[p].exact[i], ((float *)weight[p].data)[i]);
            TEST_ASSERT_EQUAL_FLOAT((float)first[p].exact[i], ((float *)first[p].data)[i]);
        }
    }
}

static void begin_with_loss(float loss, int dynamic, int skip_loss)
{
    TEST_ASSERT_EQUAL_INT(0, ops->step_begin(ops, NULL,
                                             &(struct op_step_begin){.scalars = &scalars,
                                                                     .dynamic = dynamic,
                                                                     .growth = 10,
                                                                     .beta1 = 0.9f,
                                                                     .beta2 = 0.99f,
                                                                     .loss = &loss,
                                                                     .skip_loss = skip_loss}));
}

static void test_the_first_loss_that_is_not_finite_is_noted_with_its_step(void)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (int b = 0; b < 3; b++) {
        scalars = (struct ops_scalars){.scale = 1.0f, .step = 4, .skipped = 2.0f};
        begin_with_loss(FLT_MAX, 0, 0);
        TEST_ASSERT_EQUAL_UINT64(0, scalars.bad_step);
        begin_with_loss(bad[b], 0, 0);
        TEST_ASSERT_EQUAL_UINT64(8, scalars.bad_step);
        TEST_ASSERT_EQUAL_UINT64(6, scalars.step); /* the update itself is done */
        begin_with_loss(bad[b], 0, 1);
        TEST_ASSERT_EQUAL_UINT64(8, scalars.bad_step);
        TEST_ASSERT_EQUAL_UINT64(6, scalars.step); /* left out */
        TEST_ASSERT_EQUAL_FLOAT(3.0f, scalars.skipped);
    }
}

static void test_an_overflow_that_a_smaller_loss_scale_mends_is_not_noted(void)
{
    scalars = (struct ops_scalars){.scale = 2.0f, .found_bad = 1.0f};
    begin_with_loss(1.0f, 1, 0);
    TEST_ASSERT_EQUAL_UINT64(0, scalars.bad_step);
    TEST_ASSERT_EQUAL_FLOAT(1.0f, scalars.scale);
    begin_with_loss(1.0f, 1, 0);
    TEST_ASSERT_EQUAL_UINT64(2, scalars.bad_step);
}

static void test_the_update_notes_a_gradient_that_is_not_finite(void)
{
    for (int adam = 0; adam < 2; adam++) {
        make_parameters(OPS_F32);
        scalars.step = 5;
        scalars.skipped = 1.0f;
        ((float *)grad[2].data)[3] = FLT_MAX;
        for (int turn = 0; turn < 2; turn++) {
            begin_step(0.0f, 0, 0);
            if (adam)
                TEST_ASSERT_EQUAL_INT(0,
                                      ops->adamw(ops, NULL,
                                                 &(struct op_adamw){params, &scalars, PARAMS, LARGEST,
                                                                    OPS_F32, 0.9f, 0.99f, 1e-6f, 0.1f, 1}));
            else
                TEST_ASSERT_EQUAL_INT(
                    0, ops->sgd(ops, NULL,
                                &(struct op_sgd){params, &scalars, PARAMS, LARGEST, OPS_F32, 0.9f, 0.01f}));
            TEST_ASSERT_EQUAL_UINT64(turn ? 8 : 0, scalars.bad_step);
            ((float *)grad[2].data)[LARGEST - 1] = adam ? NAN : -INFINITY;
        }
    }
}

static void test_a_parameter_without_a_copy_is_updated(void)
{
    make_parameters(OPS_BF16);
    params[1].copy = NULL;
    check_gradients();
    begin_step(0.0f, 0, 0);
    TEST_ASSERT_EQUAL_INT(
        0, ops->sgd(ops, NULL, &(struct op_sgd){params, &scalars, PARAMS, LARGEST, OPS_BF16, 0.0f, 0.0f}));
    TEST_ASSERT_EQUAL_FLOAT((float)(weight[1].exact[0] - 0.05 * grad[1].exact[0] / 8.0),
                            ((float *)weight[1].data)[0]);
    TEST_ASSERT_EQUAL_FLOAT((float)copy[1].exact[0], types_load(copy[1].data, OPS_BF16, 0));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_norm_is_that_of_all_gradients_without_the_scale);
    RUN_TEST(test_a_gradient_that_is_not_finite_is_found_anywhere_and_a_huge_one_is_not_bad);
    RUN_TEST(test_a_step_clips_and_counts_and_corrects);
    RUN_TEST(test_the_loss_scale_halves_on_a_bad_step_and_doubles_after_good_ones);
    RUN_TEST(test_sgd_follows_its_formula_and_writes_the_copies);
    RUN_TEST(test_adam_follows_its_formula_with_both_kinds_of_decay);
    RUN_TEST(test_pruned_weights_stay_zero);
    RUN_TEST(test_a_bad_step_changes_nothing);
    RUN_TEST(test_the_first_loss_that_is_not_finite_is_noted_with_its_step);
    RUN_TEST(test_an_overflow_that_a_smaller_loss_scale_mends_is_not_noted);
    RUN_TEST(test_the_update_notes_a_gradient_that_is_not_finite);
    RUN_TEST(test_a_parameter_without_a_copy_is_updated);
    return UNITY_END();
}
