/* ps_prometheus: `gpucap ps --prometheus`: the text format 0.0.4, for the textfile collector of
 * node_exporter. Labels are named as NVIDIA's dcgm-exporter names them. No command lines: labels are kept for
 * months. */
#include "tools/gpucap/ps.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum scope { CARD, JOB, PROCESS };

enum id {
    CARD_TOTAL,
    CARD_FREE,
    CARD_MANAGED,
    CARD_IDLE,
    CARD_OTHER,
    JOB_LIMIT,
    JOB_MIN,
    JOB_HIGH,
    USED,
    IDLE,
    PEAK,
    LIMIT,
    WAITING,
    WAITED,
    LENT,
    BORROWED,
    REFUSED,
    METRICS
};

static const struct metric {
    enum scope scope;
    const char *name, *type, *help;
} metrics[METRICS] = {
    [CARD_TOTAL] = {CARD, "gpucap_card_total_bytes", "gauge", "Memory of the card."},
    [CARD_FREE] = {CARD, "gpucap_card_free_bytes", "gauge", "Free memory of the card."},
    [CARD_MANAGED] = {CARD, "gpucap_card_managed_bytes", "gauge", "Memory that processes under gpucap have."},
    [CARD_IDLE] = {CARD, "gpucap_card_idle_bytes", "gauge", "The part of it that idles in their pools."},
    [CARD_OTHER] = {CARD, "gpucap_card_other_bytes", "gauge",
                    "Memory that other programs and the driver have."},
    [JOB_LIMIT] = {JOB, "gpucap_job_limit_bytes", "gauge", "Limit that the processes of a job share."},
    [JOB_MIN] = {JOB, "gpucap_job_min_bytes", "gauge", "Memory that other jobs leave free for a job."},
    [JOB_HIGH] = {JOB, "gpucap_job_high_bytes", "gauge",
                  "Use above which a job gives idle memory back at once."},
    [USED] = {PROCESS, "gpucap_process_used_bytes", "gauge", "Memory that the process has."},
    [IDLE] = {PROCESS, "gpucap_process_idle_bytes", "gauge", "The part of it that idles in its pool."},
    [PEAK] = {PROCESS, "gpucap_process_peak_bytes", "gauge", "The most that the process has had."},
    [LIMIT] = {PROCESS, "gpucap_process_limit_bytes", "gauge", "Limit that holds for the process."},
    [WAITING] = {PROCESS, "gpucap_process_waiting_bytes", "gauge", "Memory that the process waits for now."},
    [WAITED] = {PROCESS, "gpucap_process_waited_seconds_total", "counter",
                "Time that the process has waited for memory."},
    [LENT] = {PROCESS, "gpucap_process_lent_bytes_total", "counter",
              "Idle memory that it has given back for others."},
    [BORROWED] = {PROCESS, "gpucap_process_borrowed_bytes_total", "counter",
                  "Memory that others have given back for it."},
    [REFUSED] = {PROCESS, "gpucap_process_refused_total", "counter", "Requests that were refused."},
};

/* A figure of a card; LEDGER_UNLIMITED: not known. */
static uint64_t card_value(enum id id, const struct ledgers_card *card)
{
    uint64_t other;

    switch (id) {
    case CARD_TOTAL:
        return card->facts.known ? card->facts.total : LEDGER_UNLIMITED;
    case CARD_FREE:
        return card->facts.known ? card->facts.free : LEDGER_UNLIMITED;
    case CARD_MANAGED:
        return card->ledger ? card->managed : LEDGER_UNLIMITED;
    case CARD_IDLE:
        return card->ledger ? card->idle : LEDGER_UNLIMITED;
    default:
        return ledgers_other(card, &other) ? other : LEDGER_UNLIMITED;
    }
}

/* A figure of a process or its job; LEDGER_UNLIMITED: none. */
static uint64_t process_value(enum id id, const struct ledgers_process *process)
{
    const struct ledger_entry *entry = &process->entry;

    switch (id) {
    case JOB_LIMIT:
        return *entry->job ? entry->job_max : LEDGER_UNLIMITED;
    case JOB_MIN:
        return *entry->job && entry->min ? entry->min : LEDGER_UNLIMITED;
    case JOB_HIGH:
        return *entry->job && entry->high ? entry->high : LEDGER_UNLIMITED;
    case USED:
        return entry->used;
    case IDLE:
        return entry->cached;
    case PEAK:
        return entry->peak;
    case LIMIT:
        return ledgers_limit(process);
    case WAITING:
        return entry->waiting ? entry->asked : 0;
    case WAITED:
        return entry->waited_ms;
    case LENT:
        return entry->lent;
    case BORROWED:
        return entry->borrowed;
    default:
        return entry->refused;
    }
}

/* In a label's value a backslash, a quote and a line's end are escaped. */
static void print_label(const char *name, const char *value)
{
    printf("%s=\"", name);
    for (; *value; value++) {
        if (*value == '\n')
            fputs("\\n", stdout);
        else if (*value == '\\' || *value == '"')
            printf("\\%c", *value);
        else
            putchar(*value);
    }
    putchar('"');
}

/* Prints the name and the labels that every sample has. */
static void begin_sample(enum id id, const struct ledgers_card *card, const char *host)
{
    char number[16] = "";

    if (card->facts.number >= 0)
        snprintf(number, sizeof(number), "%d", card->facts.number);
    printf("%s{", metrics[id].name);
    print_label("gpu", number);
    print_label(",UUID", card->uuid);
    print_label(",Hostname", host);
}

static void print_card(enum id id, const struct ledgers_card *card, const char *host)
{
    const uint64_t value = card_value(id, card);

    if (value == LEDGER_UNLIMITED)
        return;
    begin_sample(id, card, host);
    printf("} %.15g\n", (double)value);
}

static void print_process(enum id id, const struct ledgers_card *card, const struct ledgers_process *process,
                          const char *host)
{
    const uint64_t value = process_value(id, process);

    if (value == LEDGER_UNLIMITED)
        return;
    begin_sample(id, card, host);
    if (metrics[id].scope == PROCESS)
        printf(",pid=\"%d\"", (int)process->entry.pid);
    print_label(",job", process->entry.job);
    printf("} %.15g\n", id == WAITED ? (double)value / 1000 : (double)value);
}

/* True if the row before has the same labels: Prometheus refuses a text that has a sample twice. The
 * processes are sorted by job and id; two of one id are in different PID namespaces. */
static bool repeats(const struct ledgers_card *card, int row, enum scope scope)
{
    const struct ledgers_process *process = &card->processes[row];

    return row > 0 && !strcmp(process->entry.job, process[-1].entry.job) &&
           (scope == JOB || process->entry.pid == process[-1].entry.pid);
}

static void print_metric(enum id id, const struct ledgers *ledgers, const char *host)
{
    const struct metric *metric = &metrics[id];

    printf("# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name, metric->type);
    for (int i = 0; i < ledgers->count; i++) {
        const struct ledgers_card *card = &ledgers->cards[i];

        if (metric->scope == CARD)
            print_card(id, card, host);
        for (int j = 0; metric->scope != CARD && j < card->count; j++) {
            if (!repeats(card, j, metric->scope))
                print_process(id, card, &card->processes[j], host);
        }
    }
}

int ps_prometheus(struct ledgers *ledgers)
{
    char host[HOST_NAME_MAX + 1] = "";

    gethostname(host, sizeof(host) - 1);
    for (enum id id = 0; id < METRICS; id++)
        print_metric(id, ledgers, host);
    return 0;
}
