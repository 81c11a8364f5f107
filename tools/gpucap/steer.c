/* steer: see steer.h. */
#include "tools/gpucap/steer.h"

#include "tools/gpucap/cli.h"
#include "interpose/base/clock.h"
#include "interpose/settings/options.h"
#include "tools/gpucap/words.h"

#include <errno.h>
#include <string.h>

#define COMMAND_MAX 30                  /* letters of a command line */
#define LITTLE      (UINT64_C(1) << 20) /* the driver hands out more at a time */
#define SETTLE_MS   1000 /* how long a lowered max waits for idle memory to go back before it is reported */

bool steer_lacks_unit(const struct size_value *size)
{
    return !size->is_percent && size->bytes && size->bytes < LITTLE;
}

const char *steer_parse_max(const char *text, enum ledger_limit limit, struct steer_max *max)
{
    struct options options;
    char error[OPTIONS_ERROR_MAX];

    *max = (struct steer_max){.limit = limit, .none = !strcmp(text, "none")};
    if (options_load_here(&options, error) == 0)
        max->ceiling = options.ceiling;
    const int rc = max->none ? 0 : size_parse(text, strlen(text), &max->size);
    if (rc)
        return size_why(rc);
    if (!max->none && steer_lacks_unit(&max->size))
        return STEER_LITTLE;
    const bool zero = !max->none && !max->size.is_percent && max->size.bytes == 0;
    return zero && limit == LEDGER_MAX ? RULES_ZERO : NULL; /* a min or a high of zero is none */
}

const char *steer_name(enum ledger_limit limit)
{
    return limit == LEDGER_MAX ? "max" : limit == LEDGER_MIN ? "min" : "high";
}

uint64_t steer_ceiling(const struct ledgers_card *card, const struct steer_max *max)
{
    return rules_for(&max->ceiling, RULES_NO_ORDINAL, card->uuid,
                     card->facts.known ? card->facts.total : UINT64_MAX);
}

/* Returns a min or a high as words_size shows it: none as no limit. */
static uint64_t shown(enum ledger_limit limit, uint64_t bytes)
{
    return limit != LEDGER_MAX && bytes == 0 ? LEDGER_UNLIMITED : bytes;
}

/* Writes the limit in bytes for one card. Returns false, after a message, if it is a part of an unknown total
 * or above the administrator's ceiling. */
static bool resolve(const struct ledgers_card *card, const struct steer_max *max, uint64_t *bytes, FILE *err)
{
    char text[WORDS_TEXT];

    if (max->size.is_percent && !card->facts.known) {
        fprintf(err, "gpucap: %s: its size is not known here, so give a size such as 8G, not a percentage\n",
                ledgers_card_name(card));
        return false;
    }
    *bytes = !max->none                 ? size_resolve(&max->size, card->facts.total)
             : max->limit == LEDGER_MAX ? LEDGER_UNLIMITED
                                        : 0;
    if (max->limit == LEDGER_HIGH)
        return true; /* asks for nothing that others have */
    const uint64_t ceiling = steer_ceiling(card, max);
    if (*bytes > ceiling) {
        fprintf(err, "gpucap: %s: the administrator allows at most %s (" OPTIONS_ADMIN_FILE ")\n",
                ledgers_card_name(card), words_size(ceiling, text));
        return false;
    }
    return true;
}

/* ---- set ---- */

struct job {
    const char *name;
    uint64_t max, min, high, used;
    int processes, foreign; /* how many there are, and how many of them the caller may not change */
    bool chosen;            /* one of them is */
};

/* Sums up the job of the process number `first`; the processes are sorted by job. */
static struct job sum_up(const struct ledgers_card *card, int first)
{
    const struct ledger_entry *entry = &card->processes[first].entry;
    struct job job = {.name = entry->job, .max = entry->job_max, .min = entry->min, .high = entry->high};

    for (int i = first; i < card->count && !strcmp(card->processes[i].entry.job, job.name); i++) {
        job.processes++;
        job.used += card->processes[i].entry.used;
        job.foreign += !ledgers_may_change(&card->processes[i]);
        job.chosen = job.chosen || card->processes[i].chosen;
    }
    return job;
}

/* Asks the job's processes one after the other for what is still too much. Returns what the job uses then. */
static uint64_t give_back(const struct ledgers_card *card, const struct job *job, uint64_t max)
{
    const uint64_t until = clock_ms() + SETTLE_MS;
    uint64_t used = job->used;

    for (int i = 0; i < card->count; i++) {
        const struct ledgers_process *process = &card->processes[i];
        struct ledger_entry entry;
        const uint64_t now = clock_ms();

        if (strcmp(process->entry.job, job->name) != 0)
            continue;
        if (used > max)
            ledger_poke(card->ledger, process->slot, used - max, now < until ? (unsigned)(until - now) : 0);
        const bool there = ledger_read(card->ledger, process->slot, &entry);
        const uint64_t left = there ? entry.used : 0;
        if (left < process->entry.used)
            used -= process->entry.used - left;
    }
    return used;
}

