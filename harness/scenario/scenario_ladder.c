/* scenario_ladder: runs several ways of one training on a ladder of card sizes. See scenario_ladder.h.
 *
 * 1. All ways run on the whole card, which shows what each holds.
 * 2. A search finds the smallest card on which the first way under gpucap trains: the lowest rung. The others
 *    lie between it and the most that a way holds.
 * 3. Each way goes down the ladder until it fails; a search between that rung and the one above finds its
 *    smallest card. A card with less than the context and what is live at once fails without a try.
 * 4. If a native way needs no larger card than gpucap, both run again in turns, because one time says little.
 *
 * With a limit of time each way bisects a ladder of more rungs. The ways take turns, one try each, so that
 * all are equally well known when time is over; the result says so. */
#include "harness/scenario/scenario_ladder.h"

#include <math.h>
#include <string.h>

#include "harness/fleet/fleet_run.h"
#include "harness/scenario/scenario_ladder_climb.h"
#include "harness/scenario/scenario_record.h"
#include "harness/scenario/scenario_search.h"
#include "harness/scenario/scenario_work.h"

#define PAGE        (UINT64_C(2) << 20)
#define TRIES       10
#define TRIES_QUICK 5
#define TRIES_TINY  2

/* Runs for which a limit of time leaves room: for the lowest rung, or for the turns at the end. */
#define KEPT_RUNS 6

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

