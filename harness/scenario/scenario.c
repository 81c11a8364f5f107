/* `scenarios`: measures what the library gains, by trainings that the command runs. Each scenario has a
 * letter. Tables go to stdout, progress to stderr, pictures to --out. */
#include "harness/scenario/scenario.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/fleet/fleet_place.h"
#include "harness/fleet/fleet_run.h"
#include "interpose/settings/size.h"
#include "tools/gpucap/manual.h"
#include "harness/scenario/scenario_docs.h"

#define USAGE 2 /* exit status */

static const struct {
    char letter;
    void (*run)(struct scenario *scenario);
    const char *title;
    char subject[SCENARIO_SUBJECT];
    const char *question;
} scenarios[] = {
    {'a', scenario_pair, "Two models in one process", "two models together",
     "Both train in turns. How small may the card be, and what does a step take, if neither keeps its "
     "memory, "
     "both do, or one pool serves both?"},
    {'b', scenario_arenas, "Many processes that each take what they see", "many greedy processes",
     "Most of them take 90 % of the memory that they are told is free. How many of them train, and on which "
     "card?"},
    {'c', scenario_spike, "A validation that needs memory for a moment", "a validation's peak",
     "Pictures of a validation are prepared on the GPU, beside what holds the training's memory. How small "
     "may "
     "the card be, and how long does the run take?"},
    {'d', scenario_fragments, "A workload that fragments", "sizes that change",
     "Batch and sequence length change every step. How small may the card be, and what does a step take?"},
    {'e', scenario_batch, "The largest batch under a cap", "largest batch",
     "What do accumulation, checkpointing and bf16 buy, when memory is what there is not enough of?"},
    {'f', scenario_throughput, "Throughput of several processes", "throughput",
     "What do several processes on one card do together, against one after the other?"},
    {'g', scenario_peaks, "Peaks that alternate", "peaks that alternate",
     "Trainings that need much for a moment share a budget smaller than the sum of their peaks. Which of "
     "them "
     "train?"},
};
enum { SCENARIOS = sizeof(scenarios) / sizeof(*scenarios) };

enum option_id { CARD, PROCESSES, QUICK, TINY, SIM, OUT, RECORD, WRITE_DOCS, VERBOSE, HELP, MAN, OPTIONS };

/* One table for the parser, the help and the manual page. A form in brackets may be left out. */
static const struct {
    const char *name, *form, *help;
} options[OPTIONS] = {
    [CARD] = {"card", "SIZE", "the size of the card; the default is chosen by what the workload needs"},
    [PROCESSES] = {"processes", "N", "of b, f and g (4)"},
    [QUICK] = {"quick", NULL, "fewer steps, coarser searches"},
    [TINY] = {"tiny", NULL, "the smallest trainings, to check that everything works"},
    [SIM] = {"sim", NULL, "on simgpu even where there is a GPU"},
    [OUT] = {"out", "DIR", "where the pictures go (scenarios-out beside this program)"},
    [RECORD] =
        {"record", "DIR",
         "of a to d, records a way that runs out of memory and gpucap's there, and writes their pages"},
    [WRITE_DOCS] = {"write-docs", "[ROOT]",
                    "also writes ROOT/docs/benchmarks.md and, with several letters, the table in README.md"},
    [VERBOSE] = {"verbose", NULL, "shows every command"},
    [HELP] = {"help", NULL, "this text"},
    [MAN] = {"man", NULL, "print the manual page"},
};

static const char synopsis[] = "[option...] all | LETTER...\n";
static const char description[] =
    "Measures what the library buys, by trainings that it runs itself: one letter each.\n"
    "On a GPU, a card of SIZE is the same GPU with the rest held by a ballast process.\n";
static const char exit_status[] =
    "0 done, 1 a scenario could not be run, 2 bad option, 128 + N after signal N.\n";

static void print_help(FILE *out)
{
    fprintf(out, "usage: scenarios %s%sExit status: %s\n", synopsis, description, exit_status);
    for (int i = 0; i < SCENARIOS; i++)
        fprintf(out, "  %c  %s\n", scenarios[i].letter, scenarios[i].title);
    fputc('\n', out);
    for (int i = 0; i < OPTIONS; i++) {
        char name[64];

        snprintf(name, sizeof(name), "--%s%s%s", options[i].name, options[i].form ? "=" : "",
                 options[i].form ? options[i].form : "");
        fprintf(out, "  %-20s %s\n", name, options[i].help);
    }
}

static void print_manual(FILE *out)
{
    manual_open(out, "scenarios", "measure what gpucap buys");
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
    const char *out, *docs;
    struct scenario scenario;
};

static int refuse(const char *argument)
{
    fprintf(stderr, "scenarios: '%s' is not valid (see --help)\n", argument);
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
    return found ? 0 : refuse(argument);
}

