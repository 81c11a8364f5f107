/* `scenarios`: measures what the library gains, by trainings that the command runs. Each scenario has a
 * letter. Tables go to stdout, progress to stderr, pictures to --out. */
#include "harness/scenario/scenario.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/fleet/fleet_place.h"
#include "harness/fleet/fleet_run.h"
#include "interpose/settings/size.h"
#include "tools/gpucap/manual.h"
#include "harness/scenario/scenario_docs.h"
#include "harness/scenario/scenario_results.h"

#define USAGE 2 /* exit status */

/* With --seconds, a scenario gets its share of the time that is left, divided by the shares of those to come.
 * The shares are about what --quick took on an H200, or would have by the times of single runs, in seconds.
 */
static const struct {
    char letter;
    void (*run)(struct scenario *scenario);
    unsigned share;
    const char *title;
    char subject[SCENARIO_SUBJECT];
    const char *question;
} scenarios[] = {
    {'a', scenario_pair, 57, "Two models in one process", "two models together",
     "Both train in turns. How small may the card be, and how long does a step take, if neither caches "
     "memory, both do, or one pool serves both?"},
    {'b', scenario_arenas, 48, "Many processes that each take what they see", "many greedy processes",
     "Most of them take 90 % of the memory that they see as free. How many of them train on which card?"},
    {'c', scenario_spike, 56, "A validation that needs memory for a moment", "a validation's peak",
     "The GPU prepares the pictures of a validation while the training still holds its memory. How small "
     "may the card be, and how long does the run take?"},
    {'d', scenario_fragments, 46, "A workload that fragments", "sizes that change",
     "Batch and sequence length change every step. How small may the card be, and how long does a step "
     "take?"},
    {'e', scenario_batch, 42, "The largest batch under a cap", "largest batch",
     "How much larger a batch do accumulation, checkpointing and bf16 allow when memory is short?"},
    {'f', scenario_throughput, 31, "Throughput of several processes", "throughput",
     "How many steps per second do several processes on one card do together, and one after the other?"},
    {'g', scenario_peaks, 34, "Peaks that alternate", "peaks that alternate",
     "Trainings that need much memory for a moment share a budget smaller than the sum of their peaks. "
     "Which of them train?"},
};
enum { SCENARIOS = sizeof(scenarios) / sizeof(*scenarios) };

/* With a limit of time the ladders come last: they can use what the others leave. */
static const char order_in_time[SCENARIOS + 1] = "gfeabdc";

#define LEAST_S 8 /* with less, a scenario is not begun */

enum option_id {
    CARD,
    PROCESSES,
    QUICK,
    TINY,
    SECONDS,
    SIM,
    OUT,
    RECORD,
    SAVE,
    FROM,
    WRITE_DOCS,
    VERBOSE,
    HELP,
    MAN,
    OPTIONS
};

/* One table for the parser, the help and the manual page. A form in brackets may be left out. */
static const struct {
    const char *name, *form, *help;
} options[OPTIONS] = {
    [CARD] = {"card", "SIZE", "the size of the card; default: found from the needs of the workload"},
    [PROCESSES] = {"processes", "N", "number of processes in b, f and g (4)"},
    [QUICK] = {"quick", NULL, "fewer steps, coarser searches"},
    [TINY] = {"tiny", NULL, "the smallest trainings, to check that everything works"},
    [SECONDS] = {"seconds", "N",
                 "end after about N seconds: with fewer cards and turns; cases for which there is no time "
                 "are skipped and named"},
    [SIM] = {"sim", NULL, "use simgpu even if there is a GPU"},
    [OUT] = {"out", "DIR", "folder for the pictures (scenarios-out beside this program)"},
    [RECORD] = {"record", "DIR",
                "for a to d: record a native way that runs out of memory, and gpucap on the same card, and "
                "write their pages"},
    [SAVE] = {"save", "FILE", "write the results to FILE after each scenario"},
    [FROM] = {"from", "FILE", "run nothing; show, draw and document the results of --save"},
    [WRITE_DOCS] = {"write-docs", "[ROOT]",
                    "also write ROOT/docs/benchmarks.md and, with several letters, the table in README.md"},
    [VERBOSE] = {"verbose", NULL, "show every command"},
    [HELP] = {"help", NULL, "this text"},
    [MAN] = {"man", NULL, "print the manual page"},
};

