/* scenario_many: (f) throughput of several processes in total. See scenario.h. */
#include "harness/scenario/scenario.h"

#include <math.h>
#include <string.h>

#include "harness/fleet/fleet_mps.h"
#include "harness/scenario/scenario_work.h"

#define PROCESSES_MAX 64

struct manner {
    const char *name;
    bool together, capped, mps;
};

static const struct manner manners[] = {
    {"one after the other", false, false, false},   {"together", true, false, false},
    {"together, MPS", true, false, true},           {"together, gpucap", true, true, false},
    {"together, gpucap and MPS", true, true, true},
};
enum { MANNERS = sizeof manners / sizeof *manners };

struct measured {
    unsigned trained;
    double wall_rate;     /* steps by wall time, startup included */
    double training_rate; /* without startup: the sum of all rates if run together, else their mean */
};

static struct measured measure(const struct scenario_outcome *outcomes, unsigned count, double wall_s,
                               bool together)
{
    struct measured measured = {0};
    uint64_t steps = 0;

    for (unsigned i = 0; i < count; i++) {
        if (outcomes[i].end != FLEET_OK)
            continue;
        measured.trained++;
        steps += outcomes[i].steps;
        if (isfinite(outcomes[i].step_ms) && outcomes[i].step_ms > 0)
            measured.training_rate += 1000 / outcomes[i].step_ms;
    }
    if (!together && measured.trained)
        measured.training_rate /= measured.trained;
    measured.wall_rate = wall_s > 0 ? (double)steps / wall_s : 0;
    return measured;
}

static void manner_row(struct scenario_result *result, const struct manner *manner, unsigned count,
                       const struct measured *now, const struct measured *serial, unsigned colour)
{
    table_row(&result->table, "%s", manner->name);
    table_set(&result->table, 1, "%u of %u", now->trained, count);
    table_set(&result->table, 2, "%.1f", now->training_rate);
    if (serial->training_rate > 0)
        table_set(&result->table, 3, "%.2f", now->training_rate / serial->training_rate);
    table_set(&result->table, 4, "%.1f", now->wall_rate);
    if (serial->wall_rate > 0)
        table_set(&result->table, 5, "%.2f", now->wall_rate / serial->wall_rate);
    table_fill(&result->table, "-");
    scenario_bar(result, manner->name, now->training_rate, colour, "%.1f steps/s", now->training_rate);
    snprintf(result->summary + strlen(result->summary), sizeof result->summary - strlen(result->summary),
             "%s%s %.0f", result->summary[0] ? ", " : "steps/s of all while they train: ", manner->name,
             now->training_rate);
}

static void skip_row(struct scenario_result *result, const struct manner *manner, const char *why)
{
    table_row(&result->table, "%s", manner->name);
    table_set(&result->table, 1, "skipped: %s", why);
    table_fill(&result->table, "-");
}

void scenario_throughput(struct scenario *scenario)
{
    struct scenario_result *result = scenario->result;
    const unsigned count = scenario->processes;
    const char *const steps[] = {scenario_steps(scenario), "--alloc=cache", NULL};
    const uint64_t size = scenario->size ? scenario->size : scenario->card.whole;
    struct scenario_outcome outcomes[PROCESSES_MAX];
    struct measured serial = {0};
    char cap[32];

    table_begin(&result->table, "processes|train|steps/s while training|against one|steps/s with starting|"
                                "against one after the other");
    result->bar_title = "steps per second of all processes while they train";
    if (!scenario_card(scenario, size))
        return;
    snprintf(cap, sizeof cap, "%llu", (unsigned long long)(scenario->card.set / count));
    scenario_note(result, "%u processes; under gpucap each has a %u-th of the card.", count, count);
    for (unsigned i = 0; i < MANNERS; i++) {
        const struct scenario_way way = {manners[i].name, manners[i].capped ? cap : NULL,
                                         scenario_work(scenario), steps, NULL};
        double wall_s = 0;

        if (manners[i].mps && fleet_mps_missing()) {
            skip_row(result, &manners[i], fleet_mps_missing());
            continue;
        }
        if (manners[i].mps && fleet_mps_start()) {
            skip_row(result, &manners[i], "the MPS server did not start");
            continue;
        }
        scenario_say(scenario, "%u processes, %s", count, manners[i].name);
        const bool go_on = scenario_train_many(scenario, &way, count, manners[i].together, outcomes, &wall_s);
        if (manners[i].mps)
            fleet_mps_stop();
        if (!go_on)
            return;
        const struct measured now = measure(outcomes, count, wall_s, manners[i].together);
        if (i == 0)
            serial = now;
        manner_row(result, &manners[i], count, &now, &serial,
                   manners[i].capped ? COLOUR_GPUCAP : COLOUR_NATIVE);
    }
}
