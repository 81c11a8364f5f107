/* transcript_wrapped: under the library a program sees exactly what it sees without it.
 *
 * The differential half of the contract, on simgpu: the same transcript natively and wrapped, with no cap and
 * with one that is never reached, by both ways of looking functions up. tools/gpu-check runs the same
 * comparison on a real card.
 */
#include "transcript_support.h"

#include "unity.h"

#include <stdlib.h>

#define GENEROUS "12G"

static char *native[TRANSCRIPT_PROGRAMS];

void setUp(void);
void tearDown(void);

void setUp(void)
{
    for (int p = TRANSCRIPT_DRIVER; p < TRANSCRIPT_PROGRAMS; p++) {
        if (!native[p])
            native[p] = transcript_take(
                &(struct transcript_run){.program = (enum transcript_program)p, .lookup = "dlsym"});
    }
}

void tearDown(void) {}

static void compare(struct transcript_run run)
{
    char *got = transcript_take(&run);
    transcript_assert_equal(native[run.program], "native", got, run.wrapped ? "wrapped" : "native, too");
    free(got);
}

static void test_both_lookups_reach_the_same_driver(void)
{
    compare((struct transcript_run){.program = TRANSCRIPT_DRIVER, .lookup = "procaddr"});
}

static void test_without_a_cap_the_driver_answers_as_natively(void)
{
    compare((struct transcript_run){.program = TRANSCRIPT_DRIVER, .lookup = "dlsym", .wrapped = true});
}

static void test_under_a_generous_cap_the_driver_answers_as_natively(void)
{
    compare((struct transcript_run){
        .program = TRANSCRIPT_DRIVER, .lookup = "dlsym", .wrapped = true, .cap = GENEROUS});
}

static void test_functions_from_cuGetProcAddress_answer_as_natively(void)
{
    compare((struct transcript_run){
        .program = TRANSCRIPT_DRIVER, .lookup = "procaddr", .wrapped = true, .cap = GENEROUS});
}

static void test_the_runtime_answers_as_natively(void)
{
    compare((struct transcript_run){.program = TRANSCRIPT_RUNTIME, .lookup = "dlsym", .wrapped = true});
    compare((struct transcript_run){
        .program = TRANSCRIPT_RUNTIME, .lookup = "dlsym", .wrapped = true, .cap = GENEROUS});
}

static void test_a_static_runtime_answers_as_natively(void)
{
    compare(
        (struct transcript_run){.program = TRANSCRIPT_RUNTIME_STATIC, .lookup = "dlsym", .wrapped = true});
    compare((struct transcript_run){
        .program = TRANSCRIPT_RUNTIME_STATIC, .lookup = "dlsym", .wrapped = true, .cap = GENEROUS});
}

static void test_a_static_runtime_answers_as_a_shared_one(void)
{
    transcript_assert_equal(native[TRANSCRIPT_RUNTIME], "shared", native[TRANSCRIPT_RUNTIME_STATIC],
                            "static");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_both_lookups_reach_the_same_driver);
    RUN_TEST(test_without_a_cap_the_driver_answers_as_natively);
    RUN_TEST(test_under_a_generous_cap_the_driver_answers_as_natively);
    RUN_TEST(test_functions_from_cuGetProcAddress_answer_as_natively);
    RUN_TEST(test_the_runtime_answers_as_natively);
    RUN_TEST(test_a_static_runtime_answers_as_natively);
    RUN_TEST(test_a_static_runtime_answers_as_a_shared_one);
    return UNITY_END();
}
