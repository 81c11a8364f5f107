/* nvtx_tags: with `gpucap run --nvtx` a block's tag is the innermost NVTX range of its thread. The program is
 * prog_nvtx, which uses NVIDIA's header. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "recording_decode.h"
#include "spawn.h"

static char folder[] = "/tmp/nvtx.XXXXXX", path[128];

void setUp(void)
{
    snprintf(path, sizeof path, "%s/recording", folder);
    unlink(path);
}

void tearDown(void) {}

/* Runs a scenario under the command, with one option and one variable. */
static struct spawn_result run(const char *scenario, const char *option, const char *variable,
                               const char *value)
{
    struct spawn_env *env = spawn_env_new();
    char record[160];

    spawn_sim(env, "1x2G", NULL);
    spawn_env_set(env, "HOME", "/nonexistent");
    if (variable)
        spawn_env_set(env, variable, value);
    snprintf(record, sizeof record, "--record=%s", path);
    const char *argv[] = {spawn_build_path("gpucap"),
                          "run",
                          record,
                          option,
                          "--",
                          spawn_build_path("tests/integration/prog_nvtx"),
                          scenario,
                          NULL};
    struct spawn_result r = spawn_run(env, argv, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    return r;
}

/* The tags of the blocks of 1, 2, ... MiB are these. */
static void expect_tags(const char *const *tags, size_t count)
{
    struct recording_decode r;
    const struct recording_event *event;
    const char *why;
    size_t at = 0, found = 0;

    TEST_ASSERT_TRUE_MESSAGE(recording_decode(&r, path, &why), why);
    while ((event = recording_decode_next(&r, &at, RECORDING_ALLOC))) {
        const size_t mib = event->bytes >> 20;

        TEST_ASSERT_TRUE(mib >= 1 && mib <= count);
        TEST_ASSERT_EQUAL_STRING(
            tags[mib - 1], event->tag ? recording_decode_name(&r, RECORDING_TAG, event->tag, SIZE_MAX) : "");
        found++;
    }
    TEST_ASSERT_EQUAL_size_t(count, found);
    recording_decode_free(&r);
}

static void test_the_innermost_range_of_the_thread_is_the_tag(void)
{
    static const char *const tags[] = {"",        "forward", "layer 1", "layer 1", "mine",
                                       "layer 1", "forward", "",        "",        "loader"};
    struct spawn_result r = run("ranges", "--nvtx", NULL, NULL);

    TEST_ASSERT_EQUAL_STRING("", r.err);
    TEST_ASSERT_EQUAL_STRING("0 1 1 0 -1\n", r.out);
    expect_tags(tags, 10);
    spawn_result_free(&r);
}

static void test_without_the_option_ranges_do_nothing(void)
{
    static const char *const tags[] = {"", "", "", "", "mine", "", "", "", "", ""};
    struct spawn_result r = run("ranges", "--nvtx=off", NULL, NULL);

    TEST_ASSERT_EQUAL_STRING("-2 -2 -2 -2 -2\n", r.out);
    expect_tags(tags, 10);
    spawn_result_free(&r);
    /* The library is injected, but the option is off. */
    r = run("ranges", "--nvtx=off", "NVTX_INJECTION64_PATH", spawn_build_path("libgpucap.so"));
    TEST_ASSERT_EQUAL_STRING("-2 -2 -2 -2 -2\n", r.out);
    expect_tags(tags, 10);
    spawn_result_free(&r);
}

static void test_domains_and_registered_and_wide_names_work(void)
{
    static const char *const tags[] = {"registered", "breit \xc3\xbc", "wide", "wide", "breit \xc3\xbc", ""};
    struct spawn_result r = run("domains", "--nvtx=on", NULL, NULL);

    TEST_ASSERT_EQUAL_STRING("", r.err);
    expect_tags(tags, 6);
    spawn_result_free(&r);
}

static void test_too_many_names_are_said_once_and_leave_room_for_the_programs_own(void)
{
    static const char *const tags[] = {"range 126", "", "still"};
    struct spawn_result r = run("many", "--nvtx", NULL, NULL);

    TEST_ASSERT_EQUAL_STRING(
        "gpucap: there are more than 448 names of NVTX ranges: the range \"range 448\" and "
        "later ones are no tags\n",
        r.err);
    expect_tags(tags, 3);
    spawn_result_free(&r);
}

static void test_a_profiler_that_has_nvtx_keeps_it(void)
{
    struct spawn_result r = run("ranges", "--nvtx", "NVTX_INJECTION64_PATH", "/nonexistent/tool.so");

    TEST_ASSERT_EQUAL_STRING(
        "gpucap: run: note: NVTX_INJECTION64_PATH is '/nonexistent/tool.so': that tool gets "
        "the NVTX ranges, and they are no tags\n",
        r.err);
    TEST_ASSERT_EQUAL_STRING("-2 -2 -2 -2 -2\n", r.out);
    spawn_result_free(&r);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    UNITY_BEGIN();
    RUN_TEST(test_the_innermost_range_of_the_thread_is_the_tag);
    RUN_TEST(test_without_the_option_ranges_do_nothing);
    RUN_TEST(test_domains_and_registered_and_wide_names_work);
    RUN_TEST(test_too_many_names_are_said_once_and_leave_room_for_the_programs_own);
    RUN_TEST(test_a_profiler_that_has_nvtx_keeps_it);
    unlink(path);
    rmdir(folder);
    return UNITY_END();
}
