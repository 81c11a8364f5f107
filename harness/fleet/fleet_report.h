/* fleet_report: what a fleet has done, as a table and as key=value lines on stdout.
 *
 * Throughput is steps by the wall clock, from a process's start to its end, starting included; a step's own
 * time is what the training itself measured. Pure but for the output. Owns no lock. */
#ifndef HARNESS_FLEET_REPORT_H
#define HARNESS_FLEET_REPORT_H

#include <stddef.h>
#include <stdio.h>

#include "harness/fleet/fleet_member.h"

struct fleet_totals {
    size_t count, ok;
    uint64_t steps;
    double wall_s;               /* from the first start to the last end */
    double steps_per_s;          /* steps / wall_s */
    double training_steps_per_s; /* the sum of 1000 / step_ms: without starting and ending */
    uint64_t peak_memory;        /* the sum of each one's peak */
};

struct fleet_totals fleet_totals(const struct fleet_member *members, size_t count);

/* alone: the same jobs one after the other, or NULL. */
void fleet_report(FILE *out, const struct fleet_member *members, const struct fleet_member *alone,
                  size_t count);

#endif
