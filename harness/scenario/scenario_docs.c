/* scenario_docs: writes results as Markdown and SVG. See scenario_docs.h. */
#include "harness/scenario/scenario_docs.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "harness/base/plot.h"
#include "tools/gpucap/probe.h"

#define FILE_BYTES_MAX (4 << 20)

static const char intro[] =
    "# Benchmarks\n\n"
    "Written by `build/scenarios --write-docs` and `build/bench_docs`; every figure is from a run of the "
    "command named under its "
    "table.\n"
    "Times on simgpu are those of a simulated device: the processor computes its operations, and an "
    "allocation costs what\nthe simulation costs. They show what fits and what does not, but not the speed "
    "of a GPU.\n";

static const char simulated_note[] =
    "Times are those of the simulated device, not of a GPU; `build/scenarios` on a GPU measures those.";

/* ---- texts ---- */

char *docs_replace(const char *text, const char *key, const char *section, bool append)
{
    char begin[160], end[160], *result = NULL;

    snprintf(begin, sizeof(begin), "<!-- begin %s -->\n", key);
    snprintf(end, sizeof(end), "<!-- end %s -->\n", key);
    const char *from = strstr(text, begin), *to = from ? strstr(from, end) : NULL;
    if (!to && !append)
        return NULL;
    const size_t before = to ? (size_t)(from - text) : strlen(text);
    const char *after = to ? to + strlen(end) : "";
    const char *gap = to || before == 0 ? "" : text[before - 1] == '\n' ? "\n" : "\n\n";
    if (asprintf(&result, "%.*s%s%s%s%s%s", (int)before, text, gap, begin, section, end, after) < 0)
        return NULL;
    return result;
}

static void slug_of(const char *name, char *slug, size_t size)
{
    size_t used = 0;

    for (; *name && used < size - 1; name++)
        slug[used++] = isalnum((unsigned char)*name) ? (char)tolower((unsigned char)*name) : '-';
    slug[used] = '\0';
}

/* "model name : ..." where there is one; elsewhere only the architecture is known. */
static void processor_name(char *name, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(name, size, "processor");
    while (file && fgets(line, sizeof(line), file)) {
        const char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) == 0 && colon && colon[1]) {
            snprintf(name, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (file)
        fclose(file);
}

/* Returns false for options that only choose the output: the documented command leaves them out. */
static bool changes_figures(const char *argument)
{
    return strncmp(argument, "--out=", 6) != 0 && strncmp(argument, "--write-docs", 12) != 0 &&
           strncmp(argument, "--record=", 9) != 0 && strncmp(argument, "--save=", 7) != 0 &&
           strcmp(argument, "--verbose") != 0;
}

void docs_origin_here(struct docs_origin *origin, const struct card_choice *card, int argc, char **argv)
{
    static struct probe probe;
    const time_t now = time(NULL);
    struct utsname system;
    struct tm date;
    char processor[96];
    double load = 0;
    size_t used;

    memset(origin, 0, sizeof(*origin));
    origin->simulated = card->simulated;
    slug_of(card->name, origin->slug, sizeof(origin->slug));
    snprintf(origin->device, sizeof(origin->device), "%s", card->name);
    if (!card->simulated) {
        probe_driver(&probe, NULL);
        snprintf(origin->device, sizeof(origin->device), "%.60s, driver %.24s", card->name, probe.release);
    }
    processor_name(processor, sizeof(processor));
    if (uname(&system) == 0)
        snprintf(origin->machine, sizeof(origin->machine), "%.80s, %ld cores, %.20s %.20s", processor,
                 sysconf(_SC_NPROCESSORS_ONLN), system.sysname, system.machine);
    if (getloadavg(&load, 1) == 1 && load > (double)sysconf(_SC_NPROCESSORS_ONLN))
        origin->busy = load;
    strftime(origin->date, sizeof(origin->date), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &date));
    const char *slash = strrchr(argv[0], '/');
    used =
        (size_t)snprintf(origin->command, sizeof(origin->command), "build/%s", slash ? slash + 1 : argv[0]);
    for (int i = 1; i < argc && used < sizeof(origin->command); i++) {
        if (!changes_figures(argv[i]))
            continue;
        used += (size_t)snprintf(origin->command + used, sizeof(origin->command) - used, " %s", argv[i]);
    }
}

void docs_print(const struct scenario_result *result, FILE *out)
{
    fprintf(out, "\n(%c) %s\n%s\n\n", result->letter, result->title, result->question);
    table_print(&result->table, out);
    for (unsigned i = 0; i < result->notes; i++)
        fprintf(out, "%s\n", result->note[i]);
    if (result->skipped[0])
        fprintf(out, "Skipped: %s.\n", result->skipped);
}

static void say_busy(FILE *out, const struct docs_origin *origin)
{
    if (origin->busy > 0)
        fprintf(out,
                "Other programs kept the processors busy (load average %.1f before the run): sizes count, "
                "times do not.\n",
                origin->busy);
}

