/* scenario_ladder_say: the table, picture and verdict of a ladder. See scenario_ladder_climb.h. */
#include "harness/scenario/scenario_ladder_climb.h"

#include <math.h>
#include <string.h>

void climb_say_time(const struct climb *climb, double time, char *text, size_t size)
{
    snprintf(text, size, climb->plan->whole_run ? "%.2f s" : time >= 100 ? "%.0f ms" : "%.1f ms", time);
}

/* Returns true if it is only known which card is too small: the large one is the next that was tried. */
static bool is_unknown(const struct climb *climb, const struct ladder_figures *figures)
{
    return ladder_open(figures, climb->grain) && figures->smallest == climb->rung[0];
}

/* "at most 5.96 GiB" where a smaller card may do, "more than 5.54 GiB" where only that is known. */
static void say_smallest(const struct climb *climb, const struct ladder_figures *figures, char *text,
                         size_t size)
{
    const bool unknown = is_unknown(climb, figures);
    char card[32];

    scenario_cell_bytes(unknown ? figures->fails : figures->smallest, card, sizeof(card));
    snprintf(text, size, "%s%s",
             unknown                              ? "more than "
             : ladder_open(figures, climb->grain) ? "at most "
                                                  : "",
             card);
}

/* "<=" before a size that may be smaller. */
static const char *mark_open(const struct climb *climb, const struct ladder_figures *figures)
{
    return ladder_open(figures, climb->grain) ? "<=" : "";
}

/* Chooses the rungs to show, falling: the whole card, and those that most ways have tried. Returns how many.
 */
static unsigned choose_shown(const struct climb *climb, unsigned shown[LADDER_SHOWN + 1])
{
    unsigned tried[LADDER_RUNGS] = {0}, count = 0;

    for (unsigned rung = 0; rung < climb->rungs; rung++) {
        for (unsigned i = 0; i < climb->plan->count; i++)
            tried[rung] += climb->cell[i][rung][0] != '\0';
    }
    for (unsigned rung = 0; rung < climb->rungs; rung++) {
        unsigned better = 0; /* of the others but the whole card */

        for (unsigned other = 1; other < climb->rungs; other++)
            better += tried[other] > tried[rung] || (tried[other] == tried[rung] && other > rung);
        if (rung == 0 || (tried[rung] && better < LADDER_SHOWN))
            shown[count++] = rung;
    }
    return count;
}

static void fill_table(struct climb *climb)
{
    struct scenario_result *result = climb->scenario->result;
    unsigned shown[LADDER_SHOWN + 1];
    const unsigned columns = choose_shown(climb, shown);
    const char *what = climb->plan->whole_run ? "whole run" : "step";
    char heads[TABLE_COLUMNS * 64], size[48];
    size_t used = (size_t)snprintf(heads, sizeof(heads), "memory|smallest card|%s, large card", what);

    for (unsigned i = 1; i < columns; i++) {
        scenario_cell_bytes(climb->rung[shown[i]], size, sizeof(size));
        used += (size_t)snprintf(heads + used, sizeof(heads) - used, "|%s", size);
    }
    snprintf(heads + used, sizeof(heads) - used, "|held, large card");
    table_begin(&result->table, heads);
    for (unsigned i = 0; i < climb->plan->count; i++) {
        table_row(&result->table, "%s", climb->plan->ways[i].name);
        say_smallest(climb, &climb->figures[i], size, sizeof(size));
        table_set(&result->table, 1, "%s", size);
        for (unsigned column = 0; column < columns; column++)
            table_set(&result->table, 2 + column, "%s", climb->cell[i][shown[column]]);
        scenario_cell_bytes(climb->figures[i].peak, size, sizeof(size));
        table_set(&result->table, 2 + columns, "%s", size);
        table_fill(&result->table);
    }
}

static void fill_picture(struct climb *climb)
{
    struct scenario_result *result = climb->scenario->result;
    unsigned shown[LADDER_SHOWN + 1];
    const unsigned columns = choose_shown(climb, shown);
    const bool large = climb->least >> 30;
    char size[32];

    const unsigned smallest = scenario_panel(result, false, "smallest card, %s", large ? "GiB" : "MiB");
    for (unsigned column = 0; column < columns; column++) {
        scenario_cell_bytes(climb->rung[shown[column]], size, sizeof(size));
        const unsigned panel =
            scenario_panel(result, false, climb->plan->whole_run ? "whole run, s" : "step, ms");
        snprintf(result->panels[panel].where, sizeof(result->panels[panel].where), "card of %s", size);
        result->panels[panel].shared = column > 0;
    }
    for (unsigned i = 0; i < climb->plan->count; i++) {
        const struct ladder_figures *figures = &climb->figures[i];
        const bool unknown = is_unknown(climb, figures);
        const double bytes =
            (double)(unknown ? figures->fails : figures->smallest) / (large ? 1 << 30 : 1 << 20);

        scenario_row(result, climb->plan->ways[i].name, figures->capped ? COLOUR_GPUCAP : COLOUR_NATIVE);
        scenario_bar(result, smallest, bytes, large ? "%s%.2f" : "%s%.0f",
                     unknown ? ">" : mark_open(climb, figures), bytes);
        for (unsigned column = 0; column < columns; column++) {
            const double time = ladder_time(figures, shown[column]);

            if (isfinite(time))
                scenario_bar(result, 1 + column, time,
                             climb->plan->whole_run ? "%.2f"
                             : time >= 100          ? "%.0f"
                                                    : "%.1f",
                             time);
            else
                scenario_bar(result, 1 + column, 0, "%s",
                             figures->fails >= climb->rung[shown[column]] ? "no memory" : "not tried");
        }
    }
}

