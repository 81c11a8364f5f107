/* gpucap view: a recording as a picture in the terminal, in 80 columns and 24 lines or what the terminal has:
 * memory over time stacked by owner, the limit, refusals. Without colour every group has a character of its
 * own, so that nothing is lost. Owns no lock. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/recording_columns.h"
#include "tools/gpucap/recording_print.h"
#include "tools/gpucap/recording_set.h"
#include "tools/gpucap/recording_words.h"
#include "tools/gpucap/words.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LABEL       9 /* columns for sizes at the left */
#define WIDTH_LEAST 40
#define WIDTH_MOST  400
#define LINES_LEAST 14
#define LINES_MOST  100
#define ABOVE_BELOW 6 /* lines that are neither picture nor legend; the last one is the shell's */
#define ROWS_LEAST  6
#define NARROW      80 /* columns below which a refusal takes two lines */
#define LABELS      5  /* of sizes, about */
#define EIGHTHS     8
#define LEGEND_NAME 28      /* characters */
#define MARKS_WORDS 19      /* columns of what the marks mean */
#define FAR_LIMIT   17 / 10 /* a limit beyond this part of the peak is not worth the room */

struct screen {
    int width, lines;
    bool colour, unicode;
};

/* Colours 256, safe for colour-blind readers (as in the page), and characters, by place from the bottom. */
static const int group_colours[COLUMNS_GROUPS] = {243, 25, 178, 36, 175, 74, 166, 248, 251};
static const char *const group_blocks[COLUMNS_GROUPS] = {":", "█", "▒", "#", "░", "%", "+", "o", "."};
static const char group_letters[COLUMNS_GROUPS] = {':', '#', '=', '@', '-', '%', '+', 'o', '.'};
#define IDLE_LETTER "'"

static struct screen look_at_screen(void)
{
    struct screen screen = {.width = 80, .lines = 24};
    struct winsize size;
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    const char *columns = getenv("COLUMNS");
    const bool terminal = isatty(STDOUT_FILENO);

    const long given = columns ? strtol(columns, NULL, 10) : 0;

    if (!terminal && given > 0)
        screen.width = given < WIDTH_MOST ? (int)given : WIDTH_MOST;
    if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row) {
        screen.width = size.ws_col;
        screen.lines = size.ws_row;
    }
    screen.width = screen.width < WIDTH_LEAST  ? WIDTH_LEAST
                   : screen.width > WIDTH_MOST ? WIDTH_MOST
                                               : screen.width;
    screen.lines = screen.lines < LINES_LEAST  ? LINES_LEAST
                   : screen.lines > LINES_MOST ? LINES_MOST
                                               : screen.lines;
    screen.colour = terminal && term && strcmp(term, "dumb") != 0 && !(no_colour && *no_colour);
    setlocale(LC_CTYPE, "");
    screen.unicode = !strcmp(nl_langinfo(CODESET), "UTF-8");
    return screen;
}

/* ---- one cell ---- */

struct picture {
    const struct columns *columns;
    struct screen screen;
    int height;    /* lines of the picture */
    uint64_t most; /* what the top of it means */
};

/* Returns the group at this height of a column; COLUMNS_GROUPS: idle; -1: nothing. */
static int group_at(const struct columns_column *column, uint64_t bytes)
{
    uint64_t sum = 0;

    for (int g = 0; g < COLUMNS_GROUPS; g++) {
        sum += column->bytes[g];
        if (bytes < sum)
            return g;
    }
    return bytes < column->used ? COLUMNS_GROUPS : -1;
}

static bool limit_is_here(const struct picture *picture, const struct columns_column *column, int row)
{
    if (column->limit == TIMELINE_NO || column->limit > picture->most)
        return false;
    return (int)((double)column->limit / (double)picture->most * picture->height) == row;
}

static const char *plain_cell(const struct picture *picture, int group)
{
    static char letter[2];

    if (group < 0)
        return " ";
    if (group == COLUMNS_GROUPS)
        return IDLE_LETTER;
    if (picture->screen.unicode)
        return group_blocks[group];
    letter[0] = group_letters[group];
    return letter;
}

/* Prints a row with colour, where a cell shows two groups: eighths of the lower one's colour on the upper
 * one's. */
