/* bench_docs: puts the lines of a benchmark into docs/benchmarks.md.
 *
 *     build/bench_replay TRACE... | build/bench_docs --key=replay --title=... --command=... FILE
 *
 * Reads lines of key=value from its input and writes them as a table, one line per row, between the marks of
 * the key in FILE (docs/benchmarks.md), in place of what was there. With --pivot=NAME the values of that key
 * become columns, each with the --value of its line. Other lines are ignored. Writes a new file beside the
 * old one and renames it. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/scenario/scenario_docs.h"

enum { LINES_MAX = 4096, PAIRS_MAX = 24, COLUMNS_MAX = 24 };

struct pair {
    const char *name, *value;
};

struct line {
    struct pair pairs[PAIRS_MAX];
    unsigned count;
};

static struct line lines[LINES_MAX];
static unsigned line_count;
static const char *pivot, *value_name;

/* Takes a line apart; words without "=" are left out. */
static void add_line(char *text)
{
    struct line *line = &lines[line_count];
    char *rest = NULL;

    line->count = 0;
    for (char *word = strtok_r(text, " \t\n", &rest); word && line->count < PAIRS_MAX;
         word = strtok_r(NULL, " \t\n", &rest)) {
        char *equals = strchr(word, '=');

        if (!equals || equals == word)
            continue;
        *equals = '\0';
        line->pairs[line->count++] = (struct pair){strdup(word), strdup(equals + 1)};
    }
    line_count += line->count > 1 && line_count + 1 < LINES_MAX;
}

static const char *find(const struct line *line, const char *name)
{
    for (unsigned i = 0; i < line->count; i++) {
        if (!strcmp(line->pairs[i].name, name))
            return line->pairs[i].value;
    }
    return NULL;
}

static bool is_key(const char *name)
{
    return !pivot || (strcmp(name, pivot) && strcmp(name, value_name));
}

/* Two lines of one row: all but the pivot and the value are the same. */
static bool same_row(const struct line *a, const struct line *b)
{
    if (a->count != b->count)
        return false;
    for (unsigned i = 0; i < a->count; i++) {
        if (strcmp(a->pairs[i].name, b->pairs[i].name) ||
            (is_key(a->pairs[i].name) && strcmp(a->pairs[i].value, b->pairs[i].value)))
            return false;
    }
    return true;
}

static bool same_shape(const struct line *a, const struct line *b)
{
    bool same = a->count == b->count;

    for (unsigned i = 0; same && i < a->count; i++)
        same = !strcmp(a->pairs[i].name, b->pairs[i].name);
    return same;
}

static unsigned pivot_columns(const char **columns)
{
    unsigned count = 0;

    for (unsigned i = 0; pivot && i < line_count; i++) {
        const char *value = find(&lines[i], pivot);
        unsigned at = 0;

        while (value && at < count && strcmp(columns[at], value))
            at++;
        if (value && at == count && count < COLUMNS_MAX)
            columns[count++] = value;
    }
    return count;
}

static void print_head(FILE *out, const struct line *line, const char *const *columns, unsigned count)
{
    unsigned cells = 0;

    fputs("\n|", out);
    for (unsigned i = 0; i < line->count; i++) {
        if (is_key(line->pairs[i].name) && ++cells)
            fprintf(out, " %s |", line->pairs[i].name);
    }
    for (unsigned i = 0; i < count; i++, cells++)
        fprintf(out, " %s %s |", columns[i], value_name);
    fputs("\n|", out);
    while (cells--)
        fputs("---|", out);
    fputc('\n', out);
}

static void print_row(FILE *out, unsigned from, const char *const *columns, unsigned count)
{
    const struct line *line = &lines[from];

    fputc('|', out);
    for (unsigned i = 0; i < line->count; i++) {
        if (is_key(line->pairs[i].name))
            fprintf(out, " %s |", line->pairs[i].value);
    }
    for (unsigned c = 0; c < count; c++) {
        const char *value = "-";

        for (unsigned i = from; i < line_count; i++) {
            const char *column = same_row(line, &lines[i]) ? find(&lines[i], pivot) : NULL;

            if (column && !strcmp(column, columns[c]))
                value = find(&lines[i], value_name);
        }
        fprintf(out, " %s |", value ? value : "-");
    }
    fputc('\n', out);
}

