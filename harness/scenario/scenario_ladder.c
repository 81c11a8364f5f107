/* scenario_ladder: runs several ways of one training on a ladder of card sizes. See scenario_ladder.h. The
 * whole card comes first and says what each way holds; the other rungs lie between the least that any way
 * must have and the most that one holds. A way goes down the ladder until it fails. The smallest card is then
 * searched between that rung and the one above; a card with less than the context and what is live at once is
 * known to fail. */
#include "harness/scenario/scenario_ladder.h"

#include <math.h>
#include <string.h>

#include "harness/fleet/fleet_run.h"
#include "harness/scenario/scenario_record.h"
#include "harness/scenario/scenario_search.h"
#include "harness/scenario/scenario_work.h"

#define PAGE        (UINT64_C(2) << 20)
#define TRIES       10
#define TRIES_QUICK 5
#define TRIES_TINY  2

unsigned ladder_sizes(uint64_t low, uint64_t high, uint64_t grain, unsigned wanted, uint64_t *sizes)
{
    unsigned count = 0;

    for (unsigned i = 0; i < wanted; i++) {
        const double share = wanted > 1 ? (double)i / (wanted - 1) : 0;
        const double exact = (double)high * pow((double)low / (double)high, share);
        const uint64_t size = ((uint64_t)exact + grain - 1) / grain * grain;

        if (count == 0 || size < sizes[count - 1])
            sizes[count++] = size;
    }
    return count;
}

/* ---- the verdict ---- */

int ladder_common_rung(const struct ladder_figures *one, const struct ladder_figures *other)
{
    for (int i = LADDER_RUNGS - 1; i >= 0; i--) {
        if (isfinite(one->time[i]) && isfinite(other->time[i]))
            return i;
    }
    return -1;
}

static bool is_better(const struct ladder_figures *one, const struct ladder_figures *other)
{
    const int rung = ladder_common_rung(one, other);

    if (one->smallest != other->smallest)
        return one->smallest < other->smallest;
    return rung >= 0 && one->time[rung] < other->time[rung];
}

static int best_of(const struct ladder_figures *figures, unsigned count, bool capped)
{
    int best = -1;

    for (unsigned i = 0; i < count; i++) {
        if (figures[i].capped == capped && figures[i].smallest &&
            (best < 0 || is_better(&figures[i], &figures[best])))
            best = (int)i;
    }
    return best;
}

void ladder_judge(const struct ladder_figures *figures, unsigned count, uint64_t grain,
                  struct ladder_verdict *verdict)
{
    memset(verdict, 0, sizeof(*verdict));
    verdict->gpucap = best_of(figures, count, true);
    verdict->native = best_of(figures, count, false);
    for (unsigned i = 0; verdict->gpucap >= 0 && i < count; i++) {
        const struct ladder_figures *native = &figures[i], *ours = &figures[verdict->gpucap];
        const int rung = ladder_common_rung(native, ours);

        const bool small = !native->capped && native->smallest && native->smallest <= ours->smallest + grain;

        verdict->as_good[i] = small && rung >= 0 && native->time[rung] <= ours->time[rung] * LADDER_SAME;
        verdict->as_small[i] = small && !verdict->as_good[i];
    }
}

/* ---- running ---- */

struct climb {
    struct scenario *scenario;
    const struct ladder_plan *plan;
    uint64_t rung[LADDER_RUNGS]; /* sizes; the first is the whole card */
    unsigned rungs;
    uint64_t grain;
    struct ladder_figures figures[LADDER_WAYS];
    uint64_t least; /* no way fits a smaller card: the context, and the least live bytes of any way */
    char cell[LADDER_WAYS][LADDER_RUNGS][48];
    int best;                     /* the best way under gpucap; -1: none */
    const struct ladder_way *way; /* of the search */
    struct scenario_outcome last; /* of the search */
};

static double time_of(const struct climb *climb, const struct scenario_outcome *outcome)
{
    if (outcome->end != FLEET_OK)
        return NAN;
    return climb->plan->whole_run ? outcome->seconds : outcome->step_ms;
}

