/* The parser of the option table. Checks every value against its range in the table, so that later code can
 * multiply sizes without overflow. Accepts --name=value and --name value. */
#include "harness/base/train_options_table.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gpucap/manual.h"

static const struct option_entry *find(const char *name, size_t length)
{
    for (size_t i = 0; i < train_options_table_size; i++) {
        if (strlen(train_options_table[i].name) == length &&
            strncmp(train_options_table[i].name, name, length) == 0)
            return &train_options_table[i];
    }
    return NULL;
}

/* Reads a decimal integer and sets *end behind it. strtoull alone would accept "-1" and " 1". */
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

/* The same with a binary unit: 512M. */
static bool parse_size(const struct option_entry *entry, const char *text, uint64_t *out)
{
    const char *const units = "KMGT";
    const struct option_entry any = {.max = entry->max};
    const char *unit;
    char *end;
    double scaled;

    if (!parse_count(&any, text, &end, out))
        return false;
    unit = *end ? strchr(units, *end) : NULL;
    if (*end && (!unit || end[1]))
        return false;
    scaled = unit ? ldexp((double)*out, 10 * (int)(unit - units + 1)) : (double)*out;
    if (scaled < entry->min || scaled > entry->max)
        return false;
    *out = (uint64_t)scaled;
    return true;
}

/* strtod alone would accept "nan" and "0x10". */
static bool parse_real(const struct option_entry *entry, const char *text, double *out)
{
    char *end;
    double value;

    if ((!isdigit((unsigned char)text[0]) && text[0] != '.') || strpbrk(text, "xX"))
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
        if (out->count == TRAIN_OPTIONS_MAX_HIDDEN || !parse_count(entry, text, &end, &out->item[out->count]))
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

/* "A,B", or "A" and the argument after it. */
static bool parse_pair(const char *text, const char *second, struct option_pair *out)
{
    const struct option_entry *models = find("model", strlen("model"));
    char first[64];
    size_t length = strcspn(text, ",");

    if (length >= sizeof(first))
        return false;
    memcpy(first, text, length);
    first[length] = '\0';
    second = text[length] == ',' ? text + length + 1 : second;
    out->given = true;
    return second && parse_choice(models, first, &out->model[0]) &&
           parse_choice(models, second, &out->model[1]);
}

static bool parse_value(struct train_options *options, const struct option_entry *entry, const char *text)
{
    void *field = (char *)options + entry->offset;
    char *end = NULL;

    switch (entry->type) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return true;
    case OPTION_COUNT:
        return parse_count(entry, text, &end, field) && *end == '\0';
    case OPTION_SIZE:
        return parse_size(entry, text, field);
    case OPTION_REAL:
        return parse_real(entry, text, field);
    case OPTION_TEXT:
        *(const char **)field = text;
        return text[0] != '\0';
    case OPTION_CHOICE:
        return parse_choice(entry, text, field);
    case OPTION_LIST:
        return parse_list(entry, text, field);
    case OPTION_PAIR:
        break; /* two arguments: take_pair */
    }
    return false;
}

static enum status take_pair(struct train_options *options, const struct option_entry *entry, int argc,
                             char **argv, int *at, const char *text)
{
    struct option_pair *field = (void *)((char *)options + entry->offset);
    bool joined = strchr(text, ',') != NULL;
    const char *second = !joined && *at + 1 < argc ? argv[++*at] : NULL;

    if (parse_pair(text, second, field))
        return STATUS_OK;
    return status_fail(STATUS_USAGE, "--%s %s%s%s: expected two models (see --model in --help)", entry->name,
                       text, second ? " " : "", second ? second : "");
}

static enum status refuse(const struct option_entry *entry, const char *text)
{
    const char *more = entry->type == OPTION_SIZE   ? " bytes, such as 512M or 8G"
                       : entry->type == OPTION_LIST ? ", at most 8 of them"
                                                    : "";

    if (entry->max > 0)
        return status_fail(STATUS_USAGE, "--%s=%s: expected %s from %.10g to %.10g%s", entry->name, text,
                           entry->value_name, entry->min, entry->max, more);
    return status_fail(STATUS_USAGE, "--%s=%s: expected %s", entry->name, text, entry->value_name);
}

/* Parses argv[*at], and the next argument if that is its value. */
static enum status parse_argument(struct train_options *options, int argc, char **argv, int *at)
{
    const char *argument = argv[*at];
    const struct option_entry *entry;
    const char *text;
    size_t length;