/* "async (card of 64.0 MiB, 170 ms a step on one of 98.0 MiB)" */
static void describe(const struct climb *climb, int i, int rung, char *text, size_t size)
{
    char card[48], time[32], there[32] = "the large card";

    say_smallest(climb, &climb->figures[i], card, sizeof(card));
    if (rung < 0) {
        snprintf(text, size, "%s (card of %s)", climb->plan->ways[i].name, card);
        return;
    }
    climb_say_time(climb, ladder_time(&climb->figures[i], (unsigned)rung), time, sizeof(time));
    if (rung > 0)
        scenario_cell_bytes(climb->rung[rung], there, sizeof(there));
    snprintf(text, size, "%s (card of %s; %s on %s%s)", climb->plan->ways[i].name, card, time,
             rung > 0 ? "one of " : "", there);
}

/* Adds the wanted ways to the verdict, after some words; nothing if there are none. */
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

/* Fills README's table: the best and the worst native way. */
static void say_natives_briefly(const struct climb *climb, int native, char *cell, size_t size)
{
    const uint64_t best = climb->figures[native].smallest;
    uint64_t worst = best;
    bool unknown = false;
    char low[32], high[32];

    for (unsigned i = 0; i < climb->plan->count; i++) {
        if (climb->figures[i].capped)
            continue;
        unknown |= is_unknown(climb, &climb->figures[i]);
        if (climb->figures[i].smallest > worst)
            worst = climb->figures[i].smallest;
    }
    scenario_cell_bytes(best, low, sizeof(low));
    scenario_cell_bytes(worst, high, sizeof(high));
    if (best != worst && !unknown && !(best >> 30) == !(worst >> 30)) /* one unit for both */
        low[strcspn(low, " ")] = '\0';
    if (unknown && best == worst)
        snprintf(cell, size, "more than gpucap");
    else if (unknown)
        snprintf(cell, size, "%s%.10s to more", mark_open(climb, &climb->figures[native]), low);
    else if (best == worst)
        snprintf(cell, size, "%s%.10s", mark_open(climb, &climb->figures[native]), high);
    else
        snprintf(cell, size, "%s%.8s to %.9s", mark_open(climb, &climb->figures[native]), low, high);
}

/* Fills README's table: the smallest cards, and the native ways that do as well. */
static void say_briefly(const struct climb *climb, const struct ladder_verdict *verdict)
{
    struct scenario_result *result = climb->scenario->result;
    const struct ladder_figures *ours = &climb->figures[verdict->gpucap];
    char card[32];

    say_natives_briefly(climb, verdict->native, result->brief_native, sizeof(result->brief_native));
    scenario_cell_bytes(ours->smallest, card, sizeof(card));
    snprintf(result->brief_gpucap, sizeof(result->brief_gpucap), "%s%.9s", mark_open(climb, ours), card);
    if (join_names(climb, verdict->as_good, result->brief_verdict, sizeof(result->brief_verdict)))
        return;
    snprintf(result->brief_verdict, sizeof(result->brief_verdict), "slower: ");
    if (!join_names(climb, verdict->as_small, result->brief_verdict, sizeof(result->brief_verdict)))
        snprintf(result->brief_verdict, sizeof(result->brief_verdict), "none");
}

/* Returns the fastest native way on the whole card, or -1. */
static int fastest_with_room(const struct climb *climb)
{
    int best = -1;

    for (unsigned i = 0; i < climb->plan->count; i++) {
        const struct ladder_figures *figures = &climb->figures[i];

        if (!figures->capped && figures->on[0].count &&
            (best < 0 || ladder_time(figures, 0) < ladder_time(&climb->figures[best], 0)))
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

    ladder_judge(climb->figures, climb->plan->count, climb->grain, climb->best, &verdict);
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
    scenario_note(result,
                  "Where gpucap does not help: %s. (As good: a card at most %s larger, and not slower. "
                  "Slower: in each of %u turns and by 5 %% in their median, or by half in a single run.)",
                  result->verdict, grain, LADDER_TURNS);
    if (fastest >= 0 && ours->on[0].count) {
        const double ours_ms = ladder_time(ours, 0), native_ms = ladder_time(&climb->figures[fastest], 0);
        char ours_time[32], native_time[32];

        climb_say_time(climb, ours_ms, ours_time, sizeof(ours_time));
        climb_say_time(climb, native_ms, native_time, sizeof(native_time));
        scenario_note(result, "With room to spare: %s %s, %s %s (%.2f times as long).",
                      climb->plan->ways[verdict.gpucap].name, ours_time, climb->plan->ways[fastest].name,
                      native_time, ours_ms / native_ms);
    }
}

void climb_say(struct climb *climb)
{
    fill_table(climb);
    fill_picture(climb);
    scenario_note(climb->scenario->result,
                  climb->cut ? "A dash: a larger card was already too small, or there was no time to try. At "
                               "most: there was no time to look for a smaller card."
                             : "A dash: a larger card was already too small.");
    judge(climb);
}
