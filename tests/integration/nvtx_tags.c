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
    snprintf(path, sizeof(path), "%s/recording", folder);
    unlink(path);
}

void tearDown(void) {}

/* Runs a scenario with the library injected, as `gpucap run --nvtx` does it. */
static struct spawn_result run(const char *scenario, const char *nvtx)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, "1x2G", NULL);
    spawn_env_set(env, "HOME", "/nonexistent");
    spawn_wrapped(env);
    spawn_env_set(env, "GPUCAP_RECORD", path);
    spawn_env_set(env, "GPUCAP_NVTX", nvtx);
    spawn_env_set(env, "NVTX_INJECTION64_PATH", spawn_build_path("libgpucap.so"));
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_nvtx"), scenario, NULL}, NULL);
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

static const char *const range_tags[] = {"",        "forward", "layer 1", "layer 1", "mine",
                                         "layer 1", "forward", "",        "",        "loader"};
static const char *const no_tags[] = {"", "", "", "", "mine", "", "", "", "", ""};

static void test_the_innermost_range_of_the_thread_is_the_tag(void)
{
    struct spawn_result r = run("ranges", "on");

    TEST_ASSERT_EQUAL_STRING("", r.err);
    TEST_ASSERT_EQUAL_STRING("0 1 1 0 -1\n", r.out);
    expect_tags(range_tags, 10);
    spawn_result_free(&r);
}

static void test_without_the_option_ranges_do_nothing(void)
{
    struct spawn_result r = run("ranges", "off");

    TEST_ASSERT_EQUAL_STRING("-2 -2 -2 -2 -2\n", r.out);
    expect_tags(no_tags, 10);
    spawn_result_free(&r);
}

static void test_domains_and_registered_and_wide_names_work(void)
{
    static const char *const tags[] = {"registered",
                                       "breit \xc3\xbc",
                                       "wide",
                                       "wide",
                                       "breit \xc3\xbc",
                                       "",
                                       "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
    struct spawn_result r = run("domains", "on");

    TEST_ASSERT_EQUAL_STRING("", r.err);
    expect_tags(tags, 7);
    spawn_result_free(&r);
}

static void test_too_many_names_are_said_once_and_leave_room_for_the_programs_own(void)
{
    static const char *const tags[] = {"range 126", "", "still", "", "range 1"};
    struct spawn_result r = run("many", "on");

    TEST_ASSERT_EQUAL_STRING(
        "gpucap: there are more than 448 names of NVTX ranges: the range \"range 448\" and "
        "later ones do not become tags\n",
        r.err);
    expect_tags(tags, 5);
    spawn_result_free(&r);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* a sanitizer must be preloaded first   \
                                                                     */
/* Runs "ranges" under the command, with NVTX_INJECTION64_PATH set beforehand or not. */
static struct spawn_result command(const char *option, const char *tool)
{
    struct spawn_env *env = spawn_env_new();
    char record[160];

    spawn_sim(env, "1x2G", NULL);
    spawn_env_set(env, "HOME", "/nonexistent");
    if (tool)
        spawn_env_set(env, "NVTX_INJECTION64_PATH", tool);
    snprintf(record, sizeof(record), "--record=%s", path);
    const char *argv[] = {spawn_build_path("gpucap"),
                          "run",
                          record,
                          option,
                          "--",
                          spawn_build_path("tests/integration/prog_nvtx"),
                          "ranges",
                          NULL};
    struct spawn_result r = spawn_run(env, argv, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    return r;
}

static void test_the_command_has_nvtx_load_the_library_if_asked_to(void)
{
    static const char *const asked[] = {"--nvtx", "--nvtx=on"};

    for (int i = 0; i < 2; i++) {
        struct spawn_result r = command(asked[i], NULL);

        TEST_ASSERT_EQUAL_STRING("", r.err);
        expect_tags(range_tags, 10);
        spawn_result_free(&r);
    }
    struct spawn_result r = command("--nvtx=off", NULL);
    expect_tags(no_tags, 10);
    spawn_result_free(&r);
}

static void test_a_profiler_that_has_nvtx_keeps_it(void)
{
    struct spawn_result r = command("--nvtx", "/nonexistent/tool.so");

    TEST_ASSERT_EQUAL_STRING(
        "gpucap: run: note: NVTX_INJECTION64_PATH is '/nonexistent/tool.so': that tool gets "
        "the NVTX ranges, so they do not become tags\n",
        r.err);
    TEST_ASSERT_EQUAL_STRING("-2 -2 -2 -2 -2\n", r.out);
    spawn_result_free(&r);
}
#endif

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    UNITY_BEGIN();
    RUN_TEST(test_the_innermost_range_of_the_thread_is_the_tag);
    RUN_TEST(test_without_the_option_ranges_do_nothing);
    RUN_TEST(test_domains_and_registered_and_wide_names_work);
    RUN_TEST(test_too_many_names_are_said_once_and_leave_room_for_the_programs_own);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    RUN_TEST(test_the_command_has_nvtx_load_the_library_if_asked_to);
    RUN_TEST(test_a_profiler_that_has_nvtx_keeps_it);
#endif
    unlink(path);
    rmdir(folder);
    return UNITY_END();
}
