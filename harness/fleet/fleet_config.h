/* fleet_config: the list of programs that a fleet starts, from the command line and from a file. Only
 * reads. Bounded: at most FLEET_MEMBERS_MAX members of FLEET_WORDS_MAX words each. Owns no lock. */
#ifndef HARNESS_FLEET_CONFIG_H
#define HARNESS_FLEET_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "harness/fleet/fleet_budget.h"
#include "harness/fleet/fleet_member.h"

enum { FLEET_MEMBERS_MAX = 256, FLEET_WORDS_MAX = 128, FLEET_TEXT_MAX = 1 << 16 };

struct fleet_plan {
    struct fleet_job *jobs; /* [count] */
    size_t count;
    const char *each;           /* cap of members without one of their own; NULL: none */
    const char *job;            /* budget of all members under gpucap together; NULL: no job */
    const char *wait;           /* how long a request of the job waits; NULL: it does not */
    struct fleet_budget budget; /* fleet_budget_begin names it, if the plan has a job */
    bool native, mps, quiet, help, man;
    bool serial; /* run them also one after the other, to compare */
    bool sim;
    const char *sim_spec; /* NULL: as the environment says */
    double timeout_s;     /* 0: none */
    const char *logs;     /* folder, or NULL */
    char error[512];      /* after a failure: what is wrong */
    char *text[FLEET_MEMBERS_MAX * 2];
    size_t text_count; /* used entries of `text`, which the jobs point into */
};

/* Returns 0, or -EINVAL with the reason in plan->error. The plan points into argv. Call fleet_plan_free in
 * both cases. */
int fleet_plan_parse(struct fleet_plan *plan, int argc, char **argv);
void fleet_plan_free(struct fleet_plan *plan);

/* Parses the lines of a file: [COUNTx] [max=SIZE|native] PROGRAM [ARGUMENT...]. '#' starts a comment; words
 * may be quoted with ' or ". Returns 0, or -EINVAL with the reason and the line in plan->error. */
int fleet_plan_read(struct fleet_plan *plan, const char *text, const char *file);

/* Returns the sum of the members' caps. A job's cap counts once, a percentage is of `total`, the card's
 * bytes, and caps that name cards count as 0. */
uint64_t fleet_plan_caps(const struct fleet_plan *plan, uint64_t total);

void fleet_plan_help(FILE *out);
void fleet_plan_manual(FILE *out);

#endif
