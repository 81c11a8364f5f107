/* bench_svg: live and physical bytes over the course of each trace, one panel below the other, as an SVG
 * file. */
#ifndef GPUCAP_BENCH_SVG_H
#define GPUCAP_BENCH_SVG_H

#include "bench_run.h"
#include "harness/base/plot.h"

struct svg_line {
    const char *name;
    const struct run_result *result; /* with its samples */
};

/* Ends the program if the file cannot be written. */
void svg_open(struct plot *svg, const char *path, unsigned panels);
void svg_panel(struct plot *svg, unsigned number, const struct trace *trace, const struct svg_line *lines,
               unsigned count);
void svg_close(struct plot *svg);

#endif