static void print_tables(FILE *out)
{
    const char *columns[COLUMNS_MAX];
    const unsigned count = pivot_columns(columns);

    for (unsigned i = 0; i < line_count; i++) {
        bool seen = false;

        for (unsigned j = 0; pivot && j < i && !seen; j++)
            seen = same_row(&lines[j], &lines[i]);
        if (i == 0 || !same_shape(&lines[i - 1], &lines[i]))
            print_head(out, &lines[i], columns, count);
        if (!seen)
            print_row(out, i, columns, count);
    }
}

static char *read_file(const char *path)
{
    FILE *in = fopen(path, "r");
    struct stat stat;
    char *text = NULL;

    if (in && fstat(fileno(in), &stat) == 0 && (text = calloc(1, (size_t)stat.st_size + 1)) != NULL &&
        fread(text, 1, (size_t)stat.st_size, in) != (size_t)stat.st_size) {
        free(text);
        text = NULL;
    }
    if (in)
        fclose(in);
    return text;
}

static int write_file(const char *path, const char *text)
{
    char fresh[4096];

    if ((size_t)snprintf(fresh, sizeof(fresh), "%s.new", path) >= sizeof(fresh))
        return -1;
    FILE *out = fopen(fresh, "w");
    if (!out)
        return -1;
    const bool wrong = fputs(text, out) == EOF;
    if (fclose(out) || wrong || rename(fresh, path)) {
        unlink(fresh);
        return -1;
    }
    return 0;
}

static const struct option options[] = {
    {"key", required_argument, NULL, 'k'},     {"title", required_argument, NULL, 't'},
    {"command", required_argument, NULL, 'c'}, {"device", required_argument, NULL, 'd'},
    {"pivot", required_argument, NULL, 'p'},   {"value", required_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
};

static int usage(FILE *out)
{
    fputs("usage: bench_docs --key=KEY --title=TEXT --command=TEXT --device=TEXT [--pivot=NAME --value=NAME] "
          "FILE "
          "<LINES\n",
          out);
    return out == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    const char *key = NULL, *title = NULL, *command = NULL, *device = NULL;
    char *text = NULL, *section = NULL, date[32];
    size_t size = 0, section_size;
    const time_t now = time(NULL);
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'k':
            key = optarg;
            break;
        case 't':
            title = optarg;
            break;
        case 'c':
            command = optarg;
            break;
        case 'd':
            device = optarg;
            break;
        case 'p':
            pivot = optarg;
            break;
        case 'v':
            value_name = optarg;
            break;
        default:
            return usage(c == 'h' ? stdout : stderr);
        }
    }
    if (!key || !title || !command || !device || !pivot != !value_name || optind + 1 != argc)
        return usage(stderr);
    while (getline(&text, &size, stdin) != -1)
        add_line(text);
    free(text);
    if (!line_count) {
        fputs("bench_docs: no line of key=value in the input; nothing is written\n", stderr);
        return 1;
    }
    strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", gmtime(&now));
    FILE *out = open_memstream(&section, &section_size);
    if (!out)
        return 1;
    fprintf(out, "## %s\n", title);
    print_tables(out);
    fprintf(out, "\n`%s`, %s, on %s.\n", command, date, device);
    fclose(out);
    char *old = read_file(argv[optind]);
    char *whole = old ? docs_replace(old, key, section, true) : NULL;
    if (!whole || write_file(argv[optind], whole)) {
        fprintf(stderr, "bench_docs: %s: %s\n", argv[optind], strerror(errno));
        return 1;
    }
    free(section);
    free(old);
    free(whole);
    return 0;
}
