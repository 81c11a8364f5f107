/* The option table and its parser. Values are checked against the range in the table before anything else
 * runs, so that later code may multiply sizes without fear. Accepts --name=value and --name value. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum option_type { OPTION_FLAG, OPTION_COUNT, OPTION_REAL, OPTION_TEXT, OPTION_CHOICE, OPTION_LIST };

struct option_entry {
    const char *name;
    enum option_type type;
    size_t offset;
    const char *value_name; /* for the help; a choice lists its values here, in the order of its enum */
    const char *initial;    /* parsed like an argument; NULL is zero */
    double min, max;
    const char *help;
};

#define AT(field) offsetof(struct options, field)

/* Limits: sizes of one tensor stay below 2^40 bytes and every dimension below 2^31. */
static const struct option_entry table[] = {
    {"steps", OPTION_COUNT, AT(steps), "N", "100", 1, 1e9, "training steps"},
    {"batch", OPTION_COUNT, AT(batch), "N", "64", 1, 1 << 20, "samples per step"},
    {"hidden", OPTION_LIST, AT(hidden), "N[,N...]", "256", 1, 1 << 16,
     "widths of the hidden layers, at most 8"},
    {"seed", OPTION_COUNT, AT(seed), "N", "1", 0, 1e15, "start of every random number"},
    {"rate", OPTION_REAL, AT(rate), "R", "0.01", 0, 10, "learning rate"},
    {"momentum", OPTION_REAL, AT(momentum), "R", "0.9", 0, 1, "momentum of the optimizer"},
    {"alloc", OPTION_CHOICE, AT(alloc), "naive|arena|static", "naive", 0, 0,
     "memory: malloc and free each step, one large block taken at start, or everything once"},
    {"fraction", OPTION_REAL, AT(fraction), "R", "0.9", 0.01, 1,
     "share of the free memory that the arena takes"},
    {"data", OPTION_TEXT, AT(data), "DIR", NULL, 0, 0,
     "folder with train-images-idx3-ubyte and train-labels-idx1-ubyte (default: synthetic)"},
    {"device", OPTION_COUNT, AT(device), "N", "0", 0, 1023, "CUDA device"},
    {"quiet", OPTION_FLAG, AT(quiet), NULL, NULL, 0, 0, "no progress on stderr"},
    {"help", OPTION_FLAG, AT(help), NULL, NULL, 0, 0, "this text"},
};

enum { TABLE_SIZE = sizeof(table) / sizeof(table[0]) };

static const struct option_entry *find(const char *name, size_t length)
{
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        if (strlen(table[i].name) == length && strncmp(table[i].name, name, length) == 0)
            return &table[i];
    }
    return NULL;
}

/* A whole decimal number in range that ends at *end; strtoull alone would take "-1" and " 1". */
static bool parse_count(const struct option_entry *entry, const char *text, char **end, uint64_t *out)
{
    unsigned long long value;

    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    value = strtoull(text, end, 10);
    if (errno || (double)value < entry->min || (double)value > entry->max)
        return false;
    *out = value;
    return true;
}

static bool parse_real(const struct option_entry *entry, const char *text, double *out)
{
    char *end;
    double value;

    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return false;
    value = strtod(text, &end);
    if (*end || !isfinite(value) || value < entry->min || value > entry->max)
        return false;
    *out = value;
    return true;
}

