/* scenario_share: (a) two models in one process, (b) many processes with an arena each, (c) a validation that
 * needs memory for a moment. See scenario.h. */
#include "harness/scenario/scenario.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/fleet/fleet_run.h"
#include "harness/scenario/scenario_work.h"

#define PROCESSES_MAX 64
#define ARENA_LEAST   (UINT64_C(48) << 20) /* a tenth of it is some pages, which streams and copies need */
#define MARGIN        (UINT64_C(4) << 20)  /* two pages: what rounding takes */

static bool report_whole(struct scenario *scenario, const struct scenario_way *way,
                         struct scenario_outcome *outcome)
{
    if (!scenario_train(scenario, way, outcome))
        return false;
    if (outcome->end == FLEET_OK)
        return true;
    table_row(&scenario->result->table, "%s, to find out what it needs: %s (%.60s)", way->name,
              outcome->ending, outcome->reason);
    return false;
}

static const char *result_word(const struct scenario_outcome *outcome)
{
    return outcome->end == FLEET_OK ? "trains" : outcome->ending;
}

static void fill_row(struct scenario_result *result, const char *name, const struct scenario_outcome *outcome)
{
    char time[96], peak[32];

    scenario_cell_ms(outcome, time, sizeof time);
    scenario_cell_bytes(outcome->peak, peak, sizeof peak);
    table_row(&result->table, "%s", name);
    table_set(&result->table, 1, "%s", result_word(outcome));
    table_set(&result->table, 2, "%s", outcome->end == FLEET_OK ? time : "-");
    table_set(&result->table, 3, "%s", peak);
}

/* ---- (a) ---- */

static void summarize_pair(struct scenario *scenario, const struct scenario_outcome *outcome, uint64_t size)
{
    struct scenario_result *result = scenario->result;
    char card[32];

    scenario_cell_bytes(size, card, sizeof card);
    char time[4][96];
    for (int i = 0; i < 4; i++)
        scenario_cell_ms(&outcome[i], time[i], sizeof time[i]);
    snprintf(
        result->summary, sizeof result->summary,
        "two models in one process, card of %s, a step: naive %s, private caches %s, naive under gpucap %s, "
        "with free = deferred %s",
        card, time[0], time[1], time[2], time[3]);
}

/* What a run held at its peak. NVML is asked now and then, and memory that is taken for a moment may come and
 * go in between; what train itself counts is there in any case. */
static uint64_t held_by(const struct scenario *scenario, const struct scenario_outcome *outcome)
{
    const uint64_t counted = scenario->card.context + outcome->peak_bytes;

    return outcome->peak > counted ? outcome->peak : counted;
}

/* Between what the models need at once and what two caches keep. */
static uint64_t size_for_pair(struct scenario *scenario, const struct scenario_way *ways)
{
    const struct scenario_way naive = {"needs: naive", NULL, ways[0].base, ways[0].arguments, NULL};
    const struct scenario_way cached = {"private caches, large card", NULL, ways[1].base, ways[1].arguments,
                                        NULL};
    struct scenario_outcome outcome[2];
    char low[32], high[32];

    if (!scenario_card(scenario, scenario->card.whole) || !report_whole(scenario, &naive, &outcome[0]) ||
        !report_whole(scenario, &cached, &outcome[1]))
        return 0;
    fill_row(scenario->result, cached.name, &outcome[1]);
    const uint64_t need = held_by(scenario, &outcome[0]), kept = held_by(scenario, &outcome[1]);
    scenario_cell_bytes(need, low, sizeof low);
    scenario_cell_bytes(kept, high, sizeof high);
    scenario_note(scenario->result, "On a large card the two need %s naively and %s with a cache each.", low,
                  high);
    if (kept <= need + 2 * MARGIN)
        scenario_note(scenario->result, "The caches keep no more than is needed: no card is between.");
    return need / 2 + kept / 2;
}

