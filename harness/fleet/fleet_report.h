/* fleet_report: the results of a fleet, as a table and, for programs, as key=value lines. Throughput is steps
 * by wall time from a process's start to its end, startup included; step times are what the training
 * measured. Pure except for the output. Owns no lock. */
#ifndef HARNESS_FLEET_REPORT_H
#define HARNESS_FLEET_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "harness/fleet/fleet_member.h"

struct fleet_totals {
    size_t count, ok;
    uint64_t steps;
    double wall_s;               /* from the first start to the last end */
    double steps_per_s;          /* steps / wall_s */
    double training_steps_per_s; /* sum of 1000 / step_ms: without startup and exit */
    uint64_t peak_memory;        /* sum of the members' peaks */
};

struct fleet_totals fleet_totals(const struct fleet_member *members, size_t count);

/* Prints the table, in 80 columns, and the reason for each member that did not succeed. `alone`: the same
 * jobs run one after the other, or NULL. Then prints the totals: with `keys` as lines of key=value, for
 * programs, else in words. */
void fleet_report(FILE *out, const struct fleet_member *members, const struct fleet_member *alone,
                  size_t count, bool keys);

#endif
