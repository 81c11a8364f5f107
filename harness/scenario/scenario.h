/* scenario: what the scenarios share: their settings, how one training is run and what came of it, and what
 * each of them hands back to be printed, plotted and written down.
 *
 * Every figure comes from a run that the command makes. What cannot run here is a row that says why. Owns no
 * lock. */
#ifndef HARNESS_SCENARIO_H
#define HARNESS_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/fleet/fleet_member.h"
#include "harness/base/plot.h"
#include "harness/scenario/scenario_card.h"
#include "harness/scenario/scenario_table.h"

enum { SCENARIO_ARGUMENTS = 64, SCENARIO_BARS = 16, SCENARIO_NOTES = 6 };

/* Colours of bars: with gpucap, and without. */
enum { COLOUR_GPUCAP, COLOUR_NATIVE };

struct scenario_result {
    char letter;
    const char *title;
    const char *question; /* what the figures answer, one sentence */
    struct table table;
    const char *bar_title; /* of the plot: what the bars measure */
    struct plot_bar bars[SCENARIO_BARS];
    char bar_note[SCENARIO_BARS][TABLE_CELL];
    unsigned bar_count;
    char note[SCENARIO_NOTES][256]; /* sizes that were chosen, what the figures are not */
    unsigned notes;
    char summary[640]; /* one line for README */
    double seconds;    /* how long it took */
};

struct scenario {
    struct card_choice card;
    bool quick, tiny, verbose;
    uint64_t size;      /* --card; 0: chosen by what the workload needs */
    unsigned processes; /* of (b) and (f) */
    struct scenario_result *result;
};

/* How a training is run. */
struct scenario_way {
    const char *name;             /* the row */
    const char *cap;              /* as for gpucap run; NULL: natively */
    const char *const *base;      /* arguments of train, ended by NULL */
    const char *const *arguments; /* more of them; may be NULL */
    const char *const *env;       /* "NAME=value", ended by NULL; may be NULL */
};

struct scenario_outcome {
    enum fleet_end end;
    char ending[96];
    char reason[256];
    double step_ms, samples_per_s, loss, seconds;
    uint64_t batch, accumulate; /* as the result says; 0: unknown */
    uint64_t peak;              /* device memory, by NVML, context included */
    uint64_t peak_bytes;        /* what the training itself counted */
    uint64_t steps;
};

/* Runs `train` once on the card as it is. False when we were asked to stop. */
bool scenario_train(struct scenario *scenario, const struct scenario_way *way,
                    struct scenario_outcome *outcome);
/* Runs several at once, or one after the other; outcomes[count]. wall_s: from first start to last end. */
bool scenario_train_many(struct scenario *scenario, const struct scenario_way *way, unsigned count,
                         bool together, struct scenario_outcome *outcomes, double *wall_s);

/* "3.2 ms", "out of memory": what belongs in the cell of a time. */
void scenario_cell_ms(const struct scenario_outcome *outcome, char *text, size_t size);
void scenario_cell_bytes(uint64_t bytes, char *text, size_t size);

void scenario_bar(struct scenario_result *result, const char *label, double value, unsigned colour,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));
void scenario_note(struct scenario_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Makes the card that large; where that is impossible, a row says so and false comes back. */
bool scenario_card(struct scenario *scenario, uint64_t bytes);
/* Progress on stderr. */
void scenario_say(const struct scenario *scenario, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The scenarios. */
void scenario_pair(struct scenario *scenario);       /* a */
void scenario_arenas(struct scenario *scenario);     /* b */
void scenario_spike(struct scenario *scenario);      /* c */
void scenario_fragments(struct scenario *scenario);  /* d */
void scenario_batch(struct scenario *scenario);      /* e */
void scenario_throughput(struct scenario *scenario); /* f */

#endif
