/* gpucap why: the last refusals of a process or a recording, and what would have helped. Says only what the
 * ledger holds or what follows from it. Owns no lock. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/lines.h"
#include "tools/gpucap/look.h"
#include "tools/gpucap/ps.h"
#include "tools/gpucap/steer.h"
#include "tools/gpucap/unmanaged.h"
#include "tools/gpucap/why_apart.h"
#include "tools/gpucap/why_file.h"
#include "tools/gpucap/why_limits.h"
#include "tools/gpucap/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/sums.h"
#include "interpose/settings/options.h"

#define COMMAND_MAX 26 /* letters of a command line; the line has 80 */
#define HOLDERS     4  /* other processes that are named */
#define SET_MAX     (sizeof("gpucap set  --max") + LEDGER_NAME + sizeof(((struct ledgers *)NULL)->option))
#define MIB         (UINT64_C(1) << 20)
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

/* Returns true if the card could not serve the request now, whatever the limit. */
static bool is_short_now(const struct ledgers_card *card, const struct ledger_refusal *refusal)
{
    return card->facts.known && card->facts.free < refusal->asked && refusal->asked <= card->facts.total;
}

/* Returns what the process used at the refusal, or, if it has no limit, uses now. */
static uint64_t own_use(const struct ledgers_process *process, const struct ledger_refusal *refusal)
{
    return refusal->limit == LEDGER_UNLIMITED ? process->entry.used : refusal->used;
}

/* Returns true if the card is smaller than what the process had live and asked for: then neither a limit nor
 * another program is the reason. */
static bool is_too_small(const struct ledgers_card *card, const struct ledgers_process *process,
                         const struct refusals *refusals)
{
    const struct ledger_refusal *refusal = &refusals->last[0];
    const uint64_t idle =
        sums_add(refusals->apart[RECORDING_APART_IDLE], refusals->apart[RECORDING_APART_DRIVER]);
    const uint64_t live = sums_minus(own_use(process, refusal), idle);

    return card->facts.known && sums_add(live, refusal->asked) > card->facts.total;
}

static uint64_t ceiling(const struct ledgers_card *card)
{
    struct steer_max max;

    steer_parse_max("none", LEDGER_MAX, &max);
    return steer_ceiling(card, &max);
}

/* ---- what happened ---- */

static void print_job_limit(const struct ledgers_process *process, const char *limit, const char *used)
{
    char text[LEDGER_NAME + 80];

    snprintf(text, sizeof(text), "%s for job %s; in use %s", limit, process->entry.job, used);
    lines_text(printf("  %-*s", LINES_LABEL - 2, "limit"), LINES_LABEL, text);
}

static void print_limit(const struct ledgers_process *process, const struct ledger_refusal *refusal)
{
    char limit[WORDS_TEXT], used[WORDS_TEXT];

    if (refusal->limit == LEDGER_UNLIMITED) {
        puts("  limit        none");
        return;
    }
    words_size(refusal->limit, limit);
    words_size(why_limits_in_use(refusal), used);
    if (refusal->bound == RECORDING_LIMIT_JOB ||
        (why_limits_is_kept(refusal) && refusal->limit == process->entry.job_max))
        print_job_limit(process, limit, used);
    else
        printf("  limit        %s%s; in use %s\n", limit,
               *process->entry.job ? " for this process alone" : "", used);
}

/* A process that has memory of the card. */
struct holder {
    pid_t pid;
    uint64_t used;
};

static int by_most(const void *a, const void *b)
{
    const struct holder *x = a, *y = b;

    return (x->used < y->used) - (x->used > y->used);
}

static void print_list(const char *label, struct holder *holders, size_t count)
{
    char size[WORDS_TEXT], item[2 * WORDS_TEXT];
    int column = LINES_LABEL;

    if (!count)
        return;
    qsort(holders, count, sizeof(*holders), by_most);
    printf("  %-*s", LINES_LABEL - 2, label);
    for (size_t i = 0; i < count && i < HOLDERS; i++) {
        snprintf(item, sizeof(item), "%d %s", (int)holders[i].pid, words_size(holders[i].used, size));
        column = lines_item(column, item);
    }
    if (count > HOLDERS) {
        snprintf(item, sizeof(item), "%zu more", count - HOLDERS);
        lines_item(column, item);
    }
    putchar('\n');
}

