/* plot: small SVG files. See plot.h. */
#include "harness/base/plot.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>

#define STEPS     4  /* labels on an axis */
#define ROW       18 /* height of a line of the legend */
#define BAR_GAP   0.3
#define NOTE_ROOM 0.66 /* fraction of the frame for the longest bar; the rest is for its note */
#define REMARK    10   /* height of the letters of what matters less */

static const char *const colours[] = {"#0b7a3b", "#3b6fd4", "#b3261e", "#d98200", "#7a3fb0", "#00838f"};

const char *plot_colour(unsigned number)
{
    return colours[number % (sizeof(colours) / sizeof(*colours))];
}

static void emit(struct plot *plot, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void emit(struct plot *plot, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    if (vfprintf(plot->file, format, arguments) < 0 && !plot->error)
        plot->error = -EIO;
    va_end(arguments);
}

static double sound(double value)
{
    return isfinite(value) ? value : 0;
}

/* XML has five special characters; control characters are not allowed even if escaped. */
static void emit_escaped(struct plot *plot, const char *text)
{
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;

        if (c == '<')
            emit(plot, "&lt;");
        else if (c == '>')
            emit(plot, "&gt;");
        else if (c == '&')
            emit(plot, "&amp;");
        else if (c < ' ' || c >= 0x7f)
            emit(plot, "?");
        else
            emit(plot, "%c", c);
    }
}

int plot_open(struct plot *plot, const char *path, unsigned width, unsigned height)
{
    *plot = (struct plot){.file = fopen(path, "we")};
    if (!plot->file)
        return -errno;
    emit(plot,
         "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" viewBox=\"0 0 %u %u\" "
         "font-family=\"sans-serif\" "
         "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
         width, height, width, height);
    return 0;
}

int plot_close(struct plot *plot)
{
    emit(plot, "</svg>\n");
    if (fclose(plot->file) && !plot->error)
        plot->error = -errno;
    plot->file = NULL;
    return plot->error;
}

/* Convert the frame's coordinates to those of the picture. */
static double x_in(const struct plot_frame *frame, double x)
{
    return frame->left + (frame->x_end > 0 ? frame->width * sound(x) / frame->x_end : 0);
}

static double y_in(const struct plot_frame *frame, double y)
{
    return frame->top + frame->height * (frame->y_end > 0 ? 1 - sound(y) / frame->y_end : 1);
}

void plot_heading(struct plot *plot, double x, double y, const char *text)
{
    emit(plot, "<text x=\"%.0f\" y=\"%.0f\" font-weight=\"bold\">", sound(x), sound(y));
    emit_escaped(plot, text);
    emit(plot, "</text>\n");
}

void plot_title(struct plot *plot, const struct plot_frame *frame, const char *title)
{
    plot_heading(plot, frame->left, frame->top - 12, title);
}

void plot_remark(struct plot *plot, double x, double y, const char *anchor, const char *text)
{
    emit(plot, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"#555\">", sound(x),
         sound(y), anchor, REMARK);
    emit_escaped(plot, text);
    emit(plot, "</text>\n");
}

void plot_text(struct plot *plot, double x, double y, const char *anchor, const char *text)
{
    emit(plot, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", sound(x), sound(y), anchor);
    emit_escaped(plot, text);
    emit(plot, "</text>\n");
}

void plot_rect(struct plot *plot, double x, double y, double width, double height, const char *colour)
{
    emit(plot, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", sound(x),
         sound(y), fmax(sound(width), 0), fmax(sound(height), 0), colour);
}

void plot_axis(struct plot *plot, const struct plot_frame *frame, double scale, const char *unit)
{
    for (int i = 0; i <= STEPS; i++) {
        const double y = frame->top + frame->height * (1 - (double)i / STEPS);
        char label[64];

        emit(plot, "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", frame->left,
             frame->left + frame->width, y, y);
        snprintf(label, sizeof(label), "%.1f %s", sound(frame->y_end * i / STEPS * scale), unit);
        plot_text(plot, frame->left - 6, y + 4, "end", label);
    }
}

void plot_legend(struct plot *plot, const struct plot_frame *frame, unsigned row, const char *name,
                 const char *colour)
{
    const double x = frame->left + frame->width + 12, y = frame->top + 10 + ROW * (double)row;

    plot_rect(plot, x, y - 9, 12, 10, colour);
    plot_text(plot, x + 18, y, "start", name);
}

void plot_curve_begin(struct plot *plot, const char *stroke, const char *fill)
{
    emit(plot, "<%s fill=\"%s\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", fill ? "polygon" : "polyline",
         fill ? fill : "none", stroke ? stroke : "none");
}

void plot_curve_point(struct plot *plot, const struct plot_frame *frame, double x, double y)
{
    emit(plot, "%.1f,%.1f ", x_in(frame, x), y_in(frame, y));
}

void plot_curve_end(struct plot *plot)
{
    emit(plot, "\"/>\n");
}

/* Returns 1, 2, 5 or 10 times a power of ten: at least a third of `end`, so that there are four lines at
 * most. */
static double grid_step(double end)
{
    const double power = pow(10, floor(log10(end / 3)));
    const double first = end / 3 / power;

    return power * (first > 5 ? 10 : first > 2 ? 5 : first > 1 ? 2 : 1);
}

static void draw_scale(struct plot *plot, const struct plot_frame *frame, double room)
{
    const double bottom = frame->top + frame->height, step = frame->x_end > 0 ? grid_step(frame->x_end) : 0;
    const int lines = step > 0 ? (int)(frame->x_end / step * 1.001) : 0;

    for (int i = 0; i <= lines; i++) {
        const double x = frame->left + (i ? room * i * step / frame->x_end : 0);
        char label[32];

        emit(plot, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x, x,
             frame->top, bottom, i ? "#ddd" : "#888");
        snprintf(label, sizeof(label), "%g", i * step);
        plot_remark(plot, x, bottom + REMARK + 2, "middle", label);
    }
}

void plot_bars(struct plot *plot, struct plot_frame *frame, const struct plot_bar *bars, unsigned count)
{
    const double row = frame->height / (count ? count : 1);
    const double room = frame->note > 0 ? fmax(frame->width - frame->note, 0) : NOTE_ROOM * frame->width;

    frame->x_end = fmax(sound(frame->x_end), 0);
    for (unsigned i = 0; i < count; i++)
        frame->x_end = fmax(frame->x_end, sound(bars[i].value));
    if (frame->scale)
        draw_scale(plot, frame, room);
    for (unsigned i = 0; i < count; i++) {
        const double y = frame->top + row * i, middle = y + row / 2 + 4;
        const double length = frame->x_end > 0 ? room * sound(bars[i].value) / frame->x_end : 0;

        if (bars[i].label)
            plot_text(plot, frame->left - 8, middle, "end", bars[i].label);
        plot_rect(plot, frame->left, y + row * BAR_GAP / 2, length, row * (1 - BAR_GAP),
                  plot_colour(bars[i].colour));
        if (bars[i].note)
            plot_text(plot, frame->left + length + 5, middle, "start", bars[i].note);
    }
}
