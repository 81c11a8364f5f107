/* scenario_limits: (d) how small a card may be for a workload that fragments, (e) how large a batch may be
 * under a cap. See scenario.h. */
#include "harness/scenario/scenario.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/scenario/scenario_search.h"
#include "harness/scenario/scenario_work.h"

#define PAGE        (UINT64_C(2) << 20)
#define TRIES       14
#define TRIES_QUICK 9
#define TRIES_TINY  5

/* ---- (d) ---- */

struct attempt {
    struct scenario *scenario;
    struct scenario_way way;
    bool capped;
    struct scenario_outcome last_good;
    struct scenario_outcome broken; /* a run that failed for another reason than memory: ends the search */
};

static enum search_answer try_size(uint64_t size, void *arg)
{
    struct attempt *attempt = arg;
    struct scenario_outcome outcome;
    char cap[32];

    if (card_resize(&attempt->scenario->card, size)) {
        snprintf(attempt->broken.ending, sizeof attempt->broken.ending, "no such card");
        snprintf(attempt->broken.reason, sizeof attempt->broken.reason, "%s",
                 attempt->scenario->card.problem);
        return SEARCH_STOP;
    }
    snprintf(cap, sizeof cap, "%llu", (unsigned long long)attempt->scenario->card.set);
    attempt->way.cap = attempt->capped ? cap : NULL;
    if (!scenario_train(attempt->scenario, &attempt->way, &outcome))
        return SEARCH_STOP;
    attempt->way.cap = NULL;
    if (outcome.end == FLEET_OK)
        attempt->last_good = outcome;
    if (outcome.end != FLEET_OK && outcome.end != FLEET_NO_MEMORY) {
        attempt->broken = outcome;
        return SEARCH_STOP;
    }
    return outcome.end == FLEET_OK ? SEARCH_WORKS : SEARCH_FAILS;
}

static const char *const deferred[] = {"GPUCAP_FREE=deferred", NULL};

static const struct {
    const char *name, *alloc;
    bool capped;
    const char *const *variables;
} modes[] = {
    {"naive", "--alloc=naive", false, NULL},
    {"cache", "--alloc=cache", false, NULL},
    {"arena", "--alloc=arena", false, NULL},
    {"async", "--alloc=async", false, NULL},
    {"static", "--alloc=static", false, NULL},
    {"naive under gpucap", "--alloc=naive", true, NULL},
    {"the same, free = deferred", "--alloc=naive", true, deferred},
};
enum { MODES = sizeof modes / sizeof *modes };

static void mode_row(struct scenario *scenario, unsigned mode, const struct search *search,
                     const struct attempt *attempt, bool complete)
{
    struct scenario_result *result = scenario->result;
    char fails[32], works[32];

    scenario_cell_bytes(search->fails, fails, sizeof fails);
    scenario_cell_bytes(search->works, works, sizeof works);
    table_row(&result->table, "%s", modes[mode].name);
    table_set(&result->table, 1, "%s", fails);
    table_set(&result->table, 2, "%s", works);
    if (attempt->broken.ending[0])
        table_set(&result->table, 3, "then %s: %.60s", attempt->broken.ending, attempt->broken.reason);
    else if (search->works && isfinite(attempt->last_good.step_ms))
        table_set(&result->table, 3, "%.2f ms", attempt->last_good.step_ms);
    table_set(&result->table, 4, "%u%s", search->tries, complete ? "" : ", not narrowed to the end");
    table_fill(&result->table, "-");
    scenario_bar(result, modes[mode].name, (double)search->works / (double)(1 << 20),
                 modes[mode].capped ? COLOUR_GPUCAP : COLOUR_NATIVE,
                 search->works ? "fails at %s, trains at %s" : "does not train", fails, works);
}

/* Grain of the search: a page on simgpu, where a try takes a second; else a fraction of the need. */
static uint64_t grain_of(const struct scenario *scenario, uint64_t peak)
{
    return scenario->card.simulated ? PAGE : peak / (scenario->quick ? 12 : 64) / PAGE * PAGE + PAGE;
}

/* Searches the largest size at which each mode fails, starting at half of what a naive run holds. */
void scenario_fragments(struct scenario *scenario)
{
    struct scenario_result *result = scenario->result;
    const char *const few[] = {"--alloc=naive", scenario_few_steps(scenario), NULL};
    const struct scenario_way whole = {"needs: naive", NULL, scenario_work(scenario), few, NULL};
    struct scenario_outcome outcome;
    uint64_t works[MODES] = {0};
    char text[32];

    table_begin(&result->table, "memory|largest card that fails|smallest that trains|step there|cards tried");
    result->bar_title = "MiB of the smallest card on which it trains";
    if (!scenario_card(scenario, scenario->card.whole) || !scenario_train(scenario, &whole, &outcome))
        return;
    if (outcome.end != FLEET_OK) {
        table_row(&result->table, "%s: %s (%.80s)", whole.name, outcome.ending, outcome.reason);
        return;
    }
    scenario_cell_bytes(outcome.peak, text, sizeof text);
    scenario_note(result,
                  "Batch and length change every step; a naive run holds at most %s on a large card, "
                  "by NVML.",
                  text);
    for (unsigned i = 0; i < MODES; i++) {
        const char *const arguments[] = {modes[i].alloc, scenario_few_steps(scenario), NULL};
        struct attempt attempt = {
            .scenario = scenario,
            .way = {modes[i].name, NULL, scenario_work(scenario), arguments, modes[i].variables},
            .capped = modes[i].capped};
        struct search search = {.grain = grain_of(scenario, outcome.peak),
                                .most = scenario->tiny    ? TRIES_TINY
                                        : scenario->quick ? TRIES_QUICK
                                                          : TRIES,
                                .limit = scenario->size ? scenario->size : scenario->card.whole};
        const int status = search_run(&search, outcome.peak - outcome.peak / 8,
                                      outcome.peak + outcome.peak / 8, try_size, &attempt);

        mode_row(scenario, i, &search, &attempt, status == 0);
        works[i] = search.works;
    }
    char first[32], last[32], second[32];
    scenario_cell_bytes(works[0], first, sizeof first);
    scenario_cell_bytes(works[1], second, sizeof second);
    scenario_cell_bytes(works[MODES - 2], last, sizeof last);
    snprintf(result->summary, sizeof result->summary,
             "batch and length change every step, smallest card that trains: naive %s, cache %s, naive under "
             "gpucap %s",
             first, second, last);
}

