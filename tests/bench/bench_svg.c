/* bench_svg: see bench_svg.h. */
#include "bench_svg.h"

#include <inttypes.h>
#include <stdlib.h>

#include "bench_cuda.h"

#define WIDTH  960
#define PANEL  320 /* height of one, its title and axis included */
#define LEFT   70
#define RIGHT  170 /* room for the names */
#define TOP    34
#define BOTTOM 30
#define STEPS  4 /* labels on the axis of bytes */

static const char *const colours[] = {"#0b7a3b", "#3b6fd4", "#b3261e", "#d98200", "#7a3fb0"};

struct frame {
    double top, width, height;
    double events, bytes; /* the ends of the axes */
};

FILE *svg_open(const char *path, unsigned panels)
{
    FILE *svg = fopen(path, "w");

    if (!svg)
        bench_fail("%s cannot be written", path);
    fprintf(svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, panels * PANEL);
    return svg;
}

static double x_of(const struct frame *frame, uint64_t event)
{
    return LEFT + frame->width * (double)event / frame->events;
}

static double y_of(const struct frame *frame, uint64_t bytes)
{
    return frame->top + frame->height * (1 - (double)bytes / frame->bytes);
}

static void axes(FILE *svg, const struct frame *frame, const struct trace *trace)
{
    fprintf(svg,
            "<text x=\"%d\" y=\"%.0f\" font-weight=\"bold\">%s: %" PRIu64 " allocations and frees</text>\n",
            LEFT, frame->top - 12, trace->name, trace->count);
    for (int i = 0; i <= STEPS; i++) {
        const double bytes = frame->bytes * i / STEPS,
                     y = frame->top + frame->height * (1 - (double)i / STEPS);

        fprintf(svg, "<line x1=\"%d\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>", LEFT,
                LEFT + frame->width, y, y);
        fprintf(svg, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.1f GiB</text>\n", LEFT - 6, y + 4,
                bytes / (1 << 30));
    }
}

static void physical(FILE *svg, const struct frame *frame, const struct run_result *result,
                     const char *colour)
{
    fprintf(svg, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", colour);
    for (uint64_t i = 0; i < result->sample_count; i++)
        fprintf(svg, "%.1f,%.1f ", x_of(frame, result->samples[i].event),
                y_of(frame, result->samples[i].physical));
    fprintf(svg, "\"/>\n");
}

static void live(FILE *svg, const struct frame *frame, const struct trace *trace)
{
    uint64_t *sizes = calloc(trace->blocks, sizeof *sizes), bytes = 0, most = 0;
    const uint64_t step = trace->count / (uint64_t)(2 * frame->width) + 1;

    if (!sizes)
        bench_fail("no memory");
    fprintf(svg, "<polygon fill=\"#cfd8dc\" points=\"%d,%.1f ", LEFT, frame->top + frame->height);
    for (uint64_t i = 0; i < trace->count; i++) {
        const struct trace_event *event = &trace->events[i];

        bytes += event->bytes - sizes[event->block];
        sizes[event->block] = event->bytes;
        most = bytes > most ? bytes : most;
        if (i % step == step - 1) {
            fprintf(svg, "%.1f,%.1f ", x_of(frame, i), y_of(frame, most));
            most = 0;
        }
    }
    fprintf(svg, "%.1f,%.1f\"/>\n", LEFT + frame->width, frame->top + frame->height);
    free(sizes);
}

static void legend(FILE *svg, const struct frame *frame, unsigned row, const char *name, const char *colour)
{
    const double x = LEFT + frame->width + 12, y = frame->top + 10 + 18 * row;

    fprintf(svg, "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"10\" fill=\"%s\"/>", x, y - 9, colour);
    fprintf(svg, "<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", x + 18, y, name);
}

void svg_panel(FILE *svg, unsigned number, const struct trace *trace, const struct svg_line *lines,
               unsigned count)
{
    struct frame frame = {.top = number * PANEL + TOP,
                          .width = WIDTH - LEFT - RIGHT,
                          .height = PANEL - TOP - BOTTOM,
                          .events = (double)trace->count,
                          .bytes = (double)trace->peak_live};

    for (unsigned i = 0; i < count; i++) {
        if ((double)lines[i].result->peak_physical > frame.bytes)
            frame.bytes = (double)lines[i].result->peak_physical;
    }
    axes(svg, &frame, trace);
    live(svg, &frame, trace);
    legend(svg, &frame, 0, "live", "#cfd8dc");
    for (unsigned i = 0; i < count; i++) {
        const char *colour = colours[i % (sizeof colours / sizeof *colours)];

        physical(svg, &frame, lines[i].result, colour);
        legend(svg, &frame, i + 1, lines[i].name, colour);
    }
}

void svg_close(FILE *svg)
{
    fprintf(svg, "</svg>\n");
    if (fclose(svg))
        bench_fail("the plot could not be written");
}
