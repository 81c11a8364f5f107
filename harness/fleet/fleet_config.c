/* fleet_config: parses the list of programs that a fleet starts. See fleet_config.h. One table of options
 * serves the parser, the help and the manual page. */
#include "harness/fleet/fleet_config.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/settings/options.h"
#include "interpose/settings/size.h"
#include "tools/gpucap/manual.h"

#define TIMEOUT_MAX 1000000 /* seconds */

enum option_id {
    EACH,
    JOB,
    WAIT,
    PROCESSES,
    CONFIG,
    NATIVE,
    MPS,
    BASELINE,
    SIM,
    TIMEOUT,
    LOGS,
    QUIET,
    HELP,
    MAN,
    OPTIONS
};

static const struct {
    const char *name, *form, *help;
} table[OPTIONS] = {
    [EACH] = {"each", "SIZE",
              "cap of each process, as for gpucap run --max; without it they run without gpucap"},
    [JOB] = {"job", "SIZE",
             "one budget for all, as for gpucap run --max; --each and max= then limit each process"},
    [WAIT] = {"wait", "SECONDS", "with --job: how long a request waits for memory that others will free"},
    [PROCESSES] = {"processes", "N", "number of processes for each command that follows (1)"},
    [CONFIG] = {"config", "FILE", "lines of the form [Nx] [max=SIZE|native] PROGRAM [ARGUMENT...]"},
    [NATIVE] = {"native", NULL, "run all programs without gpucap"},
    [MPS] = {"mps", NULL, "run them under a CUDA MPS server of their own"},
    [BASELINE] = {"baseline", "serial|none", "also run them one after the other, for comparison (none)"},
    [SIM] = {"sim", "[SPEC]", "run them on simulated cards, such as --sim=1x16G"},
    [TIMEOUT] = {"timeout", "SECONDS", "end a process that runs longer"},
    [LOGS] = {"logs", "DIR", "write the output of each process to DIR/N.log, at most 1 MiB"},
    [QUIET] = {"quiet", NULL, "no progress on stderr"},
    [HELP] = {"help", NULL, "this text"},
    [MAN] = {"man", NULL, "print the manual page"},
};

