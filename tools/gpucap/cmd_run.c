/* gpucap run: starts a program under the cap. Checks every value with the library's own parser first, sets
 * the environment, and becomes the program (exec, not fork): its signals, exit status and process id are its
 * own. Only --summary waits for it in another process. Must never start the program when it would run without
 * the cap that was asked for. Owns no lock.
 */
#include "tools/gpucap/adopt.h"
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/elfscan.h"
#include "interpose/account/ledger.h"
#include "interpose/settings/options.h"
#include "tools/gpucap/place.h"
#include "tools/gpucap/preload.h"
#include "tools/gpucap/program.h"
#include "tools/simgpu/engine/sim_card_spec.h"
#include "tools/gpucap/steer.h"
#include "tools/gpucap/summary.h"
#include "tools/gpucap/words.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define NVTX_VARIABLE "NVTX_INJECTION64_PATH" /* NVTX loads the library that it names */

static int out_of_memory(void)
{
    return cli_fail("run: no memory for the environment");
}

static int unknown_option(const char *name, size_t length)
{
    static const char *const own[] = {"adopt", "help", "sim", "summary"};
    const size_t count = sizeof(own) / sizeof(own[0]);
    const char *names[OPTIONS_COUNT + sizeof(own) / sizeof(own[0])];
    char word[64];
    for (int id = 0; id < OPTIONS_COUNT; id++)
        names[id] = options_table[id].name;
    memcpy(names + OPTIONS_COUNT, own, sizeof(own));
    snprintf(word, sizeof(word), "%.*s", (int)(length < sizeof(word) ? length : sizeof(word) - 1), name);
    return cli_unknown("run: ", "option", word, names, OPTIONS_COUNT + count);
}

/* Makes the name of a recording absolute, as the program may change its folder; a % of the folder's own name
 * is doubled. Returns false if that is too long. */
static bool make_absolute(const char *name, char path[OPTIONS_PATH_MAX])
{
    char folder[PATH_MAX];
    size_t used = 0;
    if (name[0] == '/' || !strcmp(name, "off") || !getcwd(folder, sizeof(folder)))
        folder[0] = '\0';
    for (const char *c = folder; *c && used < OPTIONS_PATH_MAX - 2; c++) {
        path[used++] = *c;
        if (*c == '%')
            path[used++] = '%';
    }
    const int more = snprintf(path + used, OPTIONS_PATH_MAX - used, "%s%s", folder[0] ? "/" : "", name);
    return used + (size_t)more < OPTIONS_PATH_MAX;
}

/* Returns true if the option is a limit of a card that lacks its unit. */
static bool lacks_unit(const struct options *options, int id)
{
    const struct rules *limits = id == OPTIONS_MAX    ? &options->max
                                 : id == OPTIONS_EACH ? &options->each
                                 : id == OPTIONS_MIN  ? &options->min
                                 : id == OPTIONS_HIGH ? &options->high
                                                      : NULL;

    for (int i = 0; limits && i < limits->count; i++) {
        if (!limits->rules[i].unlimited && steer_lacks_unit(&limits->rules[i].size))
            return true;
    }
    return false;
}

/* Checks one value and puts it where the library will read it. */
static int set_option(int id, const char *value)
{
    struct options scratch;
    char error[OPTIONS_ERROR_MAX], path[OPTIONS_PATH_MAX];
    options_init(&scratch);
    if (options_set(&scratch, id, value, OPTIONS_DEFAULT, error))
        return cli_fail("run: %s", error);
    if (lacks_unit(&scratch, id))
        return cli_fail("run: --%s='%.100s' is not valid (" STEER_LITTLE "); accepted: %s",
                        options_table[id].name, value, options_table[id].form);
    if (id == OPTIONS_RECORD) {
        if (!make_absolute(value, path))
            return cli_fail("run: the path of the recording is too long");
        value = path;
    }
    return setenv(options_table[id].variable, value, 1) ? out_of_memory() : 0;
}