static char *section_of(const struct docs_origin *origin, const struct scenario_result *result)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    fprintf(out, "## (%c) %s: %s\n\n%s\n\n", result->letter, result->title, origin->device, result->question);
    table_print_markdown(&result->table, out);
    fputc('\n', out);
    for (unsigned i = 0; i < result->notes; i++)
        fprintf(out, "%s\n", result->note[i]);
    if (origin->simulated)
        fprintf(out, "%s\n", simulated_note);
    say_busy(out, origin);
    fprintf(out, "`%s`, %s, on %s; took %.0f s.\n", origin->command, origin->date, origin->machine,
            result->seconds);
    return fclose(out) ? NULL : text;
}

/* Names what is missing in the table. */
static void say_skipped(FILE *out, const struct scenario_result *results, unsigned count)
{
    unsigned missing = 0;

    for (unsigned i = 0; i < count; i++) {
        if (results[i].skipped[0] || !results[i].verdict[0])
            fprintf(out, "%s(%c) %s", missing++ ? ", " : "Not run to the end: ", results[i].letter,
                    results[i].subject);
    }
    fputs(missing ? ".\n" : "", out);
}

char *docs_summary(const struct docs_origin *origin, const struct scenario_result *results, unsigned count)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    fprintf(out, "`%s` on %s, %s:\n\n", origin->command, origin->device, origin->date);
    fputs("| scenario | without gpucap | under gpucap | ways without gpucap that do as well |\n"
          "|---|---|---|---|\n",
          out);
    for (unsigned i = 0; i < count; i++) {
        if (results[i].verdict[0] && !results[i].skipped[0])
            fprintf(out, "| (%c) %s | %s | %s | %s |\n", results[i].letter, results[i].subject,
                    results[i].brief_native, results[i].brief_gpucap, results[i].brief_verdict);
    }
    fputs("\nRows (a) to (d) give the smallest card on which everything trains: without gpucap from the best "
          "to the worst way, in (b) for arenas only; `<=`: no smaller card was tried. Row (e) gives the "
          "largest batch, (f) the throughput of the best way (median of its runs), (g) how many train.\n"
          "Ways without gpucap: naive (`cudaMalloc` and `cudaFree`), cache (a caching allocator like "
          "PyTorch's), async (`cudaMallocAsync`), arena (one large block). After `slower:` come ways that "
          "train on as small a card but take longer; `...` stands for others.\n",
          out);
    say_skipped(out, results, count);
    if (origin->simulated)
        fprintf(out, "%s\n", simulated_note);
    say_busy(out, origin);
    fprintf(out, "[All ways on all cards](docs/benchmarks.md), [pictures](docs/scenarios-%s.svg).\n",
            origin->slug);
    return fclose(out) ? NULL : text;
}

/* ---- files ---- */

char *docs_read(const char *path)
{
    char *text = malloc(FILE_BYTES_MAX);
    FILE *file = fopen(path, "re");
    size_t length = 0;

    if (!text || !file) {
        free(text);
        text = NULL;
    } else {
        length = fread(text, 1, FILE_BYTES_MAX - 1, file);
        text[length] = '\0';
    }
    if (file)
        fclose(file);
    return text;
}

static int write_whole(const char *path, const char *text)
{
    char fresh[PATH_MAX];
    const int length = snprintf(fresh, sizeof(fresh), "%s.new", path);
    FILE *file = length > 0 && (size_t)length < sizeof(fresh) ? fopen(fresh, "we") : NULL;

    bool good = file && fputs(text, file) >= 0;
    if (file && fclose(file))
        good = false;
    if (good && rename(fresh, path) == 0)
        return 0;
    fprintf(stderr, "scenarios: %s cannot be written: %s\n", path, strerror(errno));
    unlink(fresh);
    return -1;
}

/* Takes text and gives the new one, or the old one after a message. */
static char *put_section(char *text, const char *key, char *section, bool append)
{
    char *fresh = section ? docs_replace(text, key, section, append) : NULL;

    free(section);
    if (!fresh)
        return text;
    free(text);
    return fresh;
}

static int write_readme(const char *root, const struct docs_origin *origin,
                        const struct scenario_result *results, unsigned count)
{
    char path[PATH_MAX], key[96];

    snprintf(path, sizeof(path), "%s/README.md", root);
    snprintf(key, sizeof(key), "scenarios %s", origin->slug);
    char *text = docs_read(path);
    if (!text) {
        fprintf(stderr, "scenarios: %s cannot be read: %s\n", path, strerror(errno));
        return -1;
    }
    text = put_section(text, key, docs_summary(origin, results, count), false);
    int error = write_whole(path, text);
    free(text);
    snprintf(path, sizeof(path), "%s/docs/scenarios-%s.svg", root, origin->slug);
    return error ? error : docs_plot(path, origin, results, count);
}

