/* fleet_run: several members to their end, together or one after the other.
 *
 * One loop over pipes, signals and a clock. SIGINT, SIGTERM and SIGHUP are passed on to every group; those
 * who do not end within FLEET_GRACE_S are killed. Whatever happens, when fleet_run returns no member lives.
 * Owns no lock: one thread. */
#ifndef HARNESS_FLEET_RUN_H
#define HARNESS_FLEET_RUN_H

#include <stddef.h>

#include "harness/fleet/fleet_member.h"

#define FLEET_GRACE_S 5

struct fleet_watch {
    double timeout_s; /* 0: none. For each member */
    unsigned at_once; /* how many run at a time; 0: all */
    /* Called a few times a second and whenever a member starts or ends; may be NULL. */
    void (*show)(const struct fleet_member *members, size_t count, void *arg);
    void *arg;
};

/* Blocks the signals that the loop reads itself. Once, before the first member. 0, or a negative errno. */
int fleet_run_open(void);

/* Returns 0, or the signal that asked us to stop; then the rest was not started. */
int fleet_run(struct fleet_member *members, size_t count, const struct fleet_watch *watch);

/* The signal that asked us to stop, in whichever call; 0: none. */
int fleet_run_stopped(void);

#endif
