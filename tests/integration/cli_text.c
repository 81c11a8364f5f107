/* Help, manual page and messages: they name what the tables hold, and stdout carries only what was asked for.
 */
#include <stdio.h>
#include <string.h>

#include "cli_support.h"
#include "interpose/settings/options.h"
#include "unity.h"

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

static void expect_every_option(struct spawn_result result, const char *dashes)
{
    char name[64];
    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("", result.err);
    for (int id = 0; id < OPTIONS_COUNT; id++) {
        snprintf(name, sizeof(name), "%s%s=", dashes, options_table[id].name);
        cli_expect_out(name, &result);
        cli_expect_out(options_table[id].variable, &result);
    }
    spawn_result_free(&result);
}

static void test_help_of_run_names_every_option_and_variable(void)
{
    expect_every_option(CLI_RUN(NULL, "help", "run"), "--");
    expect_every_option(CLI_RUN(NULL, "run", "--help"), "--");
    expect_every_option(CLI_RUN(NULL, "run", "-h"), "--");
}

static void test_help_is_one_screen_and_leads_to_the_rest(void)
{
    struct spawn_result asked = CLI_RUN(NULL, "help"), answered = CLI_RUN(NULL, "--help");
    int lines = 0;

    cli_expect_status(0, &asked);
    TEST_ASSERT_EQUAL_STRING(asked.out, answered.out);
    cli_expect_out("gpucap run --max=8G", &asked);
    cli_expect_out("'gpucap help run'", &asked);
    for (const char *line = strtok(asked.out, "\n"); line; line = strtok(NULL, "\n"), lines++)
        TEST_ASSERT_TRUE_MESSAGE(strlen(line) <= 80, line);
    TEST_ASSERT_LESS_OR_EQUAL_INT(24, lines);
    spawn_result_free(&asked);
    spawn_result_free(&answered);
}

static void test_manual_page_names_every_option_and_variable(void)
{
    expect_every_option(CLI_RUN(NULL, "man"), "\\-\\-");
    struct spawn_result result = CLI_RUN(NULL, "man");
    TEST_ASSERT_EQUAL_INT(0, strncmp(result.out, ".TH GPUCAP 1", 12));
    cli_expect_out("\\fBexport\\fR: 0 done, 1 a recording could not be read and was left out.", &result);
    spawn_result_free(&result);
}

static void test_version_is_one_line(void)
{
    struct spawn_result result = CLI_RUN(NULL, "--version");
    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_INT(0, strncmp(result.out, "gpucap ", 7));
    TEST_ASSERT_EQUAL_PTR(result.out + result.out_len - 1, strchr(result.out, '\n'));
    spawn_result_free(&result);
}

static void test_unknown_command_is_refused_with_a_suggestion(void)
{
    struct spawn_result result = CLI_RUN(NULL, "docter");
    cli_expect_status(125, &result);
    cli_expect_err("did you mean doctor?", &result);
    TEST_ASSERT_EQUAL_STRING("", result.out);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "zebra");
    cli_expect_status(125, &result);
    cli_expect_err("unknown command 'zebra'", &result);
    spawn_result_free(&result);
    result = cli_run(NULL, (const char *const[]){NULL});
    cli_expect_status(125, &result);
    cli_expect_err("a command is missing", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "--max=8G", "--", "true");
    cli_expect_status(125, &result);
    cli_expect_err("gpucap run --max=8G", &result);
    spawn_result_free(&result);
}

static void test_output_that_cannot_be_written_is_a_failure(void)
{
    struct spawn_env *env = cli_env();
    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    struct spawn_result result =
        spawn_run(env, (const char *[]){"sh", "-c", "\"$CLI\" man >/dev/full", NULL}, NULL);
    cli_expect_status(125, &result);
    cli_expect_err("cannot write", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_help_of_run_names_every_option_and_variable);
    RUN_TEST(test_help_is_one_screen_and_leads_to_the_rest);
    RUN_TEST(test_manual_page_names_every_option_and_variable);
    RUN_TEST(test_version_is_one_line);
    RUN_TEST(test_unknown_command_is_refused_with_a_suggestion);
    RUN_TEST(test_output_that_cannot_be_written_is_a_failure);
    return UNITY_END();
}
