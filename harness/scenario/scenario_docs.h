/* scenario_docs: results as Markdown, between marks in a file that holds those of other machines too, and as
 * SVG.
 *
 * A file is written whole to a new one beside it and renamed, so that a failure leaves the old one. Owns no
 * lock. */
#ifndef HARNESS_SCENARIO_DOCS_H
#define HARNESS_SCENARIO_DOCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "harness/scenario/scenario.h"

struct docs_origin {
    char device[96];   /* "NVIDIA H200, driver 580.159" */
    char slug[48];     /* "nvidia-h200": for names of files and marks */
    char machine[160]; /* processor, cores, system */
    char date[32];
    char command[160];
    bool simulated;
};

/* The text with `section` between <!-- begin KEY --> and <!-- end KEY -->, in the place of what was there; at
 * the end when there was nothing and `append` is set. NULL: no memory, or no mark and no `append`. Free it.
 */
char *docs_replace(const char *text, const char *key, const char *section, bool append);

void docs_origin_here(struct docs_origin *origin, const struct card_choice *card, int argc, char **argv);

/* One result for a terminal. */
void docs_print(const struct scenario_result *result, FILE *out);

/* ROOT/docs/benchmarks.md with a section for each result, and ROOT/README.md's table when there are several.
 * 0, or -1 after a message. */
int docs_write(const char *root, const struct docs_origin *origin, const struct scenario_result *results,
               unsigned count);

/* All results in one picture, one panel below the other. 0, or -1 after a message. */
int docs_plot(const char *path, const struct docs_origin *origin, const struct scenario_result *results,
              unsigned count);

#endif
