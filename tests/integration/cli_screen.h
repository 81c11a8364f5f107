/* cli_screen: a program in a pseudo-terminal of 80x24, and what its screen shows. Understands what ncurses
 * sends to a vt100: letters, moves, erasing and scrolling regions; attributes are counted and otherwise
 * dropped. Owns no lock. */
#ifndef TESTS_CLI_SCREEN_H
#define TESTS_CLI_SCREEN_H

#include <stdbool.h>
#include <sys/types.h>

#include "tests/support/spawn.h"

#define SCREEN_LINES   24
#define SCREEN_COLUMNS 80

struct screen {
    pid_t pid;
    int terminal;
    char cells[SCREEN_LINES][SCREEN_COLUMNS + 1]; /* a letter of several bytes is one '~' */
    int line, column;
    int top, bottom; /* lines of the scrolling region */
    bool wrapped;    /* a letter has been written to the last column */
    char sequence[64];
    int length;     /* of the unfinished escape sequence */
    int bytes;      /* that are missing of a letter */
    int colours;    /* that were set */
    int letters;    /* of several bytes that were drawn */
    bool alternate; /* the program has the second screen, which it must leave at its end */
    int unknown;    /* sequences that were not understood */
};

/* Starts argv[0] with this TERM. */
void screen_start(struct screen *screen, struct spawn_env *env, const char *term, const char *const *argv);
/* Reads until the text is on the screen (or, with `there` false, no longer); fails the test after a while. */
void screen_await(struct screen *screen, const char *text, bool there);
/* The same until both texts are there, the first one higher up. */
void screen_await_above(struct screen *screen, const char *upper, const char *lower);
bool screen_shows(const struct screen *screen, const char *text);
/* The number of the line that has the text; fails the test if there is none. */
int screen_line_of(const struct screen *screen, const char *text);
/* Makes the window smaller than it was. */
void screen_resize(struct screen *screen, int lines, int columns);
void screen_type(struct screen *screen, const char *keys);
/* Reads until the program has ended; returns its exit status. */
int screen_end(struct screen *screen);
/* The same, and types the keys every five seconds until then: ThreadSanitizer loses a signal now and then. */
int screen_end_by(struct screen *screen, const char *keys);
/* Kills a program that still runs. */
void screen_kill(struct screen *screen);

#endif