static double median(const double *values, unsigned count)
{
    double sorted[LADDER_TURNS];

    for (unsigned i = 0; i < count; i++) {
        unsigned at = i;

        for (; at > 0 && sorted[at - 1] > values[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = values[i];
    }
    if (count == 0)
        return NAN;
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

double ladder_time(const struct ladder_figures *figures, unsigned rung)
{
    return median(figures->on[rung].turn, figures->on[rung].count);
}

bool ladder_open(const struct ladder_figures *figures, uint64_t grain)
{
    return figures->smallest && figures->fails && figures->smallest > figures->fails + grain;
}

bool ladder_slower(const struct ladder_times *one, const struct ladder_times *other)
{
    const unsigned turns = one->count < other->count ? one->count : other->count;
    double ratio[LADDER_TURNS];

    for (unsigned i = 0; i < turns; i++) {
        ratio[i] = one->turn[i] / other->turn[i];
        if (!(ratio[i] > 1))
            return false;
    }
    return turns && median(ratio, turns) > (turns == LADDER_TURNS ? SCENARIO_SAME : SCENARIO_SAME_ONCE);
}

int ladder_common_rung(const struct ladder_figures *one, const struct ladder_figures *other)
{
    for (int i = LADDER_RUNGS - 1; i >= 0; i--) {
        if (one->on[i].count && other->on[i].count)
            return i;
    }
    return -1;
}

static bool is_better(const struct ladder_figures *one, const struct ladder_figures *other)
{
    const int rung = ladder_common_rung(one, other);

    if (one->smallest != other->smallest)
        return one->smallest < other->smallest;
    return rung >= 0 && ladder_slower(&other->on[rung], &one->on[rung]);
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

/* If the search for a native way's smallest card did not end, the way counts as small, unless it failed on
 * the card on which gpucap trains. */
static bool is_small(const struct ladder_figures *native, const struct ladder_figures *ours, uint64_t grain)
{
    const bool doubt = ladder_open(native, grain) && native->fails < ours->smallest;

    return !native->capped && native->smallest && (doubt || native->smallest <= ours->smallest + grain);
}

void ladder_judge(const struct ladder_figures *figures, unsigned count, uint64_t grain, int ours,
                  struct ladder_verdict *verdict)
{
    memset(verdict, 0, sizeof(*verdict));
    verdict->gpucap = ours >= 0 ? ours : best_of(figures, count, true);
    verdict->native = best_of(figures, count, false);
    for (unsigned i = 0; verdict->gpucap >= 0 && i < count; i++) {
        const struct ladder_figures *native = &figures[i], *best = &figures[verdict->gpucap];
        const int rung = ladder_common_rung(native, best);
        const bool small = is_small(native, best, grain);

        verdict->as_good[i] = small && rung >= 0 && !ladder_slower(&native->on[rung], &best->on[rung]);
        verdict->as_small[i] = small && !verdict->as_good[i];
    }
}

/* ---- running ---- */

static double time_of(const struct climb *climb, const struct scenario_outcome *outcome)
{
    return climb->plan->whole_run ? outcome->seconds : outcome->step_ms;
}

/* Returns true if the time that is left is enough for so many runs, by what the others took. */
static bool has_time(struct climb *climb, double runs)
{
    const double took = (double)(fleet_now() - climb->began) / 1e9;

    if (climb->runs == 0 || scenario_left(climb->scenario) >= runs * took / climb->runs)
        return true;
    climb->cut = true;
    return false;
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

    climb->runs++;
    return prepare(climb, way, size, steps, &full) && scenario_train(climb->scenario, &full.way, outcome);
}

/* Returns the smallest rung above `size` on which the way trains; 0: none. */
static uint64_t rung_above(const struct climb *climb, const struct ladder_figures *figures, uint64_t size)
{
    uint64_t above = 0;

    for (unsigned rung = 0; rung < climb->rungs; rung++) {
        if (figures->on[rung].count && climb->rung[rung] > size)
            above = climb->rung[rung];
    }
    return above;
}

/* Enters what a run on a card says of the smallest one. A card that failed once is too small. */
static void enter_size(struct climb *climb, struct ladder_figures *figures, uint64_t size, enum fleet_end end)
{
    if (end == FLEET_OK && size > figures->fails && (!figures->smallest || size < figures->smallest))
        figures->smallest = size;
    if (end == FLEET_NO_MEMORY && size > figures->fails)
        figures->fails = size;
    if (figures->smallest && figures->smallest <= figures->fails)
        figures->smallest = rung_above(climb, figures, figures->fails);
}

/* Runs a way on a rung and notes its time: the first one, or one more turn. */
static bool stand_on(struct climb *climb, unsigned i, unsigned rung, struct scenario_outcome *outcome)
{
    struct ladder_figures *figures = &climb->figures[i];
    struct ladder_times *times = &figures->on[rung];
    char *cell = climb->cell[i][rung], time[32];

    if (!train_on(climb, &climb->plan->ways[i], climb->rung[rung], climb->plan->steps, outcome))
        return false;
    if (outcome->end == FLEET_OK && times->count < LADDER_TURNS)
        times->turn[times->count++] = time_of(climb, outcome);
    else if (times->count)
        climb->no_memory[i][rung]++;
    enter_size(climb, figures, climb->rung[rung], outcome->end);
    if (times->count == 0) {
        snprintf(cell, sizeof(climb->cell[0][0]), "%.47s", outcome->ending);
        return true;
    }
    climb_say_time(climb, ladder_time(figures, rung), time, sizeof(time));
    if (climb->no_memory[i][rung])
        snprintf(cell, sizeof(climb->cell[0][0]), "%.20s (%u of %u failed)", time, climb->no_memory[i][rung],
                 climb->no_memory[i][rung] + times->count);
    else
        snprintf(cell, sizeof(climb->cell[0][0]), "%.31s", time);
    return true;
}

/* Runs all ways on the whole card. */
static bool begin(struct climb *climb)
{
    const struct scenario *scenario = climb->scenario;

    climb->least = climb->low = UINT64_MAX;
    climb->rung[0] = scenario->card.whole;
    climb->rungs = 1;
    for (unsigned i = 0; i < climb->plan->count; i++) {
        struct scenario_outcome outcome;

        if (scenario_left(scenario) <= 0 || !stand_on(climb, i, 0, &outcome))
            return false;
        if (outcome.end != FLEET_OK)
            continue;
        climb->figures[i].peak = scenario_held(scenario, &outcome);
        const uint64_t live = scenario->card.context + outcome.peak_bytes;
        climb->least = live < climb->least ? live : climb->least;
        /* An arena takes all that it finds: its peak does not show what it needs. */
        if (climb->figures[i].peak >= scenario->card.whole / 2)
            continue;
        climb->high = climb->figures[i].peak > climb->high ? climb->figures[i].peak : climb->high;
        climb->low = climb->figures[i].peak < climb->low ? climb->figures[i].peak : climb->low;
    }
    if (climb->high == 0)
        return false;
    climb->grain =
        scenario->card.simulated ? PAGE : climb->least / (scenario->quick ? 16 : 64) / PAGE * PAGE + PAGE;
    return true;
}

static unsigned most_tries(const struct scenario *scenario)
{
    return scenario->tiny ? TRIES_TINY : scenario->quick ? TRIES_QUICK : TRIES;
}

static enum search_answer try_card(uint64_t size, void *arg)
{
    struct climb *climb = arg;
    struct scenario_outcome outcome;

    if (!has_time(climb, KEPT_RUNS) ||
        !train_on(climb, &climb->plan->ways[climb->trying], size, climb->plan->few_steps, &outcome))
        return SEARCH_STOP;
    if (outcome.end != FLEET_OK && outcome.end != FLEET_NO_MEMORY)
        return SEARCH_STOP;
    enter_size(climb, &climb->figures[climb->trying], size, outcome.end);
    return outcome.end == FLEET_OK ? SEARCH_WORKS : SEARCH_FAILS;
}

/* Searches the lowest rung: the smallest card of the first way under gpucap. */
static uint64_t find_low(struct climb *climb)
{
    struct search search = {
        .grain = climb->grain, .most = most_tries(climb->scenario), .limit = climb->scenario->card.whole};
    const uint64_t least = climb->least + climb->grain;

    climb->trying = 0;
    while (climb->trying < climb->plan->count &&
           (!climb->figures[climb->trying].capped || !climb->figures[climb->trying].peak))
        climb->trying++;
    if (climb->trying == climb->plan->count)
        return least;
    search_run(&search, climb->least, climb->figures[climb->trying].peak + climb->grain, try_card, climb);
    climb->tries[climb->trying] = search.tries;
    return search.works > least && search.works < climb->high ? search.works : least;
}

static void choose_rungs(struct climb *climb)
{
    const struct scenario *scenario = climb->scenario;
    uint64_t low = climb->least + climb->grain;
    unsigned wanted = scenario->tiny ? 2 : scenario->quick ? 3 : LADDER_SHOWN;

    if (scenario->size) {
        climb->rung[climb->rungs++] = scenario->size;
        return;
    }
    if (scenario->until) {
        low = climb->low > low ? climb->low : low;
        wanted = LADDER_RUNGS - 1;
    } else {
        low = find_low(climb);
    }
    climb->rungs += ladder_sizes(low, climb->high + climb->grain, climb->grain, wanted, &climb->rung[1]);
}

/* Runs all ways down the ladder, each until it fails. Returns false if a signal asked to stop. */
static bool descend(struct climb *climb)
{
    struct scenario_outcome outcome;

    for (unsigned rung = 1; rung < climb->rungs; rung++) {
        for (unsigned i = climb->plan->count;
             i-- > 0;) { /* gpucap's first: the others are compared with it */
            const struct ladder_figures *figures = &climb->figures[i];

            if (!figures->smallest || figures->fails >= climb->rung[rung])
                continue;
            if (!stand_on(climb, i, rung, &outcome))
                return false;
        }
    }
    return true;
}

/* Returns the rung in the middle of what is not known of a way; 0: all is known. */
static unsigned middle_rung(const struct climb *climb, const struct ladder_figures *figures)
{
    unsigned trains = 0, fails = climb->rungs;

    for (unsigned rung = 0; rung < climb->rungs; rung++) {
        if (figures->on[rung].count)
            trains = rung;
    }
    while (fails > trains + 1 && climb->rung[fails - 1] <= figures->fails)
        fails--;
    return figures->smallest && fails > trains + 1 ? (trains + fails) / 2 : 0;
}

/* Makes one try of each way that is not known yet, from the largest card to the smallest, gpucap's ways
 * first. *tries: how many there were. Returns false if a signal asked to stop. */
static bool bisect_once(struct climb *climb, unsigned kept, unsigned *tries)
{
    struct scenario_outcome outcome;
    unsigned middle[LADDER_WAYS];

    *tries = 0;
    for (unsigned i = 0; i < climb->plan->count; i++) {
        middle[i] = middle_rung(climb, &climb->figures[i]);
        *tries += middle[i] > 0;
    }
    if (kept && !has_time(climb, *tries + kept))
        *tries = 0;
    for (unsigned rung = 1; *tries && rung < climb->rungs; rung++) {
        for (unsigned i = climb->plan->count; i-- > 0;) {
            if (middle[i] == rung && has_time(climb, 1) && !stand_on(climb, i, rung, &outcome))
                return false;
        }
    }
    return true;
}

/* Makes two tries of each way, and a third one if there is time for it and for the turns. Returns false if a
 * signal asked to stop. */
static bool bisect(struct climb *climb)
{
    enum { TIMES = 3 };
    unsigned tries = 1;

    for (unsigned i = 0; i < TIMES && tries; i++) {
        if (!bisect_once(climb, i < 2 ? 0 : KEPT_RUNS, &tries))
            return false;
    }
    return true;
}

/* Searches the smallest cards, one try of each way at a time, gpucap's first: if time ends, a native way
 * counts as small (is_small). Returns false if a signal asked to stop. */
static bool narrow(struct climb *climb)
{
    const uint64_t least = (climb->least - 1) / climb->grain * climb->grain;
    bool any = !climb->scenario->size;

    for (unsigned i = 0; i < climb->plan->count; i++) { /* less than is live at once cannot do */
        if (any && climb->figures[i].smallest && !climb->figures[i].fails)
            climb->figures[i].fails = least;
    }
    while (any) {
        any = false;
        for (unsigned i = climb->plan->count; i-- > 0;) {
            const struct ladder_figures *figures = &climb->figures[i];
            struct search search = {
                .grain = climb->grain, .most = 1, .works = figures->smallest, .fails = figures->fails};

            if (!ladder_open(figures, climb->grain) || climb->tries[i] >= most_tries(climb->scenario))
                continue;
            climb->trying = i;
            search_narrow(&search, try_card, climb);
            climb->tries[i]++;
            any |= search.tries > 0;
            if (fleet_run_stopped())
                return false;
        }
    }
    return true;
}

/* Runs again, in turns, the best way under gpucap and the native ways that need no larger card. Returns false
 * if a signal asked to stop. */
static bool take_turns(struct climb *climb)
{
    bool wanted[LADDER_RUNGS][LADDER_WAYS] = {{false}};
    struct scenario_outcome outcome;
    struct ladder_verdict verdict;

    ladder_judge(climb->figures, climb->plan->count, climb->grain, -1, &verdict);
    climb->best = verdict.gpucap;
    for (unsigned i = 0; i < climb->plan->count && !climb->scenario->tiny; i++) {
        const int rung =
            verdict.gpucap < 0 ? -1 : ladder_common_rung(&climb->figures[i], &climb->figures[verdict.gpucap]);

        if (rung >= 0 && (verdict.as_good[i] || verdict.as_small[i]))
            wanted[rung][i] = wanted[rung][verdict.gpucap] = true;
    }
    for (unsigned rung = 0; rung < climb->rungs; rung++) {
        unsigned ways = 0;

        for (unsigned i = 0; i < climb->plan->count; i++)
            ways += wanted[rung][i];
        for (unsigned turn = 1; ways && turn < LADDER_TURNS && has_time(climb, ways); turn++) {
            for (unsigned i = 0; i < climb->plan->count; i++) {
                if (wanted[rung][i] && !stand_on(climb, i, rung, &outcome))
                    return false;
            }
        }
    }
    return true;
}

/* Records the way that is to be shown and the best way under gpucap, on the largest card on which the former
 * fails. */
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

/* Notes ways without a try on a smaller card than the whole one: the verdict is incomplete. */
static void say_if_incomplete(const struct climb *climb)
{
    struct scenario_result *result = climb->scenario->result;
    unsigned missing = climb->best < 0;

    for (unsigned i = 0; i < climb->plan->count; i++) {
        bool tried = climb->figures[i].peak == 0;

        for (unsigned rung = 1; rung < climb->rungs; rung++)
            tried |= climb->cell[i][rung][0] != '\0';
        missing += !tried;
    }
    if (missing)
        snprintf(result->skipped, sizeof(result->skipped), "no smaller card was tried by %u of %u ways%s",
                 missing, climb->plan->count, climb->cut ? ", for lack of time" : "");
}

void ladder_run(struct scenario *scenario, const struct ladder_plan *plan)
{
    static struct climb climb; /* too large for a stack */

    climb = (struct climb){.scenario = scenario, .plan = plan, .best = -1, .began = fleet_now()};
    table_begin(&scenario->result->table, "memory");
    for (unsigned i = 0; i < plan->count; i++)
        climb.figures[i].capped = plan->ways[i].capped;
    if (!begin(&climb)) {
        if (scenario_left(scenario) <= 0)
            snprintf(scenario->result->skipped, sizeof(scenario->result->skipped),
                     "not all ways were done on the large card in its time");
        return;
    }
    choose_rungs(&climb);
    if (fleet_run_stopped() || !(scenario->until ? bisect(&climb) : descend(&climb)) || !narrow(&climb) ||
        !take_turns(&climb))
        return;
    climb_say(&climb);
    say_if_incomplete(&climb);
    if (scenario->record)
        record(&climb);
}
