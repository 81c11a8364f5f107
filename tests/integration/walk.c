/* walk: a first walk through the command, as docs/walk.md shows it: each line there was printed by the
 * command above it. The test takes the walk again and compares; numbers of processes, times and spaces may
 * differ.
 *
 *     walk            compares with docs/walk.md
 *     walk --write    writes docs/walk.md
 */
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli_screen.h"
#include "cli_support.h"
#include "interpose/base/clock.h"
#include "unity.h"

#define TEXT_MAX  65536
#define SAID_MAX  8192
#define TRAININGS 2

#define PATIENCE_MS 100000 /* ends a hang; nothing may count on being faster */

static const char *const page = GPUCAP_SOURCE "/docs/walk.md";
static bool writes;
static FILE *walk;

static struct training {
    pid_t pid;
    FILE *in, *out;
} trainings[TRAININGS];
static int count;

/* Commands run in a folder of their own, with a ledger and a program called train. */
void setUp(void)
{
    cli_set_up();
    TEST_ASSERT_EQUAL_INT(0, chdir(cli_folder()));
    setenv("HOME", cli_folder(), 1);
    unsetenv("GPUCAP_LEDGER");
    setenv("XDG_RUNTIME_DIR", cli_folder(), 1); /* the ledger is in its default place, in the folder gpucap */
    cli_copy(spawn_build_path("tests/integration/prog_walk"), cli_path("train"), 0700);
}

void tearDown(void)
{
    for (int i = 0; i < count; i++) {
        kill(trainings[i].pid, SIGKILL);
        waitpid(trainings[i].pid, NULL, 0);
        fclose(trainings[i].in);
        fclose(trainings[i].out);
    }
    count = 0;
    TEST_ASSERT_EQUAL_INT(0, chdir("/"));
    cli_tear_down();
}

/* ---- the steps ---- */

static void say(const char *text)
{
    fprintf(walk, "%s\n", text);
}

/* Shows a command and what it prints, once it prints this text. A process may take longer to publish its
 * figures than `ps` waits for them; then they are looked at again. */
static void show_with(const char *command, const char *text)
{
    const uint64_t until = clock_ms() + PATIENCE_MS;
    char said[SAID_MAX], whole[512];

    snprintf(whole, sizeof(whole), "%s 2>&1", command);
    do {
        FILE *out = popen(whole, "r");
        TEST_ASSERT_NOT_NULL(out);
        said[fread(said, 1, sizeof(said) - 1, out)] = '\0';
        pclose(out);
    } while (!strstr(said, text) && clock_ms() < until);
    fprintf(walk, "```\n$ %s\n%s```\n", command, said);
}

static void show(const char *command)
{
    show_with(command, "");
}

/* Passes on what a training prints until it has obeyed. */
static void listen_to(struct training *training)
{
    char line[512];

    while (fgets(line, sizeof(line), training->out) && strcmp(line, "done\n") != 0)
        fputs(line, walk);
}

static void tell(struct training *training, const char *order)
{
    fprintf(training->in, "%s\n", order);
    fflush(training->in);
    listen_to(training);
}

/* Starts a training in the background and has it take its first memory. */
static struct training *start(const char *command, const char *order)
{
    struct training *training = &trainings[count];
    int in[2], out[2];
    char line[512];

