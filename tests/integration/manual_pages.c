/* The manual pages: each is what its program writes now, has every option that the program's --help has, and
 * groff has nothing to say about it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_support.h"
#include "unity.h"

#define NAME_ROOM 64

static const struct page {
    const char *program, *man, *help;
} pages[] = {
    {"gpucap", "man", "help"},
    {"train", "--man", "--help"},
    {"fleet", "--man", "--help"},
    {"scenarios", "--man", "--help"},
};
enum { PAGES = sizeof(pages) / sizeof(*pages) };

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

static struct spawn_result run(const char *program, const char *argument)
{
    const bool of_run = !strcmp(argument, "help"); /* gpucap's options are those of run */
    struct spawn_env *env = cli_env();
    spawn_sim(env, NULL, NULL);
    struct spawn_result result = spawn_run(
        env, (const char *[]){spawn_build_path(program), argument, of_run ? "run" : NULL, NULL}, NULL);

    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("", result.err);
    spawn_env_free(env);
    return result;
}

/* The name of the option that a line of help is about, as a page writes it; false if it is about none. */
static bool option_of_line(const char *line, char name[NAME_ROOM])
{
    size_t used = 0;

    if (strncmp(line, "  --", 4) != 0)
        return false;
    for (line += 2; used < NAME_ROOM - 3 && (*line == '-' || isalnum((unsigned char)*line)); line++) {
        if (*line == '-')
            name[used++] = '\\';
        name[used++] = *line;
    }
    name[used] = '\0';
    return true;
}

static void test_a_page_has_every_option_of_the_help(void)
{
    for (int i = 0; i < PAGES; i++) {
        struct spawn_result page = run(pages[i].program, pages[i].man);
        struct spawn_result help = run(pages[i].program, pages[i].help);
        char name[NAME_ROOM], message[NAME_ROOM + 32];
        int options = 0;

        for (char *line = strtok(help.out, "\n"); line; line = strtok(NULL, "\n")) {
            if (!option_of_line(line, name))
                continue;
            options++;
            snprintf(message, sizeof(message), "%s: %s", pages[i].program, name);
            TEST_ASSERT_NOT_NULL_MESSAGE(strstr(page.out, name), message);
        }
        TEST_ASSERT_TRUE_MESSAGE(options > 5, pages[i].program);
        spawn_result_free(&page);
        spawn_result_free(&help);
    }
}

static const char *page_file(const char *program)
{
    char name[NAME_ROOM];

    snprintf(name, sizeof(name), "%s.1", program);
    return spawn_build_path(name);
}

static void test_the_files_are_what_the_programs_say(void)
{
    for (int i = 0; i < PAGES; i++) {
        struct spawn_result page = run(pages[i].program, pages[i].man);
        char *file = malloc(page.out_len + 2);
        FILE *stream = fopen(page_file(pages[i].program), "re");

        TEST_ASSERT_NOT_NULL_MESSAGE(stream, pages[i].program);
        file[fread(file, 1, page.out_len + 1, stream)] = '\0';
        TEST_ASSERT_EQUAL_STRING(page.out, file);
        fclose(stream);
        free(file);
        spawn_result_free(&page);
    }
}

static void test_groff_has_no_warnings(void)
{
    struct spawn_env *env = cli_env();
    struct spawn_result result = spawn_run(env, (const char *[]){"sh", "-c", "command -v groff", NULL}, NULL);
    const bool here = result.status == 0;

    spawn_result_free(&result);
    for (int i = 0; i < PAGES && here; i++) {
        result = spawn_run(
            env, (const char *[]){"groff", "-man", "-ww", "-Tutf8", "-z", page_file(pages[i].program), NULL},
            NULL);
        cli_expect_status(0, &result);
        TEST_ASSERT_EQUAL_STRING_MESSAGE("", result.err, pages[i].program);
        spawn_result_free(&result);
    }
    spawn_env_free(env);
    if (!here)
        TEST_IGNORE_MESSAGE("there is no groff here");
}

/* A page that could not be written must not be installed half. */
static void test_output_that_cannot_be_written_is_a_failure(void)
{
    struct spawn_env *env = cli_env();

    spawn_sim(env, NULL, NULL);
    for (int i = 0; i < 2 * PAGES; i++) {
        spawn_env_set(env, "PROGRAM", spawn_build_path(pages[i / 2].program));
        spawn_env_set(env, "ARGUMENT", i % 2 ? pages[i / 2].man : pages[i / 2].help);
        struct spawn_result result =
            spawn_run(env, (const char *[]){"sh", "-c", "\"$PROGRAM\" \"$ARGUMENT\" >/dev/full", NULL}, NULL);
        TEST_ASSERT_TRUE_MESSAGE(result.status != 0, pages[i / 2].program);
        spawn_result_free(&result);
    }
    spawn_env_free(env);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_page_has_every_option_of_the_help);
    RUN_TEST(test_the_files_are_what_the_programs_say);
    RUN_TEST(test_groff_has_no_warnings);
    RUN_TEST(test_output_that_cannot_be_written_is_a_failure);
    return UNITY_END();
}