static const char synopsis[] = "[option...] all | LETTER... | --from=FILE\n";
static const char description[] =
    "Runs trainings with and without gpucap and compares them; each letter is one scenario. "
    "On a GPU, a card of SIZE is the same GPU whose remaining memory a ballast process holds.\n";
static const char exit_status[] =
    "0 done, 1 a scenario could not be run, 2 bad option, 128 + N after signal N.\n";

static void print_help(FILE *out)
{
    fprintf(out, "usage: scenarios %s", synopsis);
    manual_wrapped(out, 0, 0, description);
    manual_wrapped(out, fprintf(out, "Exit status:"), 0, exit_status);
    fputc('\n', out);
    for (int i = 0; i < SCENARIOS; i++)
        manual_wrapped(out, fprintf(out, "  %c ", scenarios[i].letter), 5, scenarios[i].title);
    fputc('\n', out);
    for (int i = 0; i < OPTIONS; i++)
        manual_help(out, options[i].name, options[i].form, 23, options[i].help, NULL);
}

static void print_manual(FILE *out)
{
    manual_open(out, "scenarios", "measure what gpucap changes");
    manual_section(out, "SYNOPSIS");
    fputs(".B scenarios\n", out);
    manual_text(out, synopsis);
    manual_section(out, "DESCRIPTION");
    manual_text(out, description);
    for (int i = 0; i < SCENARIOS; i++) {
        fprintf(out, ".TP\n.B %c\n", scenarios[i].letter);
        manual_text(out, scenarios[i].title);
        fputs(".\n", out);
        manual_text(out, scenarios[i].question);
        fputc('\n', out);
    }
    manual_section(out, "OPTIONS");
    for (int i = 0; i < OPTIONS; i++) {
        manual_option(out, options[i].name, options[i].form);
        manual_text(out, options[i].help);
        fputc('\n', out);
    }
    manual_section(out, "EXIT STATUS");
    manual_text(out, exit_status);
    manual_section(out, "SEE ALSO");
    fputs(".BR gpucap (1),\n.BR train (1),\n.BR fleet (1)\n", out);
}

struct settings {
    bool wanted[SCENARIOS];
    bool sim, help, man;
    unsigned seconds; /* 0: no limit */
    const char *out, *docs, *save, *from;
    struct scenario scenario;
};

