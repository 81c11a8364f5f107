/* cli_screen: a program in a pseudo-terminal, and the contents of its screen. See cli_screen.h. */
#include "cli_screen.h"

#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unity.h"

#define PATIENCE_S 200 /* ends a hang; nothing may count on being faster */
#define POLL_MS    100
#define AGAIN_S    5

/* ---- the terminal ---- */

static void blank(struct screen *screen, int line, int from, int to)
{
    for (int i = from; i < to; i++)
        screen->cells[line][i] = ' ';
}

static void erase_all(struct screen *screen)
{
    for (int i = 0; i < SCREEN_LINES; i++) {
        blank(screen, i, 0, SCREEN_COLUMNS);
        screen->cells[i][SCREEN_COLUMNS] = '\0';
    }
}

static int clamp(int value, int most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

static void move_to(struct screen *screen, int line, int column)
{
    screen->line = clamp(line, SCREEN_LINES - 1);
    screen->column = clamp(column, SCREEN_COLUMNS - 1);
    screen->wrapped = false;
}

static void line_feed(struct screen *screen)
{
    if (screen->line != screen->bottom) {
        screen->line = clamp(screen->line + 1, SCREEN_LINES - 1);
        return;
    }
    memmove(screen->cells[screen->top], screen->cells[screen->top + 1],
            sizeof(screen->cells[0]) * (size_t)(screen->bottom - screen->top));
    blank(screen, screen->bottom, 0, SCREEN_COLUMNS);
}

static void reverse_line_feed(struct screen *screen)
{
    if (screen->line != screen->top) {
        screen->line = clamp(screen->line - 1, SCREEN_LINES - 1);
        return;
    }
    memmove(screen->cells[screen->top + 1], screen->cells[screen->top],
            sizeof(screen->cells[0]) * (size_t)(screen->bottom - screen->top));
    blank(screen, screen->top, 0, SCREEN_COLUMNS);
}

static void set_region(struct screen *screen, int from, int to)
{
    screen->top = clamp(from, SCREEN_LINES - 1);
    screen->bottom = to > from ? clamp(to, SCREEN_LINES - 1) : SCREEN_LINES - 1;
    move_to(screen, 0, 0);
}

static void put_letter(struct screen *screen, char letter)
{
    if (screen->wrapped) {
        screen->column = 0;
        screen->wrapped = false;
        line_feed(screen);
    }
    screen->cells[screen->line][screen->column] = letter;
    if (screen->column == SCREEN_COLUMNS - 1)
        screen->wrapped = true;
    else
        screen->column++;
}

static void set_attributes(struct screen *screen, const char *numbers)
{
    for (const char *n = numbers; n; n = strchr(n, ';') ? strchr(n, ';') + 1 : NULL) {
        const int number = atoi(n);

        screen->colours += (number >= 30 && number <= 38) || (number >= 90 && number <= 97);
    }
}

static void erase_display(struct screen *screen, int kind)
{
    if (kind == 2) {
        erase_all(screen);
        return;
    }
    blank(screen, screen->line, screen->column, SCREEN_COLUMNS);
    for (int i = screen->line + 1; i < SCREEN_LINES; i++)
        blank(screen, i, 0, SCREEN_COLUMNS);
}

static void obey(struct screen *screen, char final)
{
    const char *numbers = screen->sequence + 2; /* behind ESC [ */
    const int first = atoi(numbers), steps = first ? first : 1;
    const char *second = strchr(numbers, ';');

    switch (final) {
    case 'H':
        move_to(screen, steps - 1, second && atoi(second + 1) ? atoi(second + 1) - 1 : 0);
        break;
    case 'A':
        move_to(screen, screen->line - steps, screen->column);
        break;
    case 'B':
        move_to(screen, screen->line + steps, screen->column);
        break;
    case 'C':
        move_to(screen, screen->line, screen->column + steps);
        break;
    case 'D':
        move_to(screen, screen->line, screen->column - steps);
        break;
    case 'J':
        erase_display(screen, first);
        break;
    case 'K':
        if (first == 1)
            blank(screen, screen->line, 0, screen->column + 1);
        else
            blank(screen, screen->line, screen->column, SCREEN_COLUMNS);
        break;
    case 'G':
        move_to(screen, screen->line, steps - 1);
        break;
    case 'd':
        move_to(screen, steps - 1, screen->column);
        break;
    case 'X':
        blank(screen, screen->line, screen->column, clamp(screen->column + steps, SCREEN_COLUMNS));
        break;
    case 'b':
        for (int i = 0; i < steps; i++)
            put_letter(screen, screen->cells[screen->line][screen->column ? screen->column - 1 : 0]);
        break;
    case 'm':
        set_attributes(screen, numbers);
        break;
    case 'h':
    case 'l':
        if (!strncmp(numbers, "?1049", 5))
            screen->alternate = final == 'h';
        break;
    case 'r':
        set_region(screen, steps - 1, second && atoi(second + 1) ? atoi(second + 1) - 1 : SCREEN_LINES - 1);
        break;
    case 't':
        break;
    default:
        screen->unknown++;
    }
}

/* One byte of an escape sequence. */
static void follow(struct screen *screen, char byte)
{
    if (screen->length + 1 < (int)sizeof(screen->sequence))
        screen->sequence[screen->length++] = byte;
    screen->sequence[screen->length] = '\0';
    if (screen->length == 2 && strchr("[()", byte))
        return;
    if (screen->sequence[1] != '[') {
        if (byte == 'M' && screen->length == 2)
            reverse_line_feed(screen);
        screen->length = 0; /* ESC ( B, ESC =, ESC 7 and the like */
    } else if (isalpha((unsigned char)byte)) {
        obey(screen, byte);
        screen->length = 0;
    }
}

static void take(struct screen *screen, char byte)
{
    const unsigned char code = (unsigned char)byte;

    if (screen->length)
        follow(screen, byte);
    else if (code == 27)
        screen->sequence[screen->length++] = byte;
    else if (byte == '\r')
        move_to(screen, screen->line, 0);
    else if (byte == '\n')
        line_feed(screen);
    else if (byte == '\b')
        move_to(screen, screen->line, screen->column - 1);
    else if (screen->bytes)
        screen->bytes--; /* the rest of a letter */
    else if (code >= 0xc0) {
        screen->bytes = code >= 0xf0 ? 3 : code >= 0xe0 ? 2 : 1;
        screen->letters++;
        put_letter(screen, '~');
    } else if (code >= ' ')
        put_letter(screen, byte);
}

/* ---- the program ---- */

void screen_start(struct screen *screen, struct spawn_env *env, const char *term, const char *const *argv)
{
    const struct winsize size = {.ws_row = SCREEN_LINES, .ws_col = SCREEN_COLUMNS};
    /* env(1) gives the program its environment, so that forkpty can start it. */
    static const char *const names[] = {"HOME",         "GPUCAP_LEDGER", "GPUCAP_LIB", "GPUCAP_SIM_ID",
                                        "ASAN_OPTIONS", "UBSAN_OPTIONS", "LC_ALL",     "NO_COLOR",
                                        "COLUMNS",      "LINES"};

    memset(screen, 0, sizeof(*screen));
    erase_all(screen);
    set_region(screen, 0, SCREEN_LINES - 1);
    screen->pid = forkpty(&screen->terminal, NULL, NULL, &size);
    TEST_ASSERT_TRUE(screen->pid >= 0);
    if (screen->pid == 0) {
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
            const char *value = spawn_env_get(env, names[i]);

            if (value)
                setenv(names[i], value, 1);
            else
                unsetenv(names[i]);
        }
        setenv("TERM", term, 1);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
}

void screen_resize(struct screen *screen, int lines, int columns)
{
    const struct winsize size = {.ws_row = (unsigned short)lines, .ws_col = (unsigned short)columns};

    TEST_ASSERT_EQUAL_INT(0, ioctl(screen->terminal, TIOCSWINSZ, &size));
}

/* Reads what there is; false at the end. */
static bool pump(struct screen *screen)
{
    struct pollfd terminal = {.fd = screen->terminal, .events = POLLIN};
    char bytes[4096];

    if (poll(&terminal, 1, POLL_MS) <= 0)
        return true;
    const ssize_t got = read(screen->terminal, bytes, sizeof(bytes));
    for (ssize_t i = 0; i < got; i++)
        take(screen, bytes[i]);
    return got > 0;
}

static int find_line(const struct screen *screen, const char *text)
{
    for (int i = 0; i < SCREEN_LINES; i++) {
        if (strstr(screen->cells[i], text))
            return i;
    }
    return -1;
}

bool screen_shows(const struct screen *screen, const char *text)
{
    return find_line(screen, text) >= 0;
}

static void fail(const struct screen *screen, const char *what, const char *text)
{
    char message[SCREEN_LINES * (SCREEN_COLUMNS + 2) + 256];
    size_t used = (size_t)snprintf(message, sizeof(message), "%s '%.100s':\n", what, text);

    for (int i = 0; i < SCREEN_LINES; i++)
        used += (size_t)snprintf(message + used, sizeof(message) - used, "%s\n", screen->cells[i]);
    TEST_FAIL_MESSAGE(message);
}

int screen_line_of(const struct screen *screen, const char *text)
{
    const int line = find_line(screen, text);

    if (line < 0)
        fail(screen, "the screen does not have", text);
    return line;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void screen_await(struct screen *screen, const char *text, bool there)
{
    const double until = now_s() + PATIENCE_S;

    while (screen_shows(screen, text) != there) {
        if (!pump(screen))
            fail(screen, "the program ended before the screen was as awaited:", text);
        if (now_s() > until)
            fail(screen, there ? "waited in vain for" : "waited in vain for the end of", text);
    }
}

void screen_await_above(struct screen *screen, const char *upper, const char *lower)
{
    const double until = now_s() + PATIENCE_S;

    for (;;) {
        const int first = find_line(screen, upper);

        if (first >= 0 && first < find_line(screen, lower))
            return;
        if (!pump(screen) || now_s() > until)
            fail(screen, "the order was not as awaited:", upper);
    }
}

void screen_type(struct screen *screen, const char *keys)
{
    TEST_ASSERT_EQUAL_INT((int)strlen(keys), (int)write(screen->terminal, keys, strlen(keys)));
}

int screen_end_by(struct screen *screen, const char *keys)
{
    const double until = now_s() + PATIENCE_S;
    double again = 0;
    int status;

    while (pump(screen)) {
        if (now_s() > until)
            fail(screen, "waited in vain for the end of", "the program");
        if (now_s() < again)
            continue;
        (void)!write(screen->terminal, keys, strlen(keys)); /* it may just have ended */
        again = now_s() + AGAIN_S;
    }
    TEST_ASSERT_EQUAL_INT(screen->pid, waitpid(screen->pid, &status, 0));
    close(screen->terminal);
    screen->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int screen_end(struct screen *screen)
{
    return screen_end_by(screen, "");
}

void screen_kill(struct screen *screen)
{
    if (screen->pid <= 0)
        return;
    kill(screen->pid, SIGKILL);
    waitpid(screen->pid, NULL, 0);
    close(screen->terminal);
    screen->pid = 0;
}