struct run {
    bool max, group;        /* were given */
    bool limited;           /* by whatever setting */
    bool nvtx;              /* likewise: ranges are to be tags */
    char *outer_max;        /* of the job that this runs in; NULL: none */
    char *outer;            /* its name; NULL: none */
    struct rules max_rules; /* as the library will have them */
    bool sim;
    bool help, summary;
    const char *sim_spec;
    char sim_folder[PATH_MAX];
    char ledger[OPTIONS_PATH_MAX]; /* folder of the ledgers, as the options have it */
    char **program;                /* argv of the program */
};

/* Takes one "--name=value" or "--name value". Sets *used to the number of arguments taken. */
static int parse_option(struct run *run, char **argv, int *used)
{
    const char *name = argv[0] + 2;
    size_t length = strcspn(name, "=");
    const char *value = name[length] ? name + length + 1 : NULL;
    *used = 1;
    if (length == 3 && !strncmp(name, "sim", length)) {
        run->sim = true;
        run->sim_spec = value;
        return 0;
    }
    if (length == 5 && !strncmp(name, "adopt", length))
        return adopt_frameworks(value);
    bool *flag = length == 4 && !strncmp(name, "help", length)      ? &run->help
                 : length == 7 && !strncmp(name, "summary", length) ? &run->summary
                                                                    : NULL;
    if (flag) {
        *flag = true;
        return value ? cli_fail("run: --%.*s takes no value", (int)length, name) : 0;
    }
    int id = options_find(name, length);
    if (id < 0)
        return unknown_option(name, length);
    if (!value && id == OPTIONS_NVTX && !(argv[1] && (!strcmp(argv[1], "on") || !strcmp(argv[1], "off"))))
        value = "on";
    if (!value) {
        value = argv[1];
        *used = 2;
    }
    if (!value)
        return cli_fail("run: --%s needs a value: %s", options_table[id].name, options_table[id].form);
    if (id == OPTIONS_GROUP && !strcmp(value, "all"))
        return cli_fail("run: --group='all' is not valid: to `gpucap trim` and `why` it means every process");
    run->max = run->max || id == OPTIONS_MAX;
    run->group = run->group || id == OPTIONS_GROUP;
    return set_option(id, value);
}

/* "-max=8G" */
static int one_dash(const char *word)
{
    const int length = (int)strcspn(word + 1, "=");

    if (options_find(word + 1, (size_t)length) >= 0)
        return cli_fail("run: unknown option '%s' (did you mean --%.*s?)", word, length, word + 1);
    return cli_fail("run: unknown option '%s' (see 'gpucap help run')", word);
}

static int parse_words(struct run *run, int argc, char **argv)
{
    int i = 0;
    while (i < argc && argv[i][0] == '-') {
        int used = 1;
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (!strcmp(argv[i], "-h")) {
            run->help = true;
            i++;
            continue;
        }
        if (argv[i][1] != '-')
            return one_dash(argv[i]);
        int status = parse_option(run, argv + i, &used);
        if (status)
            return status;
        i += used;
    }
    if (run->help)
        return 0;
    if (i >= argc)
        return cli_fail(
            "run: a program is missing; usage: gpucap run [--OPTION=VALUE...] [--] PROGRAM [ARGUMENT...]");
    run->program = argv + i;
    return 0;
}

/* Reads the settings as the library will, and refuses what it would refuse, before the program starts. */
static int check_settings(struct run *run)
{
    struct options options;
    char error[OPTIONS_ERROR_MAX];
    if (options_load_here(&options, error))
        return cli_fail("run: %s", error);
    run->limited = options_any_limit(&options);
    run->nvtx = options.nvtx;
    run->max_rules = options.max;
    snprintf(run->ledger, sizeof(run->ledger), "%s", options.ledger);
    return 0;
}

static int set_variable(int id, const char *value)
{
    const char *name = options_table[id].variable;

    return (value ? setenv(name, value, 1) : unsetenv(name)) ? out_of_memory() : 0;
}

/* Returns the job that the environment names, or NULL. */
static const char *job_here(void)
{
    const char *group = getenv(options_table[OPTIONS_GROUP].variable);

    return group && *group && strcmp(group, "none") != 0 ? group : NULL;
}

/* Inside a job: makes --max the limit of each process, because the job keeps its own max. */
static int limit_each(const struct run *run)
{
    const int status = run->max ? set_variable(OPTIONS_EACH, getenv(options_table[OPTIONS_MAX].variable)) : 0;

    return status ? status : set_variable(OPTIONS_MAX, run->outer_max);
}