/* ---- (e) ---- */

static const struct {
    const char *name;
    const char *arguments[4];
} fits[] = {
    {"fp32", {NULL}},
    {"fp32, checkpointing", {"--checkpoint-activations", NULL}},
    {"bf16", {"--precision=bf16", NULL}},
    {"bf16, checkpointing", {"--precision=bf16", "--checkpoint-activations", NULL}},
};

/* The same update from less memory: a batch that does not fit, halved until it does and accumulated. Three
 * times the largest one, so that a quarter of it leaves some room. */
static void accumulation_row(struct scenario *scenario, scenario_work_list base, const char *cap,
                             uint64_t largest)
{
    struct scenario_result *result = scenario->result;
    const char *work[SCENARIO_ARGUMENTS];
    char batch[32], peak[32];
    const char *const more[] = {batch, "--auto-accum", scenario_few_steps(scenario), NULL};
    const struct scenario_way way = {"fp32, accumulation", cap, work, more, NULL};
    struct scenario_outcome outcome;
    unsigned count = 0;

    for (; *base && count < SCENARIO_ARGUMENTS - 1; base++) {
        if (strcmp(*base, "--find-batch") != 0 && strncmp(*base, "--batch=", 8) != 0)
            work[count++] = *base;
    }
    work[count] = NULL;
    const unsigned long long wanted = largest > 4 ? 3 * largest / 4 * 4 : 4 * largest;
    snprintf(batch, sizeof batch, "--batch=%llu", wanted);
    if (!scenario_train(scenario, &way, &outcome))
        return;
    table_row(&result->table, "%s of %llu", way.name, wanted);
    if (outcome.end == FLEET_OK) {
        table_set(&result->table, 1, "%llu x %llu", (unsigned long long)outcome.accumulate,
                  (unsigned long long)outcome.batch);
        table_set(&result->table, 2, "%.1f", outcome.samples_per_s);
        scenario_cell_bytes(outcome.peak, peak, sizeof peak);
        table_set(&result->table, 3, "%s", peak);
        scenario_bar(result, way.name, (double)(outcome.batch * outcome.accumulate), COLOUR_GPUCAP,
                     "%llu x %llu", (unsigned long long)outcome.accumulate,
                     (unsigned long long)outcome.batch);
    } else {
        table_set(&result->table, 1, "%s", outcome.ending);
    }
    table_fill(&result->table, "-");
}

void scenario_batch(struct scenario *scenario)
{
    struct scenario_result *result = scenario->result;
    const uint64_t size = scenario->size               ? scenario->size
                          : scenario->card.simulated   ? UINT64_C(64) << 20
                          : scenario->card.whole >> 34 ? UINT64_C(16) << 30
                                                       : scenario->card.whole / 2;
    char cap[32], card[32], peak[32];
    uint64_t largest[sizeof fits / sizeof *fits] = {0};

    table_begin(&result->table, "training|largest batch|samples/s|peak by NVML");
    result->bar_title = "samples of the largest batch";
    if (!scenario_card(scenario, scenario->card.whole))
        return;
    snprintf(cap, sizeof cap, "%llu", (unsigned long long)size);
    scenario_cell_bytes(size, card, sizeof card);
    scenario_note(result, "Under gpucap with a cap of %s, --alloc=naive.", card);
    for (unsigned i = 0; i < sizeof fits / sizeof *fits; i++) {
        const char *const more[] = {scenario_few_steps(scenario), fits[i].arguments[0],
                                    fits[i].arguments[0] ? fits[i].arguments[1] : NULL, NULL};
        const struct scenario_way way = {fits[i].name, cap, scenario_work(scenario), more, NULL};
        struct scenario_outcome outcome;

        if (!scenario_train(scenario, &way, &outcome))
            return;
        table_row(&result->table, "%s", way.name);
        if (outcome.end == FLEET_OK) {
            largest[i] = outcome.batch;
            scenario_cell_bytes(outcome.peak, peak, sizeof peak);
            table_set(&result->table, 1, "%llu", (unsigned long long)outcome.batch);
            table_set(&result->table, 2, "%.1f", outcome.samples_per_s);
            table_set(&result->table, 3, "%s", peak);
            scenario_bar(result, way.name, (double)outcome.batch, COLOUR_GPUCAP, "%llu",
                         (unsigned long long)outcome.batch);
        } else {
            table_set(&result->table, 1, "%s (%.60s)", outcome.ending, outcome.reason);
        }
        table_fill(&result->table, "-");
        if (i == 0 && largest[0])
            accumulation_row(scenario, scenario_work(scenario), cap, largest[0]);
    }
    snprintf(result->summary, sizeof result->summary,
             "largest batch under a cap of %s: %llu in fp32, %llu with checkpointing, %llu in bf16, %llu in "
             "bf16 with checkpointing",
             card, (unsigned long long)largest[0], (unsigned long long)largest[1],
             (unsigned long long)largest[2], (unsigned long long)largest[3]);
}