static void print_others(const struct ledgers_card *card, const struct ledgers_process *process)
{
    struct holder others[LEDGER_SLOTS];
    size_t count = 0;

    for (int i = 0; i < card->count; i++) {
        const struct ledgers_process *other = &card->processes[i];

        if (why_limits_is_neighbour(process, other))
            others[count++] = (struct holder){other->entry.pid, other->entry.used};
    }
    print_list("others now", others, count);
}

/* Prints who has the job's memory: the others' sum is that of the refusal, their names are of now. */
static void print_holders(const struct ledgers_card *card, const struct ledgers_process *process,
                          const struct ledger_refusal *refusal)
{
    char text[WORDS_TEXT];

    printf("  held by      this process %s%s", words_size(own_use(process, refusal), text),
           refusal->limit == LEDGER_UNLIMITED ? " now" : "");
    if (refusal->job_used > refusal->used)
        printf(", others of the job %s", words_size(refusal->job_used - refusal->used, text));
    putchar('\n');
    print_others(card, process);
}

static void print_idle(const struct ledgers_card *card, const struct ledgers_process *process)
{
    const uint64_t idle = sums_add(process->entry.cached, why_limits_idle_of_others(card, process));
    char text[WORDS_TEXT];

    if (idle)
        printf("  idle now     %s, for requests that fit into it\n", words_size(idle, text));
    else
        puts("  idle now     none: nothing can be given back");
}

/* Prints who has the card now, under gpucap or not. */
static void print_card_holders(const struct ledgers_card *card, const struct ledgers_process *process)
{
    struct holder *holders = calloc((size_t)(card->count + card->unmanaged_count) + 1, sizeof(*holders));
    size_t count = 0;

    for (int i = 0; holders && i < card->count; i++) {
        if (&card->processes[i] != process)
            holders[count++] = (struct holder){card->processes[i].entry.pid, card->processes[i].entry.used};
    }
    for (int i = 0; holders && i < card->unmanaged_count; i++) {
        if (card->unmanaged[i].used != LEDGER_UNLIMITED)
            holders[count++] = (struct holder){card->unmanaged[i].pid, card->unmanaged[i].used};
    }
    print_list("on it now", holders, count);
    free(holders);
}

/* Prints the reserve, without which limit, use and rest do not add up. */
static void print_reserve(const struct ledger_refusal *refusal)
{
    const uint64_t counted = sums_add(why_limits_in_use(refusal), refusal->fits);
    char text[WORDS_TEXT];

    if (!why_limits_left_enough(refusal) && refusal->limit >= counted + MIB &&
        refusal->limit <= counted + OPTIONS_RESERVE_STANDARD + LITTLE)
        printf("  kept free    %s for the driver's own growth (--reserve)\n",
               words_size(refusal->limit - counted, text));
}

/* Returns true if `other` has a min, or its job, that keeps memory from the process. */
static bool keeps_from(const struct ledgers_process *process, const struct ledgers_process *other)
{
    return other->entry.min && other != process && !why_limits_is_neighbour(process, other);
}

static void print_kept(const struct ledgers_card *card, const struct ledgers_process *process)
{
    char bounds[PS_BOUNDS];

    puts("  cause        what is free on the card is kept for other jobs (--min)");
    for (int i = 0; i < card->count; i++) {
        if (keeps_from(process, &card->processes[i]) && ps_bounds(card, i, bounds))
            lines_text(printf("  %-*s", LINES_LABEL - 2, "kept for"), LINES_LABEL + 2, bounds);
    }
}