static void say_time(const struct climb *climb, double time, char *text, size_t size)
{
    snprintf(text, size, climb->plan->whole_run ? "%.2f s" : time >= 100 ? "%.0f ms" : "%.1f ms", time);
}

/* A way with all its arguments. */
struct full_way {
    const char *arguments[8];
    char cap[32];
    struct scenario_way way; /* points into this structure */
};

/* Makes a card of that size and says how to train on it. Returns false if there is no such card. */
static bool prepare(struct climb *climb, const struct ladder_way *way, uint64_t size, const char *steps,
                    struct full_way *full)
{
    *full = (struct full_way){.arguments = {steps},
                              .way = {.name = way->name,
                                      .base = scenario_work(climb->scenario),
                                      .arguments = full->arguments,
                                      .env = way->env}};
    for (unsigned i = 0; i < 4 && way->arguments[i]; i++)
        full->arguments[1 + i] = way->arguments[i];
    if (!scenario_card(climb->scenario, size))
        return false;
    snprintf(full->cap, sizeof(full->cap), "%llu", (unsigned long long)climb->scenario->card.set);
    full->way.cap = way->capped ? full->cap : NULL;
    return true;
}

/* Returns false if a signal asked to stop, or if there is no such card. */
static bool train_on(struct climb *climb, const struct ladder_way *way, uint64_t size, const char *steps,
                     struct scenario_outcome *outcome)
{
    struct full_way full;

    return prepare(climb, way, size, steps, &full) && scenario_train(climb->scenario, &full.way, outcome);
}

static bool stand_on(struct climb *climb, unsigned i, unsigned rung, struct scenario_outcome *outcome)
{
    struct ladder_figures *figures = &climb->figures[i];

    if (!train_on(climb, &climb->plan->ways[i], climb->rung[rung], climb->plan->steps, outcome))
        return false;
    figures->time[rung] = time_of(climb, outcome);
    if (outcome->end == FLEET_OK) {
        figures->smallest = climb->rung[rung];
        say_time(climb, figures->time[rung], climb->cell[i][rung], sizeof(climb->cell[i][rung]));
    } else {
        snprintf(climb->cell[i][rung], sizeof(climb->cell[i][rung]), "%.47s", outcome->ending);
    }
    return true;
}

/* All ways on the whole card; then the sizes of the other rungs are known. */
static bool begin(struct climb *climb)
{
    const struct scenario *scenario = climb->scenario;
    const unsigned wanted = scenario->tiny ? 2 : LADDER_RUNGS - 1;
    uint64_t high = 0;

    climb->least = UINT64_MAX;
    climb->rung[0] = scenario->card.whole;
    climb->rungs = 1;
    for (unsigned i = 0; i < climb->plan->count; i++) {
        struct scenario_outcome outcome;

        if (!stand_on(climb, i, 0, &outcome))
            return false;
        if (outcome.end != FLEET_OK)
            continue;
        climb->figures[i].peak = scenario_held(scenario, &outcome);
        const uint64_t live = scenario->card.context + outcome.peak_bytes;
        climb->least = live < climb->least ? live : climb->least;
        /* An arena holds what it finds, so that its peak is no need. */
        if (climb->figures[i].peak < scenario->card.whole / 2 && climb->figures[i].peak > high)
            high = climb->figures[i].peak;
    }
    if (high == 0)
        return false;
    climb->grain =
        scenario->card.simulated ? PAGE : climb->least / (scenario->quick ? 16 : 64) / PAGE * PAGE + PAGE;
    if (scenario->size) {
        climb->rung[climb->rungs++] = scenario->size;
        return true;
    }
    climb->rungs +=
        ladder_sizes(climb->least + climb->grain, high + climb->grain, climb->grain, wanted, &climb->rung[1]);
    return true;
}

static enum search_answer try_card(uint64_t size, void *arg)
{
    struct climb *climb = arg;

