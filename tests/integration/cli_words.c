/* Words: help for each command, completion that knows every command and option, and text from other processes
 * that is made harmless. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli_members.h"
#include "interpose/settings/options.h"
#include "tools/gpucap/page_bytes.h"
#include "tools/gpucap/who.h"
#include "tools/gpucap/words.h"
#include "unity.h"

#define NOBODY 65534

static const char *const commands[] = {"run",    "ps",      "top",        "set",  "trim",
                                       "why",    "summary", "view",       "page", "export",
                                       "doctor", "help",    "completion", "man",  "version"};
enum { COMMANDS = sizeof(commands) / sizeof(*commands) };

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    members_end();
    cli_tear_down();
}

/* ---- help ---- */

static void test_every_command_has_its_own_help(void)
{
    char usage[64];

    for (int i = 0; i < COMMANDS; i++) {
        struct spawn_result result = CLI_RUN(NULL, "help", commands[i]);

        cli_expect_status(0, &result);
        snprintf(usage, sizeof(usage), "usage: gpucap %s", commands[i]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, strncmp(result.out, usage, strlen(usage)), result.out);
        spawn_result_free(&result);
    }
}

static void test_a_command_answers_help_itself(void)
{
    static const char *const these[] = {"run",     "ps",   "top",  "set",    "trim",   "why",
                                        "summary", "view", "page", "export", "doctor", "completion"};

    for (size_t i = 0; i < sizeof(these) / sizeof(*these); i++) {
        struct spawn_result asked = CLI_RUN(NULL, "help", these[i]);
        struct spawn_result answered = CLI_RUN(NULL, these[i], "--help");

        cli_expect_status(0, &answered);
        TEST_ASSERT_EQUAL_STRING(asked.out, answered.out);
        spawn_result_free(&asked);
        spawn_result_free(&answered);
    }
}

static void test_mistyped_commands_are_guessed(void)
{
    struct spawn_result result = CLI_RUN(NULL, "help", "trmi");
    cli_expect_status(125, &result);
    cli_expect_err("did you mean trim?", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "sett", "1", "--max=1G");
    cli_expect_status(125, &result);
    cli_expect_err("did you mean set?", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "ps", "--jason");
    cli_expect_status(125, &result);
    cli_expect_err("did you mean --json?", &result);
    spawn_result_free(&result);
}

static void test_help_fits_80_columns(void)
{
    for (int i = 0; i < COMMANDS; i++) {
        struct spawn_result result = CLI_RUN(NULL, "help", commands[i]);

        for (const char *line = strtok(result.out, "\n"); line; line = strtok(NULL, "\n"))
            TEST_ASSERT_TRUE_MESSAGE(strlen(line) <= 80, line);
        spawn_result_free(&result);
    }
}

/* ---- parts ---- */

/* `gpucap run` must start on machines that have none of the libraries of ps and top. */
static void test_command_without_its_parts_says_what_is_missing(void)
{
    static const struct {
        const char *words, *says;
        int status;
    } cases[] = {
        {"version", "", 0},
        {"ps --prometheus", "", 0},
        {"ps", "libgpucap_table.so is neither beside this executable nor in ../lib", 125},
        {"ps --json", "Debian's libcjson-dev", 125},
        {"top", "`gpucap ps` shows the same once", 125},
    };
    struct spawn_env *env = cli_env();

    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        spawn_env_set(env, "WORDS", cases[i].words);
        struct spawn_result result = spawn_run(
            env,
            (const char *[]){"sh", "-c", "cp \"$CLI\" \"$HOME/gpucap\" && \"$HOME/gpucap\" $WORDS", NULL},
            NULL);
        cli_expect_status(cases[i].status, &result);
        cli_expect_err(cases[i].says, &result);
        spawn_result_free(&result);
    }
    spawn_env_free(env);
}

/* ---- completion ---- */

static void expect_all_words(const char *shell, const char *dashes)
{
    struct spawn_result result = CLI_RUN(NULL, "completion", shell);
    char word[64];

    cli_expect_status(0, &result);
    for (int i = 0; i < COMMANDS; i++)
        cli_expect_out(commands[i], &result);
    for (int id = 0; id < OPTIONS_COUNT; id++) {
        snprintf(word, sizeof(word), "%s%s=", dashes, options_table[id].name);
        cli_expect_out(word, &result);
    }
    cli_expect_out("--prometheus", &result);
    spawn_result_free(&result);
}

static void test_completion_knows_every_command_and_option(void)
{
    expect_all_words("bash", "--");
    expect_all_words("zsh", "--");
    struct spawn_result result = CLI_RUN(NULL, "completion", "fish");
    cli_expect_status(125, &result);
    cli_expect_err("unknown shell 'fish'; accepted: bash, zsh", &result);
    spawn_result_free(&result);
}

