/* nudge_python: with nudge=on a PyTorch that keeps its cache empties it when another process of its job is
 * short, and only then. tests/integration/nudge_torch.py stands in for PyTorch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "cli_support.h"
#include "spawn.h"

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

/* Two processes of a job of 1 GiB, whose contexts take 128 MiB each: one holds 512 MiB, the other asks. */
static struct spawn_result run(const char *nudge, const char *wanted, const char *how)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, "2x2G;ctx=128M", NULL); /* the program uses the second */
    spawn_wrapped(env);
    spawn_cap(env, "1G");
    spawn_env_set(env, "GPUCAP_GROUP", "both");
    if (nudge)
        spawn_env_set(env, "GPUCAP_NUDGE", nudge);
    if (nudge && !how)
        spawn_env_set(env, "GPUCAP_WAIT", "60s"); /* the interpreter of a busy machine may take its time */
    struct spawn_result r =
        spawn_run(env, (const char *[]){"python3", NUDGE_TORCH, "512", wanted, how, NULL}, NULL);
    spawn_env_free(env);
    if (r.status == 127)
        TEST_IGNORE_MESSAGE("no python3 here");
    return r;
}

static void expect(const char *code, const char *blocks, struct spawn_result *r)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r->status, r->err);
    TEST_ASSERT_EQUAL_STRING_MESSAGE(code, spawn_value(r->out, "code"), r->err);
    TEST_ASSERT_EQUAL_STRING_MESSAGE(blocks, spawn_value(r->out, "blocks"), r->err);
    TEST_ASSERT_EQUAL_STRING("0", spawn_value(r->out, "leaked"));
}

static void test_a_nudged_cache_serves_the_other_process_and_the_log_says_so(void)
{
    struct spawn_result r = run("on", "400", NULL);

    expect("0", "0", &r);
    TEST_ASSERT_EQUAL_STRING(
        "gpucap: nudge: another process needs memory: torch.cuda.empty_cache() was called here and "
        "freed 512M (printed only once)\n",
        r.err);
    spawn_result_free(&r);
}

static void test_without_the_option_no_process_is_nudged(void)
{
    struct spawn_result r = run(NULL, "400", NULL);

    expect("2", "1", &r);
    TEST_ASSERT_EQUAL_STRING("", r.err);
    spawn_result_free(&r);
}

static void test_a_program_in_a_capture_is_not_nudged(void)
{
    struct spawn_result r = run("on", "400", "capturing");

    expect("2", "1", &r);
    spawn_result_free(&r);
}

static void test_an_error_in_torch_ends_the_nudge_and_not_the_program(void)
{
    struct spawn_result r = run("on", "400", "broken");

    expect("2", "1", &r);
    spawn_result_free(&r);
}

static void test_no_process_is_nudged_while_there_is_room(void)
{
    struct spawn_result r = run("on", "100", NULL);

    expect("0", "1", &r);
    TEST_ASSERT_EQUAL_STRING("", r.err);
    spawn_result_free(&r);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_nudged_cache_serves_the_other_process_and_the_log_says_so);
    RUN_TEST(test_without_the_option_no_process_is_nudged);
    RUN_TEST(test_a_program_in_a_capture_is_not_nudged);
    RUN_TEST(test_an_error_in_torch_ends_the_nudge_and_not_the_program);
    RUN_TEST(test_no_process_is_nudged_while_there_is_room);
    return UNITY_END();
}
