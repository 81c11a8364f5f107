/* scenario_run: runs one or several trainings and reads their outcomes; see scenario.h. */
#include "harness/scenario/scenario.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "harness/fleet/fleet_report.h"
#include "harness/fleet/fleet_run.h"
#include "harness/fleet/fleet_show.h"

#define TIMEOUT_S       300 /* more than any training of a scenario takes */
#define TIMEOUT_LEAST_S 12  /* with a limit of time: for a training that is begun when little is left */

double scenario_left(const struct scenario *scenario)
{
    return scenario->until ? ((double)scenario->until - (double)fleet_now()) / 1e9 : INFINITY;
}

static double timeout_of(const struct scenario *scenario)
{
    return fmin(TIMEOUT_S, fmax(TIMEOUT_LEAST_S, scenario_left(scenario)));
}

void scenario_say(const struct scenario *scenario, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "[%c] ", scenario->result ? scenario->result->letter : '-');
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

void scenario_note(struct scenario_result *result, const char *format, ...)
{
    va_list arguments;

    if (result->notes == SCENARIO_NOTES)
        return;
    va_start(arguments, format);
    vsnprintf(result->note[result->notes++], sizeof(result->note[0]), format, arguments);
    va_end(arguments);
}

void scenario_list(char *cell, size_t size, const char *name)
{
    static const char more[] = ", ...";
    size_t used = strlen(cell);
    const char *gap = used && cell[used - 1] != ' ' ? ", " : "";

    if (used >= sizeof(more) && !strcmp(cell + used - (sizeof(more) - 1), more))
        return;
    if (used + strlen(gap) + strlen(name) < size) {
        snprintf(cell + used, size - used, "%s%s", gap, name);
        return;
    }
    while (used + sizeof(more) > size) { /* without the last name */
        cell[used] = '\0';
        const char *comma = strrchr(cell, ',');
        used = comma ? (size_t)(comma - cell) : 0;
    }
    snprintf(cell + used, size - used, "%s", used ? more : more + 2);
}

unsigned scenario_panel(struct scenario_result *result, bool more, const char *format, ...)
{
    const unsigned i = result->panel_count < SCENARIO_PANELS ? result->panel_count++ : SCENARIO_PANELS - 1;
    va_list arguments;

    result->panels[i].more = more;
    va_start(arguments, format);
    vsnprintf(result->panels[i].title, sizeof(result->panels[i].title), format, arguments);
    va_end(arguments);
    return i;
}

void scenario_row(struct scenario_result *result, const char *label, unsigned colour)
{
    if (result->rows == SCENARIO_ROWS)
        return;
    snprintf(result->row[result->rows], SCENARIO_LABEL, "%s", label);
    result->colour[result->rows++] = colour;
}

void scenario_bar(struct scenario_result *result, unsigned panel, double value, const char *format, ...)
{
    va_list arguments;

    if (result->rows == 0 || panel >= result->panel_count)
        return;
    result->panels[panel].value[result->rows - 1] = value;
    va_start(arguments, format);
    vsnprintf(result->panels[panel].note[result->rows - 1], sizeof(result->panels[panel].note[0]), format,
              arguments);
    va_end(arguments);
}

uint64_t scenario_held(const struct scenario *scenario, const struct scenario_outcome *outcome)
{
    const uint64_t counted = scenario->card.context + outcome->peak_bytes;

    return outcome->peak > counted ? outcome->peak : counted;
}

bool scenario_needs(struct scenario *scenario, const struct scenario_way *way,
                    struct scenario_outcome *outcome)
{
    if (!scenario_card(scenario, scenario->card.whole) || !scenario_train(scenario, way, outcome))
        return false;
    if (outcome->end == FLEET_OK)
        return true;
    table_row(&scenario->result->table, "%s, to find out what it needs: %s (%.60s)", way->name,
              outcome->ending, outcome->reason);
    return false;
}

void scenario_cell_bytes(uint64_t bytes, char *text, size_t size)
{
    fleet_show_bytes(bytes, text, size);
}

/* Writes the text of a cell for step times: "3.2 ms", or "out of memory" and the like. */
static void cell_ms(const struct scenario_outcome *outcome, char *text, size_t size)
{
    if (outcome->end != FLEET_OK)
        snprintf(text, size, "%s", outcome->ending);
    else if (isfinite(outcome->step_ms))
        snprintf(text, size, "%.2f ms", outcome->step_ms);
    else
        snprintf(text, size, "-");
}

bool scenario_card(struct scenario *scenario, uint64_t bytes)
{
    char text[32];

    if (card_resize(&scenario->card, bytes) == 0)
        return true;
    scenario_cell_bytes(bytes, text, sizeof(text));
    scenario_say(scenario, "a card of %s cannot be had: %s", text, scenario->card.problem);
    table_row(&scenario->result->table, "skipped: no card of %s (%s)", text, scenario->card.problem);
    return false;
}

