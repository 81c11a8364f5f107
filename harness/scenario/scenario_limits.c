/* scenario_limits: (e) how large a batch may be under a cap. See scenario.h. */
#include "harness/scenario/scenario.h"

#include <stdlib.h>
#include <string.h>

#include "harness/fleet/fleet_run.h"
#include "harness/scenario/scenario_work.h"

static const struct {
    const char *name;
    const char *arguments[4];
} fits[] = {
    {"fp32", {NULL}},
    {"fp32, checkpointing", {"--checkpoint-activations", NULL}},
    {"bf16", {"--precision=bf16", NULL}},
    {"bf16, checkpointing", {"--precision=bf16", "--checkpoint-activations", NULL}},
};

#define CAP_SIM   (UINT64_C(64) << 20) /* contexts have 16 MiB of it */
#define CAP_QUICK (UINT64_C(42) << 20)
#define CAP_GPU   (UINT64_C(16) << 30)
#define CAP_SHORT (UINT64_C(6) << 30) /* --quick: with 16 GiB the searches took 104 s on an H200 */

/* Adds the row of accumulation: a batch that does not fit is halved until it does, and accumulated. It is
 * three times the largest that fits (four times a small one), so that a quarter of it leaves some room. */
static void accumulation_row(struct scenario *scenario, scenario_work_list base, const char *cap,
                             uint64_t largest)
{
    struct scenario_result *result = scenario->result;
    const char *work[SCENARIO_ARGUMENTS];
    char batch[32], peak[32];
    const char *const more[] = {batch, "--auto-accum", scenario_few_steps(scenario), NULL};
    const struct scenario_way way = {"fp32, accumulation", cap, work, more, NULL, NULL, NULL, 0};
    struct scenario_outcome outcome;
    unsigned count = 0;

    for (; *base && count < SCENARIO_ARGUMENTS - 1; base++) {
        if (strcmp(*base, "--find-batch") != 0 && strncmp(*base, "--batch=", 8) != 0)
            work[count++] = *base;
    }
    work[count] = NULL;
    const unsigned long long wanted = largest > 4 ? 3 * largest / 4 * 4 : 4 * largest;
    snprintf(batch, sizeof(batch), "--batch=%llu", wanted);
    if (!scenario_train(scenario, &way, &outcome))
        return;
    table_row(&result->table, "%s of %llu", way.name, wanted);
    if (outcome.end == FLEET_OK) {
        table_set(&result->table, 1, "%llu x %llu", (unsigned long long)outcome.accumulate,
                  (unsigned long long)outcome.batch);
        table_set(&result->table, 2, "%.1f", outcome.samples_per_s);
        scenario_cell_bytes(outcome.peak, peak, sizeof(peak));
        table_set(&result->table, 3, "%s", peak);
        scenario_row(result, way.name, COLOUR_GPUCAP);
        scenario_bar(result, 0, (double)(outcome.batch * outcome.accumulate), "%llu x %llu",
                     (unsigned long long)outcome.accumulate, (unsigned long long)outcome.batch);
        scenario_bar(result, 1, outcome.samples_per_s, "%.1f", outcome.samples_per_s);
    } else {
        table_set(&result->table, 1, "%s", outcome.ending);
    }
    table_fill(&result->table);
}

/* Trains with the largest batch and adds its row. Returns the batch; 0: none. */
static uint64_t batch_row(struct scenario *scenario, const struct scenario_way *way)
{
    struct scenario_result *result = scenario->result;
    struct scenario_outcome outcome;
    char peak[32];

    if (!scenario_train(scenario, way, &outcome))
        return 0;
    table_row(&result->table, "%s", way->name);
    if (outcome.end == FLEET_OK) {
        scenario_cell_bytes(outcome.peak, peak, sizeof(peak));
        table_set(&result->table, 1, "%llu", (unsigned long long)outcome.batch);
        table_set(&result->table, 2, "%.1f", outcome.samples_per_s);
        table_set(&result->table, 3, "%s", peak);
        scenario_row(result, way->name, way->cap ? COLOUR_GPUCAP : COLOUR_NATIVE);
        scenario_bar(result, 0, (double)outcome.batch, "%llu", (unsigned long long)outcome.batch);
        scenario_bar(result, 1, outcome.samples_per_s, "%.1f", outcome.samples_per_s);
    } else {
        table_set(&result->table, 1, "%s (%.60s)", outcome.ending, outcome.reason);
    }
    table_fill(&result->table);
    return outcome.end == FLEET_OK ? outcome.batch : 0;
}