static void print_lacks(const struct why_lacks *lacks, const struct ledgers_process *process,
                        const struct ledger_refusal *refusal)
{
    const bool is_job = refusal->bound == RECORDING_LIMIT_JOB;
    const char *before = "  would fit    with";
    char more[WORDS_TEXT], now[WORDS_TEXT];

    if (why_limits_now(process, refusal) >= why_limits_needed(refusal))
        printf("  limit now    %s, enough for this request\n",
               words_size(why_limits_now(process, refusal), now));
    if (lacks->refused) {
        printf("%s a limit about %s higher\n", before,
               words_size(why_limits_needed(refusal) - refusal->limit, more));
        before = "               and";
    }
    if (lacks->other)
        printf("%s %s limit, %s, about %s higher\n", before, is_job ? "this process's own" : "the job's",
               words_size(why_limits_other(process, refusal), now), words_size(lacks->other, more));
    if (lacks->idle)
        printf("               and %s of what the job's others have idle\n", words_size(lacks->idle, more));
}

static void print_remedy(const struct ledgers_card *card, const struct ledgers_process *process,
                         const struct refusals *refusals)
{
    const struct ledger_refusal *refusal = &refusals->last[0];
    char text[WORDS_TEXT], total[WORDS_TEXT];

    if (card->facts.known)
        words_size(card->facts.total, total);
    if (is_too_small(card, process, refusals)) {
        printf("  the card     has only %s in all\n", total);
        return;
    }
    if (why_limits_is_kept(refusal)) {
        print_kept(card, process);
        return;
    }
    if (why_limits_left_enough(refusal)) {
        puts(refusal->limit == LEDGER_UNLIMITED
                 ? "  cause        the card was full"
                 : "  cause        not the limit, which left enough: most likely the card was full");
        if (card->facts.known)
            printf("  the card     has %s free of %s now\n", words_size(card->facts.free, text), total);
        return;
    }
    const struct why_lacks lacks = why_limits_find_lacks(card, process, refusal);
    const struct why_needs needs = why_limits_find_needs(&lacks, process, refusal);
    print_lacks(&lacks, process, refusal);
    if (needs.most > ceiling(card))
        puts("               which only the administrator can set (" OPTIONS_ADMIN_FILE ")");
    if (card->facts.known && needs.most > card->facts.total)
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

/* Returns true if others could free memory of the card. */
static bool others_hold(const struct ledgers_card *card)
{
    uint64_t other;

    return card->count > 1 || card->unmanaged_count || (ledgers_other(card, &other) && other > LITTLE);
}

/* ---- what to try ---- */

/* Prints what makes idle memory usable, if it would have been enough. */
static void advise_on_idle(int *count, const struct ledgers *ledgers, const struct ledgers_process *process,
                           const struct refusals *refusals)
{
    const struct ledger_refusal *refusal = &refusals->last[0];
    const uint64_t needed = why_limits_needed(refusal);
    const uint64_t over = needed > refusal->limit ? needed - refusal->limit : refusal->asked;
    const uint64_t missing = over < refusal->asked ? over : refusal->asked;

    why_apart_advise(count, refusals->apart, missing, ledgers->option);
    if (why_apart_is_between(refusals->apart, missing))
        why_try(count, "gpucap record start %d%s   (`gpucap page` then has a map of the gaps)",
                (int)process->entry.pid, ledgers->option);
}

/* Suggests to lower the min of a job of the caller's by what is missing. */
static void advise_on_kept(int *count, const struct ledgers *ledgers, const struct ledgers_card *card,
                           const struct ledgers_process *process, uint64_t missing)
{
    for (int i = 0; i < card->count; i++) {
        const struct ledger_entry *entry = &card->processes[i].entry;

        if (missing && *entry->job && keeps_from(process, &card->processes[i]) &&
            ps_kept(card, entry) >= missing && ledgers_may_change(&card->processes[i])) {
            why_try(count, "gpucap set %s%s --min=%lluM", entry->job, ledgers->option,
                    (unsigned long long)((sums_smaller(entry->min, entry->job_max) - missing) / MIB));
            return;
        }
    }
}

/* Returns what to add to advice that changes a job: it holds for all its cards, also for one whose limit is
 * higher. */
static const char *on_its_cards(const struct ledgers *ledgers, const char *job)
{
    int cards = 0;

    for (int i = 0; i < ledgers->count; i++) {
        const struct ledgers_card *card = &ledgers->cards[i];
        int j = 0;

        while (j < card->count && strcmp(card->processes[j].entry.job, job) != 0)
            j++;
        cards += j < card->count;
    }
    return cards > 1 ? "   (on all its cards)" : "";
}

/* Writes the command that sets the max of the process's job, up to the value. */
static const char *set_max(const struct ledgers *ledgers, const struct ledgers_process *process,
                           char text[SET_MAX])
{
    snprintf(text, SET_MAX, "gpucap set %s%s --max", process->entry.job, ledgers->option);
    return text;
}

/* Settings with which the limits allow the request. */
static void advise_on_limits(int *count, const struct ledgers *ledgers, const struct why_needs *needs,
                             const struct ledgers_process *process)
{
    const char *own = *process->entry.job ? "gpucap run --each" : "gpucap run --max";
    char job[SET_MAX];

    if (needs->max && needs->each)
        why_try_limits(count, needs->max, needs->each);
    else
        why_try_limit(count, needs->max ? set_max(ledgers, process, job) : own, needs->most,
                      needs->max ? on_its_cards(ledgers, process->entry.job) : " ...");
}

static void print_advice(const struct ledgers *ledgers, const struct ledgers_card *card,
                         const struct ledgers_process *process, const struct refusals *refusals)
{
    const struct ledger_refusal *refusal = &refusals->last[0];
    const struct why_lacks lacks = why_limits_find_lacks(card, process, refusal);
    const struct why_needs needs = why_limits_find_needs(&lacks, process, refusal);
    const bool is_full =
        (why_limits_left_enough(refusal) || is_short_now(card, refusal)) && others_hold(card);
    int count = 0;

    if (is_too_small(card, process, refusals))
        return;
    if (why_limits_is_kept(refusal))
        advise_on_kept(&count, ledgers, card, process, sums_minus(refusal->asked, refusal->fits));
    if (is_full)
        why_try_card(&count, why_limits_is_kept(refusal), ledgers->option);
    if (!why_limits_left_enough(refusal) && !needs.most)
        return; /* the limits have been raised */
    if (needs.most && needs.most <= ceiling(card) && !(card->facts.known && needs.most > card->facts.total))
        advise_on_limits(&count, ledgers, &needs, process);
    if (!is_full && needs.max && !needs.each && refusal->bound == RECORDING_LIMIT_JOB &&
        sums_minus(refusal->job_used, refusal->used) >= lacks.refused)
        why_try(&count, "gpucap run --wait=60s ...   (waits until others of the job free memory)");
    advise_on_idle(&count, ledgers, process, refusals);
}

/* ---- the command ---- */

static void print_command(const struct ledgers_process *process)
{
    char command[WORDS_CUT];

    printf("%d %s: ", (int)process->entry.pid, words_cut(process->command, COMMAND_MAX, command));
}

static uint64_t used_by_job(const struct ledgers_card *card, const char *job)
{
    uint64_t used = 0;

    for (int i = 0; i < card->count; i++) {
        if (!strcmp(card->processes[i].entry.job, job))
            used = sums_add(used, card->processes[i].entry.used);
    }
    return used;
}

/* Returns how much more the card must have free for the request that the process waits for. */
static uint64_t missing_on_card(const struct ledgers_card *card, const struct ledger_entry *entry)
{
    if (!card->facts.known)
        return 0;
    return sums_minus(sums_add(entry->asked, ps_kept_for_others(card, entry)), card->facts.free);
}

static void print_card_waiting(const struct ledgers_card *card, const struct ledgers_process *process)
{
    const struct ledger_entry *entry = &process->entry;
    char size[WORDS_TEXT], text[WORDS_TEXT];

    if (card->facts.known)
        printf("  the card     has %s free of %s now\n", words_size(card->facts.free, size),
               words_size(card->facts.total, text));
    if (missing_on_card(card, entry) && ps_kept_for_others(card, entry))
        print_kept(card, process);
    print_card_holders(card, process);
}

static void print_limit_waiting(const struct ledgers_card *card, const struct ledgers_process *process)
{
    const struct ledger_entry *entry = &process->entry;
    char size[WORDS_TEXT], text[WORDS_TEXT];

    print_job_limit(process, words_size(entry->job_max, size),
                    words_size(used_by_job(card, entry->job), text));
    print_others(card, process);
    print_idle(card, process);
}

/* Prints what a waiting request needs: room below its job's limit, on the card, or both. */
static void print_waiting(const struct ledgers *ledgers, const struct ledgers_card *card,
                          const struct ledgers_process *process)
{
    const struct ledger_entry *entry = &process->entry;
    const uint64_t needed = sums_add(sums_add(entry->job_used, entry->asked), OPTIONS_RESERVE_STANDARD);
    const uint64_t missing = missing_on_card(card, entry);
    const bool is_limit = *entry->job && needed > entry->job_max;
    char size[WORDS_TEXT], before[SET_MAX];
    int count = 0;

    printf("waits for %s on %s\n\n", words_size(entry->asked, size), ledgers_card_name(card));
    if (is_limit)
        print_limit_waiting(card, process);
    if (!is_limit || missing)
        print_card_waiting(card, process);
    if (is_limit && needed <= ceiling(card) && !(card->facts.known && needed > card->facts.total)) {
        const char *cards = on_its_cards(ledgers, entry->job);
        why_try_limit(&count, set_max(ledgers, process, before), needed,
                      *cards    ? cards
                      : missing ? ""
                                : "   (then it goes on)");
    }
    advise_on_kept(&count, ledgers, card, process, missing);
}

static void explain(const struct ledgers *ledgers, const struct ledgers_card *card,
                    const struct ledgers_process *process)
{
    struct refusals refusals = {0};
    char size[WORDS_TEXT], span[WORDS_TEXT];
    const unsigned long long refused = process->entry.refused;

    refusals.count = ledger_read_refusals(card->ledger, process->slot, refusals.last);
    ledger_read_apart(card->ledger, process->slot, refusals.apart);
    print_command(process);
    if (!refusals.count && process->entry.waiting) {
        print_waiting(ledgers, card, process);
        return;
    }
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
        ((why_limits_left_enough(last) && !why_limits_is_kept(last)) || is_short_now(card, last)))
        print_card_holders(card, process);
    print_earlier(&refusals);
    if (process->entry.waiting)
        printf("  now          it waits for %s\n", words_size(process->entry.asked, size));
    print_advice(ledgers, card, process, &refusals);
}

