/* What `gpucap top` promises, seen on the screen of a pseudo-terminal of 80x24: it shows every process,
 * follows changes, obeys its keys, and needs neither colour nor more than ASCII. */
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli_members.h"
#include "cli_screen.h"
#include "interpose/account/ledger_file.h"
#include "unity.h"

static struct screen screen;
static struct spawn_env *env;

void setUp(void)
{
    cli_set_up();
    env = cli_env();
    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id());
    spawn_env_set(env, "LC_ALL", "C");
}

void tearDown(void)
{
    screen_kill(&screen);
    members_end();
    spawn_env_free(env);
    cli_tear_down();
}

#if GPUCAP_HAS_TOP

static void start_top(const char *term)
{
    screen_start(&screen, env, term, (const char *[]){spawn_build_path("gpucap"), "top", MEMBERS_SIM, NULL});
}

static void quit(void)
{
    screen_type(&screen, "q");
    TEST_ASSERT_EQUAL_INT(0, screen_end(&screen));
    TEST_ASSERT_EQUAL_INT(0, screen.unknown);
}

static void test_screen_has_cards_processes_and_keys(void)
{
    const struct member *first = members_start(members_sim_uuid(), "train-a", 8192, 5222, 1946);
    const struct member *second = members_start(members_sim_uuid(), "serve", 16384, 2867, 0);

    start_top("vt100");
    screen_await(&screen, "? help", true);
    TEST_ASSERT_EQUAL_INT(0, screen_line_of(&screen, "gpucap top"));
    TEST_ASSERT_EQUAL_INT(1, screen_line_of(&screen, "GPU 0  simgpu"));
    TEST_ASSERT_EQUAL_INT(1, screen_line_of(&screen, "# used 6.0G  = idle 1.9G"));
    TEST_ASSERT_EQUAL_INT(2, screen_line_of(&screen, "[#####"));
    TEST_ASSERT_EQUAL_INT(2, screen_line_of(&screen, "#====="));
    TEST_ASSERT_EQUAL_CHAR(']', screen.cells[2][SCREEN_COLUMNS - 1]);
    TEST_ASSERT_EQUAL_INT(3, screen_line_of(&screen, "PID USER"));
    TEST_ASSERT_EQUAL_INT(4, screen_line_of(&screen, members_pid(first)));
    TEST_ASSERT_EQUAL_INT(5, screen_line_of(&screen, members_pid(second)));
    TEST_ASSERT_EQUAL_INT(4, screen_line_of(&screen, "train-a"));
    TEST_ASSERT_EQUAL_INT(4, screen_line_of(&screen, "5.1G   1.9G   5.1G   8.0G"));
    TEST_ASSERT_EQUAL_CHAR_MESSAGE('>', screen.cells[4][0], "the selected row has a mark");
    TEST_ASSERT_EQUAL_INT(SCREEN_LINES - 1,
                          screen_line_of(&screen, "q quit  s sort  t trim  m set limit  k signal  g group"));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, screen.colours, "a vt100 has no colours");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, screen.letters, "the locale has only ASCII");
    quit();
}

static void test_a_small_window_names_the_card_first(void)
{
    members_start(members_sim_uuid(), "night.run_with-long-name", 8192, 5222, 1946);
    start_top("vt100");
    screen_await(&screen, "  1 process  ", true);
    screen_await(&screen, " night.run_w+ ", true); /* a name that is cut has a mark */
    screen_resize(&screen, SCREEN_LINES, 40);
    screen_await(&screen, "16.0G #3.2G =1.9G", true);
    screen_await(&screen, "GPU 0 ", true);
    screen_resize(&screen, 8, 40);
    screen_await(&screen, "1 card: make the window higher", true);
    quit();
}