static int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int refuse(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fputs("scenarios: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return -EINVAL;
}

static int choose(struct settings *settings, const char *argument)
{
    const bool all = strcmp(argument, "all") == 0;
    bool found = false;

    for (int i = 0; i < SCENARIOS; i++) {
        if (all || (argument[0] == scenarios[i].letter && !argument[1]))
            settings->wanted[i] = found = true;
    }
    return found ? 0 : refuse("'%s' is no scenario: give letters from a to g, or all", argument);
}

static int set_size(struct settings *settings, const char *text)
{
    struct size_value size;

    if (size_parse(text, strlen(text), &size) || size.is_percent || size.bytes == 0)
        return refuse("--card=%s is not valid; accepted: a size such as 8G or 512M", text);
    settings->scenario.size = size.bytes;
    return 0;
}

static int set_count(unsigned *to, enum option_id id, const char *text, unsigned long most)
{
    char *end;
    const unsigned long count = strtoul(text, &end, 10);

    if (*end || count < 1 || count > most)
        return refuse("--%s=%s: expected a number from 1 to %lu", options[id].name, text, most);
    *to = (unsigned)count;
    return 0;
}

static int set_option(struct settings *settings, enum option_id id, const char *value)
{
    switch (id) {
    case CARD:
        return set_size(settings, value);
    case PROCESSES:
        return set_count(&settings->scenario.processes, id, value, SCENARIO_PROCESSES);
    case SECONDS:
        return set_count(&settings->seconds, id, value, 1000000);
    case QUICK:
        settings->scenario.quick = true;
        break;
    case TINY:
        settings->scenario.quick = settings->scenario.tiny = true;
        break;
    case SIM:
        settings->sim = true;
        break;
    case OUT:
        settings->out = value;
        break;
    case RECORD:
        settings->scenario.record = value;
        break;
    case SAVE:
        settings->save = value;
        break;
    case FROM:
        settings->from = value;
        break;
    case WRITE_DOCS:
        settings->docs = *value ? value : ".";
        break;
    case VERBOSE:
        settings->scenario.verbose = true;
        break;
    case HELP:
        settings->help = true;
        break;
    case MAN:
        settings->man = true;
        break;
    case OPTIONS:
        break;
    }
    return 0;
}

static int read_argument(struct settings *settings, const char *argument)
{
    const char *name = strcmp(argument, "-h") ? argument + 2 : options[HELP].name;
    int id = 0;

    if (argument[0] != '-')
        return choose(settings, argument);
    if (name == argument + 2 && strncmp(argument, "--", 2) != 0)
        return refuse("unknown option '%s' (see --help)", argument);
    const size_t length = strcspn(name, "=");
    const char *value = name[length] ? name + length + 1 : NULL;
    while (id < OPTIONS &&
           (strlen(options[id].name) != length || strncmp(options[id].name, name, length) != 0))
        id++;
    if (id == OPTIONS)
        return refuse("unknown option '%s' (see --help)", argument);
    if (value && !options[id].form)
        return refuse("--%s takes no value", options[id].name);
    if (!value && options[id].form && options[id].form[0] != '[')
        return refuse("--%s needs a value: --%s=%s", options[id].name, options[id].name, options[id].form);
    return set_option(settings, (enum option_id)id, value ? value : "");
}

/* Removes gpucap's variables from the environment, so that native runs are native. */
static int prepare_environment(const struct settings *settings)
{
    static const char *const inherited[] = {"GPUCAP_MAX", "GPUCAP_POOL", "GPUCAP_FREE", "GPUCAP_RESERVE"};

    if (dlsym(RTLD_DEFAULT, "gpucap_version")) {
        fputs("scenarios: runs under gpucap already; start it without\n", stderr);
        return -1;
    }
    for (unsigned i = 0; i < sizeof(inherited) / sizeof(*inherited); i++)
        unsetenv(inherited[i]);
    if (settings->scenario.card.simulated) /* a simulated context does not grow: nothing to leave for it */
        setenv("GPUCAP_RESERVE", "0", 1);
    return 0;
}

static int make_folder(const char *option, const char *path)
{
    char inside[PATH_MAX];

    snprintf(inside, sizeof(inside), "%s/.", path); /* fails if there is a file at `path` */
    if ((mkdir(path, 0777) == 0 || errno == EEXIST) && access(inside, W_OK | X_OK) == 0)
        return 0;
    fprintf(stderr, "scenarios: --%s=%s: %s\n", option, path, strerror(errno));
    return -1;
}

static int make_folders(struct settings *settings, char path[PATH_MAX])
{
    if (!settings->out) {
        if (!fleet_beside("", path))
            return -1;
        strncat(path, "scenarios-out", PATH_MAX - strlen(path) - 1);
        settings->out = path;
    }
    if (make_folder("out", settings->out))
        return -1;
    return settings->scenario.record ? make_folder("record", settings->scenario.record) : 0;
}

/* ---- running ---- */

struct results {
    struct scenario_result *all;
    unsigned count;
    struct docs_origin origin;
    uint64_t until; /* fleet_now() at which all should have ended; 0: no limit */
};

static void name_result(struct scenario_result *result, int i)
{
    result->letter = scenarios[i].letter;
    result->title = scenarios[i].title;
    result->subject = scenarios[i].subject;
    result->question = scenarios[i].question;
}

static int find_letter(char letter)
{
    for (int i = 0; i < SCENARIOS; i++) {
        if (scenarios[i].letter == letter)
            return i;
    }
    return -1;
}

/* Gives the scenario its share of the time that is left. Returns false if that is too little. */
static bool allot(struct settings *settings, const struct results *results, int place)
{
    struct scenario *scenario = &settings->scenario;
    const uint64_t now = fleet_now();
    unsigned shares = 0;

    scenario->until = 0;
    if (!results->until)
        return true;
    for (int i = place; i < SCENARIOS; i++) {
        const int other = find_letter(order_in_time[i]);

        shares += settings->wanted[other] ? scenarios[other].share : 0;
    }
    const double left = results->until > now ? (double)(results->until - now) / 1e9 : 0;
    const double mine = left * scenarios[find_letter(order_in_time[place])].share / shares;
    scenario->until = now + (uint64_t)((mine > LEAST_S ? mine : LEAST_S) * 1e9);
    if (left >= LEAST_S)
        return true;
    snprintf(scenario->result->skipped, sizeof(scenario->result->skipped), "no time: %.0f of %u s were left",
             left, settings->seconds);
    return false;
}

static int keep_result(const struct settings *settings, const struct results *results,
                       const struct scenario_result *result)
{
    char path[PATH_MAX];
    int error = 0;

    docs_print(result, stdout);
    fflush(stdout);
    if (result->rows) {
        snprintf(path, sizeof(path), "%s/scenario-%c.svg", settings->out, result->letter);
        error = docs_plot(path, &results->origin, result, 1);
    }
    if (settings->save) {
        const int saved = results_save(settings->save, &results->origin, results->all, results->count);

        if (saved)
            fprintf(stderr, "scenarios: --save=%s: %s\n", settings->save, strerror(-saved));
        error |= saved;
    }
    return error;
}

static int run_wanted(struct settings *settings, struct results *results)
{
    int error = 0;

    for (int place = 0; place < SCENARIOS && !fleet_run_stopped(); place++) {
        const int i = results->until ? find_letter(order_in_time[place]) : place;
        struct scenario_result *result = &results->all[results->count];
        const uint64_t start = fleet_now();

        if (!settings->wanted[i])
            continue;
        memset(result, 0, sizeof(*result));
        name_result(result, i);
        settings->scenario.result = result;
        scenario_say(&settings->scenario, "%s", result->title);
        if (allot(settings, results, place))
            scenarios[i].run(&settings->scenario);
        result->seconds = (double)(fleet_now() - start) / 1e9;
        if (fleet_run_stopped())
            snprintf(result->skipped, sizeof(result->skipped), "stopped before its end");
        results->count++;
        error |= keep_result(settings, results, result);
        error |= result->rows == 0 && !result->skipped[0];
    }
    return error;
}

static int by_letter(const void *one, const void *other)
{
    return ((const struct scenario_result *)one)->letter - ((const struct scenario_result *)other)->letter;
}

static void print_summary(const struct results *results)
{
    printf("\non %s\n", results->origin.device);
    for (unsigned i = 0; i < results->count; i++) {
        const struct scenario_result *result = &results->all[i];

        if (result->skipped[0])
            printf("(%c) skipped: %s\n", result->letter, result->skipped);
        else if (result->verdict[0])
            printf("(%c) without gpucap: %s\n    under gpucap: %s\n    where it does not help: %s\n",
                   result->letter, result->native, result->gpucap, result->verdict);
        else
            printf("(%c) not complete: see its table\n", result->letter);
    }
    if (results->origin.simulated)
        printf("Times are those of a simulated device, whose operations the processor computes and whose "
               "allocations\ncost little: build/scenarios on a GPU measures a GPU's.\n");
}

/* Documents, draws and sums up what there is, in the order of the letters. */
static int conclude(const struct settings *settings, struct results *results)
{
    char path[PATH_MAX + 32];
    int error = 0;

    qsort(results->all, results->count, sizeof(*results->all), by_letter);
    if (settings->docs)
        error = docs_write(settings->docs, &results->origin, results->all, results->count);
    snprintf(path, sizeof(path), "%s/scenarios.svg", settings->out);
    error |= docs_plot(path, &results->origin, results->all, results->count);
    print_summary(results);
    printf("\nplots: %s\n", path);
    return error ? 1 : 0;
}

/* Checks beforehand that the results can be written. Returns 0, or another number after a message. */
static int check_places(const struct settings *settings)
{
    const int unsaved = settings->save ? results_can_save(settings->save) : 0;
    char path[PATH_MAX];

    if (unsaved)
        fprintf(stderr, "scenarios: --save=%s: %s\n", settings->save, strerror(-unsaved));
    if (unsaved || !settings->docs)
        return unsaved;
    snprintf(path, sizeof(path), "%s/docs/benchmarks.md", settings->docs);
    if (access(path, R_OK | W_OK) == 0)
        return 0;
    fprintf(stderr, "scenarios: --write-docs: %s: %s\n", path, strerror(errno));
    return -1;
}

static struct scenario_result room[SCENARIOS];

static int run(struct settings *settings, int argc, char **argv)
{
    struct results results = {.all = room};
    char folder[PATH_MAX];

    /* In this order: --save may name a file in the folder of --out. */
    if (make_folders(settings, folder) || check_places(settings))
        return 1;
    if (settings->seconds)
        results.until = fleet_now() + settings->seconds * UINT64_C(1000000000);
    if (card_choose(&settings->scenario.card, settings->sim)) {
        fprintf(stderr, "scenarios: %s\n", settings->scenario.card.problem);
        return 1;
    }
    if (prepare_environment(settings))
        return 1;
    docs_origin_here(&results.origin, &settings->scenario.card, argc, argv);
    fprintf(stderr, "scenarios: on %s\n", results.origin.device);
    const int error = run_wanted(settings, &results);
    if (fleet_run_stopped())
        return 128 + fleet_run_stopped();
    return conclude(settings, &results) || error;
}

/* Shows the results of a file. */
static int show(struct settings *settings)
{
    struct results results = {.all = room};
    char folder[PATH_MAX];
    unsigned line = 0;
    char *text = docs_read(settings->from);
    int error = text ? results_parse(text, &results.origin, room, SCENARIOS, &results.count, &line) : -errno;

    free(text);
    for (unsigned i = 0; !error && i < results.count; i++) {
        const int known = find_letter(room[i].letter);

        if (known < 0)
            error = -EINVAL;
        else
            name_result(&room[i], known);
    }
    if (error) {
        if (error == -EINVAL)
            refuse("--from=%s: line %u is not what --save writes", settings->from, line);
        else
            refuse("--from=%s: %s", settings->from, strerror(-error));
        return 1;
    }
    if (make_folders(settings, folder))
        return 1;
    for (unsigned i = 0; i < results.count; i++)
        error |= keep_result(settings, &results, &room[i]);
    return conclude(settings, &results) || error;
}

/* Returns the status if all of stdout could be written. */
static int finish(int status)
{
    if (fflush(stdout) == 0)
        return status;
    refuse("cannot write to stdout");
    return 1;
}

int main(int argc, char **argv)
{
    struct settings settings = {.scenario = {.processes = 4}};
    bool any = false;

    for (int i = 1; i < argc; i++) {
        if (read_argument(&settings, argv[i]))
            return USAGE;
    }
    for (int i = 0; i < SCENARIOS; i++)
        any |= settings.wanted[i];
    if (settings.man) {
        print_manual(stdout);
        return finish(0);
    }
    if (settings.from && any) {
        fputs("scenarios: --from runs nothing; leave the letters out\n", stderr);
        return USAGE;
    }
    if (settings.help || (!any && !settings.from)) {
        print_help(settings.help ? stdout : stderr);
        return finish(settings.help ? 0 : USAGE);
    }
    if (settings.from)
        return finish(show(&settings));
    if (fleet_run_open()) {
        fputs("scenarios: signals cannot be read here\n", stderr);
        return 1;
    }
    const int status = run(&settings, argc, argv);
    card_leave(&settings.scenario.card);
    return finish(status);
}
