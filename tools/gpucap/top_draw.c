/* top_draw: the screen of `gpucap top`. Every part of a bar has a letter of its own, and the selected row a
 * mark, so that nothing depends on colour. See top.h. */
#include "tools/gpucap/top.h"

#include "tools/gpucap/ps.h"
#include "tools/gpucap/words.h"

#include <langinfo.h>
#include <limits.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#define LINE_MAX_BYTES 1024
#define TABLE_LEAST    6 /* rows of the table that cards leave on a small screen */
#define FOOTER         2 /* lines below the table */
#define LEVELS         8

enum part { USED, IDLE, OTHER, FREE, PARTS };
enum { PAIR_WAITING = PARTS + 1, PAIR_STATUS };

static const char letters[PARTS] = {[USED] = '#', [IDLE] = '=', [OTHER] = ':', [FREE] = '.'};

void top_draw_init(struct top *top)
{
    top->blocks = !strcmp(nl_langinfo(CODESET), "UTF-8");
    top->colour = has_colors() && !getenv("NO_COLOR") && start_color() == OK;
    if (!top->colour)
        return;
    use_default_colors();
    init_pair(USED + 1, COLOR_GREEN, -1);
    init_pair(IDLE + 1, COLOR_YELLOW, -1);
    init_pair(OTHER + 1, COLOR_MAGENTA, -1);
    init_pair(FREE + 1, -1, -1);
    init_pair(PAIR_WAITING, COLOR_RED, -1);
    init_pair(PAIR_STATUS, COLOR_CYAN, -1);
}

static attr_t paint(const struct top *top, int pair)
{
    return top->colour ? (attr_t)COLOR_PAIR(pair) : A_NORMAL;
}

/* Writes at most `width` columns of the text, and spaces behind it. */
static void put(int y, int x, int width, const char *text)
{
    char line[LINE_MAX_BYTES];
    size_t used = 0;
    int columns = 0;
    mbstate_t state = {0};

    while (*text && used + MB_LEN_MAX < sizeof(line)) {
        wchar_t letter;
        const size_t length = mbrtowc(&letter, text, MB_LEN_MAX, &state);
        const bool valid = length != (size_t)-1 && length != (size_t)-2 && wcwidth(letter) >= 0;

        if (columns + (valid ? wcwidth(letter) : 1) > width)
            break;
        if (valid) {
            memcpy(line + used, text, length);
            used += length;
            columns += wcwidth(letter);
        } else {
            line[used++] = '?';
            columns++;
            memset(&state, 0, sizeof(state));
        }
        text += valid ? length : 1;
    }
    line[used] = '\0';
    mvaddstr(y, x, line);
    while (columns++ < width)
        addch(' ');
}

/* ---- cards ---- */

static bool parts_of(const struct ledgers_card *card, uint64_t parts[PARTS])
{
    parts[IDLE] = card->idle < card->managed ? card->idle : card->managed;
    parts[USED] = card->managed - parts[IDLE];
    parts[FREE] = card->facts.known ? card->facts.free : 0;
    parts[OTHER] = 0;
    return ledgers_other(card, &parts[OTHER]);
}

/* Writes size and parts of a card: "16.0G  # used 3.5G  = idle 0 ...", or in a narrow window "16.0G #3.5G =0
 * ...". Returns the length. */
static int list_parts(const struct ledgers_card *card, bool narrow, char figures[LINE_MAX_BYTES])
{
    static const char *const names[PARTS] = {
        [USED] = " used ", [IDLE] = " idle ", [OTHER] = " other ", [FREE] = " free "};
    char text[WORDS_TEXT];
    uint64_t parts[PARTS];
    const bool other = parts_of(card, parts);
    int used = 0;

    figures[0] = '\0';
    if (card->facts.known)
        used = snprintf(figures, LINE_MAX_BYTES, "%s", words_short(card->facts.total, text));
    for (int i = 0; i < PARTS; i++) {
        if ((i == OTHER && !other) || (i == FREE && !card->facts.known))
            continue;
        used += snprintf(figures + used, LINE_MAX_BYTES - (size_t)used, "%s%c%s%s", narrow ? " " : "  ",
                         letters[i], narrow ? "" : names[i], words_short(parts[i], text));
    }
    return used;
}