    if (!train_on(climb, climb->way, size, climb->plan->few_steps, &climb->last))
        return SEARCH_STOP;
    if (climb->last.end != FLEET_OK && climb->last.end != FLEET_NO_MEMORY)
        return SEARCH_STOP;
    return climb->last.end == FLEET_OK ? SEARCH_WORKS : SEARCH_FAILS;
}

/* Down the ladder until it fails, then the search. Returns false if a signal asked to stop. */
static bool descend(struct climb *climb, unsigned i)
{
    const struct scenario *scenario = climb->scenario;
    struct ladder_figures *figures = &climb->figures[i];
    struct search search = {.grain = climb->grain,
                            .most = scenario->tiny    ? TRIES_TINY
                                    : scenario->quick ? TRIES_QUICK
                                                      : TRIES};
    struct scenario_outcome outcome = {.end = figures->peak ? FLEET_OK : FLEET_FAILED};
    uint64_t failed = (climb->least - 1) / climb->grain * climb->grain;

    for (unsigned rung = 1; rung < climb->rungs && outcome.end == FLEET_OK; rung++) {
        if (!stand_on(climb, i, rung, &outcome))
            return false;
        if (outcome.end != FLEET_OK)
            failed = climb->rung[rung];
    }
    if (!figures->smallest || scenario->size)
        return true;
    search.works = figures->smallest;
    search.fails = failed;
    climb->way = &climb->plan->ways[i];
    search_narrow(&search, try_card, climb);
    figures->smallest = search.works;
    figures->fails = search.fails;
    return !fleet_run_stopped();
}

/* ---- what is said ---- */

static void fill_table(struct climb *climb)
{
    struct scenario_result *result = climb->scenario->result;
    const char *what = climb->plan->whole_run ? "whole run" : "step";
    char heads[TABLE_COLUMNS * 64], size[32];
    size_t used = (size_t)snprintf(heads, sizeof(heads), "memory|smallest card|%s, large card", what);

    for (unsigned rung = 1; rung < climb->rungs; rung++) {
        scenario_cell_bytes(climb->rung[rung], size, sizeof(size));
        used += (size_t)snprintf(heads + used, sizeof(heads) - used, "|%s", size);
    }
    snprintf(heads + used, sizeof(heads) - used, "|held, large card");
    table_begin(&result->table, heads);
    for (unsigned i = 0; i < climb->plan->count; i++) {
        table_row(&result->table, "%s", climb->plan->ways[i].name);
        scenario_cell_bytes(climb->figures[i].smallest, size, sizeof(size));
        table_set(&result->table, 1, "%s", size);
        for (unsigned rung = 0; rung < climb->rungs; rung++)
            table_set(&result->table, 2 + rung, "%s", climb->cell[i][rung]);
        scenario_cell_bytes(climb->figures[i].peak, size, sizeof(size));
        table_set(&result->table, 2 + climb->rungs, "%s", size);
        table_fill(&result->table, "-");
    }
}

static void fill_picture(struct climb *climb)
{
    struct scenario_result *result = climb->scenario->result;
    const bool large = climb->figures[0].smallest >> 30;
    char size[32];

    const unsigned smallest = scenario_panel(result, false, "smallest card, %s", large ? "GiB" : "MiB");
    for (unsigned rung = 0; rung < climb->rungs; rung++) {
        scenario_cell_bytes(climb->rung[rung], size, sizeof(size));
        const unsigned panel =
            scenario_panel(result, false, climb->plan->whole_run ? "whole run, s" : "step, ms");
        snprintf(result->panels[panel].where, sizeof(result->panels[panel].where), "card of %s", size);
        result->panels[panel].shared = rung > 0;
    }
    for (unsigned i = 0; i < climb->plan->count; i++) {
        const struct ladder_figures *figures = &climb->figures[i];
        const double bytes = (double)figures->smallest / (large ? 1 << 30 : 1 << 20);

        scenario_row(result, climb->plan->ways[i].name, figures->capped ? COLOUR_GPUCAP : COLOUR_NATIVE);
        scenario_bar(result, smallest, bytes, large ? "%.2f" : "%.0f", bytes);
        for (unsigned rung = 0; rung < climb->rungs; rung++) {
            const double time = figures->time[rung];

            if (isfinite(time))
                scenario_bar(result, 1 + rung, time,
                             climb->plan->whole_run ? "%.2f"
                             : time >= 100          ? "%.0f"
                                                    : "%.1f",
                             time);
            else
                scenario_bar(result, 1 + rung, 0, "no memory");
        }
    }
}

