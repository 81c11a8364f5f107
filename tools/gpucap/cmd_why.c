/* gpucap why: the last refusals of a process or a recording, and what would have helped. Says only what the
 * ledger holds or what follows from it. Owns no lock. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/look.h"
#include "tools/gpucap/ps.h"
#include "tools/gpucap/steer.h"
#include "tools/gpucap/unmanaged.h"
#include "tools/gpucap/why_apart.h"
#include "tools/gpucap/why_file.h"
#include "tools/gpucap/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/base/clock.h"
#include "interpose/base/sums.h"
#include "interpose/settings/options.h"

#define COMMAND_MAX 30 /* letters of a command line; the line has 80 */
#define HOLDERS     4  /* other processes that are named */
#define MIB         (UINT64_C(1) << 20)
#define RESERVE     (64 * MIB) /* what the library leaves to the driver by default */
#define LITTLE      (16 * MIB) /* by which figures may differ */

struct refusals {
    int count; /* of those that the ledger still has */
    struct ledger_refusal last[LEDGER_REFUSALS];
    uint64_t apart[RECORDING_APART_COUNT]; /* at the last one */
};

static uint64_t ago_ms(uint64_t at)
{
    return sums_minus(clock_boot_ns(), at) / 1000000U;
}

/* What counted against the limit: all of the job, or of the process if the limit is its own. */
static uint64_t in_use(const struct ledger_refusal *refusal)
{
    return refusal->bound == RECORDING_LIMIT_JOB && refusal->job_used > refusal->used ? refusal->job_used
                                                                                      : refusal->used;
}

/* True if what is free on the card was kept for other jobs. */
static bool is_kept(const struct ledger_refusal *refusal)
{
    return refusal->bound == RECORDING_LIMIT_KEPT;
}

/* True if the limit left enough: then the card was full, or memory came free too late. */
static bool left_enough(const struct ledger_refusal *refusal)
{
    return refusal->bound == RECORDING_LIMIT_CARD || is_kept(refusal) || refusal->asked <= refusal->fits;
}

/* The limit below which the request does not fit. */
static uint64_t needed_limit(const struct ledger_refusal *refusal)
{
    return left_enough(refusal) ? refusal->limit : sums_add(refusal->limit, refusal->asked - refusal->fits);
}

/* True if the card could not serve the request now, whatever the limit. */
static bool is_short_now(const struct ledgers_card *card, const struct ledger_refusal *refusal)
{
    return card->facts.known && card->facts.free < refusal->asked && refusal->asked <= card->facts.total;
}

/* What the process had: then, or, if it has no limit, now. */
static uint64_t own_use(const struct ledgers_process *process, const struct ledger_refusal *refusal)
{
    return refusal->limit == LEDGER_UNLIMITED ? process->entry.used : refusal->used;
}

/* True if the card has less than the process had in use and asked for: no limit and no other program matters.
 */
static bool is_too_small(const struct ledgers_card *card, const struct ledgers_process *process,
                         const struct refusals *refusals)
{
    const struct ledger_refusal *refusal = &refusals->last[0];
    const uint64_t idle =
        sums_add(refusals->apart[RECORDING_APART_IDLE], refusals->apart[RECORDING_APART_DRIVER]);
    const uint64_t live = sums_minus(own_use(process, refusal), idle);

    return card->facts.known && sums_add(live, refusal->asked) > card->facts.total;
}

/* The most that the administrator lets the caller set. */
static uint64_t ceiling(const struct ledgers_card *card)
{
    struct steer_max max;

    steer_parse_max("none", &max);
    return steer_ceiling(card, &max);
}

/* ---- what happened ---- */

static void print_limit(const struct ledgers_process *process, const struct ledger_refusal *refusal)
{
    char limit[WORDS_TEXT], used[WORDS_TEXT];

    if (refusal->limit == LEDGER_UNLIMITED) {
        puts("  limit        none");
        return;
    }
    printf("  limit        %s", words_size(refusal->limit, limit));
    if (refusal->bound == RECORDING_LIMIT_JOB ||
        (is_kept(refusal) && refusal->limit == process->entry.job_max))
        printf(" for job %s", process->entry.job);
    else if (*process->entry.job)
        fputs(" for this process alone", stdout);
    printf("; in use %s\n", words_size(in_use(refusal), used));
}

