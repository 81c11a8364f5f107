/* scenario_crowd: (b) many processes on one card, most of which take the memory that they see as free: how
 * many of them train, on a ladder of card sizes. See scenario.h. */
#include "harness/scenario/scenario.h"

#include <string.h>

#include "harness/fleet/fleet_budget.h"
#include "harness/scenario/scenario_record.h"
#include "harness/scenario/scenario_work.h"
#include "interpose/settings/options.h"

#define ARENA_LEAST (UINT64_C(48) << 20) /* a tenth of it is some pages, which streams and copies need */
#define MARGIN      (UINT64_C(4) << 20)  /* two pages: what rounding takes */

enum { RUNGS = 4 };

enum crowd_cap {
    NATIVE,
    SHARE_EACH, /* a `gpucap run --max` for each */
    JOB_EACH,   /* one job with the card's size, and `each` */
    JOB,        /* one job, no `each` */
};

struct crowd_way {
    const char *name, *alloc;
    bool fraction; /* told by its own option to take a share */
    enum crowd_cap cap;
    bool tiny; /* also with --tiny */
};

static const struct crowd_way ways[] = {
    {"arena", "--alloc=arena", false, NATIVE, true},
    {"arena, told to take its share", "--alloc=arena", true, NATIVE, false},
    {"naive", "--alloc=naive", false, NATIVE, false},
    {"cache", "--alloc=cache", false, NATIVE, true},
    {"async", "--alloc=async", false, NATIVE, false},
    {"static", "--alloc=static", false, NATIVE, false},
    {"arena, gpucap, a share each", "--alloc=arena", false, SHARE_EACH, true},
    {"arena, gpucap, one job with each", "--alloc=arena", false, JOB_EACH, true},
    {"arena, gpucap, one job", "--alloc=arena", false, JOB, false},
    {"naive, gpucap, one job", "--alloc=naive", false, JOB, false},
};
enum { WAYS = sizeof(ways) / sizeof(*ways) };

struct crowd {
    uint64_t size[RUNGS]; /* falling */
    bool done[RUNGS];     /* by all ways */
    unsigned rungs;
    struct scenario_total total[WAYS][RUNGS];
    uint64_t all_from[WAYS]; /* smallest rung from which on all train; 0: none */
};

/* Chooses the cards: the whole one, and cards that have for each process half more than a training holds, an
 * eighth more, and three quarters of it. */
static bool choose_rungs(struct scenario *scenario, struct crowd *crowd)
{
    const char *const few[] = {"--alloc=naive", scenario_few_steps(scenario), NULL};
    const struct scenario_way way = {
        .name = "needs: naive", .base = scenario_work(scenario), .arguments = few};
    const uint64_t reserve = scenario->card.simulated ? 0 : OPTIONS_RESERVE_STANDARD;
    const uint64_t count = scenario->processes;
    struct scenario_outcome outcome;

    if (scenario->size) {
        crowd->size[crowd->rungs++] = scenario->size;
        return true;
    }
    if (!scenario_needs(scenario, &way, &outcome))
        return false;
    const uint64_t need = scenario_held(scenario, &outcome);
    const uint64_t least = scenario->card.context + reserve + ARENA_LEAST;
    uint64_t share = need + need / 2 + reserve + MARGIN;
    share = share > least ? share : least;
    if (!scenario->tiny)
        crowd->size[crowd->rungs++] = scenario->card.whole;
    crowd->size[crowd->rungs++] = share * count;
    if (!scenario->tiny) {
        crowd->size[crowd->rungs++] = (need + need / 8 + MARGIN) * count;
        crowd->size[crowd->rungs++] = need * count / 4 * 3;
    }
    return true;
}

static bool run_way(struct scenario *scenario, const struct crowd_way *crowd_way,
                    struct scenario_total *total)
{
    const unsigned count = scenario->processes;
    char whole[32], share[32], fraction[32];
    const char *const arguments[] = {scenario_steps(scenario), crowd_way->alloc,
                                     crowd_way->fraction ? fraction : NULL, NULL};
    struct scenario_outcome outcomes[SCENARIO_PROCESSES];
    struct fleet_budget budget;
    struct scenario_way way = {
        .name = crowd_way->name, .base = scenario_work(scenario), .arguments = arguments};

    snprintf(whole, sizeof(whole), "%llu", (unsigned long long)scenario->card.set);
    snprintf(share, sizeof(share), "%llu", (unsigned long long)(scenario->card.set / count));
    snprintf(fraction, sizeof(fraction), "--fraction=%.3f", 0.9 / count);
    if (crowd_way->cap != NATIVE)
        way.cap = crowd_way->cap == SHARE_EACH ? share : whole;
    if (crowd_way->cap == JOB_EACH)
        way.each = share;
    if (crowd_way->cap == JOB_EACH || crowd_way->cap == JOB) {
        fleet_budget_begin(&budget, NULL);
        way.run = budget.words;
    }
    return scenario_train_many(scenario, &way, count, true, outcomes, total);
}