/* Builds argv: train, then both lists. Does not copy the texts. */
static void compose(const struct scenario_way *way, char *argv[SCENARIO_ARGUMENTS])
{
    static char train[] = "train";
    const char *const *const lists[] = {way->base, way->arguments};
    unsigned count = 0;

    argv[count++] = train;
    for (unsigned i = 0; i < 2; i++) {
        for (const char *const *text = lists[i]; text && *text && count < SCENARIO_ARGUMENTS - 1; text++)
            argv[count++] = (char *)(uintptr_t)*text;
    }
    argv[count] = NULL;
}

static uint64_t whole_number(const char *line, const char *key)
{
    const double value = fleet_line_number(line, key, 0);

    return value > 0 && value < 1e18 ? (uint64_t)value : 0;
}

static void judge(const struct fleet_member *member, struct scenario_outcome *outcome)
{
    /* Two models in one process have a line each, whose step is the pair's, and then one together. */
    const char *pair = strstr(member->result, "pair=");

    memset(outcome, 0, sizeof(*outcome));
    outcome->end = member->end;
    fleet_member_ending(member, outcome->ending, sizeof(outcome->ending));
    snprintf(outcome->reason, sizeof(outcome->reason), "%.250s", member->reason);
    outcome->step_ms = fleet_member_step_ms(member);
    outcome->samples_per_s = fleet_line_number(pair ? pair : member->result, "samples_per_s", NAN);
    outcome->seconds = fleet_member_seconds(member);
    outcome->batch = whole_number(member->result, "batch");
    outcome->accumulate = whole_number(member->result, "accumulate");
    outcome->peak_bytes = whole_number(member->result, "peak_bytes");
    outcome->peak = member->peak_memory;
    outcome->steps = fleet_member_steps(member);
}

static void announce(const struct scenario *scenario, const struct scenario_way *way, char *const *argv)
{
    char text[512];
    size_t used = 0;

    if (!scenario->verbose)
        return;
    for (; *argv && used < sizeof(text); argv++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %s", *argv);
    scenario_say(scenario, "%s%s%s%s%s%s%s%s", way->env ? way->env[0] : "", way->env ? " " : "",
                 way->cap ? "gpucap run --max=" : "", way->cap ? way->cap : "", way->each ? " --each=" : "",
                 way->each ? way->each : "", way->cap ? " --" : "", text);
}

static void add_up(const struct scenario_outcome *outcomes, unsigned count, double wall_s, uint64_t card_peak,
                   struct scenario_total *total)
{
    *total = (struct scenario_total){.count = count, .wall_s = wall_s, .peak_of_sum = card_peak};
    for (unsigned i = 0; i < count; i++) {
        const struct scenario_outcome *outcome = &outcomes[i];

        total->trained += outcome->end == FLEET_OK;
        total->without_memory += outcome->end == FLEET_NO_MEMORY;
        total->steps += outcome->end == FLEET_OK ? outcome->steps : 0;
        total->sum_of_peaks += outcome->peak;
        total->largest_peak = outcome->peak > total->largest_peak ? outcome->peak : total->largest_peak;
    }
}

bool scenario_train_many(struct scenario *scenario, const struct scenario_way *way, unsigned count,
                         bool together, struct scenario_outcome *outcomes, struct scenario_total *total)
{
    char *argv[SCENARIO_ARGUMENTS];
    struct fleet_job job = {
        .argv = argv, .cap = way->cap, .env = way->env, .each = way->each, .run = way->run};
    struct fleet_member *members = calloc(count, sizeof(*members));
    struct fleet_show show;
    uint64_t card_peak = 0;
    const struct fleet_watch watch = {.timeout_s = timeout_of(scenario),
                                      .at_once = together ? 0 : 1,
                                      .apart_s = way->apart_s,
                                      .show = fleet_show_all,
                                      .arg = &show,
                                      .card_peak = &card_peak};

    if (!members)
        return false;
    compose(way, argv);
    announce(scenario, way, argv);
    snprintf(job.name, sizeof(job.name), "%s", way->name);
    fleet_show_open(&show, false);
    show.quiet = !show.terminal;
    for (unsigned i = 0; i < count; i++)
        fleet_member_prepare(&members[i], &job);
    const int stopped = fleet_run(members, count, &watch);
    for (unsigned i = 0; i < count; i++)
        judge(&members[i], &outcomes[i]);
    if (total)
        add_up(outcomes, count, fleet_totals(members, count).wall_s, card_peak, total);
    free(members);
    return !stopped;
}

bool scenario_train(struct scenario *scenario, const struct scenario_way *way,
                    struct scenario_outcome *outcome)
{
    char card[32], time[96], peak[32];

    if (!scenario_train_many(scenario, way, 1, true, outcome, NULL))
        return false;
    scenario_cell_bytes(scenario->card.set, card, sizeof(card));
    scenario_cell_bytes(outcome->peak, peak, sizeof(peak));
    cell_ms(outcome, time, sizeof(time));
    scenario_say(scenario, "%-28s card %-10s %-16s peak %-10s %.1f s%s%.120s", way->name, card, time, peak,
                 outcome->seconds, outcome->end == FLEET_FAILED ? "  " : "",
                 outcome->end == FLEET_FAILED ? outcome->reason : "");
    return true;
}