static int by_used(const void *a, const void *b)
{
    const struct ledgers_process *x = *(const struct ledgers_process *const *)a;
    const struct ledgers_process *y = *(const struct ledgers_process *const *)b;

    return (x->entry.used < y->entry.used) - (x->entry.used > y->entry.used);
}

/* Who has the job's memory: the refusal knows the sum of the others, and the ledger who they are now. */
static void print_holders(const struct ledgers_card *card, const struct ledgers_process *process,
                          const struct ledger_refusal *refusal)
{
    const struct ledgers_process *others[LEDGER_SLOTS];
    char text[WORDS_TEXT];
    size_t count = 0;

    printf("  held by      this process %s%s", words_size(own_use(process, refusal), text),
           refusal->limit == LEDGER_UNLIMITED ? " now" : "");
    if (refusal->job_used > refusal->used)
        printf(", others of the job %s", words_size(refusal->job_used - refusal->used, text));
    putchar('\n');
    for (int i = 0; i < card->count; i++) {
        const struct ledgers_process *other = &card->processes[i];

        if (other != process && *process->entry.job && !strcmp(other->entry.job, process->entry.job))
            others[count++] = other;
    }
    qsort(others, count, sizeof(*others), by_used);
    for (size_t i = 0; i < count && i < HOLDERS; i++)
        printf("%s%d %s", i ? " | " : "  others now   ", (int)others[i]->entry.pid,
               words_size(others[i]->entry.used, text));
    if (count > HOLDERS)
        printf(" | %zu more", count - HOLDERS);
    if (count)
        putchar('\n');
}

static void print_idle(const struct ledgers_card *card, const struct ledgers_process *process)
{
    uint64_t idle = 0;
    char text[WORDS_TEXT];

    for (int i = 0; i < card->count; i++) {
        if (&card->processes[i] == process ||
            (*process->entry.job && !strcmp(card->processes[i].entry.job, process->entry.job)))
            idle = sums_add(idle, card->processes[i].entry.cached);
    }
    if (idle)
        printf("  idle now     %s, for requests that fit into it\n", words_size(idle, text));
    else
        puts("  idle now     none: nothing can be given back");
}

/* One holder of the card beside the process. */
struct holder {
    pid_t pid;
    uint64_t used;
};

static int by_most(const void *a, const void *b)
{
    const struct holder *x = a, *y = b;

    return (x->used < y->used) - (x->used > y->used);
}

/* Who has the card now, under gpucap or not. */
static void print_card_holders(const struct ledgers_card *card, const struct ledgers_process *process)
{
    struct holder *holders = calloc((size_t)(card->count + card->unmanaged_count) + 1, sizeof(*holders));
    char text[WORDS_TEXT];
    size_t count = 0;

    for (int i = 0; holders && i < card->count; i++) {
        if (&card->processes[i] != process)
            holders[count++] = (struct holder){card->processes[i].entry.pid, card->processes[i].entry.used};
    }
    for (int i = 0; holders && i < card->unmanaged_count; i++) {
        if (card->unmanaged[i].used != LEDGER_UNLIMITED)
            holders[count++] = (struct holder){card->unmanaged[i].pid, card->unmanaged[i].used};
    }
    if (count)
        qsort(holders, count, sizeof(*holders), by_most);
    for (size_t i = 0; i < count && i < HOLDERS; i++)
        printf("%s%d %s", i ? " | " : "  on it now    ", (int)holders[i].pid,
               words_size(holders[i].used, text));
    if (count > HOLDERS)
        printf(" | %zu more", count - HOLDERS);
    if (count)
        putchar('\n');
    free(holders);
}

