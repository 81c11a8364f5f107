/* scenario_ladder: runs one training in several ways on a ladder of card sizes. Finds for each way the cards
 * on which it trains, its speed there, and the smallest card. Says, from these figures, where gpucap does not
 * help. Owns no lock. */
#ifndef HARNESS_SCENARIO_LADDER_H
#define HARNESS_SCENARIO_LADDER_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/scenario/scenario.h"

enum {
    LADDER_WAYS = 10,
    LADDER_RUNGS = 8, /* the whole card included */
    LADDER_SHOWN = 4, /* in the table and the picture, beside the whole card */
    LADDER_TURNS = 3, /* timed runs, in turns, of the ways whose times decide */
};

struct ladder_way {
    const char *name;
    const char *arguments[4]; /* of `train`, ended by NULL */
    bool capped;              /* under gpucap, with the card's size as max */
    const char *const *env;   /* may be NULL */
};

struct ladder_plan {
    const struct ladder_way *ways;
    unsigned count;
    const char *steps;     /* "--steps=N" of a run that is timed */
    const char *few_steps; /* the same where only the size of the card is searched */
    bool whole_run;        /* time is the seconds of the whole run; else the milliseconds of a step */
    unsigned shown;        /* the native way to record: a common one */
};

/* Times of one way on one rung. */
struct ladder_times {
    double turn[LADDER_TURNS];
    unsigned count; /* 0: does not train there, or not tried */
};

/* Figures of one way. */
struct ladder_figures {
    uint64_t smallest; /* card that it trains on; 0: none found */
    uint64_t fails;    /* largest card that it does not train on; 0: unknown */
    struct ladder_times on[LADDER_RUNGS];
    uint64_t peak; /* held on the whole card */
    bool capped;
};

struct ladder_verdict {
    int gpucap;                 /* the best way under gpucap; -1: none trains */
    int native;                 /* the native way on the smallest card; -1: none */
    bool as_good[LADDER_WAYS];  /* native ways that need no larger card and no more time than `gpucap` */
    bool as_small[LADDER_WAYS]; /* native ways that need no larger card, but more time */
};

/* Sizes from `high` down to `low`, in even ratios, as multiples of `grain`. Returns how many there are; fewer
 * than asked for if they would coincide. */
unsigned ladder_sizes(uint64_t low, uint64_t high, uint64_t grain, unsigned wanted, uint64_t *sizes);

/* Returns the median of the turns on a rung; NAN without any. */
double ladder_time(const struct ladder_figures *figures, unsigned rung);

/* Returns true if the smallest card was not found to within `grain`: a smaller one may do. */
bool ladder_open(const struct ladder_figures *figures, uint64_t grain);

/* Returns true if `one` is slower than `other` by more than the turns differ: in every turn, and by more than
 * SCENARIO_SAME in the median; with fewer turns than LADDER_TURNS by more than SCENARIO_SAME_ONCE. */
bool ladder_slower(const struct ladder_times *one, const struct ladder_times *other);

/* Compares the native ways with the way `ours`, or with the best one under gpucap if `ours` is negative. A
 * card is as small if it is, or may be, at most `grain` larger. Times are those of the smallest rung on which
 * both train. Pure. */
void ladder_judge(const struct ladder_figures *figures, unsigned count, uint64_t grain, int ours,
                  struct ladder_verdict *verdict);

/* Returns the smallest rung (the last one) on which both train, or -1. */
int ladder_common_rung(const struct ladder_figures *one, const struct ladder_figures *other);

/* Runs all ways and fills the scenario's result. */
void ladder_run(struct scenario *scenario, const struct ladder_plan *plan);

#endif
