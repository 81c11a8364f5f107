/* scenario_docs: writes results as Markdown, between marks in a file that also holds the results of other
 * machines, and as SVG. A file is written to a new one beside it and renamed, so that a failure leaves the
 * old one. Owns no lock. */
#ifndef HARNESS_SCENARIO_DOCS_H
#define HARNESS_SCENARIO_DOCS_H

#include <stdbool.h>
#include <stdio.h>

#include "harness/scenario/scenario.h"

struct docs_origin {
    char device[96];   /* "NVIDIA H200, driver 580.159" */
    char slug[48];     /* "nvidia-h200", for file names and marks */
    char machine[160]; /* processor, cores, system */
    char date[32];
    char command[160];
    double busy; /* load average before the run, if there was more to do than processors; else 0 */
    bool simulated;
};

/* Returns the text with the part between <!-- begin KEY --> and <!-- end KEY --> replaced by `section`.
 * Without these marks, appends them if `append` is set. Returns NULL without memory, or without marks and
 * `append`. The caller frees it. */
char *docs_replace(const char *text, const char *key, const char *section, bool append);

/* Returns a file's text, which the caller frees; NULL with errno set. */
char *docs_read(const char *path);

void docs_origin_here(struct docs_origin *origin, const struct card_choice *card, int argc, char **argv);

/* Prints one result for a terminal. */
void docs_print(const struct scenario_result *result, FILE *out);

/* Writes a section for each result into ROOT/docs/benchmarks.md, and with several results also the table in
 * ROOT/README.md. A result that was skipped leaves an older section as it is. Returns 0, or -1 after a
 * message. */
int docs_write(const char *root, const struct docs_origin *origin, const struct scenario_result *results,
               unsigned count);

/* Returns README's table of all results, whose rows have at most 100 columns. NULL without memory; the caller
 * frees it. */
char *docs_summary(const struct docs_origin *origin, const struct scenario_result *results, unsigned count);

/* Draws all results into one picture, one panel below the other. Returns 0, or -1 after a message. */
int docs_plot(const char *path, const struct docs_origin *origin, const struct scenario_result *results,
              unsigned count);

#endif
