/* fleet_budget: one budget for all members of a fleet, as a job of gpucap: members lend each other idle
 * memory, and requests may wait. Reads the ledgers, changes nothing in them. Owns no lock: one thread. */
#ifndef HARNESS_FLEET_BUDGET_H
#define HARNESS_FLEET_BUDGET_H

#include <stdbool.h>
#include <stdio.h>

#include "interpose/account/ledger.h"

enum { FLEET_BUDGET_WORDS = 2, FLEET_BUDGET_WORD = 96 };

/* Further arguments of `gpucap run` for a member of the job. */
struct fleet_budget {
    char job[LEDGER_NAME]; /* empty: each member has a budget of its own */
    char text[FLEET_BUDGET_WORDS][FLEET_BUDGET_WORD];
    const char *words[FLEET_BUDGET_WORDS + 1]; /* for fleet_job.run, ended by NULL; point into `text` */
};

/* Names a new job of this process. `wait` is as for gpucap run; NULL: requests do not wait. */
void fleet_budget_begin(struct fleet_budget *budget, const char *wait);

/* Adds up the job's totals on all cards. Returns false if no ledger knows it. */
bool fleet_budget_read(const struct fleet_budget *budget, struct ledger_totals *totals);

/* Prints the totals as one line of key=value words; nothing without a job. */
void fleet_budget_report(FILE *out, const struct fleet_budget *budget);

#endif