/* Makes a job that uses more than its new max give idle memory back, and prints the result. */
static void shrink(const struct ledgers_card *card, const struct job *job, uint64_t max, FILE *out)
{
    char in_use[WORDS_TEXT], given[WORDS_TEXT];
    const uint64_t after = give_back(card, job, max);

    fprintf(out, "  below the %s in use: ", words_size(job->used, in_use));
    if (after < job->used)
        fprintf(out, "%s of idle memory went back;", words_size(job->used - after, given));
    else
        fputs("no idle memory went back;", out);
    if (after > max)
        fputs("\n  new requests are refused until the programs have freed enough\n", out);
    else
        fputs(" the rest fits\n", out);
}

/* Says that a limit is more than the card has, or a min or high more than the job's max. */
static void note_excess(const struct ledgers_card *card, enum ledger_limit limit, uint64_t bytes,
                        uint64_t job_max, FILE *out)
{
    char text[WORDS_TEXT];

    if (card->facts.known && bytes > card->facts.total && bytes != LEDGER_UNLIMITED)
        fprintf(out, "  more than the card has, which is %s\n", words_size(card->facts.total, text));
    else if (limit != LEDGER_MAX && bytes > job_max)
        fprintf(out, "  more than the job's max, which is %s\n", words_size(job_max, text));
}

static int set_job(const struct ledgers_card *card, const struct job *job, const struct steer_max *max,
                   FILE *out, FILE *err)
{
    char before[WORDS_TEXT], after[WORDS_TEXT];
    uint64_t bytes;

    if (job->foreign) {
        fprintf(err, "gpucap: %s on %s: only the owner of its processes, or root, may change it\n", job->name,
                ledgers_card_name(card));
        return CLI_UNDONE;
    }
    if (!resolve(card, max, &bytes, err))
        return CLI_UNDONE;
    const uint64_t old = max->limit == LEDGER_MAX   ? job->max
                         : max->limit == LEDGER_MIN ? job->min
                                                    : job->high;
    const int rc = ledger_set_limit(card->ledger, job->name, max->limit, bytes);
    if (rc) {
        fprintf(err, "gpucap: %s on %s: the ledger cannot be changed: %s\n", job->name,
                ledgers_card_name(card), strerror(-rc));
        return CLI_UNDONE;
    }
    fprintf(out, "%s on %s: %s was %s, is %s now\n", job->name, ledgers_card_name(card),
            steer_name(max->limit), words_size(shown(max->limit, old), before),
            words_size(shown(max->limit, bytes), after));
    note_excess(card, max->limit, bytes, job->max, out);
    if (max->limit == LEDGER_MAX && job->used > bytes)
        shrink(card, job, bytes, out);
    return 0;
}

int steer_set(struct ledgers *ledgers, const struct steer_max *max, FILE *out, FILE *err)
{
    int status = 0;

    for (int i = 0; i < ledgers->count; i++) {
        const struct ledgers_card *card = &ledgers->cards[i];

        for (int j = 0; j < card->count;) {
            const struct job job = sum_up(card, j);

            if (job.chosen && !*job.name) {
                fprintf(err, "gpucap: %s: a process without a job keeps the limit that it was started with\n",
                        ledgers_card_name(card));
                status = CLI_UNDONE;
            } else if (job.chosen && set_job(card, &job, max, out, err)) {
                status = CLI_UNDONE;
            }
            j += job.processes;
        }
    }
    ledgers_read(ledgers);
    return status;
}

int steer_make(struct ledgers *ledgers, const char *name, const struct steer_max *max, FILE *out, FILE *err)
{
    char text[WORDS_TEXT];
    int made = 0;

    for (int i = 0; i < ledgers->count; i++) {
        struct ledgers_card *card = &ledgers->cards[i];
        uint64_t bytes;
        int rc;

        if (!card->ledger || !resolve(card, max, &bytes, err))
            continue;
        if ((rc = ledger_set_limit(card->ledger, name, max->limit, bytes))) {
            fprintf(err, "gpucap: %s on %s: the ledger cannot be changed: %s\n", name,
                    ledgers_card_name(card),
                    rc == -ENOSPC ? "it has no place for more jobs (see gpucap set JOB --max=none)"
                                  : strerror(-rc));
            continue;
        }
        fprintf(out, "%s on %s: %s is %s now; it has no process yet\n", name, ledgers_card_name(card),
                steer_name(max->limit), words_size(shown(max->limit, bytes), text));
        note_excess(card, max->limit, bytes, LEDGER_UNLIMITED, out);
        made++;
    }
    return made && made == ledgers->count ? 0 : CLI_UNDONE;
}