/* How often `word` is in `text`. */
static int count_of(const char *word, const char *text)
{
    int count = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        count++;
    return count;
}

static void test_zsh_offers_processes_where_bash_does(void)
{
    static const char word[] = "$(gpucap completion processes";
    struct spawn_result bash = CLI_RUN(NULL, "completion", "bash"), zsh = CLI_RUN(NULL, "completion", "zsh");

    TEST_ASSERT_GREATER_THAN_INT(3, count_of(word, bash.out));
    TEST_ASSERT_EQUAL_INT(count_of(word, bash.out), count_of(word, zsh.out));
    spawn_result_free(&bash);
    spawn_result_free(&zsh);
}

/* What bash would offer for the words, the last of them unfinished. */
static void expect_offers(const char *words, int index, const char *offers)
{
    struct spawn_env *env = cli_env();
    char script[512];

    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    snprintf(
        script, sizeof(script),
        "gpucap() { \"$CLI\" \"$@\"; }; source <(gpucap completion bash); COMP_WORDS=(%s); COMP_CWORD=%d; "
        "_gpucap; echo \"${COMPREPLY[*]}\"",
        words, index);
    struct spawn_result result = spawn_run(env, (const char *[]){"bash", "--norc", "-c", script, NULL}, NULL);
    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("", result.err);
    TEST_ASSERT_EQUAL_STRING(offers, result.out);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_bash_completes_commands_options_and_jobs(void)
{
    members_start(MEMBERS_UUID, "train-a", 8192, 1, 0);
    members_start(MEMBERS_UUID, "$(echo train-b)", 8192, 1, 0);
    expect_offers("gpucap t", 1, "top trim\n");
    expect_offers("gpucap ps --j", 2, "--json\n");
    expect_offers("gpucap set --ma", 2, "--max=\n");
    expect_offers("gpucap run --res", 2, "--reserve=\n");
    expect_offers("gpucap trim tr", 2, "train-a\n");
    expect_offers("gpucap trim al", 2, "all\n");
    expect_offers("gpucap why /proc/self/cmdl", 2, "/proc/self/cmdline\n");
    expect_offers("gpucap why train-", 2, "train-a\n");
    expect_offers("gpucap record sto", 2, "stop\n");
    expect_offers("gpucap record stop tr", 3, "train-a\n");
    expect_offers("gpucap help do", 2, "doctor\n");
    expect_offers("gpucap export --t", 2, "--to=\n");
    expect_offers("gpucap page /proc/self/cmdl", 2, "/proc/self/cmdline\n");
    expect_offers("gpucap completion z", 2, "zsh\n");
}

static void test_zsh_accepts_its_script(void)
{
    struct spawn_env *env = cli_env();

    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    struct spawn_result result = spawn_run(
        env,
        (const char *[]){"sh", "-c", "command -v zsh >/dev/null || exit 77; \"$CLI\" completion zsh | zsh -n",
                         NULL},
        NULL);
    const int status = result.status;
    if (status != 77) {
        cli_expect_status(0, &result);
        TEST_ASSERT_EQUAL_STRING("", result.err);
    }
    spawn_result_free(&result);
    spawn_env_free(env);
    if (status == 77)
        TEST_IGNORE_MESSAGE("there is no zsh here");
}

/* ---- a value that may be left out ---- */

static void test_sim_alone_is_the_default_card(void)
{
    struct spawn_result result = CLI_RUN(NULL, "ps", "--sim");

    cli_expect_status(0, &result);
    spawn_result_free(&result);
}

/* ---- text of other processes ---- */

/* In a page, names of programs are neither tags nor the end of a string. */
static void test_what_a_page_would_obey_is_escaped(void)
{
    char text[128] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");

    page_string(out, "a<b>&'\"\\\n\x7f\xc3\xa4");
    fclose(out);
    TEST_ASSERT_EQUAL_STRING("\"a\\u003cb\\u003e\\u0026\\u0027\\u0022\\u005c\\u000a\\u007f\xc3\xa4\"", text);
}

static void test_text_of_others_is_made_harmless(void)
{
    static const struct {
        const char *given, *clean;
    } cases[] = {
        {"plain", "plain"},
        {"\x1b[31m", "?[31m"},
        {"tab\there", "tab?here"},
        {"na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80", "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc3", "?"},
        {"\xc0\xaf", "??"},
        {"\xed\xa0\x80", "???"},
        {"\xf4\x90\x80\x80", "????"},
        {"\xc2\x9b"
         "31m",
         "??31m"},
        {"a\xe2\x80\xae"
         "b\xe2\x81\xa9\xe2\x80\x8f",
         "a???b??????"}, /* they turn text around */
        {"", ""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[64];

        snprintf(text, sizeof(text), "%s", cases[i].given);
        words_clean(text);
        TEST_ASSERT_EQUAL_STRING(cases[i].clean, text);
    }
}

static void test_figures_read_well(void)
{
    char text[WORDS_TEXT];

    TEST_ASSERT_EQUAL_STRING("0", words_size(0, text));
    TEST_ASSERT_EQUAL_STRING("1 KiB", words_size(1, text));
    TEST_ASSERT_EQUAL_STRING("4 KiB", words_size(4096, text));
    TEST_ASSERT_EQUAL_STRING("147 MiB", words_size(UINT64_C(147) << 20, text));
    TEST_ASSERT_EQUAL_STRING("1.0 GiB", words_size(UINT64_C(1) << 30, text));
    TEST_ASSERT_EQUAL_STRING("139.8 GiB", words_size(UINT64_C(150110011392), text));
    TEST_ASSERT_EQUAL_STRING("none", words_size(WORDS_UNLIMITED, text));
    TEST_ASSERT_EQUAL_STRING("8.0G", words_short(UINT64_C(8) << 30, text));
    TEST_ASSERT_EQUAL_STRING("0.4 s", words_span(400, text));
    TEST_ASSERT_EQUAL_STRING("12 s", words_span(12999, text));
    TEST_ASSERT_EQUAL_STRING("1 m 02 s", words_span(62000, text));
    TEST_ASSERT_EQUAL_STRING("3 h 05 m", words_span(11100000, text));
    TEST_ASSERT_EQUAL_STRING("9 d 23 h", words_span(863999000, text));
}

/* Exit status of a child, which is not root, that looks at a process that /proc does not show. */
static int look_as_nobody(uid_t uid, const char *expected)
{
    const pid_t child = fork();
    int status = -1;

    if (child == 0) {
        char command[64];

        if (geteuid() == 0 && (setgid(NOBODY) || setuid(NOBODY)))
            _exit(2);
        who_command(INT32_MAX, uid, "/opt/bin/serve --token=secret", command, sizeof(command));
        _exit(strcmp(command, expected) != 0);
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    return WEXITSTATUS(status);
}

static void test_command_line_that_proc_does_not_show_is_only_a_name(void)
{
    const uid_t own = geteuid() == 0 ? NOBODY : geteuid();

    TEST_ASSERT_EQUAL_INT(0, look_as_nobody(own + 1, "serve"));
    TEST_ASSERT_EQUAL_INT(0, look_as_nobody(own, "/opt/bin/serve --token=secret"));
}

static void test_process_of_another_command_is_not_mistaken(void)
{
    char command[256];

    /* This process's number, but not its command: as if the ledger came from another PID namespace. */
    who_command(getpid(), geteuid(), "python3 train.py", command, sizeof(command));
    TEST_ASSERT_EQUAL_STRING("python3 train.py", command);
    /* Its own, as the ledger has it: without the folder, and only the beginning. */
    who_command(getpid(), geteuid(), "cli_wo", command, sizeof(command));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, strncmp(command, "cli_words", 9), command);
}

static void test_process_without_the_ledger_is_not_meant_by_it(void)
{
    const pid_t member = members_start(MEMBERS_UUID, "job", 8192, 1, 0)->pid;

    TEST_ASSERT_TRUE(who_has_ledger(member, geteuid(), MEMBERS_UUID));
    TEST_ASSERT_FALSE(who_has_ledger(member, geteuid() + 1, MEMBERS_UUID));
    TEST_ASSERT_FALSE(who_has_ledger(member, geteuid(), MEMBERS_OTHER_UUID));
    TEST_ASSERT_FALSE(who_has_ledger(getpid(), geteuid(), MEMBERS_UUID));
    TEST_ASSERT_FALSE(who_has_ledger(0, geteuid(), MEMBERS_UUID));
    TEST_ASSERT_FALSE(who_has_ledger(-1, geteuid(), MEMBERS_UUID));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_command_has_its_own_help);
    RUN_TEST(test_a_command_answers_help_itself);
    RUN_TEST(test_mistyped_commands_are_guessed);
    RUN_TEST(test_help_fits_80_columns);
    RUN_TEST(test_command_without_its_parts_says_what_is_missing);
    RUN_TEST(test_completion_knows_every_command_and_option);
    RUN_TEST(test_zsh_offers_processes_where_bash_does);
    RUN_TEST(test_bash_completes_commands_options_and_jobs);
    RUN_TEST(test_zsh_accepts_its_script);
    RUN_TEST(test_sim_alone_is_the_default_card);
    RUN_TEST(test_what_a_page_would_obey_is_escaped);
    RUN_TEST(test_text_of_others_is_made_harmless);
    RUN_TEST(test_figures_read_well);
    RUN_TEST(test_command_line_that_proc_does_not_show_is_only_a_name);
    RUN_TEST(test_process_of_another_command_is_not_mistaken);
    RUN_TEST(test_process_without_the_ledger_is_not_meant_by_it);
    return UNITY_END();
}
