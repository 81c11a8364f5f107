/* top_keys: the loop of `gpucap top` and the keys that change what it shows. The screen is drawn by
 * top_draw.c. Owns no lock. */
#include "tools/gpucap/cli.h"
#include "interpose/base/clock.h"
#include "tools/gpucap/parts.h"
#include "tools/gpucap/steer.h"
#include "tools/gpucap/top.h"
#include "tools/gpucap/who.h"
#include "tools/gpucap/words.h"

#include <errno.h>
#include <locale.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PERIOD_MS 1000
#define PAGE      10
#define ANSWER    32
#define ESCAPE    27

/* ---- the end ---- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* Replaces ncurses' handlers, which restore the terminal themselves and can hang doing so. The loop restores
 * it instead; it checks `interrupted` at least once in PERIOD_MS. */
static void catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = interrupt};

    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        sigaction(signals[i], &action, NULL);
}

static bool must_end(void)
{
    struct pollfd terminal = {.fd = STDIN_FILENO, .events = POLLIN};

    return interrupted || (poll(&terminal, 1, 0) > 0 && (terminal.revents & (POLLHUP | POLLERR | POLLNVAL)));
}

/* ---- asking the user ---- */

/* Asks for a word in the line above the keys. False: nothing was typed, or escape. */
static bool ask(struct top *top, const char *question, char answer[ANSWER])
{
    size_t length = 0;
    int key;

    timeout(PERIOD_MS);
    answer[0] = '\0';
    do {
        snprintf(top->prompt, sizeof(top->prompt), "%.110s%s", question, answer);
        top_draw(top);
        key = getch();
        if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && length)
            answer[--length] = '\0';
        else if (key > ' ' && key < 127 && length + 1 < ANSWER) {
            answer[length++] = (char)key;
            answer[length] = '\0';
        }
    } while (key != '\n' && key != '\r' && key != KEY_ENTER && key != ESCAPE && !(key == ERR && must_end()));
    top->prompt[0] = '\0';
    return key != ESCAPE && key != ERR && length > 0;
}

/* ---- keys ---- */

/* Chooses the process of the selected row, or all of its job if rows are jobs. */
static bool choose_selected(struct top *top)
{
    char pid[WORDS_TEXT];

    if (!top->count)
        return false;
    snprintf(pid, sizeof(pid), "%d", (int)top->entry.pid);
    return ledgers_choose(top->ledgers, top->by_job && *top->entry.job ? top->entry.job : pid) > 0;
}

/* Sets the limit of what is selected, or without one trims it. Shows the first line of what that has to say.
 */
static void change(struct top *top, const struct steer_max *max)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return;
    if (!choose_selected(top))
        ; /* there is none */
    else if (max)
        steer_set(top->ledgers, max, out, out);
    else
        steer_trim(top->ledgers, true, out);
    fclose(out);
    text[strcspn(text, "\n")] = '\0';
    snprintf(top->status, sizeof(top->status), "%s", text);
    free(text);
}

static void set_max(struct top *top)
{
    char question[TOP_STATUS], answer[ANSWER], now[WORDS_TEXT];
    struct steer_max max;

    if (!top->count)
        return;
    if (!*top->entry.job) {
        snprintf(top->status, sizeof(top->status), "%d has no job: it keeps the limit that it started with",
                 (int)top->entry.pid);
        return;
    }
    snprintf(question, sizeof(question), "new limit of %.30s (now %s; 12G, 50%% or none): ", top->entry.job,
             words_size(top->entry.job_max, now));
    if (!ask(top, question, answer))
        return;
    const char *why = steer_parse_max(answer, LEDGER_MAX, &max);
    if (why)
        snprintf(top->status, sizeof(top->status), "'%s': %s", answer, why);
    else
        change(top, &max);
}

/* The number of a signal: "9", "KILL" or "SIGKILL"; 0: none. */
static int parse_signal(const char *text)
{
    char *end;
    const long number = strtol(text, &end, 10);

    if (end != text)
        return *end || number < 1 || number >= NSIG ? 0 : (int)number;
    if (!strncasecmp(text, "SIG", 3))
        text += 3;
    for (int i = 1; i < NSIG; i++) {
        if (sigabbrev_np(i) && !strcasecmp(sigabbrev_np(i), text))
            return i;
    }
    return 0;
}

