/* scenario: what the scenarios share: settings, how one training is run, its outcome, and the result that
 * is printed, plotted and written to the documentation. Every figure comes from a run that this command
 * makes. A case that cannot run here is a row that says why. Owns no lock. */
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
    const char *question; /* that the figures answer, one sentence */
    struct table table;
    const char *bar_title; /* of the plot: the quantity that the bars show */
    struct plot_bar bars[SCENARIO_BARS];
    char bar_note[SCENARIO_BARS][TABLE_CELL];
    unsigned bar_count;
    char note[SCENARIO_NOTES][256]; /* chosen sizes, limits of the figures */
    unsigned notes;
    char summary[640]; /* one line for README */
    double seconds;    /* duration of the scenario */
};

struct scenario {
    struct card_choice card;
    bool quick, tiny, verbose;
    uint64_t size;      /* --card; 0: derived from the workload */
    unsigned processes; /* of scenarios b and f */
    struct scenario_result *result;
};

/* One way of running a training. */
struct scenario_way {
    const char *name;             /* name of the row */
    const char *cap;              /* as for gpucap run; NULL: without gpucap */
    const char *const *base;      /* arguments of train, ended by NULL */
    const char *const *arguments; /* further arguments; may be NULL */
    const char *const *env;       /* "NAME=value", ended by NULL; may be NULL */
};

struct scenario_outcome {
    enum fleet_end end;
    char ending[96];
    char reason[256];
    double step_ms, samples_per_s, loss, seconds;
    uint64_t batch, accumulate; /* from the result line; 0: unknown */
    uint64_t peak;              /* device memory by NVML, context included */
    uint64_t peak_bytes;        /* device memory by the training's own count */
    uint64_t steps;
};

/* Runs `train` once on the card as it is. Returns false if a signal asked to stop. */
bool scenario_train(struct scenario *scenario, const struct scenario_way *way,
                    struct scenario_outcome *outcome);

/* Runs `count` trainings at once, or one after the other, into outcomes[count]. *wall_s is the time from
 * the first start to the last end. */
bool scenario_train_many(struct scenario *scenario, const struct scenario_way *way, unsigned count,
                         bool together, struct scenario_outcome *outcomes, double *wall_s);

/* Writes the text of a cell for step times: "3.2 ms", or "out of memory" and the like. */
void scenario_cell_ms(const struct scenario_outcome *outcome, char *text, size_t size);
void scenario_cell_bytes(uint64_t bytes, char *text, size_t size);

void scenario_bar(struct scenario_result *result, const char *label, double value, unsigned colour,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));
void scenario_note(struct scenario_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Resizes the card. If that is impossible, adds a row that says so and returns false. */
bool scenario_card(struct scenario *scenario, uint64_t bytes);

/* Prints progress to stderr. */
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
