/* scenario: what the scenarios share: settings, how one training is run, its outcome, and the result that
 * is printed, plotted and written to the documentation. Every figure comes from a run that this command
 * makes. A case that cannot run here is a row that says why. Owns no lock. */
#ifndef HARNESS_SCENARIO_H
#define HARNESS_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/fleet/fleet_member.h"
#include "harness/scenario/scenario_card.h"
#include "harness/scenario/scenario_table.h"

enum {
    SCENARIO_ARGUMENTS = 64,
    SCENARIO_ROWS = 12,  /* of a picture */
    SCENARIO_PANELS = 6, /* of a picture, side by side */
    SCENARIO_NOTES = 8,
    SCENARIO_NOTE = 768,
    /* Cells of README's table, whose rows have at most 100 columns. */
    SCENARIO_SUBJECT = 22,
    SCENARIO_BRIEF_NATIVE = 24,
    SCENARIO_BRIEF_GPUCAP = 13,
    SCENARIO_BRIEF_VERDICT = 28,
    SCENARIO_PROCESSES = 64,
    SCENARIO_LABEL = 48, /* name of a row of the picture */
};

/* Times whose ratio is smaller count as equal: after several turns, and after one run of each. */
#define SCENARIO_SAME      1.05
#define SCENARIO_SAME_ONCE 1.5

/* Where gpucap does not help. */
#define SCENARIO_NOT_ALL "here, where not all train under it"

/* Colours of bars: with gpucap, and without. */
enum { COLOUR_GPUCAP, COLOUR_NATIVE };

/* A part of the picture: the same quantity of every row, as bars. */
struct scenario_panel {
    char title[48]; /* quantity and unit */
    char where[48]; /* "card of 64.0 MiB"; may be empty */
    bool more;      /* is more better? */
    bool shared;    /* has the scale of the panel before it */
    double value[SCENARIO_ROWS];
    char note[SCENARIO_ROWS][32]; /* the figure, or why there is none */
};

struct scenario_result {
    char letter;
    const char *title;
    const char *subject;  /* the title in less than SCENARIO_SUBJECT bytes */
    const char *question; /* that the figures answer, one sentence */
    struct table table;
    char row[SCENARIO_ROWS][SCENARIO_LABEL]; /* of the picture */
    unsigned colour[SCENARIO_ROWS], rows;
    struct scenario_panel panels[SCENARIO_PANELS];
    unsigned panel_count;
    char note[SCENARIO_NOTES][SCENARIO_NOTE]; /* chosen sizes, limits of the figures */
    unsigned notes;
    /* In one line each: the best without gpucap, with it, and where gpucap does not help. */
    char native[256], gpucap[256], verdict[SCENARIO_NOTE];
    /* The same in a few words, for README's table. */
    char brief_native[SCENARIO_BRIEF_NATIVE], brief_gpucap[SCENARIO_BRIEF_GPUCAP];
    char brief_verdict[SCENARIO_BRIEF_VERDICT];
    double seconds;   /* duration of the scenario */
    char skipped[96]; /* why it was not run, or not to its end; empty: it was */
};

struct scenario {
    struct card_choice card;
    bool quick, tiny, verbose;
    uint64_t size;      /* --card; 0: derived from the workload */
    const char *record; /* --record; NULL: no recordings */
    unsigned processes; /* of scenarios b, f and g */
    uint64_t until;     /* fleet_now() at which this scenario should have ended; 0: no limit */
    struct scenario_result *result;
};

/* One way of running a training. */
struct scenario_way {
    const char *name;             /* name of the row */
    const char *cap;              /* as for gpucap run --max; NULL: without gpucap */
    const char *const *base;      /* arguments of train, ended by NULL */
    const char *const *arguments; /* further arguments; may be NULL */
    const char *const *env;       /* "NAME=value", ended by NULL; may be NULL */
    const char *each;             /* as for gpucap run --each; NULL: none */
    const char *const *run;       /* further arguments of gpucap run (fleet_budget.h); may be NULL */
    double apart_s;               /* between the starts of two; 0: all start at once */
};

struct scenario_outcome {
    enum fleet_end end;
    char ending[96];
    char reason[256];
    double step_ms, samples_per_s, seconds;
    uint64_t batch, accumulate; /* from the result line; 0: unknown */
    uint64_t peak;              /* device memory by NVML, context included */
    uint64_t peak_bytes;        /* device memory by the training's own count */
    uint64_t steps;
};

/* Runs `train` once on the card as it is. Returns false if a signal asked to stop. */
bool scenario_train(struct scenario *scenario, const struct scenario_way *way,
                    struct scenario_outcome *outcome);

/* The sums over several trainings. */
struct scenario_total {
    unsigned count, trained, without_memory;
    double wall_s;         /* from the first start to the last end */
    uint64_t sum_of_peaks; /* by NVML, for each process by itself */
    uint64_t peak_of_sum;  /* of the whole card, by NVML */
    uint64_t largest_peak; /* of one process */
    uint64_t steps;        /* of those that trained */
};

/* Runs `count` trainings at once, or one after the other, into outcomes[count]. */
bool scenario_train_many(struct scenario *scenario, const struct scenario_way *way, unsigned count,
                         bool together, struct scenario_outcome *outcomes, struct scenario_total *total);

/* Returns the peak memory of a run: NVML's figure, or the training's own count if that is larger. NVML is
 * read only now and then and may miss memory that is held for a moment. */
uint64_t scenario_held(const struct scenario *scenario, const struct scenario_outcome *outcome);

/* Runs one training on the whole card, to measure the memory that it needs. If it fails, adds a row that says
 * so. */
bool scenario_needs(struct scenario *scenario, const struct scenario_way *way,
                    struct scenario_outcome *outcome);

void scenario_cell_bytes(uint64_t bytes, char *text, size_t size);

/* Adds a name to the list in a cell: "naive, cache". Where there is no room, the list ends with dots. */
void scenario_list(char *cell, size_t size, const char *name);

/* Returns the smallest card from which on all train: on it and on every larger one that was done; -1: none.
 * The cards fall in size. Pure. */
int scenario_all_from(const struct scenario_total *totals, const bool *done, unsigned cards);

/* Adds a panel to the picture. Returns its number. */
unsigned scenario_panel(struct scenario_result *result, bool more, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a row to the picture. */
void scenario_row(struct scenario_result *result, const char *label, unsigned colour);
/* Sets the bar of the last row in a panel, and the text behind it. */
void scenario_bar(struct scenario_result *result, unsigned panel, double value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void scenario_note(struct scenario_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Resizes the card. If that is impossible, adds a row that says so and returns false. */
bool scenario_card(struct scenario *scenario, uint64_t bytes);

/* Returns the seconds left to this scenario; INFINITY without a limit. */
double scenario_left(const struct scenario *scenario);

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
void scenario_peaks(struct scenario *scenario);      /* g */

#endif