/* "async (card of 64.0 MiB, 170 ms a step on one of 98.0 MiB)" */
static void describe(const struct climb *climb, int i, int rung, char *text, size_t size)
{
    char card[32], time[32], there[32] = "the large card";

    scenario_cell_bytes(climb->figures[i].smallest, card, sizeof(card));
    if (rung < 0) {
        snprintf(text, size, "%s (card of %s)", climb->plan->ways[i].name, card);
        return;
    }
    say_time(climb, climb->figures[i].time[rung], time, sizeof(time));
    if (rung > 0)
        scenario_cell_bytes(climb->rung[rung], there, sizeof(there));
    snprintf(text, size, "%s (card of %s; %s on %s%s)", climb->plan->ways[i].name, card, time,
             rung > 0 ? "one of " : "", there);
}

/* The ways of one kind, behind its words; nothing if there are none. */
static void list_ways(const struct climb *climb, const struct ladder_verdict *verdict, const bool *wanted,
                      const char *words, char *text, size_t size)
{
    const char *gap = words;
    size_t used = strlen(text);

    for (unsigned i = 0; i < climb->plan->count && used < size; i++) {
        char one[128];

        if (!wanted[i])
            continue;
        describe(climb, (int)i, ladder_common_rung(&climb->figures[i], &climb->figures[verdict->gpucap]), one,
                 sizeof(one));
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s%s", gap == words && used ? "; " : "", gap, one);
        gap = ", ";
    }
}

/* Joins the names of the ways that are wanted. Returns true if there is one. */
static bool join_names(const struct climb *climb, const bool *wanted, char *text, size_t size)
{
    bool any = false;

    for (unsigned i = 0; i < climb->plan->count; i++) {
        if (wanted[i])
            scenario_list(text, size, climb->plan->ways[i].name);
        any |= wanted[i];
    }
    return any;
}

/* For README's table: the smallest cards, and the native ways that do as well. */
static void say_briefly(const struct climb *climb, const struct ladder_verdict *verdict)
{
    struct scenario_result *result = climb->scenario->result;
    const uint64_t best = climb->figures[verdict->native].smallest;
    uint64_t worst = best;
    char low[32], high[32];

    for (unsigned i = 0; i < climb->plan->count; i++) {
        if (!climb->figures[i].capped && climb->figures[i].smallest > worst)
            worst = climb->figures[i].smallest;
    }
    scenario_cell_bytes(best, low, sizeof(low));
    scenario_cell_bytes(worst, high, sizeof(high));
    if (!(best >> 30) == !(worst >> 30)) /* one unit for both */
        low[strcspn(low, " ")] = '\0';
    if (best == worst)
        snprintf(result->brief_native, sizeof(result->brief_native), "%.10s", high);
    else
        snprintf(result->brief_native, sizeof(result->brief_native), "%.10s to %.9s", low, high);
    scenario_cell_bytes(climb->figures[verdict->gpucap].smallest, result->brief_gpucap,
                        sizeof(result->brief_gpucap));
    if (join_names(climb, verdict->as_good, result->brief_verdict, sizeof(result->brief_verdict)))
        return;
    snprintf(result->brief_verdict, sizeof(result->brief_verdict), "slower: ");
    if (!join_names(climb, verdict->as_small, result->brief_verdict, sizeof(result->brief_verdict)))
        snprintf(result->brief_verdict, sizeof(result->brief_verdict), "none");
}