/* ---- trim ---- */

/* Returns what the process has given back since it was read: by its own count or by the fall of what it uses,
 * whichever is more. *idle is what it still holds idle. */
static uint64_t given_since(const struct ledgers_card *card, const struct ledgers_process *process,
                            uint64_t *idle)
{
    struct ledger_entry now;

    *idle = 0;
    if (!ledger_read(card->ledger, process->slot, &now) || now.started != process->entry.started)
        return 0;
    *idle = now.cached;
    const uint64_t lent = now.lent > process->entry.lent ? now.lent - process->entry.lent : 0;
    const uint64_t less = now.used < process->entry.used ? process->entry.used - now.used : 0;
    return lent > less ? lent : less;
}

static void report_process(const struct ledgers_card *card, const struct ledgers_process *process,
                           uint64_t idle, FILE *out)
{
    char text[WORDS_TEXT], command[WORDS_CUT];

    fprintf(out, "%7d  %-7s  ", (int)process->entry.pid, ledgers_card_name(card));
    if (!process->answered)
        fprintf(out, "did not answer within %d s", STEER_TRIM_MS / 1000);
    else if (process->given)
        fprintf(out, "%s given back", words_size(process->given, text));
    else if (idle)
        fprintf(out, "none of %s idle can go back", words_size(idle, text));
    else
        fputs("nothing was idle", out);
    fprintf(out, "  %s\n", words_cut(process->command, COMMAND_MAX, command));
}

static bool is_foreign(const struct ledgers_process *process)
{
    return process->chosen && !ledgers_may_change(process);
}

static bool is_chosen(const struct ledgers_process *process)
{
    return process->chosen;
}

static bool is_giver(const struct ledgers_process *process)
{
    return process->chosen && process->given;
}

static bool is_silent(const struct ledgers_process *process)
{
    return process->chosen && !process->answered;
}

/* Returns true if an earlier card than number `end` has the process. */
static bool is_counted(const struct ledgers *ledgers, int end, pid_t pid,
                       bool (*is)(const struct ledgers_process *process))
{
    for (int i = 0; i < end; i++) {
        for (int j = 0; j < ledgers->cards[i].count; j++) {
            const struct ledgers_process *process = &ledgers->cards[i].processes[j];

            if (process->entry.pid == pid && is(process))
                return true;
        }
    }
    return false;
}

/* Counts the processes of a kind, each once even if it uses several cards. */
static int count(const struct ledgers *ledgers, bool (*is)(const struct ledgers_process *process))
{
    int found = 0;

    for (int i = 0; i < ledgers->count; i++) {
        for (int j = 0; j < ledgers->cards[i].count; j++) {
            const struct ledgers_process *process = &ledgers->cards[i].processes[j];

            found += is(process) && !is_counted(ledgers, i, process->entry.pid, is);
        }
    }
    return found;
}

int steer_trim(struct ledgers *ledgers, bool brief, FILE *out)
{
    char text[WORDS_TEXT];
    uint64_t sum = 0;
    const int foreign = count(ledgers, is_foreign);

    for (int i = 0; i < ledgers->count; i++) {
        for (int j = 0; j < ledgers->cards[i].count; j++) {
            struct ledgers_process *process = &ledgers->cards[i].processes[j];

            process->chosen = process->chosen && ledgers_may_change(process);
        }
    }
    ledgers_poke(ledgers, false, UINT64_MAX, STEER_TRIM_MS);
    for (int i = 0; i < ledgers->count; i++) {
        for (int j = 0; j < ledgers->cards[i].count; j++) {
            struct ledgers_process *process = &ledgers->cards[i].processes[j];

            if (!process->chosen)
                continue;
            uint64_t idle;
            process->given = given_since(&ledgers->cards[i], process, &idle);
            if (!brief)
                report_process(&ledgers->cards[i], process, idle, out);
            sum += process->given;
        }
    }
    const int asked = count(ledgers, is_chosen), givers = count(ledgers, is_giver),
              silent = count(ledgers, is_silent);
    if (sum)
        fprintf(out, "%s given back by %d process%s", words_size(sum, text), givers, givers == 1 ? "" : "es");
    else
        fprintf(out, "nothing given back (%d process%s asked)", asked, asked == 1 ? "" : "es");
    if (silent)
        fprintf(out, "; %d did not answer", silent);
    if (foreign)
        fprintf(out, "; %d belong%s to other users", foreign, foreign == 1 ? "s" : "");
    fputc('\n', out);
    return silent || foreign ? CLI_UNDONE : 0;
}
