/* fleet_config: which trainings a fleet starts: from the command line and from a file of lines.
 *
 * Reads only. Bounded: at most FLEET_MEMBERS_MAX members, FLEET_WORDS_MAX words
 * each. Owns no lock. */
#ifndef HARNESS_FLEET_CONFIG_H
#define HARNESS_FLEET_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "harness/fleet/fleet_member.h"

enum { FLEET_MEMBERS_MAX = 256, FLEET_WORDS_MAX = 128, FLEET_TEXT_MAX = 1 << 16 };

struct fleet_plan {
    struct fleet_job *jobs; /* [count] */
    size_t count;
    const char *each; /* the cap of those that say nothing else; NULL: none */
    bool native, mps, quiet, help, man;
    bool serial; /* also one after the other, to compare */
    bool sim;
    const char *sim_spec; /* NULL: as the environment says */
    double timeout_s;     /* 0: none */
    const char *logs;     /* folder, or NULL */
    char error[512];      /* what is wrong, after a refusal */
    char *text[FLEET_MEMBERS_MAX * 2];
    size_t text_count; /* what the jobs point into, to be freed */
};

/* 0, or -EINVAL with the reason in plan->error. The plan points into argv; free it in both cases. */
int fleet_plan_parse(struct fleet_plan *plan, int argc, char **argv);
void fleet_plan_free(struct fleet_plan *plan);

/* The lines of a file: [COUNTx] [max=SIZE|native] PROGRAM [ARGUMENT...]; '#' begins a comment; words may be
 * quoted with ' or ". 0, or -EINVAL with the reason, which names the line, in plan->error. */
int fleet_plan_read(struct fleet_plan *plan, const char *text, const char *file);

void fleet_plan_help(FILE *out);
void fleet_plan_manual(FILE *out);

#endif
