/* fleet_show: see fleet_show.h. */
#include "harness/fleet/fleet_show.h"

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR        20
#define NAME_WIDTH 28
#define LINE_BYTES 256
#define PLAIN_NS   UINT64_C(5000000000) /* between two overviews without a terminal */
#define MIB        (1024.0 * 1024.0)
#define SAID_MAX   (sizeof((struct fleet_show *)0)->said_end)

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
    memset(show, 0, sizeof *show);
    show->quiet = quiet;
    show->terminal = isatty(STDERR_FILENO);
}

static void window(unsigned *columns, unsigned *rows)
{
    struct winsize size;

    *columns = 100;
    *rows = 24;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        *columns = size.ws_col;
        *rows = size.ws_row;
    }
}

void fleet_show_line(const struct fleet_member *member, size_t number, char *line, size_t width)
{
    const struct fleet_progress *progress = &member->progress;
    const double filled = progress->steps ? (double)progress->step / (double)progress->steps * BAR : 0;
    char bar[BAR + 1], loss[32] = "-", memory[32], step[32] = "-", ending[96];
    const double ms = fleet_member_step_ms(member);

    for (int i = 0; i < BAR; i++)
        bar[i] = i + 1 <= filled ? '#' : '.';
    bar[BAR] = '\0';
    if (isfinite(progress->loss))
        snprintf(loss, sizeof loss, "%.4g", progress->loss);
    if (isfinite(ms))
        snprintf(step, sizeof step, "%.1f ms", ms);
    fleet_show_bytes(member->memory ? member->memory : member->peak_memory, memory, sizeof memory);
    fleet_member_ending(member, ending, sizeof ending);
    snprintf(line, width, "%3zu %-*.*s [%s] %6llu/%-6llu %9s  loss %-8s %10s  %s", number, NAME_WIDTH,
             NAME_WIDTH, member->job->name, bar, (unsigned long long)progress->step,
             (unsigned long long)progress->steps, step, loss, memory, ending);
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
        fleet_show_line(&members[i], i, line, columns < sizeof line ? columns : sizeof line);
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
        memset(show->said_end, 0, sizeof show->said_end);
    show->of = members;
    for (size_t i = 0; i < count && i < SAID_MAX; i++) {
        const bool news = show->said_end[i] != members[i].end;

        if (!news && (!overview || members[i].end != FLEET_RUNNING))
            continue;
        show->said_end[i] = (unsigned char)members[i].end;
        fleet_show_line(&members[i], i, line, sizeof line);
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