void scenario_pair(struct scenario *scenario)
{
    struct scenario_result *result = scenario->result;
    const char *steps = scenario_steps(scenario);
    const char *const naive[] = {"--alloc=naive", steps, NULL};
    const char *const cached[] = {"--alloc=cache", "--pair-memory=private", steps, NULL};
    const char *const deferred[] = {"GPUCAP_FREE=deferred", NULL};
    char cap[32], card[32];
    const struct scenario_way ways[] = {
        {"naive", NULL, scenario_work(scenario), naive, NULL},
        {"private caches", NULL, scenario_work(scenario), cached, NULL},
        {"naive under gpucap", cap, scenario_work(scenario), naive, NULL},
        {"the same, free = deferred", cap, scenario_work(scenario), naive, deferred},
    };
    enum { WAYS = sizeof ways / sizeof *ways };
    struct scenario_outcome outcome[WAYS];

    table_begin(&result->table, "memory|result|step|peak by NVML");
    result->bar_title = "milliseconds for a step of both models";
    const uint64_t size = scenario->size ? scenario->size : size_for_pair(scenario, ways);
    if (size == 0 || !scenario_card(scenario, size))
        return;
    scenario_cell_bytes(scenario->card.set, card, sizeof card);
    scenario_note(result, "Card of %s.", card);
    snprintf(cap, sizeof cap, "%llu", (unsigned long long)scenario->card.set);
    for (unsigned i = 0; i < WAYS; i++) {
        if (!scenario_train(scenario, &ways[i], &outcome[i]))
            return;
        const unsigned colour = ways[i].cap ? COLOUR_GPUCAP : COLOUR_NATIVE;
        fill_row(result, ways[i].name, &outcome[i]);
        if (outcome[i].end == FLEET_OK)
            scenario_bar(result, ways[i].name, outcome[i].step_ms, colour, "%.1f ms", outcome[i].step_ms);
        else
            scenario_bar(result, ways[i].name, 0, colour, "%s", outcome[i].ending);
    }
    summarize_pair(scenario, outcome, scenario->card.set);
}

/* ---- (b) ---- */

static void count_row(struct scenario_result *result, const char *name,
                      const struct scenario_outcome *outcomes, unsigned count, double wall_s, unsigned colour)
{
    unsigned trained = 0, without_memory = 0;
    uint64_t steps = 0, peak = 0;
    char text[32];

    for (unsigned i = 0; i < count; i++) {
        trained += outcomes[i].end == FLEET_OK;
        without_memory += outcomes[i].end == FLEET_NO_MEMORY;
        steps += outcomes[i].end == FLEET_OK ? outcomes[i].steps : 0;
        peak = outcomes[i].peak > peak ? outcomes[i].peak : peak;
    }
    scenario_cell_bytes(peak, text, sizeof text);
    table_row(&result->table, "%s", name);
    table_set(&result->table, 1, "%u of %u", trained, count);
    table_set(&result->table, 2, "%u", without_memory);
    table_set(&result->table, 3, "%u", count - trained - without_memory);
    table_set(&result->table, 4, "%.1f", wall_s > 0 ? (double)steps / wall_s : 0);
    table_set(&result->table, 5, "%s", text);
    scenario_bar(result, name, trained, colour, "%u of %u trained", trained, count);
    if (!result->summary[0])
        snprintf(result->summary, sizeof result->summary,
                 "%u processes with an arena each: %u of %u train "
                 "natively",
                 count, trained, count);
    else
        snprintf(result->summary + strlen(result->summary), sizeof result->summary - strlen(result->summary),
                 ", %u of %u under gpucap", trained, count);
}

/* Room for the context, what the library leaves to the driver, and the arena with a third to spare. */
static uint64_t cap_for_arena(struct scenario *scenario)
{
    const char *const few[] = {"--alloc=naive", scenario_few_steps(scenario), NULL};
    const struct scenario_way way = {"needs: naive", NULL, scenario_work(scenario), few, NULL};
    const uint64_t reserve = scenario->card.simulated ? 0 : UINT64_C(64) << 20;
    struct scenario_outcome outcome;

    if (!scenario_card(scenario, scenario->card.whole) || !report_whole(scenario, &way, &outcome))
        return 0;
    const uint64_t need = held_by(scenario, &outcome);
    const uint64_t share = need + need / 2 + reserve + MARGIN;
    const uint64_t least = scenario->card.context + reserve + ARENA_LEAST;
    return share > least ? share : least;
}

void scenario_arenas(struct scenario *scenario)
{
    struct scenario_result *result = scenario->result;
    const unsigned count = scenario->processes;
    const char *const steps[] = {scenario_steps(scenario), NULL};
    char cap[32], card[32], each[32];
    const struct scenario_way ways[] = {
        {"native", NULL, scenario_work(scenario), steps, NULL},
        {"gpucap, a share each", cap, scenario_work(scenario), steps, NULL},
    };
    struct scenario_outcome outcomes[PROCESSES_MAX];
    double wall_s;

    table_begin(&result->table, "together|train|out of memory|died otherwise|steps/s in total|largest peak");
    result->bar_title = "processes that train";
    const uint64_t share = scenario->size ? scenario->size / count : cap_for_arena(scenario);
    if (share == 0 || !scenario_card(scenario, scenario->size ? scenario->size : share * count))
        return;
    scenario_cell_bytes(scenario->card.set, card, sizeof card);
    snprintf(cap, sizeof cap, "%llu", (unsigned long long)(scenario->card.set / count));
    scenario_cell_bytes(scenario->card.set / count, each, sizeof each);
    scenario_note(result,
                  "Card of %s; %u processes, each takes 90 %% of what it is told is free; under gpucap "
                  "each is told %s.",
                  card, count, each);
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        scenario_say(scenario, "%u processes, %s, card of %s", count, ways[i].name, card);
        if (!scenario_train_many(scenario, &ways[i], count, true, outcomes, &wall_s))
            return;
        count_row(result, ways[i].name, outcomes, count, wall_s, ways[i].cap ? COLOUR_GPUCAP : COLOUR_NATIVE);
    }
}

