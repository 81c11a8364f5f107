/* fleet_run: runs members to their end, together or one after the other, in one loop over pipes, signals
 * and a clock. Passes SIGINT, SIGTERM and SIGHUP on to every group, except those that were ignored at the
 * start, and kills what has not ended after FLEET_GRACE_S. When fleet_run returns, no member is alive. Owns
 * no lock: one thread. */
#ifndef HARNESS_FLEET_RUN_H
#define HARNESS_FLEET_RUN_H

#include <stddef.h>

#include "harness/fleet/fleet_member.h"

#define FLEET_GRACE_S 30 /* `train` writes a checkpoint on SIGTERM, SIGINT and SIGHUP */

struct fleet_watch {
    double timeout_s; /* for each member; 0: none */
    unsigned at_once; /* members that run at a time; 0: all */
    double apart_s;   /* least time between two starts; 0: none */
    /* Called a few times a second and whenever a member starts or ends; may be NULL. */
    void (*show)(const struct fleet_member *members, size_t count, void *arg);
    void *arg;
    uint64_t *card_peak; /* most bytes in use on the first card meanwhile, less those before; may be NULL */
};

/* Blocks the signals that the loop reads. Call once, before the first member starts. Returns 0 or a
 * negative errno. */
int fleet_run_open(void);

/* Returns 0, or the signal that ended the run; it starts no further members then. */
int fleet_run(struct fleet_member *members, size_t count, const struct fleet_watch *watch);

/* Returns the signal that ended any call of fleet_run, or 0. */
int fleet_run_stopped(void);

#endif