static uint64_t cap_of(const struct scenario *scenario)
{
    if (scenario->size)
        return scenario->size;
    if (scenario->card.simulated) /* the smaller one, because a step takes as long as its batch is large */
        return scenario->quick ? CAP_QUICK : CAP_SIM;
    const uint64_t cap = scenario->quick ? CAP_SHORT : CAP_GPU;
    return scenario->card.whole > cap ? cap : scenario->card.whole / 2;
}

void scenario_batch(struct scenario *scenario)
{
    struct scenario_result *result = scenario->result;
    const uint64_t size = cap_of(scenario);
    const char *const plain[] = {scenario_few_steps(scenario), NULL};
    const struct scenario_way native = {
        "fp32, a card of that size", NULL, scenario_work(scenario), plain, NULL, NULL, NULL, 0};
    uint64_t largest[sizeof(fits) / sizeof(*fits)] = {0};
    char cap[32], card[32];

    table_begin(&result->table, "training|largest batch|samples/s|peak by NVML");
    scenario_panel(result, true, "largest batch, samples");
    scenario_panel(result, true, "samples/s");
    snprintf(cap, sizeof(cap), "%llu", (unsigned long long)size);
    scenario_cell_bytes(size, card, sizeof(card));
    scenario_note(result, "Under gpucap with a cap of %s, --alloc=naive; the first row without gpucap.",
                  card);
    if (!scenario_card(scenario, size))
        return;
    const uint64_t natively = batch_row(scenario, &native);
    if (!scenario_card(scenario, scenario->card.whole))
        return;
    for (unsigned i = 0; i < sizeof(fits) / sizeof(*fits) && !fleet_run_stopped(); i++) {
        if (scenario_left(scenario) <= 0) {
            scenario_note(result, "No time for: %s.", fits[i].name);
            continue;
        }
        const char *const more[] = {scenario_few_steps(scenario), fits[i].arguments[0],
                                    fits[i].arguments[0] ? fits[i].arguments[1] : NULL, NULL};
        const struct scenario_way way = {fits[i].name, cap, scenario_work(scenario), more, NULL, NULL,
                                         NULL,         0};

        largest[i] = batch_row(scenario, &way);
        if (i == 0 && largest[0])
            accumulation_row(scenario, scenario_work(scenario), cap, largest[0]);
    }
    if (!largest[0] || !natively) {
        snprintf(result->skipped, sizeof(result->skipped), "no figure for fp32 with and without gpucap");
        return;
    }
    snprintf(result->native, sizeof(result->native), "batch of %llu on a card of %s",
             (unsigned long long)natively, card);
    snprintf(result->gpucap, sizeof(result->gpucap), "batch of %llu under a cap of %s",
             (unsigned long long)largest[0], card);
    if (largest[3])
        snprintf(result->gpucap + strlen(result->gpucap), sizeof(result->gpucap) - strlen(result->gpucap),
                 ", %llu with checkpointing and bf16", (unsigned long long)largest[3]);
    snprintf(result->verdict, sizeof(result->verdict),
             "%s: %llu in fp32 against %llu; checkpointing and bf16 help as much without it",
             largest[0] <= natively ? "no larger batch"
                                    : "nowhere here: its pool makes room for a larger batch",
             (unsigned long long)largest[0], (unsigned long long)natively);
    snprintf(result->brief_native, sizeof(result->brief_native), "batch of %u", (unsigned)natively);
    snprintf(result->brief_gpucap, sizeof(result->brief_gpucap), "%u", (unsigned)largest[0]);
    snprintf(result->brief_verdict, sizeof(result->brief_verdict), "%s",
             largest[0] <= natively ? "a card of that size" : "none");
    scenario_note(result, "Where gpucap does not help: %s.", result->verdict);
}