/* A line below the card's bar, which takes its place only while there is something to say. */
static void test_min_and_high_of_jobs_have_a_line(void)
{
    const struct member *first = members_start(members_sim_uuid(), "train-a", 8192, 1024, 0);

    members_start(members_sim_uuid(), "train-a", 8192, 512, 0);
    members_start(members_sim_uuid(), "serve", 8192, 512, 0);
    start_top("vt100");
    screen_await(&screen, members_pid(first), true);
    TEST_ASSERT_EQUAL_INT(3, screen_line_of(&screen, "PID USER"));
    struct spawn_result result = CLI_RUN(env, "set", "train-a", "--min=2G", "--high=6G");
    cli_expect_status(0, &result);
    spawn_result_free(&result);
    result = CLI_RUN(env, "set", "serve", "--high=4G");
    cli_expect_status(0, &result);
    spawn_result_free(&result);
    screen_await(&screen, "serve: high 4.0 GiB; train-a: min 2.0 GiB (512 MiB kept free), high 6.0 GiB",
                 true);
    TEST_ASSERT_EQUAL_INT(3, screen_line_of(&screen, "serve: high"));
    screen_await(&screen, "PID USER", true);
    TEST_ASSERT_EQUAL_INT(4, screen_line_of(&screen, "PID USER"));
    quit();
}

static void test_figures_and_processes_follow(void)
{
    struct member *member = members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);

    start_top("vt100");
    screen_await(&screen, "1.0G", true);
    members_tell(member, "later 3072 0");
    screen_await(&screen, "3.0G", true);
    const struct member *late = members_start(members_sim_uuid(), "late", 8192, 512, 0);
    screen_await(&screen, members_pid(late), true);
    screen_await(&screen, "GPU 0  simgpu", true);
    members_end();
    screen_await(&screen, "no process runs under gpucap here", true);
    quit();
}

static void test_last_minute_is_drawn_with_what_the_terminal_has(void)
{
    members_start(members_sim_uuid(), "train-a", 8192, 8192, 0);
    start_top("vt100");
    screen_await(&screen, "@", true);
    quit();
    spawn_env_set(env, "LC_ALL", "C.UTF-8");
    start_top("xterm-256color");
    screen_await(&screen, "~", true);
    screen_await(&screen, "? help", true);
    TEST_ASSERT_TRUE(screen.letters > 0);
    TEST_ASSERT_TRUE_MESSAGE(screen.colours > 0, "this terminal has colours");
    quit();
    spawn_env_set(env, "NO_COLOR", "1");
    start_top("xterm-256color");
    screen_await(&screen, "? help", true);
    TEST_ASSERT_EQUAL_INT(0, screen.colours);
    quit();
}

static void test_keys_sort_and_select(void)
{
    const struct member *large = members_start(MEMBERS_UUID, "b", 8192, 4096, 0);
    const struct member *small = members_start(MEMBERS_UUID, "a", 8192, 1024, 512);

    start_top("vt100");
    screen_await(&screen, "sorted by used", true);
    screen_await_above(&screen, members_pid(large), members_pid(small));
    screen_type(&screen, "s");
    screen_await(&screen, "sorted by idle", true);
    char marked[32];
    snprintf(marked, sizeof(marked), ">%7s", members_pid(large));
    screen_await(&screen, marked, true); /* the selection stays with its process */
    screen_await_above(&screen, members_pid(small), members_pid(large));
    screen_type(&screen, "\x1bOA"); /* up */
    snprintf(marked, sizeof(marked), ">%7s", members_pid(small));
    screen_await(&screen, marked, true);
    quit();
}

static void test_trim_and_limit_are_one_key_away(void)
{
    const struct member *member = members_start(MEMBERS_UUID, "train-a", 8192, 4096, 1024);

    start_top("vt100");
    screen_await(&screen, members_pid(member), true);
    screen_type(&screen, "t");
    screen_await(&screen, "1.0 GiB given back by 1 process", true);
    screen_await(&screen, "3.0G      0", true);
    screen_type(&screen, "m");
    screen_await(&screen, "new limit of train-a (now 8.0 GiB; 12G, 50% or none):", true);
    screen_type(&screen, "12X\x7fG\r");
    screen_await(&screen, "train-a on GPU-00000000: max was 8.0 GiB, is 12.0 GiB now", true);
    screen_await(&screen, "12.0G", true);
    screen_type(&screen, "m0\r");
    screen_await(&screen, "'0': a limit of zero leaves no room", true);
    screen_type(&screen, "mlots\r");
    screen_await(&screen, "'lots': not a size", true);
    screen_type(&screen, "m5G\x1b"); /* escape: nothing happens */
    screen_await(&screen, "new limit", false);
    screen_await(&screen, "12.0G", true);
    quit();
}

