/* The sums of a profile: of operations over steps and layers, of what lies between them, of averages behind
 * the backward pass, and the moment with most memory. From spans with known times. And what a run
 * comes to, for people. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/profile/profile_state.h"
#include "harness/train/session.h"
#include "unity.h"

enum { MS = 1000000, STEP = 100 * MS, LAYERS = 3 };

static const struct train_options options = {.profile = "unused"};
static char names[LAYERS + 1][PROFILE_NAME_BYTES] = {"a", "a.name.of.a.layer.that.is.long", "c", "loss"};
static struct model model = {.layer_count = LAYERS};
static struct profile_span spans[12];
static struct profile_step steps[2];
static struct profile profile;
static struct profile_sums sums;

void setUp(void)
{
    memset(spans, 0, sizeof(spans));
    memset(steps, 0, sizeof(steps));
    memset(&sums, 0, sizeof(sums));
    profile = (struct profile){.options = &options,
                               .model = &model,
                               .state = PROFILE_IS_DONE,
                               .spans = spans,
                               .steps = steps,
                               .names = names};
}

void tearDown(void)
{
    profile_sums_free(&sums);
}

/* Adds an operation to the step that was begun last; times in milliseconds since it began. */
static struct profile_span *add(const char *operation, enum model_pass pass, int layer, int begin, int end)
{
    struct profile_step *step = &steps[profile.step_count - 1];
    struct profile_span *span = &spans[profile.span_count++];

    *span = (struct profile_span){.operation = operation,
                                  .place = {pass, layer},
                                  .bucket = PROFILE_NO_BUCKET,
                                  .begin_ns = step->begin_ns + (uint64_t)begin * MS,
                                  .end_ns = step->begin_ns + (uint64_t)end * MS};
    step->count++;
    return span;
}

static void begin_step(void)
{
    uint64_t begin = profile.step_count * (uint64_t)STEP;

    steps[profile.step_count] = (struct profile_step){.number = 4 + profile.step_count,
                                                      .first = profile.span_count,
                                                      .begin_ns = begin,
                                                      .end_ns = begin + STEP};
    profile.step_count++;
}

static void two_steps(void)
{
    for (int s = 0; s < 2; s++) {
        begin_step();
        add("gemm", PASS_FORWARD, 0, 0, 10);
        add("gemm", PASS_FORWARD, 1, 10, 30);
        add("gemm", PASS_BACKWARD, 1, 40, 80);
        add("adamw", PASS_UPDATE, NO_VALUE, 90, 95);
    }
}

static void test_an_operation_is_summed_over_layers_and_steps_in_its_pass(void)
{
    two_steps();
    TEST_ASSERT_EQUAL_INT(STATUS_OK, profile_sum(&profile, &sums));
    TEST_ASSERT_EQUAL_size_t(3, sums.row_count);
    TEST_ASSERT_EQUAL_INT(PASS_BACKWARD, sums.rows[0].pass);
    TEST_ASSERT_EQUAL_UINT64(80 * MS, sums.rows[0].ns);
    TEST_ASSERT_EQUAL_INT(PASS_FORWARD, sums.rows[1].pass);
    TEST_ASSERT_EQUAL_UINT64(60 * MS, sums.rows[1].ns);
    TEST_ASSERT_EQUAL_size_t(4, sums.rows[1].calls);
    TEST_ASSERT_EQUAL_INT(1, sums.rows[1].layer); /* 40 of the 60 */
    TEST_ASSERT_EQUAL_STRING("adamw", sums.rows[2].operation);
}

static void test_what_no_operation_takes_is_between_them(void)
{
    two_steps();
    add("gemm", PASS_BACKWARD, 0, 40, 60)->aside = true; /* beside the others: fills no gap */
    TEST_ASSERT_EQUAL_INT(STATUS_OK, profile_sum(&profile, &sums));
    TEST_ASSERT_EQUAL_UINT64(2 * STEP, sums.steps_ns);
    TEST_ASSERT_EQUAL_UINT64(2 * (100 - 75) * MS, sums.idle_ns);
    TEST_ASSERT_EQUAL_UINT64(100 * MS, sums.pass_ns[PASS_BACKWARD]);
}

static void test_an_average_is_hidden_as_far_as_the_backward_pass_goes(void)
{
    two_steps();
    add("all_reduce", PASS_BACKWARD, 1, 60, 75)->bucket = 0;
    add("all_reduce", PASS_BACKWARD, 0, 75, 90)->bucket = 1;
    TEST_ASSERT_EQUAL_INT(STATUS_OK, profile_sum(&profile, &sums));
    TEST_ASSERT_EQUAL_size_t(2, sums.averages);
    TEST_ASSERT_EQUAL_UINT64(30 * MS, sums.average_ns);
    TEST_ASSERT_EQUAL_UINT64(20 * MS, sums.hidden_ns);
    TEST_ASSERT_EQUAL_size_t(3, sums.row_count); /* no operation */
}