static void draw_figures(int y, const struct ledgers_card *card)
{
    char figures[LINE_MAX_BYTES], title[LINE_MAX_BYTES];
    const int name = snprintf(title, sizeof(title), "%s", ledgers_card_name(card));
    int used = list_parts(card, false, figures);

    if (name + 1 + used > COLS)
        used = list_parts(card, true, figures);
    snprintf(title + name, sizeof(title) - (size_t)name, "  %s", card->facts.name);
    put(y, 0, used + 2 < COLS ? COLS - used - 1 : COLS, title);
    put(y, used < COLS ? COLS - used : 0, used < COLS ? used : COLS, figures);
}

static void draw_bar(const struct top *top, int y, const struct ledgers_card *card)
{
    uint64_t parts[PARTS];
    double before = 0, sum = 0;
    const int width = COLS - 2;
    int column = 0;

    parts_of(card, parts);
    for (int i = 0; i < PARTS; i++)
        sum += (double)parts[i];
    mvaddch(y, 0, '[');
    for (int i = 0; i < PARTS; i++) {
        before += (double)parts[i];
        const int end = sum > 0 ? (int)(before / sum * width + 0.5) : 0;

        attron(paint(top, i + 1));
        for (; column < end && column < width; column++)
            addch((chtype)letters[i]);
        attroff(paint(top, i + 1));
    }
    mvaddch(y, COLS - 1, ']');
}

/* Writes min and high of all jobs of a card that have one. Returns false if none has. */
static bool list_bounds(const struct ledgers_card *card, char *line, size_t size)
{
    char bounds[PS_BOUNDS];
    size_t used = 0;

    for (int i = 0; i < card->count && used < size; i++) {
        if (ps_bounds(card, i, bounds))
            used += (size_t)snprintf(line + used, size - used, "%s%s", used ? "; " : "", bounds);
    }
    return used > 0;
}

/* Draws the cards from line y on, as many as leave room for the table; returns the next line. */
static int draw_cards(const struct top *top, int y)
{
    const int end = LINES - FOOTER - TABLE_LEAST - 1;

    for (int i = 0; i < top->ledgers->count; i++) {
        const struct ledgers_card *card = &top->ledgers->cards[i];
        const int left = top->ledgers->count - i;
        char bounds[LINE_MAX_BYTES];
        const bool bar = card->facts.known, bounded = list_bounds(card, bounds, sizeof(bounds));

        if (y + bar + bounded >= end) {
            mvprintw(y++, 0, i ? "and %d more card%s" : "%d card%s: make the window higher", left,
                     left == 1 ? "" : "s");
            break;
        }
        if (!card->ledger) {
            put(y++, 0, COLS, card->why);
            continue;
        }
        draw_figures(y++, card);
        if (bar)
            draw_bar(top, y++, card);
        if (bounded)
            put(y++, 0, COLS, bounds);
    }
    return y;
}

/* ---- the table ---- */

#define PID_AT       1
#define PID_WIDTH    7
#define FIGURE_WIDTH 7 /* with the space before it */
#define SIZES        4

/* Where the columns are, by the width of the screen. */
struct layout {
    int user, user_width, job, job_width, sizes, spark, spark_width, command;
};

static struct layout lay_out(void)
{
    const bool wide = COLS >= 100;
    struct layout layout = {.user = PID_AT + PID_WIDTH + 1,
                            .user_width = wide ? 8 : 6,
                            .job_width = wide ? 16 : 12,
                            .spark_width = COLS >= 130 ? 30
                                           : wide      ? 20
                                                       : 10};