static int set_size(struct settings *settings, const char *text)
{
    struct size_value size;

    if (size_parse(text, strlen(text), &size) || size.is_percent || size.bytes == 0)
        return refuse(text);
    settings->scenario.size = size.bytes;
    return 0;
}

static int set_processes(struct settings *settings, const char *text)
{
    char *end;
    const unsigned long count = strtoul(text, &end, 10);

    if (*end || count < 1 || count > SCENARIO_PROCESSES)
        return refuse(text);
    settings->scenario.processes = (unsigned)count;
    return 0;
}

static int set_option(struct settings *settings, enum option_id id, const char *value)
{
    switch (id) {
    case CARD:
        return set_size(settings, value);
    case PROCESSES:
        return set_processes(settings, value);
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
    case WRITE_DOCS:
        settings->docs = value ? value : ".";
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
        return refuse(argument);
    const size_t length = strcspn(name, "=");
    const char *value = name[length] ? name + length + 1 : NULL;
    while (id < OPTIONS &&
           (strlen(options[id].name) != length || strncmp(options[id].name, name, length) != 0))
        id++;
    if (id == OPTIONS || (value && !options[id].form) ||
        (!value && options[id].form && options[id].form[0] != '['))
        return refuse(argument);
    return set_option(settings, (enum option_id)id, value);
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
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
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

static int run_wanted(struct settings *settings, struct scenario_result *results, unsigned *count,
                      const struct docs_origin *origin)
{
    char path[PATH_MAX];
    int error = 0;

    for (int i = 0; i < SCENARIOS && !fleet_run_stopped(); i++) {
        struct scenario_result *result = &results[*count];
        const uint64_t start = fleet_now();

        if (!settings->wanted[i])
            continue;
        *result = (struct scenario_result){.letter = scenarios[i].letter,
                                           .title = scenarios[i].title,
                                           .subject = scenarios[i].subject,
                                           .question = scenarios[i].question};
        settings->scenario.result = result;
        scenario_say(&settings->scenario, "%s", result->title);
        scenarios[i].run(&settings->scenario);
        result->seconds = (double)(fleet_now() - start) / 1e9;
        if (fleet_run_stopped())
            scenario_note(result, "Stopped before its end.");
        docs_print(result, stdout);
        fflush(stdout);
        (*count)++;
        snprintf(path, sizeof(path), "%s/scenario-%c.svg", settings->out, result->letter);
        error |= docs_plot(path, origin, result, 1);
        error |= result->rows == 0;
    }
    return error;
}

static void print_summary(const struct docs_origin *origin, const struct scenario_result *results,
                          unsigned count)
{
    printf("\non %s\n", origin->device);
    for (unsigned i = 0; i < count; i++)
        if (results[i].verdict[0])
            printf("(%c) without gpucap: %s\n    under gpucap: %s\n    where it does not help: %s\n",
                   results[i].letter, results[i].native, results[i].gpucap, results[i].verdict);
        else
            printf("(%c) not complete: see its table\n", results[i].letter);
    if (origin->simulated)
        printf("Times are those of a simulated device, whose operations the processor computes and whose "
               "allocations\ncost little: build/scenarios on a GPU measures a GPU's.\n");
}

static int run(struct settings *settings, int argc, char **argv)
{
    static struct scenario_result results[SCENARIOS];
    struct docs_origin origin;
    char folder[PATH_MAX], path[PATH_MAX + 32];
    unsigned count = 0;

    if (card_choose(&settings->scenario.card, settings->sim)) {
        fprintf(stderr, "scenarios: %s\n", settings->scenario.card.problem);
        return 1;
    }
    if (prepare_environment(settings) || make_folders(settings, folder))
        return 1;
    docs_origin_here(&origin, &settings->scenario.card, argc, argv);
    fprintf(stderr, "scenarios: on %s\n", origin.device);
    int error = run_wanted(settings, results, &count, &origin);
    if (fleet_run_stopped())
        return 128 + fleet_run_stopped();
    if (settings->docs && docs_write(settings->docs, &origin, results, count))
        error = 1;
    snprintf(path, sizeof(path), "%s/scenarios.svg", settings->out);
    error |= docs_plot(path, &origin, results, count);
    print_summary(&origin, results, count);
    printf("\nplots: %s\n", path);
    return error ? 1 : 0;
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
        return fflush(stdout) ? 1 : 0;
    }
    if (settings.help || !any) {
        print_help(settings.help ? stdout : stderr);
        return !settings.help ? USAGE : fflush(stdout) ? 1 : 0;
    }
    if (fleet_run_open()) {
        fputs("scenarios: signals cannot be read here\n", stderr);
        return 1;
    }
    const int status = run(&settings, argc, argv);
    card_leave(&settings.scenario.card);
    return fflush(stdout) ? 1 : status;
}