static void test_peak_is_where_all_kinds_together_are_most(void)
{
    two_steps();
    spans[1].live[MEM_ACTIVATIONS] = 50;
    spans[6].live[MEM_ACTIVATIONS] = 30;
    spans[6].live[MEM_GRADIENTS] = 30;
    TEST_ASSERT_EQUAL_INT(STATUS_OK, profile_sum(&profile, &sums));
    TEST_ASSERT_EQUAL_PTR(&spans[6], sums.peak);
    TEST_ASSERT_EQUAL_PTR(&steps[1], sums.peak_step);
}

/* Every pass, and a share that takes as many digits as can be. */
static void test_lines_are_no_longer_than_80_columns(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    TEST_ASSERT_NOT_NULL(out);
    begin_step();
    for (int pass = 0; pass < PASS_COUNT; pass++)
        add("softmax_xent_backward", (enum model_pass)pass, 1, 0, 99)->bucket = PROFILE_NO_BUCKET;
    add("all_reduce", PASS_BACKWARD, 1, 0, 99)->bucket = 0;
    TEST_ASSERT_EQUAL_INT(STATUS_OK, profile_print(&profile, out));
    fclose(out);
    TEST_ASSERT_NOT_NULL(strstr(text, "\n  all-reduce 99.000 ms a step in 1 buckets, 100 % of it during"));
    for (const char *at = text; *at; at += strcspn(at, "\n") + 1)
        TEST_ASSERT_TRUE_MESSAGE(strcspn(at, "\n") <= 80, at);
    free(text);
}

static void test_table_shows_the_sums_of_a_step(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    TEST_ASSERT_NOT_NULL(out);
    two_steps();
    spans[2].live[MEM_ACTIVATIONS] = 3 << 20;
    spans[2].live[MEM_PARAMETERS] = 1 << 20;
    spans[2].held = 8 << 20;
    TEST_ASSERT_EQUAL_INT(STATUS_OK, profile_print(&profile, out));
    fclose(out);
    TEST_ASSERT_EQUAL_STRING(
        "\nprofile of steps 4 to 5: 100.000 ms a step\n"
        "  forward 30.0 %  backward 40.0 %  update 5.0 %  between operations 25.0 %\n"
        "\n  pass     operation             calls ms a step   share  most of it in\n"
        "  backward gemm                      1    40.000  40.0 %  ..a.layer.that.is.long\n"
        "  forward  gemm                      2    30.000  30.0 %  ..a.layer.that.is.long\n"
        "  update   adamw                     1     5.000   5.0 %\n"
        "\n  memory at its peak: 4.0 MiB in step 4, backward of ..a.layer.that.is.long\n"
        "  parameters            1.0 MiB  25.0 %\n"
        "  optimizer             0.0 MiB   0.0 %\n"
        "  gradients             0.0 MiB   0.0 %\n"
        "  activations           3.0 MiB  75.0 %\n"
        "  workspace             0.0 MiB   0.0 %\n"
        "  input                 0.0 MiB   0.0 %\n"
        "  held from the device meanwhile: 8.0 MiB\n\n",
        text);
    free(text);
}

/* ---- the summary of a run ---- */

static const char *summary_of(const struct session_result *result)
{
    static char text[2048];
    FILE *out = fmemopen(text, sizeof(text), "w");

    TEST_ASSERT_NOT_NULL(out);
    session_print_summary(out, result, 12.0);
    fclose(out);
    return text;
}

static void test_the_summary_is_of_this_run_in_units_that_show_it(void)
{
    struct session_result result = {.options.steps = 1010,
                                    .run_steps = 10,
                                    .step_ms = 2.5,
                                    .evaluation = {.loss = 0.5, .accuracy = -1.0, .rows = 8},
                                    .val_best = 0.25,
                                    .peak_bytes = (size_t)3 << 20,
                                    .peak_kind[MEM_PARAMETERS] = 1 << 20};
    const char *text = summary_of(&result);

    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "12.0 s, 10 steps\n  speed       2.50 ms a step"), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "  validation  loss 0.5000, best 0.2500\n"), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "peak 3.000 MiB\n    parameters       1.000 MiB\n"), text);
    result.peak_bytes <<= 10;
    TEST_ASSERT_NOT_NULL(strstr(summary_of(&result), "peak 3.000 GiB\n"));
    result.run_steps = 0;
    TEST_ASSERT_NULL(strstr(summary_of(&result), "speed"));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_an_operation_is_summed_over_layers_and_steps_in_its_pass);
    RUN_TEST(test_what_no_operation_takes_is_between_them);
    RUN_TEST(test_an_average_is_hidden_as_far_as_the_backward_pass_goes);
    RUN_TEST(test_peak_is_where_all_kinds_together_are_most);
    RUN_TEST(test_lines_are_no_longer_than_80_columns);
    RUN_TEST(test_table_shows_the_sums_of_a_step);
    RUN_TEST(test_the_summary_is_of_this_run_in_units_that_show_it);
    return UNITY_END();
}
