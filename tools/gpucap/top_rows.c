/* top_rows: rows, their order, and the last minute of each process. See top.h. */
#include "tools/gpucap/top.h"

#include <stdlib.h>
#include <string.h>

/* ---- the last minute ---- */

struct past {
    char uuid[LEDGER_UUID];
    pid_t pid;
    uint64_t started;
    bool seen; /* in the last look */
    uint64_t used[TOP_SAMPLES];
};

struct top_history {
    int count, room;
    struct past *of;
};

static struct past *find(const struct top_history *history, const struct ledgers_card *card,
                         const struct ledgers_process *process)
{
    for (int i = 0; i < history->count; i++) {
        struct past *past = &history->of[i];

        if (past->pid == process->entry.pid && past->started == process->entry.started &&
            !strcmp(past->uuid, card->uuid))
            return past;
    }
    return NULL;
}

static struct past *find_or_add(struct top_history *history, const struct ledgers_card *card,
                                const struct ledgers_process *process)
{
    struct past *past = find(history, card, process);

    if (past)
        return past;
    if (history->count == history->room) {
        const int room = history->room ? history->room * 2 : 16;
        struct past *grown = realloc(history->of, (size_t)room * sizeof(*grown));

        if (!grown)
            return NULL;
        history->of = grown;
        history->room = room;
    }
    past = &history->of[history->count++];
    memset(past, 0, sizeof(*past));
    memcpy(past->uuid, card->uuid, sizeof(past->uuid));
    past->pid = process->entry.pid;
    past->started = process->entry.started;
    return past;
}

static bool add_card(struct top_history *history, const struct ledgers_card *card)
{
    for (int i = 0; i < card->count; i++) {
        struct past *past = find_or_add(history, card, &card->processes[i]);

        if (!past)
            return false;
        memmove(past->used, past->used + 1, sizeof(past->used) - sizeof(past->used[0]));
        past->used[TOP_SAMPLES - 1] = card->processes[i].entry.used;
        past->seen = true;
    }
    return true;
}

bool top_history_add(struct top_history **history, const struct ledgers *ledgers)
{
    if (!*history && !(*history = calloc(1, sizeof(**history))))
        return false;
    for (int i = 0; i < ledgers->count; i++) {
        if (!add_card(*history, &ledgers->cards[i]))
            return false;
    }
    int kept = 0;
    for (int i = 0; i < (*history)->count; i++) {
        if (!(*history)->of[i].seen)
            continue;
        (*history)->of[kept] = (*history)->of[i];
        (*history)->of[kept++].seen = false;
    }
    (*history)->count = kept;
    return true;
}

/* Adds the process's samples to `past`. */
static void add_past(const struct top_history *history, const struct ledgers_card *card,
                     const struct ledgers_process *process, uint64_t past[TOP_SAMPLES])
{
    const struct past *found = history ? find(history, card, process) : NULL;

    for (int i = 0; found && i < TOP_SAMPLES; i++)
        past[i] += found->used[i];
}

void top_history_free(struct top_history *history)
{
    if (history)
        free(history->of);
    free(history);
}

/* ---- rows ---- */

const char *top_order_name(enum top_order order)
{
    static const char *const names[TOP_ORDERS] = {
        [TOP_BY_USED] = "used", [TOP_BY_IDLE] = "idle", [TOP_BY_PEAK] = "peak",
        [TOP_BY_PID] = "pid",   [TOP_BY_JOB] = "job",
    };

    return names[order];
}

static int larger_first(uint64_t a, uint64_t b)
{
    return (a < b) - (a > b);
}

static int compare(const void *a, const void *b, void *argument)
{
    const struct top_row *x = a, *y = b;
    const enum top_order order = *(const enum top_order *)argument;
    int result = 0;

    if (order == TOP_BY_USED)
        result = larger_first(x->used, y->used);
    else if (order == TOP_BY_IDLE)
        result = larger_first(x->idle, y->idle);
    else if (order == TOP_BY_PEAK)
        result = larger_first(x->peak, y->peak);
    else if (order == TOP_BY_JOB)
        result = strcmp(x->process->entry.job, y->process->entry.job);
    if (result == 0)
        result =
            (x->process->entry.pid > y->process->entry.pid) - (x->process->entry.pid < y->process->entry.pid);
    return result ? result : (x->card > y->card) - (x->card < y->card);
}

static bool same_job(const struct top_row *row, const struct ledgers_card *card,
                     const struct ledgers_process *process)
{
    return row->card == card && *process->entry.job && !strcmp(row->process->entry.job, process->entry.job);
}

static void add_process(struct top *top, const struct ledgers_card *card,
                        const struct ledgers_process *process)
{
    struct top_row *row = top->count ? &top->rows[top->count - 1] : NULL;

    if (!top->by_job || !row || !same_job(row, card, process)) {
        row = &top->rows[top->count++];
        *row = (struct top_row){
            .card = card, .process = process, .limit = ledgers_limit(process), .peak = process->entry.peak};
        if (top->by_job && *process->entry.job) { /* those of a process alone are not the job's */
            row->limit = process->entry.job_max;
            row->peak = process->job_peak;
        }
    }
    row->members++;
    row->used += process->entry.used;
    row->idle += process->entry.cached;
    add_past(top->history, card, process, row->past);
}

/* Returns true for a row of this process or, if rows are jobs, of its job. */
static bool is_row_of(const struct top *top, int row, const struct ledger_entry *other)
{
    const struct ledger_entry *entry = &top->rows[row].process->entry;

    return top->by_job && *entry->job ? !strcmp(entry->job, other->job) : entry->pid == other->pid;
}

/* The row of the process or job that was selected last; 0 if it is gone. */
static int find_selected(const struct top *top)
{
    for (int i = 0; i < top->count; i++) {
        if (is_row_of(top, i, &top->entry) && !strcmp(top->rows[i].card->uuid, top->uuid))
            return i;
    }
    return 0;
}

int top_things(const struct top *top)
{
    int things = 0;

    for (int i = 0; i < top->count; i++) {
        int first = 0;

        while (!is_row_of(top, first, &top->rows[i].process->entry))
            first++;
        things += first == i;
    }
    return things;
}

void top_select(struct top *top, int row)
{
    top->selected = row < 0 || !top->count ? 0 : row < top->count ? row : top->count - 1;
    if (!top->count)
        return;
    top->entry = top->rows[top->selected].process->entry;
    memcpy(top->uuid, top->rows[top->selected].card->uuid, sizeof(top->uuid));
}

bool top_rows(struct top *top)
{
    int processes = 1;

    for (int i = 0; i < top->ledgers->count; i++)
        processes += top->ledgers->cards[i].count;
    struct top_row *rows = calloc((size_t)processes, sizeof(*rows));
    if (!rows)
        return false;
    free(top->rows);
    top->rows = rows;
    top->count = 0;
    for (int i = 0; i < top->ledgers->count; i++) {
        for (int j = 0; j < top->ledgers->cards[i].count; j++)
            add_process(top, &top->ledgers->cards[i], &top->ledgers->cards[i].processes[j]);
    }
    qsort_r(rows, (size_t)top->count, sizeof(*rows), compare, &top->order);
    top_select(top, find_selected(top));
    return true;
}