static void print_colours(const struct picture *picture, const struct columns_column *column, int row)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const double cell = (double)picture->most / picture->height;
    const int lowest = group_at(column, (uint64_t)((row + 0.06) * cell));
    int eighths = 0, upper = lowest;

    while (eighths < EIGHTHS &&
           group_at(column, (uint64_t)((row + (eighths + 0.5) / EIGHTHS) * cell)) == lowest)
        eighths++;
    if (eighths < EIGHTHS)
        upper = group_at(column, (uint64_t)((row + (eighths + 0.5) / EIGHTHS) * cell));
    if (lowest < 0 || lowest == COLUMNS_GROUPS) {
        fputs(lowest < 0 ? " " : "\033[38;5;245m·\033[0m", stdout);
        return;
    }
    printf("\033[38;5;%dm", group_colours[lowest]);
    if (upper >= 0 && upper < COLUMNS_GROUPS && upper != lowest)
        printf("\033[48;5;%dm", group_colours[upper]);
    printf("%s\033[0m", picture->screen.unicode ? blocks[eighths] : "#");
}

static void print_cell(const struct picture *picture, const struct columns_column *column, int row)
{
    const double cell = (double)picture->most / picture->height;

    if (limit_is_here(picture, column, row))
        fputs(picture->screen.colour ? "\033[1m-\033[0m" : picture->screen.unicode ? "─" : "-", stdout);
    else if (picture->screen.colour)
        print_colours(picture, column, row);
    else
        fputs(plain_cell(picture, group_at(column, (uint64_t)((row + 0.5) * cell))), stdout);
}

/* ---- lines ---- */

static void print_marks(const struct picture *picture)
{
    const struct columns *columns = picture->columns;
    bool any = false;

    for (int i = 0; i < columns->width; i++)
        any = any || columns->columns[i].refusals || columns->columns[i].waits;
    if (!any)
        return;
    printf("%*s", LABEL, "");
    for (int i = 0; i < columns->width; i++) {
        const char *mark = columns->columns[i].refusals ? "!" : columns->columns[i].waits ? "~" : " ";

        if (picture->screen.colour && *mark != ' ')
            printf("\033[1;31m%s\033[0m", mark);
        else
            fputs(mark, stdout);
    }
    putchar('\n');
}

/* Writes the label of a row. Returns false if no round size falls into it. */
static bool label_of(const struct picture *picture, int row, char text[RECORDING_TIME])
{
    const uint64_t step = recording_step(picture->most, LABELS);
    const double cell = (double)picture->most / picture->height;
    const uint64_t bytes = (uint64_t)((row + 1) * cell) / step * step;

    if ((double)bytes < row * cell)
        return false;
    if (!bytes)
        snprintf(text, RECORDING_TIME, "0");
    else
        words_size(bytes, text);
    return true;
}

static void print_rows(const struct picture *picture)
{
    const int width = picture->columns->width;
    const struct columns_column *last = &picture->columns->columns[width - 1];
    char text[RECORDING_TIME], limit[2 * RECORDING_TIME];

    for (int row = picture->height - 1; row >= 0; row--) {
        const bool limited = limit_is_here(picture, last, row);
        const int words =
            limited ? snprintf(limit, sizeof(limit), " limit %s", words_size(last->limit, text)) : 0;

        printf("%*s ", LABEL - 1, label_of(picture, row, text) ? text : "");
        for (int i = 0; i < width - words; i++)
            print_cell(picture, &picture->columns->columns[i], row);
        puts(limited ? limit : "");
    }
}

static void print_times(const struct picture *picture, uint64_t end_ns)
{
    char from[] = "0", middle[RECORDING_TIME], to[RECORDING_TIME];
    const int width = picture->columns->width;

    recording_time(end_ns / 2, middle);
    recording_time(end_ns, to);
    printf("%*s%-*s%-*s%*s\n", LABEL, "", width / 2, from, width / 4, middle, width - width / 2 - width / 4,
           to);
}