static void test_signal_goes_to_the_selected_process(void)
{
    members_start(MEMBERS_UUID, "other", 8192, 1024, 0);
    const struct member *member = members_start(MEMBERS_UUID, "victim", 8192, 4096, 0);
    siginfo_t end;

    start_top("vt100");
    screen_await(&screen, "victim", true);
    screen_type(&screen, "kBANANA\r");
    screen_await(&screen, "'BANANA' is no signal", true);
    screen_type(&screen, "kterm\r");
    screen_await(&screen, "was sent TERM", true);
    screen_await(&screen, "victim", false);
    TEST_ASSERT_EQUAL_INT(0, waitid(P_PID, (id_t)member->pid, &end, WEXITED | WNOWAIT));
    TEST_ASSERT_EQUAL_INT(SIGTERM, end.si_status);
    TEST_ASSERT_TRUE(screen_shows(&screen, "other"));
    quit();
}

/* Gives the first process of the ledger the number of another one. */
static void renumber(pid_t pid)
{
    char path[256];
    int32_t number = pid;

    snprintf(path, sizeof(path), "%s/" MEMBERS_UUID ".ledger", members_folder());
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    TEST_ASSERT_EQUAL_INT(sizeof(number),
                          pwrite(fd, &number, sizeof(number), offsetof(struct ledger_file, slots[0].pid)));
    close(fd);
}

/* In a container it has a number that another process of the user has outside. */
static void test_signal_reaches_no_process_that_has_the_number_by_chance(void)
{
    members_start(MEMBERS_UUID, "contained", 8192, 1024, 0);
    const pid_t bystander = fork();

    if (bystander == 0)
        for (;;)
            pause();
    renumber(bystander);
    start_top("vt100");
    screen_await(&screen, "contained", true);
    screen_type(&screen, "kkill\r");
    screen_await(&screen, "is not a process that can be seen from here", true);
    TEST_ASSERT_EQUAL_INT(0, waitpid(bystander, NULL, WNOHANG));
    kill(bystander, SIGKILL);
    waitpid(bystander, NULL, 0);
    quit();
}

static void test_jobs_can_be_one_line_each(void)
{
    struct member *first = members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);

    members_tell(first, "each 4096"); /* is not the limit of its job */
    members_start(MEMBERS_UUID, "train-a", 8192, 2048, 0);
    members_start(MEMBERS_UUID, "serve", 8192, 512, 0);
    start_top("vt100");
    screen_await(&screen, "3 processes", true);
    screen_type(&screen, "g");
    screen_await(&screen, "2 jobs", true);
    screen_await(&screen, "2 processes", true);
    screen_await(&screen, "train-a        3.0G      0   3.0G   8.0G", true);
    screen_type(&screen, "g");
    screen_await(&screen, "3 processes", true);
    quit();
}

/* One on two cards has two lines, which name them. */
static void test_processes_and_jobs_on_several_cards_count_once(void)
{
    struct member *member = members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);

    members_tell(member, "also " MEMBERS_OTHER_UUID);
    members_start(MEMBERS_UUID, "train-a", 8192, 2048, 0);
    start_top("vt100");
    screen_await(&screen, "  2 processes  ", true);
    screen_await(&screen, " GPU-0000000", true);
    screen_await(&screen, " GPU-1111111", true);
    screen_type(&screen, "g");
    screen_await(&screen, "  1 job  ", true);
    quit();
}

/* Its processes had them at different times. */
static void test_the_peak_of_a_job_is_not_the_sum_of_its_processes_peaks(void)
{
    struct member *first = members_start(MEMBERS_UUID, "train-a", 8192, 5120, 0);

    members_tell(first, "use 1024 0");
    members_tell(members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0), "use 1024 0");
    start_top("vt100");
    screen_await(&screen, "1.0G      0   5.0G   8.0G", true);
    screen_type(&screen, "g");
    screen_await(&screen, "2.0G      0   5.0G   8.0G", true);
    quit();
}