    layout.job = layout.user + layout.user_width + 1;
    layout.sizes = layout.job + layout.job_width;
    layout.spark = layout.sizes + SIZES * FIGURE_WIDTH + 1;
    layout.command = layout.spark + layout.spark_width + 1;
    return layout;
}

/* Draws the last minute: each column shows the most used in its part of it, in terms of the limit or the
 * peak. */
static void draw_spark(const struct top *top, int y, int x, int width, const struct top_row *row)
{
    static const char *const blocks[LEVELS + 1] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[LEVELS + 1] = {" ", ".", ":", "-", "=", "+", "*", "%", "@"};
    const int each = TOP_SAMPLES / width;
    const uint64_t most = row->limit != LEDGER_UNLIMITED && row->limit >= row->used ? row->limit
                          : row->peak > row->used                                   ? row->peak
                                                                                    : row->used;

    move(y, x);
    for (int i = 0; i < width; i++) {
        uint64_t used = 0;

        for (int j = i * each; j < (i + 1) * each; j++)
            used = row->past[j] > used ? row->past[j] : used;
        const double share = used < most ? (double)used / (double)most : used ? 1 : 0;
        int level = (int)(share * LEVELS + 0.5);
        level = used && !level ? 1 : level;
        addstr(top->blocks ? blocks[level] : plain[level]);
    }
}

/* The command line without the folder of the program: room is short. */
static const char *command_of(const struct ledgers_process *process)
{
    const char *command = process->command;

    for (const char *c = command; *c && *c != ' '; c++) {
        if (*c == '/' && c[1] && c[1] != ' ')
            command = c + 1;
    }
    return command;
}

/* What the row is of: with several cards also the card. */
static void describe(const struct top *top, const struct top_row *row, char *text, size_t size)
{
    const struct ledger_entry *entry = &row->process->entry;
    char asked[WORDS_TEXT], card[LEDGER_UUID + 2] = "";

    if (top->ledgers->count > 1)
        snprintf(card, sizeof(card), "%s: ", ledgers_card_name(row->card));
    if (top->by_job && *entry->job)
        snprintf(text, size, "%s%d process%s", card, row->members, row->members == 1 ? "" : "es");
    else if (entry->waiting)
        snprintf(text, size, "waits %s: %s%s", words_short(entry->asked, asked), card,
                 command_of(row->process));
    else
        snprintf(text, size, "%s%s", card, command_of(row->process));
}

static void draw_row(const struct top *top, int y, int number)
{
    const struct top_row *row = &top->rows[number];
    const struct layout layout = lay_out();
    const uint64_t sizes[SIZES] = {row->used, row->idle, row->peak, row->limit};
    const bool selected = number == top->selected, group = top->by_job && *row->process->entry.job;
    char line[LINE_MAX_BYTES], text[WORDS_TEXT], pid[WORDS_TEXT];

    if (selected)
        attron(A_REVERSE);
    if (row->process->entry.waiting)
        attron(paint(top, PAIR_WAITING) | A_BOLD);
    put(y, 0, COLS, selected ? ">" : "");
    snprintf(pid, sizeof(pid), "%*d", PID_WIDTH, (int)row->process->entry.pid);
    put(y, PID_AT, PID_WIDTH, group ? "      -" : pid);
    put(y, layout.user, layout.user_width, row->process->user);
    put(y, layout.job, layout.job_width, row->process->entry.job);
    if ((int)strlen(row->process->entry.job) > layout.job_width) /* as ps marks a name that is cut */
        mvaddch(y, layout.job + layout.job_width - 1, '+');
    for (int i = 0, x = layout.sizes; i < SIZES && x + FIGURE_WIDTH <= COLS; i++, x += FIGURE_WIDTH)
        mvprintw(y, x, " %6s", words_short(sizes[i], text));
    if (layout.command <= COLS)
        draw_spark(top, y, layout.spark, layout.spark_width, row);
    describe(top, row, line, sizeof(line));
    put(y, layout.command, COLS > layout.command ? COLS - layout.command : 0, line);
    attrset(A_NORMAL);
}

