/* export_svg: a picture for documents: a panel per process and device, with the limit and refusals. See
 * export.h. */
#include "tools/gpucap/export.h"
#include "tools/gpucap/page_bytes.h"
#include "tools/gpucap/recording_columns.h"
#include "tools/gpucap/recording_words.h"
#include "tools/gpucap/words.h"

#include <string.h>

#define WIDTH  960
#define LEFT   76
#define RIGHT  16
#define PLOT   (WIDTH - LEFT - RIGHT)
#define HEIGHT 260 /* of a plot */
#define ABOVE  64
#define BELOW  80
#define PANEL  (ABOVE + HEIGHT + BELOW)
#define TICKS  4
#define LETTER 7.2     /* width of one, about */
#define TITLE  100     /* letters of the title, which are wider */
#define FAR    17 / 10 /* a limit beyond this part of the peak is not worth the room */

static const char *const colours[COLUMNS_GROUPS] = {"#6b7785", "#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                                    "#56b4e9", "#d55e00", "#8d99a6", "#b9c1c9"};

static const char style[] =
    "<style>text{font:13px system-ui,sans-serif;fill:#1b1f24}.soft{fill:#59636e}.grid{stroke:#d8dde2}"
    ".limit{stroke:#1b1f24;stroke-width:1.5;stroke-dasharray:7 4}.bad{stroke:#c1121f;fill:#c1121f}"
    "text.bad{stroke:none;fill:#c1121f}.title{font-weight:600}.idle{fill:url(#hatch);stroke:#59636e}"
    ".paper{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#e6e9ec}.soft{fill:#a3adb7}.grid{stroke:"
    "#30363c}.limit{stroke:#e6e9ec}.bad{stroke:#ff6b6b;fill:#ff6b6b}text.bad{fill:#ff6b6b}.paper{fill:#"
    "14171a}}"
    "</style><defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
    "<path d=\"M0 6L6 0\" stroke=\"#9aa4ae\"/></pattern></defs>\n";

struct panel {
    FILE *out;
    const struct columns *columns;
    double top;
    uint64_t most;
};

static double y_of(const struct panel *panel, uint64_t bytes)
{
    return panel->top + HEIGHT - (double)bytes / (double)panel->most * HEIGHT;
}

static uint64_t sum_until(const struct columns_column *column, int group)
{
    uint64_t sum = 0;

    for (int g = 0; g <= group; g++)
        sum += column->bytes[g];
    return sum;
}

/* Returns the upper edge of a group in a column, in bytes; COLUMNS_GROUPS: of idle memory. */
static uint64_t height_of(const struct columns_column *column, int group)
{
    if (group < COLUMNS_GROUPS)
        return group < 0 ? 0 : sum_until(column, group);
    const uint64_t sum = sum_until(column, COLUMNS_GROUPS - 1);
    return column->used > sum ? column->used : sum;
}

static void write_area(const struct panel *panel, int group)
{
    const struct columns *columns = panel->columns;

    if (group < COLUMNS_GROUPS)
        fprintf(panel->out, "<path fill=\"%s\" d=\"M", colours[group]);
    else
        fputs("<path class=\"idle\" d=\"M", panel->out);
    for (int i = 0; i < columns->width; i++)
        fprintf(panel->out, "%d %.1fh1%s", LEFT + i, y_of(panel, height_of(&columns->columns[i], group)),
                i + 1 < columns->width ? "L" : "");
    for (int i = columns->width - 1; i >= 0; i--)
        fprintf(panel->out, "L%d %.1fh-1", LEFT + i + 1,
                y_of(panel, height_of(&columns->columns[i], group - 1)));
    fputs("z\"/>\n", panel->out);
}

static void write_scale(const struct panel *panel, uint64_t end_ns)
{
    char text[RECORDING_TIME];

    for (uint64_t bytes = 0, step = recording_step(panel->most, TICKS + 1); bytes <= panel->most;
         bytes += step)
        fprintf(panel->out,
                "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text class=\"soft\" x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text>\n",
                LEFT, y_of(panel, bytes), PLOT, LEFT - 8, y_of(panel, bytes) + 4,
                bytes ? words_size(bytes, text) : "0");
    for (int i = 0; i <= TICKS; i++)
        fprintf(panel->out, "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
                LEFT + PLOT * i / TICKS, panel->top + HEIGHT + 18, i < TICKS ? "middle" : "end",
                i ? recording_time(end_ns / TICKS * (uint64_t)i, text) : "0");
}

static void write_marks(const struct panel *panel)
{
    const struct columns *columns = panel->columns;
    const struct columns_column *last = &columns->columns[columns->width - 1];
    char text[RECORDING_TIME];

    for (int i = 0; i < columns->width; i++) {
        const struct columns_column *column = &columns->columns[i];

        if (column->refusals)
            fprintf(panel->out,
                    "<path class=\"bad\" d=\"M%d %.1fv%d\"/><path class=\"bad\" d=\"M%d %.1fh12l-6 10z\"/>\n",
                    LEFT + i, panel->top, HEIGHT, LEFT + i - 6, panel->top - 10);
    }
    if (last->limit == TIMELINE_NO || last->limit > panel->most)
        return;
    fprintf(panel->out,
            "<path class=\"limit\" d=\"M%d %.1fh%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">limit "
            "%s</text>\n",
            LEFT, y_of(panel, last->limit), PLOT, LEFT + PLOT, y_of(panel, last->limit) - 5,
            recording_size(last->limit, text));
}

static void write_legend(const struct panel *panel)
{
    enum { IDLE = COLUMNS_GROUPS, REFUSED, ITEMS };
    double x = LEFT, y = panel->top + HEIGHT + 42;
    bool refused = false;

    for (int i = 0; i < panel->columns->width; i++)
        refused = refused || panel->columns->columns[i].refusals;
    for (int g = 0; g < ITEMS; g++) {
        const char *name = g < IDLE ? panel->columns->names[g] : g == IDLE ? "idle in pools" : "refused";
        if (!name || (g < IDLE && !panel->columns->most[g]) || (g == REFUSED && !refused))
            continue;
        const size_t length = strlen(name);
        if (x + 16 + (double)length * LETTER > WIDTH) {
            x = LEFT;
            y += 18;
        }
        if (g == REFUSED)
            fprintf(panel->out, "<path class=\"bad\" d=\"M%.0f %.0fh11l-5.5 10z\"/>", x, y - 10);
        else if (g < IDLE)
            fprintf(panel->out,
                    "<rect x=\"%.0f\" y=\"%.0f\" width=\"11\" height=\"11\" rx=\"2\" fill=\"%s\"/>", x,
                    y - 10, colours[g]);
        else
            fprintf(panel->out, "<rect class=\"idle\" x=\"%.0f\" y=\"%.0f\" width=\"11\" height=\"11\"/>", x,
                    y - 10);
        fprintf(panel->out, "<text x=\"%.0f\" y=\"%.0f\">", x + 16, y);
        page_text(panel->out, name);
        fputs("</text>\n", panel->out);
        x += 34 + (double)length * LETTER;
    }
}

static bool write_panel(FILE *out, const struct recording_set *set, const struct recording_track *track,
                        int number)
{
    const struct timeline *timeline = &track->timeline;
    char sentence[RECORDING_SENTENCE], text[WORDS_CUT];
    struct columns columns;

    if (!columns_open(&columns, timeline, timeline_best_by(timeline, timeline->peak), PLOT))
        return false;
    const uint64_t limit = columns.columns[columns.width - 1].limit;
    struct panel panel = {out, &columns, ABOVE + (double)number * PANEL, columns.peak ? columns.peak : 1};
    if (limit != TIMELINE_NO && limit > panel.most && limit <= panel.most * FAR)
        panel.most = limit;
    panel.most += panel.most / 20 + TICKS;
    fprintf(out, "<text class=\"title\" x=\"%d\" y=\"%.0f\">", LEFT, panel.top - 40);
    page_text(out, set->track_count > 1 ? recording_set_heading(set, track, TITLE, text)
                                        : words_cut(recording_set_title(set, track->file), TITLE, text));
    fprintf(out, "</text><text class=\"soft\" x=\"%d\" y=\"%.0f\">", LEFT, panel.top - 22);
    page_text(out, recording_sentence(timeline, sentence));
    fputs("</text>\n", out);
    write_scale(&panel, timeline->end_ns);
    for (int g = 0; g <= COLUMNS_GROUPS; g++)
        write_area(&panel, g);
    write_marks(&panel);
    write_legend(&panel);
    columns_close(&columns);
    return true;
}

bool export_svg(FILE *out, const struct recording_set *set)
{
    const int height = set->track_count * PANEL;
    bool good = true;

    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "role=\"img\" aria-label=\"GPU memory over time\">\n",
            WIDTH, height, WIDTH, height);
    fputs(style, out);
    fprintf(out, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", WIDTH, height);
    for (int i = 0; i < set->track_count && good; i++)
        good = write_panel(out, set, &set->tracks[i], i);
    fputs("</svg>\n", out);
    return good;
}