struct group {
    char folder[LEDGER_PATH];
    const char *name;
    const struct run *run;
};

/* Says that a group keeps a max other than the one that was asked for. */
static void note_max(const struct group *group, struct ledger *ledger, const char *uuid)
{
    const uint64_t unknown = UINT64_C(1) << 60; /* the card's size; a part of it is not compared */
    const uint64_t max = rules_for(&group->run->max_rules, RULES_NO_ORDINAL, uuid, unknown);
    struct ledger_totals totals;
    char text[WORDS_TEXT];

    if (group->run->max && max < unknown / 1000 && ledger_read_job(ledger, group->name, &totals) &&
        totals.max != max)
        fprintf(stderr,
                "gpucap: run: note: %s keeps its max of %s on %.12s\n"
                "gpucap: run:   `gpucap set %s --max=...` changes it\n",
                group->name, words_size(totals.max, text), uuid, group->name);
}

static void forget_in(const char *uuid, void *argument)
{
    const struct group *group = argument;
    char why[LEDGER_WHY];
    struct ledger *ledger;

    if (ledger_open_existing(&ledger, group->folder, uuid, why))
        return;
    ledger_forget_job(ledger, group->name);
    note_max(group, ledger, uuid);
    ledger_close(ledger);
}

/* Forgets a group's old max and totals if all its processes have ended. */
static void begin_group(const struct run *run)
{
    struct group group = {.name = job_here(), .run = run};

    if (!group.name)
        return;
    if (run->outer && strcmp(run->outer, group.name) != 0)
        fprintf(stderr, "gpucap: run: note: the program leaves the job %s, whose max does not hold for it\n",
                run->outer);
    if (strcmp(run->ledger, "off") != 0 &&
        ledger_folder(run->ledger, group.folder, sizeof(group.folder)) == 0)
        ledger_each_card(group.folder, forget_in, &group);
}

/* Names the job of all processes that the program starts; they share max. */
static int use_job(const struct run *run)
{
    char name[OPTIONS_NAME_MAX];
    unsigned number;

    if (run->group)
        begin_group(run);
    if (run->group || !run->limited)
        return 0;
    if (job_here())
        return limit_each(run);
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return cli_fail("run: no random number for the name of the job");
    snprintf(name, sizeof(name), "job-%ld-%04x", (long)getpid(), number & 0xffff);
    return set_variable(OPTIONS_GROUP, name);
}

/* Refuses a library that is not ours. The loader would only print a line for one that it cannot load, and
 * load any other. */
static int check_library(const char *library)
{
    struct elfscan scan;
    char version[64];
    int error = elfscan_open(&scan, library);
    if (error)
        return cli_fail("run: '%s' cannot be preloaded: %s", library, strerror(-error));
    bool ours = elfscan_read_string(&scan, "gpucap_version_text", version, sizeof(version));
    elfscan_close(&scan);
    if (!ours)
        return cli_fail("run: '%s' is not gpucap's library; set %s to the path of %s, or unset it", library,
                        PLACE_LIBRARY_ENV, PLACE_LIBRARY_NAME);
    if (program_look(library) == PROGRAM_FOREIGN)
        return cli_fail("run: '%s' is for another architecture, so the program would run without the cap",
                        library);
    return 0;
}

/* Has the program's NVTX load the library. A profiler that wants NVTX for itself keeps it. */
static int use_nvtx(const char *library)
{
    const char *other = getenv(NVTX_VARIABLE);

    if (other && *other && strcmp(other, library) != 0) {
        fprintf(stderr,
                "gpucap: run: note: %s is '%s': that tool gets the NVTX ranges, so they do not become tags\n",
                NVTX_VARIABLE, other);
        return 0;
    }
    return setenv(NVTX_VARIABLE, library, 1) ? out_of_memory() : 0;
}

