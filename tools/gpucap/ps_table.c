/* ps_table: `gpucap ps` for people: per card a line of its figures and a table of its processes, laid out by
 * libsmartcols, which knows the terminal's width. */
#include "tools/gpucap/cli.h"
#include "tools/gpucap/lines.h"
#include "tools/gpucap/parts.h"
#include "tools/gpucap/ps.h"
#include "tools/gpucap/words.h"

#include <libsmartcols/libsmartcols.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define JOB_WIDTH 16 /* of job-PID-NUMBER, as gpucap run names jobs; `gpucap set` needs the whole name */
#define SIMULATED "GPU-73696d67-7075-" /* the beginning of simgpu's UUIDs */

enum column { PID, USER, JOB, USED, IDLE, PEAK, LIMIT, STATE, COMMAND, COLUMNS };

static const struct {
    const char *title;
    double width; /* the part of the terminal that it should have */
    int flags;
} columns[COLUMNS] = {
    [PID] = {"PID", 7, SCOLS_FL_RIGHT},
    [USER] = {"USER", 0.1, SCOLS_FL_TRUNC},
    [JOB] = {"JOB", 1, 0},
    [USED] = {"USED", 8, SCOLS_FL_RIGHT},
    [IDLE] = {"IDLE", 8, SCOLS_FL_RIGHT},
    [PEAK] = {"PEAK", 8, SCOLS_FL_RIGHT},
    [LIMIT] = {"LIMIT", 8, SCOLS_FL_RIGHT},
    [STATE] = {"STATE", 0.1, 0},
    [COMMAND] = {"COMMAND", 0.3, SCOLS_FL_TRUNC},
};

/* Returns true if this process and the one in the row before have the limit of the same job, not their own
 * (--each). */
static bool shares_limit(const struct ledgers_card *card, int row)
{
    const struct ledgers_process *process = &card->processes[row];

    return row > 0 && *process->entry.job && !strcmp(process->entry.job, process[-1].entry.job) &&
           !ledgers_has_own_limit(process) && !ledgers_has_own_limit(&process[-1]);
}

static int set(struct libscols_line *line, enum column column, const char *text)
{
    return scols_line_set_data(line, column, text);
}

static int set_size(struct libscols_line *line, enum column column, uint64_t bytes)
{
    char text[WORDS_TEXT];

    return set(line, column, words_size(bytes, text));
}

/* Sets the name of the job. On a terminal a long one is cut and ends with +. */
static int set_job(struct libscols_line *line, const char *job)
{
    char cut[JOB_WIDTH + 1];

    if (strlen(job) <= JOB_WIDTH || !isatty(STDOUT_FILENO))
        return set(line, JOB, job);
    snprintf(cut, sizeof(cut), "%.*s+", JOB_WIDTH - 1, job);
    return set(line, JOB, cut);
}

static int add_row(struct libscols_table *table, const struct ledgers_card *card, int row)
{
    const struct ledgers_process *process = &card->processes[row];
    struct libscols_line *line = scols_table_new_line(table, NULL);
    char pid[WORDS_TEXT], state[PS_STATE];

    if (!line)
        return -1;
    snprintf(pid, sizeof(pid), "%d", (int)process->entry.pid);
    ps_state(&process->entry, state);
    return set(line, PID, pid) || set(line, USER, process->user) || set_job(line, process->entry.job) ||
           set_size(line, USED, process->entry.used) || set_size(line, IDLE, process->entry.cached) ||
           set_size(line, PEAK, process->entry.peak) || set(line, STATE, state) ||
           set(line, COMMAND, process->command) ||
           (shares_limit(card, row) ? set(line, LIMIT, "\"") : set_size(line, LIMIT, ledgers_limit(process)));
}

/* A process that does not run under gpucap: a dash stands for what only gpucap knows. */
static int add_unmanaged(struct libscols_table *table, const struct ledgers_unmanaged *process)
{
    struct libscols_line *line = scols_table_new_line(table, NULL);
    char pid[WORDS_TEXT], used[WORDS_TEXT];

    if (!line)
        return -1;
    snprintf(pid, sizeof(pid), "%d", (int)process->pid);
    if (process->used == LEDGER_UNLIMITED)
        snprintf(used, sizeof(used), "-");
    else
        words_size(process->used, used);
    return set(line, PID, pid) || set(line, USER, process->user) || set(line, JOB, "-") ||
           set(line, USED, used) || set(line, IDLE, "-") || set(line, PEAK, "-") || set(line, LIMIT, "-") ||
           set(line, COMMAND, process->command);
}

static void hide_empty(struct libscols_table *table, const struct ledgers_card *card)
{
    bool states = false, jobs = false;

    for (int i = 0; i < card->count; i++) {
        states = states || card->processes[i].entry.waiting || card->processes[i].entry.lent;
        jobs = jobs || *card->processes[i].entry.job;
    }
    scols_column_set_flags(scols_table_get_column(table, STATE),
                           columns[STATE].flags | (states ? 0 : SCOLS_FL_HIDDEN));
    scols_column_set_flags(scols_table_get_column(table, JOB),
                           columns[JOB].flags | (jobs ? 0 : SCOLS_FL_HIDDEN));
}

static int print_processes(const struct ledgers_card *card)
{
    struct libscols_table *table = scols_new_table();
    int failed = !table;

    for (int i = 0; i < COLUMNS && !failed; i++)
        failed = !scols_table_new_column(table, columns[i].title, columns[i].width, columns[i].flags);
    for (int i = 0; i < card->count && !failed; i++)
        failed = add_row(table, card, i);
    for (int i = 0; i < card->unmanaged_count && !failed; i++)
        failed = add_unmanaged(table, &card->unmanaged[i]);
    if (!failed) {
        hide_empty(table, card);
        failed = scols_print_table(table);
    }
    scols_unref_table(table);
    return failed ? cli_fail("ps: no memory for the table") : 0;
}

static void print_card(const struct ledgers_card *card)
{
    char text[WORDS_TEXT], figures[PS_FIGURES], bounds[PS_BOUNDS];

    ps_figures(card, figures);
    fputs(card->facts.number < 0 ? card->uuid : ledgers_card_name(card), stdout);
    if (card->facts.known)
        printf("  %s  %s", card->facts.name, words_size(card->facts.total, text));
    else
        fputs(strncmp(card->uuid, SIMULATED, strlen(SIMULATED)) == 0
                  ? "  (simulated: give --sim=SPEC, as to run)"
                  : "  (not seen here)",
              stdout);
    printf("\n%s\n", figures);
    for (int i = 0; i < card->count; i++) {
        if (ps_bounds(card, i, bounds))
            lines_text(0, 2, bounds);
    }
}

int part_show(struct ledgers *ledgers)
{
    int processes = 0, shown = 0, status = 0;

    setlocale(LC_CTYPE, ""); /* for the width of letters */
    for (int i = 0; i < ledgers->count && !status; i++) {
        const struct ledgers_card *card = &ledgers->cards[i];

        if (!card->count && !card->unmanaged_count)
            continue;
        if (shown++)
            putchar('\n');
        processes += card->count;
        print_card(card);
        status = print_processes(card);
    }
    if (!processes)
        fprintf(stderr,
                "gpucap: no process runs under gpucap here (looked in %s; --ledger=DIR looks elsewhere)\n",
                ledgers->folder);
    return status;
}