    if (strncmp(argument, "--", 2) != 0)
        return status_fail(STATUS_USAGE, "unexpected argument '%s' (see --help)", argument);
    argument += 2;
    length = strcspn(argument, "=");
    entry = find(argument, length);
    if (!entry)
        return status_fail(STATUS_USAGE, "unknown option '--%.*s' (see --help)", (int)length, argument);
    text = argument[length] == '=' ? argument + length + 1 : NULL;
    if (entry->type == OPTION_FLAG && text)
        return status_fail(STATUS_USAGE, "--%s takes no value", entry->name);
    if (entry->type != OPTION_FLAG && !text) {
        if (*at + 1 >= argc)
            return status_fail(STATUS_USAGE, "--%s needs a value: %s", entry->name, entry->value_name);
        text = argv[++*at];
    }
    if (entry->type == OPTION_PAIR)
        return take_pair(options, entry, argc, argv, at, text);
    return parse_value(options, entry, text) ? STATUS_OK : refuse(entry, text);
}

enum status train_options_parse(struct train_options *options, int argc, char **argv)
{
    enum status status = STATUS_OK;

    memset(options, 0, sizeof(*options));
    for (size_t i = 0; i < train_options_table_size; i++) {
        if (train_options_table[i].initial)
            parse_value(options, &train_options_table[i], train_options_table[i].initial);
    }
    for (int at = 1; at < argc && !status; at++)
        status = parse_argument(options, argc, argv, &at);
    return status;
}

#define HELP_COLUMN 26 /* of what an option does */

static const char description[] =
    "Trains a model on the CUDA device, or on simgpu under `gpucap run --sim`.\n"
    "Prints progress on stderr and one line of key=value results on stdout.\n";
static const char exit_status[] = "0 done, 1 bad data or device or a failure, 2 bad option, 3 out of "
                                  "memory, 4 a loss or gradient is not finite (--on-nan), 5 ended by "
                                  "SIGTERM, SIGINT or SIGHUP after a checkpoint (--save), 6 the last "
                                  "checkpoint could not be written.\n";

void train_options_print_help(FILE *out)
{
    fprintf(out, "Usage: train [option]...\n%s", description);
    manual_wrapped(out, fprintf(out, "Exit status:"), 0, exit_status);
    fputs("\nOptions:\n", out);
    for (size_t i = 0; i < train_options_table_size; i++) {
        const struct option_entry *entry = &train_options_table[i];

        manual_help(out, entry->name, entry->value_name, HELP_COLUMN, entry->help, entry->initial);
    }
}

void train_options_print_manual(FILE *out)
{
    manual_open(out, "train", "train a model within the memory there is");
    manual_section(out, "SYNOPSIS");
    fputs(".B train\n[\\fIoption\\fR]...\n", out);
    manual_section(out, "DESCRIPTION");
    manual_text(out, description);
    manual_section(out, "OPTIONS");
    for (size_t i = 0; i < train_options_table_size; i++) {
        const struct option_entry *entry = &train_options_table[i];

        manual_option(out, entry->name, entry->value_name);
        manual_text(out, entry->help);
        if (entry->initial) {
            fputs(" [", out);
            manual_text(out, entry->initial);
            fputc(']', out);
        }
        fputc('\n', out);
    }
    manual_section(out, "EXIT STATUS");
    manual_text(out, exit_status);
    manual_section(out, "SEE ALSO");
    fputs(".BR gpucap (1)\n", out);
}

const char *train_options_choice(const char *option, uint64_t value, char *buf, size_t size)
{
    size_t length;
    const char *name = choice_name(find(option, strlen(option))->value_name, value, &length);

    snprintf(buf, size, "%.*s", (int)length, name ? name : "");
    return buf;
}

/* Writes the value as it would be given. */
static void write_value(const struct train_options *options, const struct option_entry *entry,
                        char text[OPTION_TEXT_BYTES])
{
    const void *field = (const char *)options + entry->offset;
    const struct option_list *list = field;
    size_t used = 0;

    text[0] = '\0';
    switch (entry->type) {
    case OPTION_FLAG:
        snprintf(text, OPTION_TEXT_BYTES, "%s", *(const bool *)field ? "on" : "off");
        break;
    case OPTION_COUNT:
    case OPTION_SIZE:
        snprintf(text, OPTION_TEXT_BYTES, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case OPTION_REAL:
        snprintf(text, OPTION_TEXT_BYTES, "%.10g", *(const double *)field);
        break;
    case OPTION_CHOICE:
        train_options_choice(entry->name, *(const uint64_t *)field, text, OPTION_TEXT_BYTES);
        break;
    case OPTION_LIST:
        for (uint64_t i = 0; i < list->count && used < OPTION_TEXT_BYTES; i++)
            used += (size_t)snprintf(text + used, OPTION_TEXT_BYTES - used, "%s%llu", i ? "," : "",
                                     (unsigned long long)list->item[i]);
        break;
    case OPTION_TEXT:
    case OPTION_PAIR:
        break;
    }
}

const char *train_options_difference(const struct train_options *a, const struct train_options *b,
                                     const char *const *names, char texts[2][OPTION_TEXT_BYTES])
{
    for (; *names; names++) {
        const struct option_entry *entry = find(*names, strlen(*names));

        write_value(a, entry, texts[0]);
        write_value(b, entry, texts[1]);
        if (strcmp(texts[0], texts[1]) != 0)
            return *names;
    }
    return NULL;
}
