/* scenario_ladder_climb: the state of scenario_ladder.c, from which scenario_ladder_say.c writes tables and
 * texts. Owns no lock. */
#ifndef HARNESS_SCENARIO_LADDER_CLIMB_H
#define HARNESS_SCENARIO_LADDER_CLIMB_H

#include "harness/scenario/scenario_ladder.h"

struct climb {
    struct scenario *scenario;
    const struct ladder_plan *plan;
    uint64_t rung[LADDER_RUNGS]; /* sizes; the first is the whole card */
    unsigned rungs;
    uint64_t grain;
    struct ladder_figures figures[LADDER_WAYS];
    unsigned tries[LADDER_WAYS]; /* of the search for the smallest card */
    uint64_t least;              /* memory that every way needs */
    uint64_t low, high;          /* the least and the most that a way holds on the whole card */
    char cell[LADDER_WAYS][LADDER_RUNGS][48];
    unsigned no_memory[LADDER_WAYS][LADDER_RUNGS]; /* repeated runs that ran out of memory */
    int best;                                      /* the best way under gpucap; -1: none */
    unsigned trying;                               /* way of the search */
    bool cut;                                      /* there was no time for some runs */
    unsigned runs;
    uint64_t began;
};

/* Writes a time with its unit. */
void climb_say_time(const struct climb *climb, double time, char *text, size_t size);

/* Fills the result's table, picture and verdict. */
void climb_say(struct climb *climb);

#endif
