/* fleet_line: what a training says, read from a pipe: lines out of bytes, progress and results out of lines.
 *
 * A member of a fleet may say anything, in any amount, without ever ending a line: nothing here allocates,
 * keeps more than one line of FLEET_LINE_MAX bytes, or hands on a byte that could steer a terminal. Pure; no
 * lock. */
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

/* A line without its end, printable ASCII only, never empty. */
typedef void fleet_line_fn(const char *line, void *arg);

/* Both newline and carriage return end a line. */
void fleet_lines_feed(struct fleet_lines *lines, const char *bytes, size_t count, fleet_line_fn *visit,
                      void *arg);
/* What is left when the pipe ends. */
void fleet_lines_end(struct fleet_lines *lines, fleet_line_fn *visit, void *arg);

struct fleet_progress {
    uint64_t step, steps; /* 0 of 0 before anything was said; step <= steps */
    double loss;          /* the last one that was said; NAN: none */
};

/* Whether the line says "step A/B"; then also takes "loss X" or "loss=X" from it. On false nothing changes.
 */
bool fleet_line_progress(const char *line, struct fleet_progress *progress);

/* The value of the first word "key=value" of a line; false, and an empty text, when there is none or it does
 * not fit. */
bool fleet_line_value(const char *line, const char *key, char *value, size_t size);
/* The same as a number; `missing` when there is none, or when it is not a finite number. */
double fleet_line_number(const char *line, const char *key, double missing);

#endif
