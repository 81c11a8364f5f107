/* scenario_results: writes results as lines and reads them again. See scenario_results.h. */
#include "harness/scenario/scenario_results.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char first_line[] = "gpucap-scenarios 1";

enum { LINE_MAX_BYTES = TABLE_COLUMNS * TABLE_CELL + 64, PARTS = TABLE_COLUMNS };

/* ---- writing ---- */

/* A tab or the end of a line inside a text would be read as one of the format's. */
static void put_text(FILE *out, const char *text)
{
    for (; *text; text++)
        fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
}

static void put_line(FILE *out, const char *key, const char *text)
{
    fprintf(out, "%s ", key);
    put_text(out, text);
    fputc('\n', out);
}

static void put_cells(FILE *out, const char *key, const char (*cells)[TABLE_CELL], unsigned count)
{
    fprintf(out, "%s ", key);
    for (unsigned i = 0; i < count; i++) {
        if (i)
            fputc('\t', out);
        put_text(out, cells[i]);
    }
    fputc('\n', out);
}

static void put_picture(FILE *out, const struct scenario_result *result)
{
    for (unsigned i = 0; i < result->panel_count; i++) {
        const struct scenario_panel *panel = &result->panels[i];

        fprintf(out, "panel %d\t%d\t", panel->more, panel->shared);
        put_text(out, panel->title);
        fputc('\t', out);
        put_text(out, panel->where);
        fputc('\n', out);
    }
    for (unsigned row = 0; row < result->rows; row++) {
        fprintf(out, "row %u\t", result->colour[row]);
        put_text(out, result->row[row]);
        fputc('\n', out);
        for (unsigned i = 0; i < result->panel_count; i++) {
            fprintf(out, "bar %u\t%.9g\t", i, result->panels[i].value[row]);
            put_text(out, result->panels[i].note[row]);
            fputc('\n', out);
        }
    }
}

static void put_result(FILE *out, const struct scenario_result *result)
{
    fprintf(out, "scenario %c\nseconds %.3f\n", result->letter, result->seconds);
    put_line(out, "skipped", result->skipped);
    put_line(out, "native", result->native);
    put_line(out, "gpucap", result->gpucap);
    put_line(out, "verdict", result->verdict);
    put_line(out, "brief_native", result->brief_native);
    put_line(out, "brief_gpucap", result->brief_gpucap);
    put_line(out, "brief_verdict", result->brief_verdict);
    for (unsigned i = 0; i < result->notes; i++)
        put_line(out, "note", result->note[i]);
    put_cells(out, "heads", result->table.head, result->table.columns);
    for (unsigned i = 0; i < result->table.rows; i++)
        put_cells(out, "cells", result->table.cell[i], result->table.columns);
    put_picture(out, result);
}

/* Opens a file beside `path`, whose name it writes. Sets errno. */
static FILE *open_fresh(const char *path, char fresh[PATH_MAX])
{
    const int length = snprintf(fresh, PATH_MAX, "%s.new", path);

    errno = ENAMETOOLONG;
    return length < 0 || length >= PATH_MAX ? NULL : fopen(fresh, "we");
}

int results_can_save(const char *path)
{
    char fresh[PATH_MAX];
    struct stat info;

    if (!stat(path, &info) && S_ISDIR(info.st_mode))
        return -EISDIR;
    FILE *out = open_fresh(path, fresh);
    if (!out)
        return -errno;
    fclose(out);
    unlink(fresh);
    return 0;
}

int results_save(const char *path, const struct docs_origin *origin, const struct scenario_result *results,
                 unsigned count)
{
    char fresh[PATH_MAX];
    FILE *out = open_fresh(path, fresh);

    if (!out)
        return -errno;
    fprintf(out, "%s\n", first_line);
    put_line(out, "device", origin->device);
    put_line(out, "slug", origin->slug);
    put_line(out, "machine", origin->machine);
    put_line(out, "date", origin->date);
    put_line(out, "command", origin->command);
    fprintf(out, "busy %.2f\nsimulated %d\n", origin->busy, origin->simulated);
    for (unsigned i = 0; i < count; i++)
        put_result(out, &results[i]);
    int error = ferror(out) ? -EIO : 0;
    if (fclose(out))
        error = -errno;
    if (!error && rename(fresh, path))
        error = -errno;
    if (error)
        unlink(fresh);
    return error;
}

/* ---- reading ---- */

struct reader {
    struct docs_origin *origin;
    struct scenario_result *results;
    unsigned most, count;
};

/* Splits a line at its tabs, in place. */
static unsigned split(char *line, char *parts[PARTS])
{
    unsigned count = 0;

    for (char *next = line; next && count < PARTS; count++) {
        parts[count] = next;
        next = strchr(next, '\t');
        if (next)
            *next++ = '\0';
    }
    return count;
}

static bool read_number(const char *text, double least, double most, double *value)
{
    char *end;

    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value) && *value >= least && *value <= most;
}

struct text_field {
    const char *key;
    char *to;
    size_t size;
};

static bool set_text(const struct text_field *fields, size_t count, const char *key, const char *value)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].key, key) == 0) {
            snprintf(fields[i].to, fields[i].size, "%s", value);
            return true;
        }
    }
    return false;
}