static int use_library(const struct run *run)
{
    char library[PATH_MAX];
    int error = place_library(library, sizeof(library));
    if (error && getenv(PLACE_LIBRARY_ENV))
        return cli_fail("run: %s='%s': %s", PLACE_LIBRARY_ENV, getenv(PLACE_LIBRARY_ENV), strerror(-error));
    if (error)
        return cli_fail("run: %s is neither beside this executable nor in ../lib; set %s to its path",
                        PLACE_LIBRARY_NAME, PLACE_LIBRARY_ENV);
    int status = check_library(library);
    if (status)
        return status;
    if (!preload_can_hold(library))
        return cli_fail(
            "run: LD_PRELOAD cannot hold the path '%s': it has a space, a colon or a dollar sign; "
            "move it, or set %s to a copy elsewhere",
            library, PLACE_LIBRARY_ENV);
    char *list = preload_append(getenv("LD_PRELOAD"), library);
    status = list && !setenv("LD_PRELOAD", list, 1) ? 0 : out_of_memory();
    free(list);
    return status || !run->nvtx ? status : use_nvtx(library);
}

static int use_sim(struct run *run)
{
    char *path = NULL;
    int status = cli_use_sim("run: ", run->sim_spec, run->sim_folder, sizeof(run->sim_folder));
    if (status)
        return status;
    if (strpbrk(run->sim_folder, ":;$"))
        return cli_fail("run: LD_LIBRARY_PATH cannot hold the path '%s'", run->sim_folder);
    const char *old = getenv("LD_LIBRARY_PATH");
    if (asprintf(&path, "%s%s%s", run->sim_folder, old && *old ? ":" : "", old ? old : "") < 0)
        return out_of_memory();
    status = setenv("LD_LIBRARY_PATH", path, 1) ? out_of_memory() : 0;
    free(path);
    return status;
}

static int check_program(const char *name)
{
    char path[PATH_MAX];
    if (program_find(name, path, sizeof(path)))
        return 0;
    switch (program_look(path)) {
    case PROGRAM_PRIVILEGED:
        return cli_fail("run: '%s' runs with other rights than yours, so the loader would ignore the cap; "
                        "with sudo, write 'sudo gpucap run ...'",
                        path);
    case PROGRAM_FOREIGN:
        return cli_fail("run: '%s' is for another architecture than %s, so it would run without the cap",
                        path, PLACE_LIBRARY_NAME);
    case PROGRAM_STATIC:
        fprintf(stderr,
                "gpucap: run: warning: '%s' is statically linked: the cap holds for the programs that it "
                "starts, not for itself\n",
                path);
        return 0;
    case PROGRAM_FINE:
        break;
    }
    return 0;
}

/* Says why the program did not start. Returns the exit status. */
static int not_started(const struct run *run, int error)
{
    const char *name = run->program[0];
    struct sim_card_spec cards;
    char why[256];

    if (error == ENOENT && run->sim && !run->sim_spec && !sim_card_spec_parse(name, &cards, why, sizeof(why)))
        cli_fail("run: there is no program '%s'; for simulated cards write --sim=%s", name, name);
    else if (error == ENOENT && strchr(name, '/') && access(name, F_OK) == 0)
        cli_fail("run: '%s' exists, but the interpreter that it names does not", name);
    else
        cli_fail("run: '%s': %s", name, strerror(error));
    return error == ENOENT ? CLI_NOT_FOUND : CLI_CANNOT_EXECUTE;
}

int cmd_run(const struct arguments *arguments)
{
    const char *outer_max = getenv(options_table[OPTIONS_MAX].variable), *outer = job_here();
    struct run run = {.outer_max = outer_max ? strdup(outer_max) : NULL, /* setenv may free the originals */
                      .outer = outer ? strdup(outer) : NULL};
    int status = parse_words(&run, arguments->count, arguments->operands);
    if (status)
        return status;
    if (run.help)
        return cli_help("run");
    status = check_settings(&run);
    if (!status)
        status = use_job(&run);
    if (!status)
        status = check_settings(&run); /* in a job, max has become each */
    if (!status)
        status = use_library(&run);
    if (!status && run.sim)
        status = use_sim(&run);
    if (!status)
        status = check_program(run.program[0]);
    if (status)
        return status;
    if (run.summary && summary_watch(getenv(options_table[OPTIONS_GROUP].variable),
                                     run.sim ? run.sim_folder : NULL, &status))
        return status;
    execvp(run.program[0], run.program);
    return not_started(&run, errno);
}