static void test_more_processes_than_lines_scroll(void)
{
    const struct member *last = NULL;

    for (unsigned i = 0; i < 15; i++)
        last = members_start(MEMBERS_UUID, "many", 8192, 300 - i, 0);
    for (unsigned i = 0; i < 8; i++)
        last = members_start(MEMBERS_UUID, "many", 8192, 100 - i, 0);
    start_top("vt100");
    screen_await(&screen, "? help", true);
    TEST_ASSERT_FALSE(screen_shows(&screen, members_pid(last)));
    TEST_ASSERT_EQUAL_INT(SCREEN_LINES - 1, screen_line_of(&screen, "q quit"));
    for (int i = 0; i < 30; i++)
        screen_type(&screen, "\x1bOB"); /* down */
    screen_await(&screen, members_pid(last), true);
    TEST_ASSERT_EQUAL_INT(SCREEN_LINES - 1, screen_line_of(&screen, "q quit"));
    quit();
}

static void test_help_comes_and_goes(void)
{
    members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);
    start_top("vt100");
    screen_await(&screen, "train-a", true);
    screen_type(&screen, "?");
    screen_await(&screen, "Any key goes back.", true);
    screen_type(&screen, "q"); /* any key: this one does not quit */
    screen_await(&screen, "train-a", true);
    quit();
}

static void test_interrupt_leaves_the_terminal_as_it_was(void)
{
    start_top("xterm-256color");
    screen_await(&screen, "? help", true);
    TEST_ASSERT_TRUE(screen.alternate);
    TEST_ASSERT_EQUAL_INT(0, screen_end_by(&screen, "\x03"));
    TEST_ASSERT_FALSE(screen.alternate);
}

static void test_interrupt_ends_a_question_too(void)
{
    members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);
    start_top("vt100");
    screen_await(&screen, "train-a", true);
    screen_type(&screen, "m");
    screen_await(&screen, "new limit", true);
    TEST_ASSERT_EQUAL_INT(0, screen_end_by(&screen, "\x03"));
}

static void test_unknown_terminal_is_refused(void)
{
    start_top("no-such-terminal");
    screen_await(&screen, "the terminal 'no-such-terminal' cannot show it", true);
    TEST_ASSERT_EQUAL_INT(125, screen_end(&screen));
    start_top("dumb");
    screen_await(&screen, "the terminal 'dumb' cannot show it", true);
    TEST_ASSERT_EQUAL_INT(125, screen_end(&screen));
}

static void test_without_a_terminal_ps_is_named(void)
{
    struct spawn_result result = CLI_RUN(env, "top");

    cli_expect_status(125, &result);
    cli_expect_err("`gpucap ps` prints the same once", &result);
    spawn_result_free(&result);
    char script[4096]; /* its keys come from there, too */
    snprintf(script, sizeof(script), "'%s' top </dev/null", spawn_build_path("gpucap"));
    screen_start(&screen, env, "vt100", (const char *[]){"/bin/sh", "-c", script, NULL});
    screen_await(&screen, "it needs a terminal", true);
    TEST_ASSERT_EQUAL_INT(125, screen_end(&screen));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_screen_has_cards_processes_and_keys);
    RUN_TEST(test_a_small_window_names_the_card_first);
    RUN_TEST(test_min_and_high_of_jobs_have_a_line);
    RUN_TEST(test_figures_and_processes_follow);
    RUN_TEST(test_last_minute_is_drawn_with_what_the_terminal_has);
    RUN_TEST(test_keys_sort_and_select);
    RUN_TEST(test_trim_and_limit_are_one_key_away);
    RUN_TEST(test_signal_goes_to_the_selected_process);
    RUN_TEST(test_signal_reaches_no_process_that_has_the_number_by_chance);
    RUN_TEST(test_jobs_can_be_one_line_each);
    RUN_TEST(test_processes_and_jobs_on_several_cards_count_once);
    RUN_TEST(test_the_peak_of_a_job_is_not_the_sum_of_its_processes_peaks);
    RUN_TEST(test_more_processes_than_lines_scroll);
    RUN_TEST(test_help_comes_and_goes);
    RUN_TEST(test_interrupt_leaves_the_terminal_as_it_was);
    RUN_TEST(test_interrupt_ends_a_question_too);
    RUN_TEST(test_unknown_terminal_is_refused);
    RUN_TEST(test_without_a_terminal_ps_is_named);
    return UNITY_END();
}

#else

static void test_top_says_what_is_missing(void)
{
    struct spawn_result result = CLI_RUN(env, "top");

    cli_expect_status(125, &result);
    cli_expect_err("libncurses-dev", &result);
    spawn_result_free(&result);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_top_says_what_is_missing);
    return UNITY_END();
}

#endif