static void cell_of(const struct scenario_total *total, char *text, size_t size)
{
    const unsigned otherwise = total->count - total->trained - total->without_memory;

    if (otherwise)
        snprintf(text, size, "%u of %u, %u died otherwise", total->trained, total->count, otherwise);
    else
        snprintf(text, size, "%u of %u", total->trained, total->count);
}

static bool is_wanted(const struct scenario *scenario, unsigned way)
{
    return !scenario->tiny || ways[way].tiny;
}

/* Runs all ways on one card. Returns false if a signal asked to stop, or if there is no such card. */
static bool run_rung(struct scenario *scenario, struct crowd *crowd, unsigned rung)
{
    char cell[64], card[32];

    for (unsigned i = 0; i < WAYS; i++) {
        struct scenario_total *total = &crowd->total[i][rung];

        if (!is_wanted(scenario, i))
            continue;
        if (!scenario_card(scenario, crowd->size[rung]) || !run_way(scenario, &ways[i], total))
            return false;
        cell_of(total, cell, sizeof(cell));
        scenario_cell_bytes(scenario->card.set, card, sizeof(card));
        scenario_say(scenario, "%-32s card %-10s %s train, %.1f s", ways[i].name, card, cell, total->wall_s);
    }
    crowd->done[rung] = true;
    return true;
}

/* Runs all rungs; if time is short, first those on which the ways differ most. On each rung all ways run or
 * none, so that they can be compared. Returns false if a signal asked to stop, or if no rung was done. */
static bool run_rungs(struct scenario *scenario, struct crowd *crowd)
{
    static const unsigned order[RUNGS] = {1, 2, 0, 3};
    double rung_s = 0;
    bool any = false;

    for (unsigned i = 0; i < RUNGS; i++) {
        const unsigned rung = crowd->rungs < RUNGS ? i : order[i];
        const double before = scenario_left(scenario);
        char card[32];

        if (rung >= crowd->rungs)
            continue;
        if (before <= 0 || before < rung_s) {
            scenario_cell_bytes(crowd->size[rung], card, sizeof(card));
            scenario_note(scenario->result, "No time for a card of %s.", card);
            continue;
        }
        if (!run_rung(scenario, crowd, rung))
            return false;
        rung_s = scenario->until ? before - scenario_left(scenario) : 0;
        any = true;
    }
    return any;
}

int scenario_all_from(const struct scenario_total *totals, const bool *done, unsigned cards)
{
    int from = -1;

    for (unsigned card = 0; card < cards; card++) {
        if (done[card] && totals[card].trained < totals[card].count)
            break; /* that all train on a smaller one was chance */
        from = done[card] ? (int)card : from;
    }
    return from;
}

/* Fills the row of a way. The steps per second are those of the smallest card on which all train. */
static void fill_row(struct scenario_result *result, unsigned i, struct crowd *crowd)
{
    const int from = scenario_all_from(crowd->total[i], crowd->done, crowd->rungs);
    unsigned column = 0;
    char cell[64], card[32];

    table_row(&result->table, "%s", ways[i].name);
    scenario_row(result, ways[i].name, ways[i].cap == NATIVE ? COLOUR_NATIVE : COLOUR_GPUCAP);
    for (unsigned rung = 0; rung < crowd->rungs; rung++) {
        const struct scenario_total *total = &crowd->total[i][rung];

        if (!crowd->done[rung])
            continue;
        cell_of(total, cell, sizeof(cell));
        table_set(&result->table, 2 + column, "%s", cell);
        scenario_bar(result, column++, total->trained, "%u of %u", total->trained, total->count);
    }
    crowd->all_from[i] = from < 0 ? 0 : crowd->size[from];
    scenario_cell_bytes(crowd->all_from[i], card, sizeof(card));
    table_set(&result->table, 1, "%s", card);
    if (from >= 0 && crowd->total[i][from].wall_s > 0)
        table_set(&result->table, 2 + column, "%.1f",
                  (double)crowd->total[i][from].steps / crowd->total[i][from].wall_s);
    table_fill(&result->table);
}

static int best_of(const struct crowd *crowd, bool native)
{
    int best = -1;

    for (unsigned i = 0; i < WAYS; i++) {
        if ((ways[i].cap == NATIVE) == native && crowd->all_from[i] &&
            (best < 0 || crowd->all_from[i] < crowd->all_from[best]))
            best = (int)i;
    }
    return best;
}

static void describe(const struct crowd *crowd, int i, unsigned count, char *text, size_t size)
{
    char card[32];

    if (i < 0) {
        snprintf(text, size, "nowhere all %u", count);
        return;
    }
    scenario_cell_bytes(crowd->all_from[i], card, sizeof(card));
    snprintf(text, size, "all %u train from a card of %s (%s)", count, card, ways[i].name);
}

/* Fills README's table: from which card on all arenas train, natively and under gpucap. */
static void say_briefly(struct scenario_result *result, const struct crowd *crowd)
{
    const int ours = best_of(crowd, false);
    char card[32];

    scenario_cell_bytes(crowd->all_from[0], card, sizeof(card));
    snprintf(result->brief_native, sizeof(result->brief_native), "arenas: %.15s",
             crowd->all_from[0] ? card : "never all");
    scenario_cell_bytes(ours < 0 ? 0 : crowd->all_from[ours], card, sizeof(card));
    snprintf(result->brief_gpucap, sizeof(result->brief_gpucap), "%.12s", ours < 0 ? "never all" : card);
    if (!result->brief_verdict[0])
        snprintf(result->brief_verdict, sizeof(result->brief_verdict), "none");
}