static void print_legend(FILE *out, const struct picture *picture)
{
    const struct columns *columns = picture->columns;
    int column = fprintf(out, "%*s", LABEL, "");
    bool refused = false, waited = false;
    char cut[WORDS_CUT];

    for (int g = 0; g <= COLUMNS_GROUPS; g++) {
        const char *given = g < COLUMNS_GROUPS ? columns->names[g] : "idle";
        const char *name = given ? words_cut(given, LEGEND_NAME, cut) : NULL;
        const int length = name ? (int)strlen(name) + 4 : 0;

        if (g < COLUMNS_GROUPS && (!name || !columns->most[g]))
            continue;
        if (column + length > picture->screen.width && column > LABEL)
            column = fprintf(out, "\n%*s", LABEL, "") - 1;
        if (picture->screen.colour && g < COLUMNS_GROUPS)
            fprintf(out, "\033[38;5;%dm%s\033[0m", group_colours[g], picture->screen.unicode ? "█" : "#");
        else
            fputs(picture->screen.colour ? "·" : plain_cell(picture, g), out);
        column += 1 + fprintf(out, " %s  ", name);
    }
    for (int i = 0; i < columns->width; i++) {
        refused = refused || columns->columns[i].refusals;
        waited = waited || columns->columns[i].waits;
    }
    if ((refused || waited) && column + MARKS_WORDS > picture->screen.width)
        fprintf(out, "\n%*s", LABEL, "");
    fprintf(out, "%s%s\n", refused ? "! refused  " : "", waited ? "~ waited" : "");
}

/* Returns the legend, to be freed, and leaves the picture the lines that it does not need. NULL: no memory.
 */
static char *make_legend(struct picture *picture)
{
    char *legend = NULL;
    size_t bytes;
    FILE *out = open_memstream(&legend, &bytes);

    if (!out)
        return NULL;
    print_legend(out, picture);
    if (fclose(out))
        return NULL;
    picture->height = picture->screen.lines - ABOVE_BELOW - (picture->screen.width < NARROW);
    for (const char *c = legend; *c; c++)
        picture->height -= *c == '\n';
    if (picture->height < ROWS_LEAST)
        picture->height = ROWS_LEAST;
    return legend;
}

static const struct recording_event *last_refusal(const struct timeline *timeline)
{
    for (size_t i = timeline->mark_count; i > 0; i--) {
        if (timeline->marks[i - 1]->head.type == RECORDING_REFUSAL)
            return timeline->marks[i - 1];
    }
    return NULL;
}

static void print_refusal(const struct recording_event *refusal, int width)
{
    char size[RECORDING_TIME], at[RECORDING_TIME], text[128];

    snprintf(text, sizeof(text), "Refused %s at %s", recording_size(refusal->bytes, size),
             recording_time(refusal->time_ns, at));
    printf(width < NARROW ? "%s:\ngpucap why tells (%s)\n" : "%s (%s): gpucap why explains it\n", text,
           recording_limit_name(refusal->limit));
}

static int show_track(const struct recording_set *set, const struct recording_track *track,
                      const struct screen *screen)
{
    const struct timeline *timeline = &track->timeline;
    const enum timeline_by by = timeline_best_by(timeline, timeline->peak);
    const struct recording_event *refusal = last_refusal(timeline);
    char heading[WORDS_CUT], sentence[RECORDING_SENTENCE], *legend;
    struct columns columns;

    if (!columns_open(&columns, timeline, by, screen->width - LABEL - 1))
        return cli_fail("view: no memory");
    struct picture picture = {.columns = &columns,
                              .screen = *screen,
                              .most = columns.peak ? columns.peak
                                      : refusal    ? refusal->bytes
                                                   : 1};
    if (!(legend = make_legend(&picture))) {
        columns_close(&columns);
        return cli_fail("view: no memory");
    }
    for (int i = 0; i < columns.width; i++) {
        const uint64_t limit = columns.columns[i].limit;

        /* but a refusal is only understood beside its limit */
        if (limit != TIMELINE_NO && (refusal || limit <= columns.peak * FAR_LIMIT) && limit > picture.most)
            picture.most = limit;
    }
    picture.most += picture.most / 24 + 1; /* the highest line is not the uppermost */
    puts(recording_set_heading(set, track, screen->width, heading));
    recording_sentence(timeline, sentence);
    recording_print_cut(sentence, screen->width);
    print_marks(&picture);
    print_rows(&picture);
    print_times(&picture, timeline->end_ns);
    fputs(legend, stdout);
    free(legend);
    if (refusal)
        print_refusal(refusal, screen->width);
    columns_close(&columns);
    return 0;
}

int cmd_view(const struct arguments *arguments)
{
    struct recording_set set;
    int status = recording_set_open(&set, "view", arguments->operands, arguments->count);

    if (status)
        return status;
    const struct screen screen = look_at_screen();
    for (int i = 0; i < set.track_count && status == 0; i++) {
        if (i)
            putchar('\n');
        status = show_track(&set, &set.tracks[i], &screen);
    }
    return recording_set_close(&set, status);
}