/* ---- (c) ---- */

/* Between what the training needs with the validation on the host, and what a cache keeps beside the spike.
 */
static uint64_t size_for_spike(struct scenario *scenario)
{
    const char *const host[] = {"--alloc=cache", "--val-preprocess=cpu", scenario_few_steps(scenario), NULL};
    const char *const pooled[] = {"--alloc=naive", "--val-preprocess=gpu", scenario_few_steps(scenario),
                                  NULL};
    const char *const device[] = {"--alloc=cache", "--val-preprocess=gpu", scenario_few_steps(scenario),
                                  NULL};
    const struct scenario_way ways[] = {
        {"needs: cache, on the CPU", NULL, scenario_work(scenario), host, NULL},
        {"needs: naive, on the GPU", NULL, scenario_work(scenario), pooled, NULL},
        {"needs: cache, on the GPU", NULL, scenario_work(scenario), device, NULL},
    };
    struct scenario_outcome outcome[3];
    uint64_t held[3];
    char text[3][32];

    if (!scenario_card(scenario, scenario->card.whole))
        return 0;
    for (int i = 0; i < 3; i++) {
        if (!report_whole(scenario, &ways[i], &outcome[i]))
            return 0;
        held[i] = held_by(scenario, &outcome[i]);
        scenario_cell_bytes(held[i], text[i], sizeof text[i]);
    }
    scenario_note(scenario->result,
                  "On a large card: %s with a cache and the pictures prepared on the CPU, %s naively and %s "
                  "with a cache when the GPU prepares them.",
                  text[0], text[1], text[2]);
    const uint64_t low = held[0] > held[1] ? held[0] : held[1];
    if (held[2] <= low + 2 * MARGIN)
        scenario_note(scenario->result, "The cache keeps no more than the spike needs: no card is between.");
    return low / 2 + held[2] / 2;
}

void scenario_spike(struct scenario *scenario)
{
    struct scenario_result *result = scenario->result;
    const char *steps = scenario_steps(scenario);
    const char *const device[] = {"--alloc=cache", "--val-preprocess=gpu", steps, NULL};
    const char *const pooled[] = {"--alloc=naive", "--val-preprocess=gpu", steps, NULL};
    const char *const host[] = {"--alloc=cache", "--val-preprocess=cpu", steps, NULL};
    char cap[32], card[32];
    const struct scenario_way ways[] = {
        {"own cache, validation on the GPU", NULL, scenario_work(scenario), device, NULL},
        {"gpucap: one pool, on the GPU", cap, scenario_work(scenario), pooled, NULL},
        {"own cache, validation on the CPU", NULL, scenario_work(scenario), host, NULL},
    };
    struct scenario_outcome outcome[3];

    table_begin(&result->table, "memory and preprocessing|result|step|peak by NVML|whole run");
    result->bar_title = "seconds for the whole run";
    const uint64_t size = scenario->size ? scenario->size : size_for_spike(scenario);
    if (size == 0 || !scenario_card(scenario, size))
        return;
    scenario_cell_bytes(scenario->card.set, card, sizeof card);
    scenario_note(result, "Card of %s.", card);
    snprintf(cap, sizeof cap, "%llu", (unsigned long long)scenario->card.set);
    for (unsigned i = 0; i < 3; i++) {
        if (!scenario_train(scenario, &ways[i], &outcome[i]))
            return;
        fill_row(result, ways[i].name, &outcome[i]);
        table_set(&result->table, 4, "%.2f s", outcome[i].seconds);
        scenario_bar(result, ways[i].name, outcome[i].end == FLEET_OK ? outcome[i].seconds : 0,
                     ways[i].cap ? COLOUR_GPUCAP : COLOUR_NATIVE, "%s, %.1f s", outcome[i].ending,
                     outcome[i].seconds);
    }
    snprintf(
        result->summary, sizeof result->summary,
        "validation prepared on the GPU, card of %s: own cache %s, one pool under gpucap %s, on the CPU %s",
        card, result_word(&outcome[0]), result_word(&outcome[1]), result_word(&outcome[2]));
}