static bool parse_list(const struct option_entry *entry, const char *text, struct option_list *out)
{
    char *end;

    out->count = 0;
    for (;;) {
        if (out->count == OPTIONS_MAX_HIDDEN || !parse_count(entry, text, &end, &out->item[out->count]))
            return false;
        out->count++;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
}

/* The n-th name of "a|b|c", and its length. */
static const char *choice_name(const char *names, uint64_t n, size_t *length)
{
    while (n-- > 0 && names)
        names = strchr(names, '|') ? strchr(names, '|') + 1 : NULL;
    *length = names ? strcspn(names, "|") : 0;
    return names;
}

static bool parse_choice(const struct option_entry *entry, const char *text, uint64_t *out)
{
    const char *name;
    size_t length;

    for (uint64_t n = 0; (name = choice_name(entry->value_name, n, &length)); n++) {
        if (strlen(text) == length && strncmp(text, name, length) == 0) {
            *out = n;
            return true;
        }
    }
    return false;
}

static bool parse_value(struct options *options, const struct option_entry *entry, const char *text)
{
    void *field = (char *)options + entry->offset;
    char *end = NULL;

    switch (entry->type) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return true;
    case OPTION_COUNT:
        return parse_count(entry, text, &end, field) && *end == '\0';
    case OPTION_REAL:
        return parse_real(entry, text, field);
    case OPTION_TEXT:
        *(const char **)field = text;
        return text[0] != '\0';
    case OPTION_CHOICE:
        return parse_choice(entry, text, field);
    case OPTION_LIST:
        return parse_list(entry, text, field);
    }
    return false;
}

static enum status refuse(const struct option_entry *entry, const char *text)
{
    if (entry->max > 0)
        return status_fail(STATUS_FAILED, "--%s=%s: expected %s from %.10g to %.10g", entry->name, text,
                           entry->value_name, entry->min, entry->max);
    return status_fail(STATUS_FAILED, "--%s=%s: expected %s", entry->name, text, entry->value_name);
}

/* Takes argv[*at], and the next one if the value stands there. */
static enum status parse_argument(struct options *options, int argc, char **argv, int *at)
{
    const char *argument = argv[*at];
    const struct option_entry *entry;
    const char *text;
    size_t length;

    if (strncmp(argument, "--", 2) != 0)
        return status_fail(STATUS_FAILED, "unexpected argument '%s' (see --help)", argument);
    argument += 2;
    length = strcspn(argument, "=");
    entry = find(argument, length);
    if (!entry)
        return status_fail(STATUS_FAILED, "unknown option '--%.*s' (see --help)", (int)length, argument);
    text = argument[length] == '=' ? argument + length + 1 : NULL;
    if (entry->type == OPTION_FLAG && text)
        return status_fail(STATUS_FAILED, "--%s takes no value", entry->name);
    if (entry->type != OPTION_FLAG && !text) {
        if (*at + 1 >= argc)
            return status_fail(STATUS_FAILED, "--%s needs a value: %s", entry->name, entry->value_name);
        text = argv[++*at];
    }
    return parse_value(options, entry, text) ? STATUS_OK : refuse(entry, text);
}

enum status options_parse(struct options *options, int argc, char **argv)
{
    enum status status = STATUS_OK;

    memset(options, 0, sizeof(*options));
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        if (table[i].initial)
            parse_value(options, &table[i], table[i].initial);
    }
    for (int at = 1; at < argc && !status; at++)
        status = parse_argument(options, argc, argv, &at);
    return status;
}

void options_print_help(FILE *out)
{
    enum { NAME_WIDTH = 30 };

    fputs("Usage: train [option]...\n"
          "Trains a small network on the CUDA device, or on simgpu under `gpucap run --sim`.\n"
          "Prints progress on stderr and one line of key=value results on stdout.\n"
          "Exit status: 0 done, 1 bad option, data or device, 2 out of memory.\n\nOptions:\n",
          out);
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        const struct option_entry *entry = &table[i];
        int width = entry->value_name ? fprintf(out, "  --%s=%s", entry->name, entry->value_name)
                                      : fprintf(out, "  --%s", entry->name);

        fprintf(out, "%*s%s", width < NAME_WIDTH ? NAME_WIDTH - width : 1, "", entry->help);
        if (entry->initial)
            fprintf(out, " [%s]", entry->initial);
        fputc('\n', out);
    }
}

const char *options_alloc_name(enum alloc_mode mode, int *length)
{
    const char *option = "alloc";
    size_t size;
    const char *name = choice_name(find(option, strlen(option))->value_name, mode, &size);

    *length = (int)size;
    return name;
}