    TEST_ASSERT_EQUAL_INT(0, pipe(in));
    TEST_ASSERT_EQUAL_INT(0, pipe(out));
    snprintf(line, sizeof(line), "exec %s", command);
    training->pid = fork();
    if (training->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(out[1], STDERR_FILENO);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execl("/bin/sh", "sh", "-c", line, NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    training->in = fdopen(in[1], "w");
    training->out = fdopen(out[0], "r");
    count++;
    fprintf(walk, "```\n$ %s &\n", command);
    tell(training, order);
    fputs("```\n", walk);
    return training;
}

static void show_top(void)
{
    struct spawn_env *env = cli_env_real();
    static struct screen screen;

    spawn_env_set(env, "LC_ALL", "C");
    spawn_env_set(env, "GPUCAP_SIM_ID", getenv("GPUCAP_SIM_ID"));
    spawn_env_set(env, "GPUCAP_LEDGER", cli_path("gpucap"));
    screen_start(&screen, env, "vt100", (const char *[]){spawn_build_path("gpucap"), "top", NULL});
    screen_await(&screen, "? help", true);
    fputs("```\n$ gpucap top\n", walk);
    for (int i = 0; i < SCREEN_LINES; i++) {
        int length = SCREEN_COLUMNS;

        while (length && screen.cells[i][length - 1] == ' ')
            length--;
        if (length)
            fprintf(walk, "%.*s\n", length, screen.cells[i]);
    }
    fputs("```\n", walk);
    screen_type(&screen, "q");
    screen_end(&screen);
    spawn_env_free(env);
}

static void take_the_walk(void)
{
    char command[64];

    say("# A first walk\n\nThis page takes you through a shared budget, an out-of-memory error and its "
        "explanation. Two trainings share one budget on a card of 8 GiB. The commands ran on a simulated "
        "card "
        "(`build/tests/integration/walk --write` wrote this page, and a test compares it); they are the same "
        "on a GPU.\n\nTo try it, use `build/tests/integration/prog_walk` for `./train`. It reads lines such "
        "as `take 1500` and `free`; start each one in a terminal of its own. Without a GPU, first "
        "`export LD_LIBRARY_PATH=$PWD/build/sim GPUCAP_SIM=1x8G` in every terminal.\n\n## Start\n\nAll "
        "programs of a group share the group's `max`. The second training joins the group of the first.");
    struct training *first = start("gpucap run --max=4G --group=vision -- ./train", "take 1500");
    start("gpucap run --group=vision -- ./train", "take 500");
    say("\n## Look\n\n`ps` shows how much each process holds. USED includes the CUDA context.");
    show("gpucap ps");
    say("\n`top` shows the same, live. Its last line lists its keys.");
    show_top();
    say("\n## Out of memory\n\nThe first training requests 2000 MiB more, which the group's budget does not "
        "have. It gets the error that it would get on a card of 4 GiB, and two lines on stderr say "
        "why:\n```");
    tell(first, "take 2000");
    say("```\n`gpucap why` explains it and suggests what to do:");
    snprintf(command, sizeof(command), "gpucap why %d", (int)first->pid);
    show(command);
    say("\n## Change the limit\n\nThe new limit applies at once, also to running programs:");
    show("gpucap set vision --max=6G");
    say("\nThe training tries again and succeeds:\n```");
    tell(first, "take 2000");
    say("```\n\n## Give idle memory back\n\nThe first training frees all its memory. Its pool keeps it for "
        "later requests (IDLE), until another process on the card needs it or you give it back:");
    tell(first, "free");
    show_with("gpucap ps", "(idle 3.4 GiB)");
    show("gpucap trim vision");
    show("gpucap ps");
}

/* ---- the comparison ---- */

/* Replaces each occurrence of a word, which is not longer than the new one by more than the buffer has room.
 */
static void replace(char *text, const char *word, const char *by)
{
    const size_t length = strlen(word), new_length = strlen(by);

    for (char *at = strstr(text, word); *word && at; at = strstr(at + new_length, word)) {
        TEST_ASSERT_LESS_THAN_size_t(TEXT_MAX, strlen(text) + new_length);
        memmove(at + new_length, at + length, strlen(at + length) + 1);
        memcpy(at, by, new_length);
    }
}

/* The page names no machine and no user. */
static void hide_names(char *text)
{
    char host[72] = "  ";
    const struct passwd *user = getpwuid(getuid());

    gethostname(host + 2, sizeof(host) - 5);
    strcat(host, "  ");
    replace(text, host, "  gpubox  ");
    if (user)
        replace(text, user->pw_name, "anna");
}

static bool is_size(const char *end)
{
    return *end == 'G' || *end == 'M' || !strncmp(end, " GiB", 4) || !strncmp(end, " MiB", 4);
}

/* Leaves what is the same in every run: drops spaces and the marks of bars, and numbers but sizes. */
static void normalize(char *text)
{
    char *to = text;

    for (const char *from = text; *from;) {
        const size_t digits = strspn(from, "0123456789.:");

        if (!digits) {
            if (!strchr(" -=@#", *from))
                *to++ = *from;
            from++;
            continue;
        }
        if (is_size(from + digits))
            to = (char *)memmove(to, from, digits) + digits;
        from += digits;
    }
    *to = '\0';
}

static void test_page_shows_what_the_commands_print(void)
{
    static char text[TEXT_MAX], expected[TEXT_MAX];
    char *taken = NULL;
    size_t size;

    walk = open_memstream(&taken, &size);
    take_the_walk();
    fclose(walk);
    TEST_ASSERT_LESS_THAN_size_t(sizeof(text), size);
    strcpy(text, taken);
    free(taken);
    hide_names(text);
    FILE *file = fopen(page, writes ? "w" : "r");
    TEST_ASSERT_NOT_NULL_MESSAGE(file, page);
    if (writes) {
        fputs(text, file);
    } else {
        expected[fread(expected, 1, sizeof(expected) - 1, file)] = '\0';
        normalize(text);
        normalize(expected);
    }
    fclose(file);
    if (!writes)
        TEST_ASSERT_EQUAL_STRING_MESSAGE(expected, text, "docs/walk.md is old: walk --write makes a new one");
}

/* Commands find gpucap, and see a simulated card of their own. Idle memory stays until it is asked for: by
 * itself it would go back after a second, in which a busy machine may not come to the next command. */
static void prepare(void)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s:%s", spawn_build_path("."), getenv("PATH"));
    setenv("PATH", path, 1);
    setenv("LD_LIBRARY_PATH", spawn_build_path("sim"), 1);
    setenv("GPUCAP_SIM", "1x8G;ctx=512M", 1);
    setenv("GPUCAP_SIM_ID", spawn_sim_id(), 1);
    setenv("GPUCAP_DECAY", "off", 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("COLUMNS");
}

int main(int argc, char **argv)
{
    writes = argc > 1 && !strcmp(argv[1], "--write");
    prepare();
    UNITY_BEGIN();
    RUN_TEST(test_page_shows_what_the_commands_print);
    return UNITY_END();
}