/* What no request gets. Without it, what was left would be a riddle beside the limit and what was in use. */
static void print_reserve(const struct ledger_refusal *refusal)
{
    const uint64_t counted = sums_add(in_use(refusal), refusal->fits);
    char text[WORDS_TEXT];

    if (!left_enough(refusal) && refusal->limit >= counted + MIB &&
        refusal->limit <= counted + RESERVE + LITTLE)
        printf("  kept free    %s for the driver's own growth (--reserve)\n",
               words_size(refusal->limit - counted, text));
}

static void print_kept(const struct ledgers_card *card)
{
    char bounds[PS_BOUNDS];

    puts("  cause        what is free on the card is kept for other jobs (--min)");
    for (int i = 0; i < card->count; i++) {
        if (card->processes[i].entry.min && ps_bounds(card, i, bounds))
            printf("  kept for     %s\n", bounds);
    }
}

static void print_remedy(const struct ledgers_card *card, const struct ledgers_process *process,
                         const struct refusals *refusals)
{
    const struct ledger_refusal *refusal = &refusals->last[0];
    char text[WORDS_TEXT], total[WORDS_TEXT];
    const uint64_t needed = needed_limit(refusal);

    if (card->facts.known)
        words_size(card->facts.total, total);
    if (is_too_small(card, process, refusals)) {
        printf("  the card     has only %s in all\n", total);
        return;
    }
    if (is_kept(refusal)) {
        print_kept(card);
        return;
    }
    if (left_enough(refusal)) {
        puts(refusal->limit == LEDGER_UNLIMITED
                 ? "  cause        the card was full"
                 : "  cause        not the limit, which left enough: most likely the card was full");
        if (card->facts.known)
            printf("  the card     has %s free of %s now\n", words_size(card->facts.free, text), total);
        return;
    }
    printf("  would fit    with a limit about %s higher\n", words_size(needed - refusal->limit, text));
    if (needed > ceiling(card))
        puts("               which only the administrator can set (" OPTIONS_ADMIN_FILE ")");
    if (card->facts.known && needed > card->facts.total)
        printf("  the card     has only %s in all\n", total);
    else if (is_short_now(card, refusal))
        printf("  the card     has only %s free of %s now\n", words_size(card->facts.free, text), total);
}

static void print_earlier(const struct refusals *refusals)
{
    char size[WORDS_TEXT], span[WORDS_TEXT];

    for (int i = 1; i < refusals->count; i++)
        printf("  %s  %s %s ago\n", i == 1 ? "before that" : "           ",
               words_size(refusals->last[i].asked, size), words_span(ago_ms(refusals->last[i].at), span));
}

/* True if others could free memory of the card. */
static bool others_hold(const struct ledgers_card *card)
{
    uint64_t other;

    return card->count > 1 || card->unmanaged_count || (ledgers_other(card, &other) && other > LITTLE);
}

/* ---- what to try ---- */

/* What would have helped if idle memory had been in one piece, or free. */
static void advise_on_idle(int *count, const struct ledgers_process *process, const struct refusals *refusals)
{
    const struct ledger_refusal *refusal = &refusals->last[0];
    const uint64_t needed = needed_limit(refusal);
    const uint64_t over = needed > refusal->limit ? needed - refusal->limit : refusal->asked;
    const uint64_t missing = over < refusal->asked ? over : refusal->asked;

    why_apart_advise(count, refusals->apart, missing);
    if (why_apart_is_between(refusals->apart, missing))
        why_try(count, "gpucap record start %d   (`gpucap page` then has a map of the gaps)",
                (int)process->entry.pid);
}

/* A job of the caller's that could keep less. */
static void advise_on_kept(int *count, const struct ledgers_card *card, const struct ledger_refusal *refusal)
{
    const uint64_t missing = sums_minus(refusal->asked, refusal->fits);

    for (int i = 0; i < card->count; i++) {
        const struct ledger_entry *entry = &card->processes[i].entry;

        if (missing && *entry->job && ps_kept(card, entry) >= missing &&
            ledgers_may_change(&card->processes[i])) {
            why_try(count, "gpucap set %s --min=%lluM", entry->job,
                    (unsigned long long)((entry->min - missing) / MIB));
            return;
        }
    }
}

