/* fleet_line: splits a program's output into lines, and finds progress and results in them. Output is
 * untrusted: nothing here allocates, keeps more than one line of FLEET_LINE_MAX bytes, or passes on a byte
 * that a terminal would interpret. Pure; owns no lock. */
#ifndef HARNESS_FLEET_LINE_H
#define HARNESS_FLEET_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FLEET_LINE_MAX = 2048 }; /* longer lines are cut */

struct fleet_lines {
    char text[FLEET_LINE_MAX];
    size_t used;
};

/* Gets a line without its end: printable ASCII, not empty. */
typedef void fleet_line_fn(const char *line, void *arg);

/* Adds bytes and calls `visit` for each complete line. Newline and carriage return both end a line. */
void fleet_lines_feed(struct fleet_lines *lines, const char *bytes, size_t count, fleet_line_fn *visit,
                      void *arg);

/* Call at the end of the output: visits the last, incomplete line. */
void fleet_lines_end(struct fleet_lines *lines, fleet_line_fn *visit, void *arg);

struct fleet_progress {
    uint64_t step, steps; /* 0 and 0 before the first report; step <= steps */
    double loss;          /* last reported; NAN: none yet */
};

/* Reads "step A/B" or "step=A/B" from a line, and then also "loss X" or "loss=X". Returns false and changes
 * nothing if the line has no step. */
bool fleet_line_progress(const char *line, struct fleet_progress *progress);

/* Returns the number in the line's first word "key=number", or `missing` if there is none or it is not
 * finite. */
double fleet_line_number(const char *line, const char *key, double missing);

#endif