static void draw_table(struct top *top, int y)
{
    const int room = LINES - FOOTER - y - 1;
    const struct layout layout = lay_out();
    char title[LINE_MAX_BYTES];

    if (room < 1)
        return;
    snprintf(title, sizeof(title), " %*s %-*s %-*s %6s %6s %6s %6s %-*s %s", PID_WIDTH, "PID",
             layout.user_width, "USER", layout.job_width, "JOB", "USED", "IDLE", "PEAK", "LIMIT",
             layout.spark_width, "LAST MIN", "COMMAND");
    attron(A_BOLD);
    put(y++, 0, COLS, title);
    attroff(A_BOLD);
    if (!top->count)
        mvprintw(y, 1, "no process runs under gpucap here (looked in %s)", top->ledgers->folder);
    if (top->selected < top->first)
        top->first = top->selected;
    if (top->selected >= top->first + room)
        top->first = top->selected - room + 1;
    for (int i = top->first; i < top->count && i < top->first + room; i++)
        draw_row(top, y++, i);
}

/* ---- all of it ---- */

static void draw_help(void)
{
    static const char *const lines[] = {
        "gpucap top: who holds how much of each card, once a second",
        "",
        "arrows  select a process (page up, page down, home, end as well)",
        "s       next order: used, idle, peak, pid, job",
        "g       one line per job, or one per process",
        "t       trim: the selected process, or job, gives its idle memory back",
        "m       set a new limit for the job of the selected process",
        "k       send the selected process a signal",
        "q       quit",
        "",
        "USED    what the process has of the card, with what idles in its pool",
        "IDLE    the part of it that lies unused in its pool",
        "LIMIT   the process's own limit or its job's, whichever is less",
        "min     what other jobs leave free on the card for a job, as far as it uses less",
        "high    above it, a job gives idle memory back at once",
        "LAST MIN  USED over the last minute, as a share of the limit",
        "",
        "In a bar: # used   = idle   : other programs   . free",
        "",
        "Any key goes back.",
    };

    for (int i = 0; i < (int)(sizeof(lines) / sizeof(*lines)) && i < LINES; i++)
        put(i, 0, COLS, lines[i]);
}

static void draw_title(const struct top *top)
{
    char host[64] = "", clock[16] = "", line[LINE_MAX_BYTES];
    const time_t now = time(NULL);
    struct tm parts;

    gethostname(host, sizeof(host) - 1);
    if (localtime_r(&now, &parts))
        strftime(clock, sizeof(clock), "%H:%M:%S", &parts);
    const int things = top_things(top);
    snprintf(line, sizeof(line), "gpucap top  %.30s  %s  %d %s  sorted by %s", host, clock, things,
             top->by_job   ? things == 1 ? "job" : "jobs"
             : things == 1 ? "process"
                           : "processes",
             top_order_name(top->order));
    attron(A_BOLD);
    put(0, 0, COLS, line);
    attroff(A_BOLD);
}

void top_draw(struct top *top)
{
    erase();
    if (top->help) {
        draw_help();
        refresh();
        return;
    }
    draw_title(top);
    draw_table(top, draw_cards(top, 1));
    attron(paint(top, PAIR_STATUS));
    put(LINES - 2, 0, COLS, *top->prompt ? top->prompt : top->status);
    attroff(paint(top, PAIR_STATUS));
    /* One column less: writing to the last one of the last line would scroll some terminals. */
    put(LINES - 1, 0, COLS - 1, "q quit  s sort  t trim  m set limit  k signal  g group by job  ? help");
    move(LINES - 2, *top->prompt ? (int)strlen(top->prompt) : 0);
    refresh();
}