static void print_advice(const struct ledgers_card *card, const struct ledgers_process *process,
                         const struct refusals *refusals)
{
    const struct ledger_refusal *refusal = &refusals->last[0];
    const uint64_t needed = needed_limit(refusal);
    char before[LEDGER_NAME + 24];
    int count = 0;

    if (is_too_small(card, process, refusals))
        return;
    if (is_kept(refusal))
        advise_on_kept(&count, card, refusal);
    if ((left_enough(refusal) || is_short_now(card, refusal)) && others_hold(card))
        why_try_card(&count, is_kept(refusal));
    if (needed > refusal->limit && needed <= ceiling(card) &&
        !(card->facts.known && needed > card->facts.total)) {
        const bool is_job = refusal->bound == RECORDING_LIMIT_JOB;

        snprintf(before, sizeof(before), "gpucap set %s --max", process->entry.job);
        why_try_limit(&count,
                      is_job                ? before
                      : *process->entry.job ? "gpucap run --each"
                                            : "gpucap run --max",
                      needed, is_job ? "" : " ...");
    }
    if (!left_enough(refusal) && refusal->bound == RECORDING_LIMIT_JOB && refusal->job_used > refusal->used)
        why_try(&count, "gpucap run --wait=60s ...   (waits until others of the job free memory)");
    advise_on_idle(&count, process, refusals);
}

/* ---- the command ---- */

static void print_command(const struct ledgers_process *process)
{
    char command[WORDS_CUT];

    printf("%d %s: ", (int)process->entry.pid, words_cut(process->command, COMMAND_MAX, command));
}

static void explain(const struct ledgers_card *card, const struct ledgers_process *process)
{
    struct refusals refusals = {0};
    char size[WORDS_TEXT], span[WORDS_TEXT];
    const unsigned long long refused = process->entry.refused;

    refusals.count = ledger_read_refusals(card->ledger, process->slot, refusals.last);
    ledger_read_apart(card->ledger, process->slot, refusals.apart);
    print_command(process);
    if (!refusals.count) {
        printf("no request was refused on %s\n", ledgers_card_name(card));
        return;
    }
    const struct ledger_refusal *last = &refusals.last[0];
    printf(refused == 1 ? "%llu request refused, %s ago\n\n" : "%llu requests refused, the last %s ago\n\n",
           refused, words_span(ago_ms(last->at), span));
    printf("  asked        %s on %s\n", words_size(last->asked, size), ledgers_card_name(card));
    print_limit(process, last);
    print_holders(card, process, last);
    why_apart_print("idle then", refusals.apart);
    print_idle(card, process);
    print_reserve(last);
    print_remedy(card, process, &refusals);
    if (!is_too_small(card, process, &refusals) &&
        ((left_enough(last) && !is_kept(last)) || is_short_now(card, last)))
        print_card_holders(card, process);
    print_earlier(&refusals);
    print_advice(card, process, &refusals);
}

int cmd_why(const struct arguments *arguments)
{
    struct ledgers ledgers;
    int status, explained = 0;

    if (arguments->count > 0 && why_names_file(arguments->operands[0]))
        return why_files(arguments->operands, arguments->count);
    if (arguments->count != 1)
        return cli_fail("why: usage: gpucap why PID|JOB, or gpucap why FILE...");
    if ((status = look_open(&ledgers, arguments)))
        return status;
    unmanaged_find(&ledgers);
    if (!ledgers_choose(&ledgers, arguments->operands[0])) {
        status = look_absent("why", &ledgers, arguments->operands[0]);
        fputs("gpucap: why:   of a process that has ended only its recording tells: `gpucap run "
              "--record=FILE`, "
              "then `gpucap why FILE`\n",
              stderr);
    }
    for (int i = 0; i < ledgers.count; i++) {
        for (int j = 0; j < ledgers.cards[i].count; j++) {
            if (!ledgers.cards[i].processes[j].chosen)
                continue;
            if (explained++)
                putchar('\n');
            explain(&ledgers.cards[i], &ledgers.cards[i].processes[j]);
        }
    }
    ledgers_close(&ledgers);
    return status;
}
