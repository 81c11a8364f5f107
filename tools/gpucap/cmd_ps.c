/* gpucap ps: who holds how much of each card. Asks every process for fresh figures first. Owns no lock. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/look.h"
#include "tools/gpucap/parts.h"
#include "tools/gpucap/ps.h"
#include "tools/gpucap/unmanaged.h"
#include "tools/gpucap/words.h"
#include "interpose/base/sums.h"

#include <stdio.h>
#include <string.h>

void ps_state(const struct ledger_entry *entry, char state[PS_STATE])
{
    char size[WORDS_TEXT];
    size_t used = 0;

    state[0] = '\0';
    if (entry->waiting)
        used = (size_t)snprintf(state, PS_STATE, "waiting for %s", words_size(entry->asked, size));
    if (entry->lent)
        snprintf(state + used, PS_STATE - used, "%slent %s", used ? ", " : "", words_size(entry->lent, size));
}

void ps_figures(const struct ledgers_card *card, char figures[PS_FIGURES])
{
    char managed[WORDS_TEXT], idle[WORDS_TEXT], text[WORDS_TEXT];
    uint64_t other;
    int used = snprintf(figures, PS_FIGURES, "managed %s (idle %s)", words_size(card->managed, managed),
                        words_size(card->idle, idle));

    if (ledgers_other(card, &other))
        used += snprintf(figures + used, PS_FIGURES - (size_t)used, ", other programs %s",
                         words_size(other, text));
    if (card->facts.known)
        snprintf(figures + used, PS_FIGURES - (size_t)used, ", free %s", words_size(card->facts.free, text));
}

static bool same_job(const struct ledger_entry *a, const struct ledger_entry *b)
{
    return *a->job && !strcmp(a->job, b->job);
}

uint64_t ps_kept(const struct ledgers_card *card, const struct ledger_entry *entry)
{
    uint64_t kept = sums_smaller(entry->min, entry->job_max);

    for (int i = 0; i < card->count; i++) {
        const struct ledger_entry *other = &card->processes[i].entry;

        if (other == entry || same_job(entry, other))
            kept = sums_minus(kept, other->used);
    }
    return kept;
}

/* Returns true if the process before belongs to the same job. */
static bool follows_own_job(const struct ledgers_card *card, int row)
{
    return row > 0 && same_job(&card->processes[row].entry, &card->processes[row - 1].entry);
}

uint64_t ps_kept_for_others(const struct ledgers_card *card, const struct ledger_entry *entry)
{
    uint64_t kept = 0;

    for (int i = 0; i < card->count; i++) {
        const struct ledger_entry *other = &card->processes[i].entry;

        if (other != entry && !same_job(entry, other) && !follows_own_job(card, i))
            kept = sums_add(kept, ps_kept(card, other));
    }
    return kept;
}

/* Returns true if a process of this job has a limit of its own: then the table does not show the job's. */
static bool hides_max(const struct ledgers_card *card, const struct ledger_entry *entry)
{
    for (int i = 0; i < card->count; i++) {
        if (same_job(entry, &card->processes[i].entry) && ledgers_has_own_limit(&card->processes[i]))
            return entry->job_max != LEDGER_UNLIMITED;
    }
    return false;
}

bool ps_bounds(const struct ledgers_card *card, int row, char bounds[PS_BOUNDS])
{
    const struct ledger_entry *entry = &card->processes[row].entry;
    const uint64_t kept = ps_kept(card, entry);
    const bool has_max = hides_max(card, entry);
    char size[WORDS_TEXT];
    int used;

    bounds[0] = '\0';
    if ((!entry->min && !entry->high && !has_max) || follows_own_job(card, row))
        return false;
    if (*entry->job)
        used = snprintf(bounds, PS_BOUNDS, "%s:", entry->job);
    else
        used = snprintf(bounds, PS_BOUNDS, "%d:", (int)entry->pid);
    if (has_max)
        used +=
            snprintf(bounds + used, PS_BOUNDS - (size_t)used, " max %s", words_size(entry->job_max, size));
    if (entry->min)
        used += snprintf(bounds + used, PS_BOUNDS - (size_t)used, "%smin %s", has_max ? ", " : " ",
                         words_size(entry->min, size));
    if (kept)
        used += snprintf(bounds + used, PS_BOUNDS - (size_t)used, " (%s kept free)", words_size(kept, size));
    if (entry->high)
        snprintf(bounds + used, PS_BOUNDS - (size_t)used, "%shigh %s", entry->min || has_max ? ", " : " ",
                 words_size(entry->high, size));
    return true;
}

int cmd_ps(const struct arguments *arguments)
{
    struct ledgers ledgers;
    const bool json = arguments_value(arguments, "json");
    const char *owners_of = arguments_value(arguments, "owners");
    const bool prometheus = arguments_value(arguments, "prometheus");
    const bool exact = arguments_value(arguments, "bytes");
    int status;

    if (exact && !owners_of)
        return cli_fail("ps: --bytes goes with --owners only; --json has all other sizes in bytes");
    if (owners_of && (json || prometheus))
        return cli_fail("ps: --owners goes with neither --json nor --prometheus");
    if (owners_of) {
        if ((status = look_open(&ledgers, arguments)))
            return status;
        status = ps_owners(&ledgers, owners_of, exact);
        ledgers_close(&ledgers);
        return status;
    }
    if (json && prometheus)
        return cli_fail("ps: --json and --prometheus exclude each other");
    const parts_show show = prometheus ? ps_prometheus : parts_load(json ? PARTS_JSON : PARTS_TABLE, "ps");
    if (!show)
        return CLI_FAILED;
    if ((status = look_open(&ledgers, arguments)))
        return status;
    if (!prometheus)
        unmanaged_find(&ledgers);
    status = show(&ledgers);
    for (int i = 0; i < ledgers.count && !status; i++)
        status = ledgers.cards[i].ledger || ledgers.cards[i].bare ? 0 : CLI_UNDONE;
    ledgers_close(&ledgers);
    return status;
}
