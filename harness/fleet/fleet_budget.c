/* fleet_budget: one budget for all members of a fleet. See fleet_budget.h. */
#include "harness/fleet/fleet_budget.h"

#include <string.h>
#include <unistd.h>

#include "interpose/settings/options.h"

void fleet_budget_begin(struct fleet_budget *budget, const char *wait)
{
    static unsigned made;
    unsigned count = 0;

    memset(budget, 0, sizeof(*budget));
    snprintf(budget->job, sizeof(budget->job), "fleet-%ld-%u", (long)getpid(), made++);
    snprintf(budget->text[count++], FLEET_BUDGET_WORD, "--group=%s", budget->job);
    if (wait)
        snprintf(budget->text[count++], FLEET_BUDGET_WORD, "--wait=%s", wait);
    for (unsigned i = 0; i < count; i++)
        budget->words[i] = budget->text[i];
}

/* Finds the folder of the members' ledgers as `gpucap run` does. */
static bool find_ledgers(char folder[LEDGER_PATH])
{
    char error[OPTIONS_ERROR_MAX];
    struct options options;

    return options_load_here(&options, error) == 0 && strcmp(options.ledger, "off") != 0 &&
           ledger_folder(options.ledger, folder, LEDGER_PATH) == 0;
}

struct sum {
    const char *folder, *job;
    struct ledger_totals *totals;
    bool found;
};

static void add_card(const char *uuid, void *arg)
{
    struct sum *sum = arg;
    struct ledger_totals here;
    struct ledger *ledger;
    char why[LEDGER_WHY];

    if (ledger_open_existing(&ledger, sum->folder, uuid, why))
        return;
    if (ledger_read_job(ledger, sum->job, &here)) {
        sum->found = true;
        sum->totals->max += here.max;
        sum->totals->peak += here.peak;
        sum->totals->refused += here.refused;
        sum->totals->lent += here.lent;
        sum->totals->borrowed += here.borrowed;
        sum->totals->waited_ms += here.waited_ms;
    }
    ledger_close(ledger);
}

bool fleet_budget_read(const struct fleet_budget *budget, struct ledger_totals *totals)
{
    char folder[LEDGER_PATH];
    struct sum sum = {.folder = folder, .job = budget->job, .totals = totals};

    memset(totals, 0, sizeof(*totals));
    if (!budget->job[0] || !find_ledgers(folder) || ledger_each_card(folder, add_card, &sum))
        return false;
    return sum.found;
}

void fleet_budget_report(FILE *out, const struct fleet_budget *budget)
{
    struct ledger_totals totals;

    if (!budget->job[0])
        return;
    if (!fleet_budget_read(budget, &totals)) {
        fprintf(out, "job=%s no card was used under its limit\n", budget->job);
        return;
    }
    fprintf(out, "job=%s max=%llu peak_of_sum=%llu waited_ms=%llu lent=%llu borrowed=%llu refused=%llu\n",
            budget->job, (unsigned long long)totals.max, (unsigned long long)totals.peak,
            (unsigned long long)totals.waited_ms, (unsigned long long)totals.lent,
            (unsigned long long)totals.borrowed, (unsigned long long)totals.refused);
}
