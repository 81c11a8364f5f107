/* fleet_show: progress of a fleet on stderr. See fleet_show.h. */
#include "harness/fleet/fleet_show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR         20
#define BAR_LEAST   6
#define BAR_SIDES   3 /* a space and two brackets */
#define NAME_WIDTH  32
#define NAME_LEAST  10
#define FIXED_WIDTH 62 /* of a line without name and bar, with "59 m 59 s left" at its end */
#define LINE_BYTES  256
#define PLAIN_WIDTH 100                  /* of a line where no terminal is */
#define PLAIN_NS    UINT64_C(5000000000) /* between two overviews without a terminal */
#define MIB         (1024.0 * 1024.0)
#define SAID_MAX    (sizeof((struct fleet_show *)0)->said_end)

void fleet_show_bytes(uint64_t bytes, char *text, size_t size)
{
    const double mib = (double)bytes / MIB;

    if (bytes == 0)
        snprintf(text, size, "-");
    else if (mib >= 1024)
        snprintf(text, size, "%.2f GiB", mib / 1024);
    else
        snprintf(text, size, "%.1f MiB", mib);
}

void fleet_show_open(struct fleet_show *show, bool quiet)
{
    const char *term = getenv("TERM");

    memset(show, 0, sizeof(*show));
    show->quiet = quiet;
    show->terminal = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

static void window(unsigned *columns, unsigned *rows)
{
    struct winsize size;

    *columns = 80;
    *rows = 24;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        *columns = size.ws_col;
        *rows = size.ws_row;
    }
}

static void write_time(double seconds, char *text, size_t size)
{
    const unsigned long long s = isfinite(seconds) ? (unsigned long long)(seconds + 0.5) : 0;

    if (!isfinite(seconds) || seconds > 1e9)
        snprintf(text, size, "running");
    else if (s < 60)
        snprintf(text, size, "%llu s left", s);
    else if (s < 3600)
        snprintf(text, size, "%llu m %02llu s left", s / 60, s % 60);
    else
        snprintf(text, size, "%llu h %02llu m left", s / 3600, s / 60 % 60);
}

/* Divides the width between name and bar: the name grows first. Returns the width of the name. */
static int spread(size_t width, int *bar)
{
    const int room = width > FIXED_WIDTH ? (int)(width - FIXED_WIDTH) : 0;
    const int name = room < NAME_LEAST ? NAME_LEAST : room > NAME_WIDTH ? NAME_WIDTH : room;

    *bar = room - name - BAR_SIDES;
    *bar = *bar > BAR ? BAR : *bar < BAR_LEAST ? 0 : *bar;
    return name;
}

void fleet_show_line(const struct fleet_member *member, size_t number, char *line, size_t width)
{
    const struct fleet_progress *progress = &member->progress;
    const double done = progress->steps ? (double)progress->step / (double)progress->steps : 0;
    char bar[BAR + BAR_SIDES + 1] = "", loss[32] = "-", memory[32], step[32] = "-", steps[48] = "-",
                               ending[96];
    const double ms = fleet_member_step_ms(member);
    int length;
    const int name = spread(width, &length);

    for (int i = 0; i < length; i++)
        bar[i + 2] = i + 1 <= done * length ? '#' : '.';
    if (length)
        bar[0] = ' ', bar[1] = '[', bar[length + 2] = ']', bar[length + 3] = '\0';
    if (progress->steps)
        snprintf(steps, sizeof(steps), "%llu/%llu", (unsigned long long)progress->step,
                 (unsigned long long)progress->steps);
    if (isfinite(progress->loss))
        snprintf(loss, sizeof(loss), "%.4g", progress->loss);
    if (isfinite(ms))
        snprintf(step, sizeof(step), ms < 1000 ? "%.1f ms" : "%.0f ms", ms);
    fleet_show_bytes(member->memory ? member->memory : member->peak_memory, memory, sizeof(memory));
    if (member->end == FLEET_RUNNING)
        write_time(fleet_member_seconds_left(member), ending, sizeof(ending));
    else
        fleet_member_ending(member, ending, sizeof(ending));
    snprintf(line, width, "%3zu %-*.*s%s %11s %8s %7s %9s  %s", number, name, name, member->job->name, bar,
             steps, step, loss, memory, ending);
}

static void draw(struct fleet_show *show, const struct fleet_member *members, size_t count)
{
    unsigned columns, rows;
    char line[LINE_BYTES];

    window(&columns, &rows);
    const size_t most = rows > 3 ? rows - 2 : 1, lines = count < most ? count : most;
    if (show->of == members && show->drawn)
        fprintf(stderr, "\033[%uA", show->drawn);
    for (size_t i = 0; i < lines; i++) {
        fleet_show_line(&members[i], i, line, columns < sizeof(line) ? columns : sizeof(line));
        fprintf(stderr, "\r%s\033[K\n", line);
    }
    show->drawn = (unsigned)lines;
    show->of = members;
    fflush(stderr);
}

static void tell(struct fleet_show *show, const struct fleet_member *members, size_t count)
{
    const uint64_t now = fleet_now();
    const bool overview = now - show->said_ns > PLAIN_NS;
    char line[LINE_BYTES];

    if (show->of != members)
        memset(show->said_end, 0, sizeof(show->said_end));
    show->of = members;
    for (size_t i = 0; i < count && i < SAID_MAX; i++) {
        const bool news = show->said_end[i] != members[i].end;

        if (!news && (!overview || members[i].end != FLEET_RUNNING))
            continue;
        show->said_end[i] = (unsigned char)members[i].end;
        fleet_show_line(&members[i], i, line, PLAIN_WIDTH);
        fprintf(stderr, "%s\n", line);
    }
    if (overview)
        show->said_ns = now;
}

void fleet_show_all(const struct fleet_member *members, size_t count, void *arg)
{
    struct fleet_show *show = arg;

    if (show->quiet)
        return;
    if (show->terminal)
        draw(show, members, count);
    else
        tell(show, members, count);
}

void fleet_show_end(struct fleet_show *show)
{
    show->drawn = 0;
    show->of = NULL;
}
