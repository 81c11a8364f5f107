/* ceiling: what people read where `max` in /etc/gpucap.conf is the limit. The file is one in a namespace of
 * the test's own, with little else in /etc; without the right to make one, the test is skipped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "cli_support.h"
#include "spawn.h"

#define SKIPPED 77
/* $0: the settings; the rest: the program. */
#define IN_NAMESPACE                                                                                         \
    "mount -t tmpfs none /etc && echo root:x:0:0::/:/bin/sh >/etc/passwd && "                                \
    "printf '%b' \"$0\" >/etc/gpucap.conf && exec \"$@\""

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

/* Runs a program beside an /etc/gpucap.conf. */
static struct spawn_result run(struct spawn_env *env, const char *settings, const char *program,
                               const char *first, const char *second, const char *third)
{
    return spawn_run(env,
                     (const char *[]){"unshare", "-Urm", "sh", "-c", IN_NAMESPACE, settings, program, first,
                                      second, third, NULL},
                     NULL);
}

static struct spawn_env *card(void)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, "1x2G;ctx=128M", NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    spawn_env_set(env, "GPUCAP_LEDGER", cli_path("ledger"));
    return env;
}

static void expect_refusal(const char *settings, const char *max, const char *group, const char *expected)
{
    struct spawn_env *env = card();

    spawn_wrapped(env);
    spawn_cap(env, max);
    if (group)
        spawn_env_set(env, "GPUCAP_GROUP", group);
    struct spawn_result r =
        run(env, settings, spawn_build_path("tests/integration/prog_job"), "hopeless", NULL, NULL);
    spawn_env_free(env);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.refusals, expected), r.refusals);
    TEST_ASSERT_EQUAL_STRING("", r.err);
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
}

static void test_a_refusal_names_the_administrators_file_if_its_max_is_the_limit(void)
{
    expect_refusal("max = 1G\\n", "2G", NULL, " left of 1G (max, from /etc/gpucap.conf)\n");
    expect_refusal("max = 1G\\n", "2G", "many", " left of 1G (job's max, from /etc/gpucap.conf)\n");
    expect_refusal("max = 1G\\n", NULL, NULL, " left of 1G (max, from /etc/gpucap.conf)\n");
    expect_refusal("max = 2G\\n[user root]\\nmax = 1G\\n", "2G", NULL,
                   " left of 1G (max, from /etc/gpucap.conf)\n");
}

static void test_a_refusal_does_not_name_it_if_the_user_asked_for_less(void)
{
    expect_refusal("max = 2G\\n", "1G", NULL, " left of 1G (max)\n");
    expect_refusal("max = 1G\\n", "1G", NULL, " left of 1G (max)\n");
}

static void test_a_context_that_does_not_fit_names_it_too(void)
{
    struct spawn_env *env = card();

    spawn_env_set(env, "ASAN_OPTIONS",
                  "verify_asan_link_order=0:detect_leaks=0"); /* as cli_support.c has it */
    struct spawn_result r = run(env, "max = 100M\\n", spawn_build_path("gpucap"), "run",
                                spawn_build_path("tests/integration/prog_job"), "hopeless");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "the limit is 100M; raise max in /etc/gpucap.conf\n"), r.err);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void test_the_command_line_says_that_the_administrator_allows_less(void)
{
    struct spawn_env *env = card();

    spawn_cap(env, "2G");
    struct spawn_result r = run(env, "max = 1G\\n", spawn_build_path("gpucap"), "doctor", NULL, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "device 0: 1G (max from /etc/gpucap.conf, the ceiling)"),
                                 r.out);
    spawn_result_free(&r);
    spawn_env_free(env);
}

#ifdef HAS_WALK
static void test_why_does_not_suggest_what_the_administrator_forbids(void)
{
    struct spawn_env *env = card();
    char script[3 * 4096];

    snprintf(script, sizeof(script),
             "{ echo take 1000; until grep -q 'out of memory' '%s'; do sleep 0.05; done; '%s' why all >&2; "
             "echo; } | "
             "'%s' run --max=2G -- '%s' >'%s'",
             cli_path("told"), spawn_build_path("gpucap"), spawn_build_path("gpucap"),
             spawn_build_path("tests/integration/prog_walk"), cli_path("told"));
    struct spawn_result r = run(env, "max = 1G\\n", "/bin/sh", "-c", script, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "which only the administrator can set (/etc/gpucap.conf)\n"),
                                 r.err);
    TEST_ASSERT_NULL_MESSAGE(strstr(r.err, "Try:"), r.err);
    spawn_result_free(&r);
    spawn_env_free(env);
}
#endif

int main(void)
{
    if (system("unshare -Urm sh -c 'mount -t tmpfs none /etc' 2>/dev/null") != 0)
        return SKIPPED;
    UNITY_BEGIN();
    RUN_TEST(test_a_refusal_names_the_administrators_file_if_its_max_is_the_limit);
    RUN_TEST(test_a_refusal_does_not_name_it_if_the_user_asked_for_less);
    RUN_TEST(test_a_context_that_does_not_fit_names_it_too);
    RUN_TEST(test_the_command_line_says_that_the_administrator_allows_less);
#ifdef HAS_WALK
    RUN_TEST(test_why_does_not_suggest_what_the_administrator_forbids);
#endif
    return UNITY_END();
}