/* The fastest native way where memory is plenty. */
static int fastest_with_room(const struct climb *climb)
{
    int best = -1;

    for (unsigned i = 0; i < climb->plan->count; i++) {
        const struct ladder_figures *figures = &climb->figures[i];

        if (!figures->capped && isfinite(figures->time[0]) &&
            (best < 0 || figures->time[0] < climb->figures[best].time[0]))
            best = (int)i;
    }
    return best;
}

static void judge(struct climb *climb)
{
    struct scenario_result *result = climb->scenario->result;
    const int fastest = fastest_with_room(climb);
    struct ladder_verdict verdict;
    char grain[32];

    ladder_judge(climb->figures, climb->plan->count, climb->grain, &verdict);
    climb->best = verdict.gpucap;
    if (verdict.gpucap < 0 || verdict.native < 0)
        return;
    const struct ladder_figures *ours = &climb->figures[verdict.gpucap];
    const int rung = ladder_common_rung(ours, &climb->figures[verdict.native]);
    describe(climb, verdict.native, rung, result->native, sizeof(result->native));
    describe(climb, verdict.gpucap, rung, result->gpucap, sizeof(result->gpucap));
    list_ways(climb, &verdict, verdict.as_good, "as good without it: ", result->verdict,
              sizeof(result->verdict));
    list_ways(climb, &verdict, verdict.as_small,
              "as small a card without it, in more time: ", result->verdict, sizeof(result->verdict));
    say_briefly(climb, &verdict);
    scenario_cell_bytes(climb->grain, grain, sizeof(grain));
    if (!result->verdict[0])
        snprintf(result->verdict, sizeof(result->verdict),
                 "nowhere here: no native way needs as small a card");
    scenario_note(
        result,
        "Where gpucap does not help: %s. (As good: a card at most %s larger, a time at most 5 %% longer.)",
        result->verdict, grain);
    if (fastest >= 0 && isfinite(ours->time[0]) && climb->figures[fastest].time[0] > 0) {
        char ours_time[32], native_time[32];

        say_time(climb, ours->time[0], ours_time, sizeof(ours_time));
        say_time(climb, climb->figures[fastest].time[0], native_time, sizeof(native_time));
        scenario_note(result, "With room to spare: %s %s, %s %s (%.2f times as long).",
                      climb->plan->ways[verdict.gpucap].name, ours_time, climb->plan->ways[fastest].name,
                      native_time, ours->time[0] / climb->figures[fastest].time[0]);
    }
}

/* On the largest card that is too small for the way of the recording, it and the best one under gpucap. */
static void record(struct climb *climb)
{
    const struct ladder_figures *shown = &climb->figures[climb->plan->shown];
    const unsigned ways[] = {climb->plan->shown, (unsigned)climb->best};
    struct full_way full;

    if (climb->best < 0 || shown->fails < climb->figures[climb->best].smallest) {
        scenario_note(climb->scenario->result, "Nothing to record: gpucap needs as large a card as %s.",
                      climb->plan->ways[climb->plan->shown].name);
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        if (!prepare(climb, &climb->plan->ways[ways[i]], shown->fails, climb->plan->few_steps, &full) ||
            !scenario_record(climb->scenario, &full.way, 1))
            return;
    }
}

void ladder_run(struct scenario *scenario, const struct ladder_plan *plan)
{
    static struct climb climb; /* too large for a stack */

    climb = (struct climb){.scenario = scenario, .plan = plan};
    table_begin(&scenario->result->table, "memory");
    for (unsigned i = 0; i < LADDER_WAYS; i++) {
        climb.figures[i].capped = i < plan->count && plan->ways[i].capped;
        for (unsigned rung = 0; rung < LADDER_RUNGS; rung++)
            climb.figures[i].time[rung] = NAN;
    }
    if (!begin(&climb))
        return;
    for (unsigned i = 0; i < plan->count; i++) {
        if (!descend(&climb, i))
            return;
    }
    fill_table(&climb);
    fill_picture(&climb);
    scenario_note(scenario->result, "A dash: a larger card was too small already.");
    judge(&climb);
    if (scenario->record)
        record(&climb);
}
