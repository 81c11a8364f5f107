/* Where the library's messages go when the program has changed its standard error: to the new one, or
 * nowhere, and never into a file that got the same descriptor number. */
#include "interpose_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A setting that cannot be read is said at the start of CUDA, which is refused (CUDA_ERROR_NOT_PERMITTED). */
static const struct interpose_run run = {.program = "prog_stderr", .cap = "nonsense"};
#define ANSWER "init 800\n"
#define LINE   "gpucap: "

static char folder[] = "/tmp/gpucap-stderr.XXXXXX", file[64];

void setUp(void)
{
    strcpy(folder + sizeof(folder) - 7, "XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/file", folder);
}

void tearDown(void)
{
    unlink(file);
    rmdir(folder);
}

static struct spawn_result take(const char *mode)
{
    char steps[128];

    snprintf(steps, sizeof(steps), "%s %s", mode, file);
    struct spawn_result r = interpose_take(&run, steps);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, ANSWER), r.out);
    return r;
}

/* The file holds only what the program wrote. */
static void untouched(const char *mode, const char *content)
{
    char want[64];

    snprintf(want, sizeof(want), ANSWER "file: %s", content);
    struct spawn_result r = take(mode);
    TEST_ASSERT_EQUAL_STRING_MESSAGE(want, r.out, mode);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, mode);
    spawn_result_free(&r);
}

static void logged(const char *mode)
{
    struct spawn_result r = take(mode);

    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, ANSWER "file: " LINE), r.out);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, mode);
    spawn_result_free(&r);
}

static void test_a_line_goes_to_the_standard_error_of_the_start(void)
{
    struct spawn_result r = take("nothing");

    TEST_ASSERT_EQUAL_STRING(ANSWER "file: ", r.out);
    TEST_ASSERT_EQUAL_STRING_LEN(LINE, r.err, strlen(LINE));
    spawn_result_free(&r);
}

static void test_a_file_that_got_the_number_of_a_closed_stderr_is_untouched(void)
{
    untouched("data", "data\n");
    tearDown(), setUp();
    untouched("append", "data\n");
    tearDown(), setUp();
    untouched("fclose", "data\n");
    tearDown(), setUp();
    untouched("same-number", "data\n");
}

/* Where the file system gives the inode of the deleted log to the next file, as ext4 does. */
static void test_a_file_with_the_inode_of_a_deleted_log_is_untouched(void)
{
    untouched("log-then-data", "data\n");
}

static void test_lines_go_to_a_log_that_the_program_puts_in_place(void)
{
    static const char *const modes[] = {"dup2", "dup3", "freopen", "freopen64"};

    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        logged(modes[i]);
        tearDown(), setUp();
    }
}

static void test_a_childs_standard_error_is_not_taken_for_ours(void)
{
    logged("vfork");
}

static void test_a_daemons_log_gets_its_lines(void)
{
    logged("daemon");
}

static void test_without_a_standard_error_nothing_is_said(void)
{
    untouched("closed", "");
}

static void test_a_reader_that_has_gone_away_does_not_end_the_program(void)
{
    untouched("no-reader", "");
}

/* As daemons are started: nothing at number 2, which the first file gets. */
static void test_a_program_started_without_stderr_has_none(void)
{
    struct spawn_env *env = interpose_env(&run);
    char command[512];

    snprintf(command, sizeof(command), "exec %s dlsym append %s 2>&-", interpose_program(run.program), file);
    const char *argv[] = {"sh", "-c", command, NULL};
    struct spawn_result r = spawn_run(env, argv, NULL);
    TEST_ASSERT_EQUAL_STRING_MESSAGE(ANSWER "file: data\n", r.out, r.err);
    spawn_result_free(&r);
    spawn_env_free(env);
}

int main(void)
{
    interpose_need_sim();
    UNITY_BEGIN();
    RUN_TEST(test_a_line_goes_to_the_standard_error_of_the_start);
    RUN_TEST(test_a_file_that_got_the_number_of_a_closed_stderr_is_untouched);
    RUN_TEST(test_a_file_with_the_inode_of_a_deleted_log_is_untouched);
    RUN_TEST(test_lines_go_to_a_log_that_the_program_puts_in_place);
    RUN_TEST(test_a_childs_standard_error_is_not_taken_for_ours);
    RUN_TEST(test_a_daemons_log_gets_its_lines);
    RUN_TEST(test_without_a_standard_error_nothing_is_said);
    RUN_TEST(test_a_reader_that_has_gone_away_does_not_end_the_program);
    RUN_TEST(test_a_program_started_without_stderr_has_none);
    return UNITY_END();
}