/* The slug becomes part of a file's name. */
static bool is_slug(const char *slug)
{
    return *slug && strspn(slug, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(slug);
}

static bool read_origin(struct docs_origin *origin, const char *key, const char *value)
{
    const struct text_field fields[] = {{"device", origin->device, sizeof(origin->device)},
                                        {"slug", origin->slug, sizeof(origin->slug)},
                                        {"machine", origin->machine, sizeof(origin->machine)},
                                        {"date", origin->date, sizeof(origin->date)},
                                        {"command", origin->command, sizeof(origin->command)}};
    double number;

    if (set_text(fields, sizeof(fields) / sizeof(*fields), key, value))
        return strcmp(key, "slug") != 0 || is_slug(value);
    if (strcmp(key, "busy") == 0)
        return read_number(value, 0, 1e6, &origin->busy);
    if (strcmp(key, "simulated") != 0 || !read_number(value, 0, 1, &number))
        return false;
    origin->simulated = number > 0;
    return true;
}

static bool read_panel(struct scenario_result *result, char **parts, unsigned count)
{
    double more, shared;

    if (count != 4 || result->panel_count == SCENARIO_PANELS || !read_number(parts[0], 0, 1, &more) ||
        !read_number(parts[1], 0, 1, &shared))
        return false;
    struct scenario_panel *panel = &result->panels[scenario_panel(result, more > 0, "%s", parts[2])];
    panel->shared = shared > 0;
    snprintf(panel->where, sizeof(panel->where), "%s", parts[3]);
    return true;
}

static bool read_row(struct scenario_result *result, char **parts, unsigned count)
{
    double colour;

    if (count != 2 || result->rows == SCENARIO_ROWS ||
        !read_number(parts[0], COLOUR_GPUCAP, COLOUR_NATIVE, &colour))
        return false;
    scenario_row(result, parts[1], (unsigned)colour);
    return true;
}

static bool read_bar(struct scenario_result *result, char **parts, unsigned count)
{
    double panel, value;

    if (count != 3 || result->rows == 0 || !read_number(parts[0], 0, SCENARIO_PANELS, &panel) ||
        (unsigned)panel >= result->panel_count || !read_number(parts[1], 0, 1e18, &value))
        return false;
    scenario_bar(result, (unsigned)panel, value, "%s", parts[2]);
    return true;
}

static bool read_cells(struct scenario_result *result, char **parts, unsigned count)
{
    if (result->table.rows == TABLE_ROWS || count != result->table.columns)
        return false;
    table_row(&result->table, "%s", parts[0]);
    for (unsigned i = 1; i < count; i++)
        table_set(&result->table, i, "%s", parts[i]);
    return true;
}

static bool read_heads(struct scenario_result *result, char **parts, unsigned count)
{
    if (result->table.columns)
        return false;
    for (unsigned i = 0; i < count; i++)
        snprintf(result->table.head[i], TABLE_CELL, "%s", parts[i]);
    result->table.columns = count;
    return true;
}

static bool read_parts(struct scenario_result *result, const char *key, char *value)
{
    static const struct {
        const char *key;
        bool (*read)(struct scenario_result *result, char **parts, unsigned count);
    } kinds[] = {{"panel", read_panel},
                 {"row", read_row},
                 {"bar", read_bar},
                 {"heads", read_heads},
                 {"cells", read_cells}};
    char *parts[PARTS];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (strcmp(kinds[i].key, key) == 0)
            return kinds[i].read(result, parts, split(value, parts));
    }
    return false;
}

static bool read_result(struct scenario_result *result, const char *key, char *value)
{
    const struct text_field fields[] = {
        {"skipped", result->skipped, sizeof(result->skipped)},
        {"native", result->native, sizeof(result->native)},
        {"gpucap", result->gpucap, sizeof(result->gpucap)},
        {"verdict", result->verdict, sizeof(result->verdict)},
        {"brief_native", result->brief_native, sizeof(result->brief_native)},
        {"brief_gpucap", result->brief_gpucap, sizeof(result->brief_gpucap)},
        {"brief_verdict", result->brief_verdict, sizeof(result->brief_verdict)}};

    if (strcmp(key, "seconds") == 0)
        return read_number(value, 0, 1e9, &result->seconds);
    if (strcmp(key, "note") == 0) {
        scenario_note(result, "%s", value);
        return true;
    }
    return set_text(fields, sizeof(fields) / sizeof(*fields), key, value) || read_parts(result, key, value);
}

static bool read_line(struct reader *reader, char *line)
{
    char *value = strchr(line, ' ');

    if (!value)
        return false;
    *value++ = '\0';
    if (strcmp(line, "scenario") == 0) {
        if (reader->count == reader->most || *value < 'a' || *value > 'z' || value[1])
            return false;
        reader->results[reader->count++] = (struct scenario_result){.letter = *value};
        return true;
    }
    if (reader->count == 0)
        return read_origin(reader->origin, line, value);
    return read_result(&reader->results[reader->count - 1], line, value);
}

int results_parse(const char *text, struct docs_origin *origin, struct scenario_result *results,
                  unsigned most, unsigned *count, unsigned *line)
{
    struct reader reader = {.origin = origin, .results = results, .most = most};
    char copy[LINE_MAX_BYTES];

    memset(origin, 0, sizeof(*origin));
    *count = 0;
    *line = 1;
    for (; *text; ++*line) {
        const size_t length = strcspn(text, "\n");
        const size_t taken = length < sizeof(copy) - 1 ? length : sizeof(copy) - 1;

        memcpy(copy, text, taken);
        copy[taken] = '\0';
        if (*line == 1 ? strcmp(copy, first_line) != 0 : !read_line(&reader, copy))
            return -EINVAL;
        text += length + (text[length] == '\n');
    }
    *count = reader.count;
    return *line > 1 && is_slug(origin->slug) ? 0 : -EINVAL;
}