/* Writes where gpucap does not help: native ways that need no larger card, and ways under gpucap that are no
 * better than the best native one. */
static void judge(struct scenario *scenario, const struct crowd *crowd)
{
    struct scenario_result *result = scenario->result;
    const unsigned count = scenario->processes;
    const int native = best_of(crowd, true), ours = best_of(crowd, false);
    char without[160] = "", useless[160] = "";

    describe(crowd, native, count, result->native, sizeof(result->native));
    describe(crowd, ours, count, result->gpucap, sizeof(result->gpucap));
    for (unsigned i = 0; i < WAYS; i++) {
        const bool as_good = ours >= 0 && crowd->all_from[i] && crowd->all_from[i] <= crowd->all_from[ours];
        const bool worse =
            native >= 0 && (!crowd->all_from[i] || crowd->all_from[i] > crowd->all_from[native]);
        char *list = ways[i].cap == NATIVE && as_good                           ? without
                     : ways[i].cap != NATIVE && worse && is_wanted(scenario, i) ? useless
                                                                                : NULL;

        if (list)
            snprintf(list + strlen(list), sizeof(without) - strlen(list), "%s%s", *list ? "; " : "",
                     ways[i].name);
        if (list == without)
            scenario_list(result->brief_verdict, sizeof(result->brief_verdict), ways[i].name);
    }
    if (*without)
        snprintf(result->verdict, sizeof(result->verdict),
                 "programs that take no more than they need; without it all train on as small a card: %s",
                 without);
    else
        snprintf(result->verdict, sizeof(result->verdict),
                 ours < 0 ? SCENARIO_NOT_ALL : "nowhere here: no native way trains all on as small a card");
    say_briefly(result, crowd);
    scenario_note(result, "Where gpucap does not help: %s.", result->verdict);
    if (*useless)
        scenario_note(
            result, "Nor for processes that take all memory that they see as free, so that none is idle: %s.",
            useless);
}

/* Records arenas on the second card, or the only one, if all train there under gpucap: natively, and as one
 * job with `each`. */
static void record(struct scenario *scenario, const struct crowd *crowd)
{
    const char *const arguments[] = {scenario_steps(scenario), "--alloc=arena", NULL};
    const int ours = best_of(crowd, false);
    const uint64_t size = crowd->size[crowd->rungs > 1];
    char whole[32], share[32];
    struct scenario_way way = {
        .name = "arena", .base = scenario_work(scenario), .arguments = arguments, .cap = NULL};

    if (ours < 0 || crowd->all_from[ours] > size || !scenario_card(scenario, size) ||
        !scenario_record(scenario, &way, scenario->processes))
        return;
    snprintf(whole, sizeof(whole), "%llu", (unsigned long long)scenario->card.set);
    snprintf(share, sizeof(share), "%llu", (unsigned long long)(scenario->card.set / scenario->processes));
    way.name = "arena, gpucap, one job with each";
    way.cap = whole;
    way.each = share;
    if (scenario_card(scenario, size))
        scenario_record(scenario, &way, scenario->processes);
}

void scenario_arenas(struct scenario *scenario)
{
    struct scenario_result *result = scenario->result;
    struct crowd crowd = {0};
    char heads[TABLE_COLUMNS * 64] = "together|all train from", card[32];

    table_begin(&result->table, heads);
    if (!choose_rungs(scenario, &crowd))
        return;
    if (!run_rungs(scenario, &crowd)) {
        if (scenario_left(scenario) <= 0)
            snprintf(result->skipped, sizeof(result->skipped), "no card was done by all ways in its time");
        return;
    }
    for (unsigned i = 0; i < crowd.rungs; i++) {
        if (!crowd.done[i])
            continue;
        scenario_cell_bytes(crowd.size[i], card, sizeof(card));
        snprintf(heads + strlen(heads), sizeof(heads) - strlen(heads), "|%s", card);
        struct scenario_panel *panel = &result->panels[scenario_panel(result, true, "processes that train")];
        snprintf(panel->where, sizeof(panel->where), "card of %s", card);
        panel->shared = result->panel_count > 1;
    }
    snprintf(heads + strlen(heads), sizeof(heads) - strlen(heads), "|steps/s there");
    table_begin(&result->table, heads);
    scenario_note(
        result,
        "%u processes. An arena takes 90 %% of the memory that it sees as free or, told to take its share, "
        "90 %% / "
        "%u of it. A share each or each: the card's size / %u; one job: the card's size. Steps/s: on the "
        "smallest card on which all train.",
        scenario->processes, scenario->processes, scenario->processes);
    for (unsigned i = 0; i < WAYS; i++) {
        if (is_wanted(scenario, i))
            fill_row(result, i, &crowd);
    }
    judge(scenario, &crowd);
    if (scenario->record)
        record(scenario, &crowd);
}
