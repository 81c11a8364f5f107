/* plot: small SVG files: axes, curves, bars and a legend, for the benchmarks and the scenarios.
 *
 * Every text is escaped, so a name may hold anything; a number that is not finite is drawn as 0. Writes to
 * the given file only. An error is kept and reported by plot_close, so that drawing needs no checks. Owns no
 * lock. */
#ifndef HARNESS_PLOT_H
#define HARNESS_PLOT_H

#include <stdio.h>

struct plot {
    FILE *file;
    int error; /* 0, or the first negative errno */
};

/* A rectangle of the picture with its own coordinates: x from 0 to x_end, y upwards from 0 to y_end. */
struct plot_frame {
    double left, top, width, height;
    double x_end, y_end;
};

struct plot_bar {
    const char *label;
    double value;
    const char *note; /* written behind the bar; NULL: nothing */
    unsigned colour;
};

#define PLOT_GREY "#cfd8dc"

/* 0, or a negative errno. */
int plot_open(struct plot *plot, const char *path, unsigned width, unsigned height);
/* 0, or the first error of all that was drawn. */
int plot_close(struct plot *plot);

/* A colour for each number; they repeat. */
const char *plot_colour(unsigned number);

double plot_x(const struct plot_frame *frame, double x);
double plot_y(const struct plot_frame *frame, double y);

void plot_title(struct plot *plot, const struct plot_frame *frame, const char *title);
/* anchor: "start", "middle" or "end" of the text is at x. */
void plot_text(struct plot *plot, double x, double y, const char *anchor, const char *text);
void plot_rect(struct plot *plot, double x, double y, double width, double height, const char *colour);
/* Horizontal lines with their values, each value times scale and with the unit. */
void plot_axis(struct plot *plot, const struct plot_frame *frame, double scale, const char *unit);
void plot_legend(struct plot *plot, const struct plot_frame *frame, unsigned row, const char *name,
                 const char *colour);

/* A curve (fill NULL) or a filled shape: begin, any number of points in the frame's coordinates, end. */
void plot_curve_begin(struct plot *plot, const char *stroke, const char *fill);
void plot_curve_point(struct plot *plot, const struct plot_frame *frame, double x, double y);
void plot_curve_end(struct plot *plot);

/* Horizontal bars below each other, labels in front of them. Sets frame->x_end to the longest. */
void plot_bars(struct plot *plot, struct plot_frame *frame, const struct plot_bar *bars, unsigned count);

#endif