static void send_signal(struct top *top)
{
    char question[TOP_STATUS], answer[ANSWER];
    const pid_t pid = top->entry.pid;

    if (!top->count)
        return;
    if (top->by_job && *top->entry.job) {
        snprintf(top->status, sizeof(top->status), "a signal goes to one process: press g first");
        return;
    }
    snprintf(question, sizeof(question), "signal for %d %.40s (TERM, INT, KILL, ...): ", (int)pid,
             top->rows[top->selected].process->command);
    if (!ask(top, question, answer))
        return;
    const int number = parse_signal(answer);
    if (!number)
        snprintf(top->status, sizeof(top->status), "'%s' is no signal", answer);
    else if (!who_has_ledger(pid, top->entry.uid, top->uuid))
        snprintf(top->status, sizeof(top->status), "%d is not a process that can be seen from here",
                 (int)pid);
    else if (kill(pid, number))
        snprintf(top->status, sizeof(top->status), "%d: %s", (int)pid, strerror(errno));
    else
        snprintf(top->status, sizeof(top->status), "%d was sent %s", (int)pid, sigabbrev_np(number));
}

/* Returns true if the figures should be read again at once. */
static bool act(struct top *top, int key)
{
    switch (key) {
    case 't':
        change(top, NULL);
        return true;
    case 'm':
        set_max(top);
        return true;
    case 'k':
        send_signal(top);
        return true;
    case 's':
        top->order = (top->order + 1) % TOP_ORDERS;
        break;
    case 'g':
        top->by_job = !top->by_job;
        break;
    case '?':
    case 'h':
        top->help = true;
        return false;
    default:
        return false;
    }
    top_rows(top);
    return false;
}

static void move_selection(struct top *top, int key)
{
    const int steps = key == KEY_UP      ? -1
                      : key == KEY_DOWN  ? 1
                      : key == KEY_PPAGE ? -PAGE
                      : key == KEY_NPAGE ? PAGE
                      : key == KEY_HOME  ? -top->count
                      : key == KEY_END   ? top->count
                                         : 0;

    if (steps)
        top_select(top, top->selected + steps);
}

/* ---- the loop ---- */

static bool refresh_data(struct top *top)
{
    ledgers_look(top->ledgers);
    return top_history_add(&top->history, top->ledgers) && top_rows(top);
}

static int watch(struct top *top)
{
    uint64_t next = 0;

    for (;;) {
        uint64_t now = clock_ms();

        if (now >= next) {
            if (!refresh_data(top))
                return CLI_FAILED;
            next = clock_ms() + PERIOD_MS;
        }
        top_draw(top);
        now = clock_ms();
        timeout(now < next ? (int)(next - now) : 0);
        const int key = getch();
        if (interrupted || (key == ERR && must_end()))
            return 0;
        if (key == ERR || key == KEY_RESIZE)
            continue;
        if (top->help) {
            top->help = false;
            continue;
        }
        top->status[0] = '\0';
        if (key == 'q')
            return 0;
        move_selection(top, key);
        if (act(top, key))
            next = 0;
    }
}

int part_show(struct ledgers *ledgers)
{
    struct top top = {.ledgers = ledgers};
    int status;

    setlocale(LC_ALL, "");
    const char *term = getenv("TERM");
    SCREEN *screen = term && !strcmp(term, "dumb") ? NULL : newterm(NULL, stdout, stdin);
    if (!screen)
        return cli_fail("top: the terminal '%s' cannot show it (TERM); `gpucap ps` needs none",
                        term ? term : "");
    catch_signals();
    set_escdelay(25);
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    top_draw_init(&top);
    status = watch(&top);
    endwin();
    delscreen(screen);
    top_history_free(top.history);
    free(top.rows);
    return status ? cli_fail("top: no memory") : 0;
}
