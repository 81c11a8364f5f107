/* scenario_record: see scenario_record.h. */
#include "harness/scenario/scenario_record.h"

#include <errno.h>
#include <glob.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/fleet/fleet_place.h"

enum { PAGE_WORDS = 4 }; /* of `gpucap page`, beside the recordings */

/* Between the starts of two trainings, so that the page shows who came first: a context is made meanwhile. */
#define APART_SIM_S 0.1
#define APART_S     1.5

extern char **environ;

/* Finds the recordings of a name. Returns false without memory; none is no error. */
static bool find_files(const char *pattern, glob_t *found)
{
    const int error = glob(pattern, 0, NULL, found);

    return error == 0 || error == GLOB_NOMATCH;
}

static bool remove_old(const char *pattern)
{
    glob_t found;

    if (!find_files(pattern, &found))
        return false;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
    return true;
}

static bool run_page(char *gpucap, const glob_t *found, char *page)
{
    static char verb[] = "page", to[] = "-o";
    char **argv = calloc(found->gl_pathc + PAGE_WORDS + 1, sizeof(*argv));
    size_t count = 0;
    pid_t child;
    int status = -1;

    if (!argv)
        return false;
    argv[count++] = gpucap;
    argv[count++] = verb;
    for (size_t i = 0; i < found->gl_pathc; i++)
        argv[count++] = found->gl_pathv[i];
    argv[count++] = to;
    argv[count++] = page;
    if (posix_spawn(&child, gpucap, NULL, NULL, argv, environ) == 0) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    free(argv);
    return status == 0;
}

static bool write_page(const char *pattern, char *page)
{
    char gpucap[PATH_MAX];
    glob_t found;

    if (!fleet_beside("gpucap", gpucap) || !find_files(pattern, &found))
        return false;
    const bool written = found.gl_pathc > 0 && run_page(gpucap, &found, page);
    globfree(&found);
    return written;
}

static void say_outcome(struct scenario *scenario, const struct scenario_way *way,
                        const struct scenario_total *total, const char *page)
{
    const char *name = strrchr(page, '/') + 1;
    char card[32], outcome[64];

    scenario_cell_bytes(scenario->card.set, card, sizeof(card));
    if (total->count > 1)
        snprintf(outcome, sizeof(outcome), "%u of %u train", total->trained, total->count);
    else
        snprintf(outcome, sizeof(outcome), "%s",
                 total->trained          ? "trains"
                 : total->without_memory ? "out of memory"
                                         : "failed");
    scenario_say(scenario, "recorded: %s, card %s: %s, %s", way->name, card, outcome, page);
    scenario_note(scenario->result, "Recorded: %s on a card of %s: %s (%s).", way->name, card, outcome, name);
}

bool scenario_record(struct scenario *scenario, const struct scenario_way *way, unsigned count)
{
    const bool native = !way->cap;
    char stem[PATH_MAX / 2], record[PATH_MAX], pattern[PATH_MAX], page[PATH_MAX], group[64], cap[32];
    const char *const words[] = {group, record, native ? "--pool=off" : NULL, native ? "--reserve=0" : NULL,
                                 NULL};
    struct scenario_outcome outcomes[SCENARIO_PROCESSES];
    struct scenario_total total;
    struct scenario_way recorded = *way;

    snprintf(group, sizeof(group), "--group=scenario-%c%s", scenario->result->letter,
             native ? "" : "-gpucap");
    snprintf(stem, sizeof(stem), "%s/%s", scenario->record, group + strlen("--group="));
    snprintf(record, sizeof(record), "--record=%s.%%p.gpucap", stem);
    snprintf(pattern, sizeof(pattern), "%s.*.gpucap", stem);
    snprintf(page, sizeof(page), "%s.html", stem);
    snprintf(cap, sizeof(cap), "%llu", (unsigned long long)scenario->card.set);
    if (native)
        recorded.cap = cap;
    recorded.run = words;
    recorded.apart_s = scenario->card.simulated ? APART_SIM_S : APART_S;
    if (!remove_old(pattern) || !scenario_train_many(scenario, &recorded, count, true, outcomes, &total))
        return false;
    if (!write_page(pattern, page)) {
        scenario_say(scenario, "no page could be made of %s", pattern);
        return false;
    }
    say_outcome(scenario, way, &total, page);
    return true;
}