int docs_write(const char *root, const struct docs_origin *origin, const struct scenario_result *results,
               unsigned count)
{
    char path[PATH_MAX], key[96];

    snprintf(path, sizeof(path), "%s/docs/benchmarks.md", root);
    char *text = docs_read(path);
    if (!text)
        text = strdup(intro);
    if (!text)
        return -1;
    for (unsigned i = 0; i < count; i++) {
        if (results[i].skipped[0])
            continue;
        snprintf(key, sizeof(key), "scenario %c %s", results[i].letter, origin->slug);
        text = put_section(text, key, section_of(origin, &results[i]), true);
    }
    const int error = write_whole(path, text);
    free(text);
    return error || count < 2 ? error : write_readme(root, origin, results, count);
}

/* ---- the picture ---- */

enum {
    WIDTH = 1180,
    LEFT = 230, /* labels of the rows */
    RIGHT = 10,
    TOP = 56,
    TITLE = 72, /* title of a result, and headings of its panels */
    ROW = 22,
    FOOT = 40, /* scale, and a gap */
    GAP = 14,  /* between panels */
    NOTE = 68, /* behind a bar */
    PANEL_MOST = 420,
};

static void draw_legend(struct plot *plot)
{
    static const struct {
        const char *name;
        unsigned colour;
    } entries[] = {{"under gpucap", COLOUR_GPUCAP}, {"without gpucap", COLOUR_NATIVE}};
    double x = 10;

    for (unsigned i = 0; i < sizeof(entries) / sizeof(*entries); i++, x += 130) {
        plot_rect(plot, x, 31, 12, 12, plot_colour(entries[i].colour));
        plot_text(plot, x + 18, 41, "start", entries[i].name);
    }
}

static void draw_panel(struct plot *plot, const struct scenario_result *result, unsigned number,
                       struct plot_frame *frame)
{
    const struct scenario_panel *panel = &result->panels[number];
    struct plot_bar bars[SCENARIO_ROWS];

    for (unsigned i = 0; i < result->rows; i++)
        bars[i] = (struct plot_bar){number == 0 ? result->row[i] : NULL, panel->value[i], panel->note[i],
                                    result->colour[i]};
    plot_text(plot, frame->left, frame->top - (panel->where[0] ? 37 : 22), "start", panel->title);
    plot_text(plot, frame->left, frame->top - 22, "start", panel->where);
    plot_remark(plot, frame->left, frame->top - 8, "start",
                panel->more ? "higher is better" : "lower is better");
    plot_bars(plot, frame, bars, result->rows);
}

/* Returns the largest value of the panels that share the scale of this one. */
static double end_of_scale(const struct scenario_result *result, unsigned number)
{
    unsigned first = number, last = number;
    double end = 0;

    while (first > 0 && result->panels[first].shared)
        first--;
    while (last + 1 < result->panel_count && result->panels[last + 1].shared)
        last++;
    for (unsigned i = first; i <= last; i++) {
        for (unsigned row = 0; row < result->rows; row++)
            end = fmax(end, result->panels[i].value[row]);
    }
    return end;
}

static double draw_result(struct plot *plot, const struct scenario_result *result, double top)
{
    const unsigned count = result->panel_count ? result->panel_count : 1;
    const double each = (double)(WIDTH - LEFT - RIGHT) / count;
    const double width = (each < PANEL_MOST ? each : PANEL_MOST) - GAP;
    char title[160];

    snprintf(title, sizeof(title), "(%c) %s", result->letter, result->title);
    plot_heading(plot, 10, top + 14, title);
    for (unsigned i = 0; i < result->panel_count; i++) {
        struct plot_frame frame = {.left = LEFT + i * (width + GAP),
                                   .top = top + TITLE,
                                   .width = width,
                                   .height = (double)ROW * result->rows,
                                   .x_end = end_of_scale(result, i),
                                   .note = NOTE,
                                   .scale = true};

        draw_panel(plot, result, i, &frame);
    }
    return top + TITLE + (double)ROW * result->rows + FOOT;
}

int docs_plot(const char *path, const struct docs_origin *origin, const struct scenario_result *results,
              unsigned count)
{
    unsigned height = TOP;
    struct plot plot;
    char title[512];

    for (unsigned i = 0; i < count; i++)
        height += results[i].rows ? TITLE + ROW * results[i].rows + FOOT : 0;
    int error = plot_open(&plot, path, WIDTH, height);
    if (!error) {
        double top = TOP;

        snprintf(title, sizeof(title), "%s, %s, %s%s", origin->device, origin->date, origin->command,
                 origin->simulated ? " (times of a simulated device)" : "");
        plot_text(&plot, 10, 20, "start", title);
        draw_legend(&plot);
        for (unsigned i = 0; i < count; i++)
            if (results[i].rows)
                top = draw_result(&plot, &results[i], top);
        error = plot_close(&plot);
    }
    if (error)
        fprintf(stderr, "scenarios: %s cannot be written: %s\n", path, strerror(-error));
    return error ? -1 : 0;
}