int cmd_why(const struct arguments *arguments)
{
    struct ledgers ledgers;
    int status, explained = 0;

    for (int i = 0; i < arguments->count; i++) {
        if (why_names_file(arguments->operands[i]))
            return why_files(arguments->operands, arguments->count);
    }
    if (arguments->count != 1)
        return cli_fail("why: usage: gpucap why PID|JOB|all, or gpucap why FILE...");
    if ((status = look_open(&ledgers, arguments)))
        return status;
    unmanaged_find(&ledgers);
    if (!ledgers_choose(&ledgers, arguments->operands[0])) {
        status = look_absent("why", &ledgers, arguments->operands[0]);
        if (access(arguments->operands[0], F_OK) == 0)
            cli_fail("why:   the file of that name here is no recording");
        fputs("gpucap: why:   to explain a process that has ended, make a recording:\n"
              "gpucap: why:   `gpucap run --record=FILE`, then `gpucap why FILE`\n",
              stderr);
    }
    for (int i = 0; i < ledgers.count; i++) {
        for (int j = 0; j < ledgers.cards[i].count; j++) {
            if (!ledgers.cards[i].processes[j].chosen)
                continue;
            if (explained++)
                putchar('\n');
            explain(&ledgers, &ledgers.cards[i], &ledgers.cards[i].processes[j]);
        }
    }
    ledgers_close(&ledgers);
    return status;
}