static int refuse(struct fleet_plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int refuse(struct fleet_plan *plan, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(plan->error, sizeof(plan->error), format, arguments);
    va_end(arguments);
    return -EINVAL;
}

static const char synopsis[] =
    "[--OPTION[=VALUE]]... -- PROGRAM [ARGUMENT]... [-- PROGRAM [ARGUMENT]...]...\n";
static const char description[] =
    "Starts many trainings at once, each under its own cap, shows a line for each, goes on if one "
    "dies, and reports throughput. fleet looks for a name without a slash first in its own folder.\n";
static const char exit_status[] =
    "0 when all ended well, 1 when some did not, 2 for a bad option, 128 + N after signal N.\n";

void fleet_plan_help(FILE *out)
{
    manual_wrapped(out, fprintf(out, "usage: fleet"), 7, synopsis);
    manual_wrapped(out, 0, 0, description);
    manual_wrapped(out, fprintf(out, "Exit status:"), 0, exit_status);
    fputc('\n', out);
    for (int i = 0; i < OPTIONS; i++)
        manual_help(out, table[i].name, table[i].form, 26, table[i].help, NULL);
}

void fleet_plan_manual(FILE *out)
{
    manual_open(out, "fleet", "start many trainings at once, each under its own cap");
    manual_section(out, "SYNOPSIS");
    fputs(".B fleet\n", out);
    manual_text(out, synopsis);
    manual_section(out, "DESCRIPTION");
    manual_text(out, description);
    manual_section(out, "OPTIONS");
    for (int i = 0; i < OPTIONS; i++) {
        manual_option(out, table[i].name, table[i].form);
        manual_text(out, table[i].help);
        fputc('\n', out);
    }
    manual_section(out, "EXIT STATUS");
    manual_text(out, exit_status);
    manual_section(out, "SEE ALSO");
    fputs(".BR gpucap (1),\n.BR train (1)\n", out);
}

/* Checks a value with the parser of gpucap run, which will read it. Its message begins with `name`. */
static int check(struct fleet_plan *plan, const char *name, int option, const char *value)
{
    struct options scratch;
    char error[OPTIONS_ERROR_MAX];

    options_init(&scratch);
    return options_set(&scratch, option, value, OPTIONS_DEFAULT, error)
               ? refuse(plan, "%s%s", name, error + strcspn(error, "="))
               : 0;
}

static bool read_number(const char *text, unsigned least, unsigned most, unsigned *number)
{
    char *end;

    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    const unsigned long value = strtoul(text, &end, 10);
    if (errno || *end || value < least || value > most)
        return false;
    *number = (unsigned)value;
    return true;
}

/* Sets the member's name in the table: "train --model=mlp --steps=5 ...", as far as it fits. */
static void name_job(struct fleet_job *job)
{
    const char *slash = strrchr(job->argv[0], '/');
    size_t used = (size_t)snprintf(job->name, sizeof(job->name), "%s", slash ? slash + 1 : job->argv[0]);

    for (char *const *word = job->argv + 1; *word && used < sizeof(job->name); word++)
        used += (size_t)snprintf(job->name + used, sizeof(job->name) - used, " %s", *word);
    for (char *c = job->name; *c; c++)
        *c = (char)(*c < ' ' || *c >= 0x7f ? '?' : *c);
}

static int add_jobs(struct fleet_plan *plan, unsigned count, const char *cap, bool native, char *const *argv)
{
    if (plan->count + count > FLEET_MEMBERS_MAX)
        return refuse(plan, "more than %d processes", FLEET_MEMBERS_MAX);
    struct fleet_job *jobs = realloc(plan->jobs, (plan->count + count) * sizeof(*jobs));
    if (!jobs)
        return refuse(plan, "no memory for %u processes", count);
    plan->jobs = jobs;
    for (; count > 0; count--) {
        jobs[plan->count] = (struct fleet_job){.argv = argv, .cap = cap, .native = native};
        name_job(&jobs[plan->count++]);
    }
    return 0;
}

/* ---- a file of lines ---- */

/* Splits off the next word in place. Returns NULL at the end of the line; sets *bad for an unclosed quote. */
static char *cut_word(char **cursor, bool *bad)
{
    char *from = *cursor + strspn(*cursor, " \t\r"), *to = from, *word = from;
    char quote = 0;

    if (!*from || *from == '#')
        return NULL;
    for (; *from && (quote || !strchr(" \t\r", *from)); from++) {
        if (quote && *from == quote)
            quote = 0;
        else if (!quote && (*from == '\'' || *from == '"'))
            quote = *from;
        else
            *to++ = *from;
    }
    *bad = quote != 0;
    *cursor = *from ? from + 1 : from;
    *to = '\0';
    return word;
}

/* Returns true for a word such as "4x". */
static bool is_count(const char *word)
{
    const size_t digits = strspn(word, "0123456789");

    return digits > 0 && strcmp(word + digits, "x") == 0;
}

/* Sets *count to 0 if it is not between 1 and FLEET_MEMBERS_MAX. */
static void read_count(char *word, unsigned *count)
{
    word[strlen(word) - 1] = '\0';
    if (!read_number(word, 1, FLEET_MEMBERS_MAX, count))
        *count = 0;
}

static int read_line(struct fleet_plan *plan, char *line, const char *file, unsigned number)
{
    static const char max[] = "max=";
    char *words[FLEET_WORDS_MAX + 1], *word, where[320];
    const char *cap = NULL;
    unsigned count = 1;
    size_t used = 0;
    bool bad = false, native = false, empty = true;

    for (; (word = cut_word(&line, &bad)) && !bad; empty = false) {
        if (used == 0 && is_count(word))
            read_count(word, &count);
        else if (used == 0 && !strcmp(word, "native"))
            native = true;
        else if (used == 0 && !strncmp(word, max, strlen(max)))
            cap = word + strlen(max);
        else if (used == FLEET_WORDS_MAX)
            return refuse(plan, "%s:%u: more than %d words", file, number, FLEET_WORDS_MAX);
        else
            words[used++] = word;
    }
    if (bad)
        return refuse(plan, "%s:%u: a quote is not closed", file, number);
    if (count == 0)
        return refuse(plan, "%s:%u: a count is expected to be from 1x to %dx", file, number,
                      FLEET_MEMBERS_MAX);
    snprintf(where, sizeof(where), "%.300s:%u: max", file, number);
    if (cap && check(plan, where, OPTIONS_MAX, cap))
        return -EINVAL;
    if (used == 0)
        return empty ? 0 : refuse(plan, "%s:%u: a program is missing", file, number);
    if (plan->count + count > FLEET_MEMBERS_MAX)
        return refuse(plan, "%s:%u: more than %d processes", file, number, FLEET_MEMBERS_MAX);
    words[used++] = NULL;
    char **argv = malloc(used * sizeof(*argv));
    if (!argv || plan->text_count == sizeof(plan->text) / sizeof(*plan->text)) {
        free(argv);
        return refuse(plan, "%s:%u: too many lines", file, number);
    }
    memcpy(argv, words, used * sizeof(*argv));
    plan->text[plan->text_count++] = (char *)argv;
    return add_jobs(plan, count, cap, native, argv);
}

int fleet_plan_read(struct fleet_plan *plan, const char *text, const char *file)
{
    char *copy = plan->text_count < sizeof(plan->text) / sizeof(*plan->text) ? strdup(text) : NULL;

    if (!copy)
        return refuse(plan, "%s: no memory to read it", file);
    plan->text[plan->text_count++] = copy;
    for (unsigned number = 1; *copy; number++) {
        char *end = copy + strcspn(copy, "\n"), *next = *end ? end + 1 : end;

        *end = '\0';
        const int error = read_line(plan, copy, file, number);
        if (error)
            return error;
        copy = next;
    }
    return 0;
}

static int read_config(struct fleet_plan *plan, const char *path)
{
    char *text = malloc(FLEET_TEXT_MAX);
    FILE *file = fopen(path, "re");
    int error = 0;

    if (!text || !file) {
        error = refuse(plan, "%s cannot be read: %s", path, strerror(errno));
    } else {
        const size_t length = fread(text, 1, FLEET_TEXT_MAX - 1, file);

        text[length] = '\0';
        if (ferror(file) || strlen(text) != length)
            error = refuse(plan, "%s is not a text file", path);
        else if (length == FLEET_TEXT_MAX - 1)
            error = refuse(plan, "%s is longer than %d bytes", path, FLEET_TEXT_MAX);
        else
            error = fleet_plan_read(plan, text, path);
    }
    if (file)
        fclose(file);
    free(text);
    return error;
}

/* ---- the command line ---- */

static int find_option(const char *name, size_t length)
{
    int i = 0;

    while (i < OPTIONS && (strlen(table[i].name) != length || strncmp(table[i].name, name, length) != 0))
        i++;
    return i;
}

static int set_number(struct fleet_plan *plan, enum option_id id, const char *value, unsigned most,
                      unsigned *out)
{
    return read_number(value, 1, most, out) ? 0
                                            : refuse(plan, "--%s=%s: expected %s from 1 to %u",
                                                     table[id].name, value, table[id].form, most);
}

static int set_baseline(struct fleet_plan *plan, const char *value)
{
    plan->serial = !strcmp(value, "serial");
    return plan->serial || !strcmp(value, "none")
               ? 0
               : refuse(plan, "--baseline=%s: expected %s", value, table[BASELINE].form);
}

static int set_limit(struct fleet_plan *plan, enum option_id id, int option, const char *value,
                     const char **out)
{
    char name[16];

    *out = value;
    snprintf(name, sizeof(name), "--%s", table[id].name);
    return check(plan, name, option, value);
}

static int set_option(struct fleet_plan *plan, enum option_id id, const char *value, unsigned *processes)
{
    unsigned seconds = 0;

    switch (id) {
    case EACH:
        return set_limit(plan, id, OPTIONS_EACH, value, &plan->each);
    case JOB:
        return set_limit(plan, id, OPTIONS_MAX, value, &plan->job);
    case WAIT:
        return set_limit(plan, id, OPTIONS_WAIT, value, &plan->wait);
    case PROCESSES:
        return set_number(plan, id, value, FLEET_MEMBERS_MAX, processes);
    case CONFIG:
        return read_config(plan, value);
    case NATIVE:
        plan->native = true;
        return 0;
    case MPS:
        plan->mps = true;
        return 0;
    case BASELINE:
        return set_baseline(plan, value);
    case SIM:
        plan->sim = true;
        plan->sim_spec = value;
        return 0;
    case TIMEOUT:
        if (set_number(plan, id, value, TIMEOUT_MAX, &seconds))
            return -EINVAL;
        plan->timeout_s = seconds;
        return 0;
    case LOGS:
        plan->logs = value;
        return 0;
    case QUIET:
        plan->quiet = true;
        return 0;
    case HELP:
        plan->help = true;
        return 0;
    case MAN:
        plan->man = true;
        return 0;
    case OPTIONS:
        break;
    }
    return -EINVAL;
}

static int parse_option(struct fleet_plan *plan, const char *argument, unsigned *processes)
{
    const char *name = strncmp(argument, "--", 2) == 0 ? argument + 2 : argument;
    const size_t length = strcspn(name, "=");
    const int id = name == argument ? OPTIONS : find_option(name, length);
    const char *value = name[length] ? name + length + 1 : NULL;

    if (id == OPTIONS)
        return refuse(plan, "unknown argument '%s' (see --help; the command follows --)", argument);
    if (!table[id].form && value)
        return refuse(plan, "--%s takes no value", table[id].name);
    if (table[id].form && !value && id != SIM)
        return refuse(plan, "--%s needs a value: --%s=%s", table[id].name, table[id].name, table[id].form);
    return set_option(plan, (enum option_id)id, value, processes);
}

/* Applies --native and --each, which may come after --config. With --job every member that is not native gets
 * the job's max, and keeps its own cap as --each. */
static int set_caps(struct fleet_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        struct fleet_job *job = &plan->jobs[i];

        job->native = job->native || plan->native;
        job->cap = job->native ? NULL : job->cap ? job->cap : plan->each;
    }
    if (!plan->job)
        return plan->wait
                   ? refuse(plan, "--wait needs --job: a process alone has no other process to wait for")
                   : 0;
    if (plan->native)
        return refuse(plan, "--job and --native exclude each other");
    for (size_t i = 0; i < plan->count; i++) {
        struct fleet_job *job = &plan->jobs[i];

        if (job->native)
            continue;
        job->each = job->cap;
        job->cap = plan->job;
        job->run = plan->budget.words;
    }
    return 0;
}

