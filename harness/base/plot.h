/* plot: small SVG files: axes, curves, bars and a legend, for the benchmarks and the scenarios.
 *
 * Every text is escaped, so a name may hold anything; a number that is not finite is drawn as 0. Writes to
 * the given file only. An error is kept and reported by plot_close, so that drawing needs no checks. Owns no
 * lock. */
#ifndef HARNESS_PLOT_H
#define HARNESS_PLOT_H

#include <stdbool.h>
#include <stdio.h>

struct plot {
    FILE *file;
    int error; /* 0, or the first negative errno */
};

/* A rectangle of the picture with its own coordinates: x from 0 to x_end, y upwards from 0 to y_end. */
struct plot_frame {
    double left, top, width, height;
    double x_end, y_end;
    double note; /* plot_bars: width left to the notes behind the bars; 0: a third */
    bool scale;  /* plot_bars: draw grid lines, with their values below the frame */
};

struct plot_bar {
    const char *label; /* to the left of the frame; NULL: none */
    double value;
    const char *note; /* text to the right of the bar; NULL: none */
    unsigned colour;
};

#define PLOT_GREY "#cfd8dc"

/* Creates the file, with a viewBox, so that the picture can be shown at any size. Returns 0 or a negative
 * errno. */
int plot_open(struct plot *plot, const char *path, unsigned width, unsigned height);

/* Ends and closes the file. Returns 0, or the first error since plot_open. */
int plot_close(struct plot *plot);

/* Returns the colour of series `number`; the colours repeat. */
const char *plot_colour(unsigned number);

void plot_title(struct plot *plot, const struct plot_frame *frame, const char *title);

/* Writes a heading at (x, y), and text of lesser weight. */
void plot_heading(struct plot *plot, double x, double y, const char *text);
void plot_remark(struct plot *plot, double x, double y, const char *anchor, const char *text);

/* Writes text at (x, y). `anchor` says which part of it is at x: "start", "middle" or "end". */
void plot_text(struct plot *plot, double x, double y, const char *anchor, const char *text);
void plot_rect(struct plot *plot, double x, double y, double width, double height, const char *colour);

/* Draws horizontal grid lines. Each is labelled with its value times `scale`, and the unit. */
void plot_axis(struct plot *plot, const struct plot_frame *frame, double scale, const char *unit);
void plot_legend(struct plot *plot, const struct plot_frame *frame, unsigned row, const char *name,
                 const char *colour);

/* Draw a curve (`fill` is NULL) or a filled shape: begin, any number of points in the frame's coordinates,
 * end. */
void plot_curve_begin(struct plot *plot, const char *stroke, const char *fill);
void plot_curve_point(struct plot *plot, const struct plot_frame *frame, double x, double y);
void plot_curve_end(struct plot *plot);

/* Draws horizontal bars below each other, with labels to their left. Raises frame->x_end to the largest
 * value; one that is larger already makes several frames comparable. */
void plot_bars(struct plot *plot, struct plot_frame *frame, const struct plot_bar *bars, unsigned count);

#endif
