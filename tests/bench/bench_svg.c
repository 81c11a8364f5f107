/* bench_svg: live and physical bytes over the course of each trace, as SVG. See bench_svg.h. */
#include "bench_svg.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cuda.h"

#define WIDTH  960
#define PANEL  320 /* height of one, its title and axis included */
#define LEFT   70
#define RIGHT  170 /* room for the names */
#define TOP    34
#define BOTTOM 30
#define GIB    (1.0 / (1 << 30))

void svg_open(struct plot *svg, const char *path, unsigned panels)
{
    const int error = plot_open(svg, path, WIDTH, panels * PANEL);

    if (error)
        bench_fail("%s cannot be written: %s", path, strerror(-error));
}

static void physical(struct plot *svg, const struct plot_frame *frame, const struct run_result *result,
                     const char *colour)
{
    plot_curve_begin(svg, colour, NULL);
    for (uint64_t i = 0; i < result->sample_count; i++)
        plot_curve_point(svg, frame, (double)result->samples[i].event, (double)result->samples[i].physical);
    plot_curve_end(svg);
}

static void live(struct plot *svg, const struct plot_frame *frame, const struct trace *trace)
{
    uint64_t *sizes = calloc(trace->blocks, sizeof(*sizes)), bytes = 0, most = 0;
    const uint64_t step = trace->count / (uint64_t)(2 * frame->width) + 1;

    if (!sizes)
        bench_fail("no memory");
    plot_curve_begin(svg, NULL, PLOT_GREY);
    plot_curve_point(svg, frame, 0, 0);
    for (uint64_t i = 0; i < trace->count; i++) {
        const struct trace_event *event = &trace->events[i];

        bytes += event->bytes - sizes[event->block];
        sizes[event->block] = event->bytes;
        most = bytes > most ? bytes : most;
        if (i % step == step - 1) {
            plot_curve_point(svg, frame, (double)i, (double)most);
            most = 0;
        }
    }
    plot_curve_point(svg, frame, frame->x_end, 0);
    plot_curve_end(svg);
    free(sizes);
}

void svg_panel(struct plot *svg, unsigned number, const struct trace *trace, const struct svg_line *lines,
               unsigned count)
{
    struct plot_frame frame = {.left = LEFT,
                               .top = number * PANEL + TOP,
                               .width = WIDTH - LEFT - RIGHT,
                               .height = PANEL - TOP - BOTTOM,
                               .x_end = (double)trace->count,
                               .y_end = (double)trace->peak_live};
    char title[512];

    for (unsigned i = 0; i < count; i++) {
        if ((double)lines[i].result->peak_physical > frame.y_end)
            frame.y_end = (double)lines[i].result->peak_physical;
    }
    snprintf(title, sizeof(title), "%s: %" PRIu64 " allocations and frees", trace->name, trace->count);
    plot_title(svg, &frame, title);
    plot_axis(svg, &frame, GIB, "GiB");
    live(svg, &frame, trace);
    plot_legend(svg, &frame, 0, "live", PLOT_GREY);
    for (unsigned i = 0; i < count; i++) {
        physical(svg, &frame, lines[i].result, plot_colour(i));
        plot_legend(svg, &frame, i + 1, lines[i].name, plot_colour(i));
    }
}

void svg_close(struct plot *svg)
{
    if (plot_close(svg))
        bench_fail("the plot could not be written");
}