int fleet_plan_parse(struct fleet_plan *plan, int argc, char **argv)
{
    unsigned processes = 1;
    int i = 1;

    memset(plan, 0, sizeof(*plan));
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (parse_option(plan, argv[i], &processes))
            return -EINVAL;
    }
    while (i < argc) {
        char **command = argv + ++i;

        while (i < argc && strcmp(argv[i], "--") != 0)
            i++;
        if (command == argv + i)
            return refuse(plan, "a command is missing behind --");
        argv[i] = NULL; /* terminates the words at "--", or where argv ends anyway */
        if (add_jobs(plan, processes, NULL, false, command))
            return -EINVAL;
    }
    if (plan->count == 0 && !plan->help && !plan->man)
        return refuse(plan, "nothing to start: give a command behind --, or --config=FILE");
    return set_caps(plan);
}

uint64_t fleet_plan_caps(const struct fleet_plan *plan, uint64_t total)
{
    uint64_t sum = 0;
    struct size_value cap;
    bool counted = false; /* the job */

    for (size_t i = 0; i < plan->count; i++) {
        const char *text = counted && plan->jobs[i].run ? NULL : plan->jobs[i].cap;

        counted = counted || plan->jobs[i].run;
        if (text && size_parse(text, strlen(text), &cap) == 0)
            sum += size_resolve(&cap, total);
    }
    return sum;
}

void fleet_plan_free(struct fleet_plan *plan)
{
    for (size_t i = 0; i < plan->text_count; i++)
        free(plan->text[i]);
    free(plan->jobs);
    memset(plan, 0, sizeof(*plan));
}
