/* scenario_many: (f) throughput of several processes in total. See scenario.h. */
#include "harness/scenario/scenario.h"

#include <math.h>
#include <string.h>

#include "harness/fleet/fleet_budget.h"
#include "harness/fleet/fleet_mps.h"
#include "harness/scenario/scenario_work.h"

struct manner {
    const char *name;
    bool together;
    enum { BARE, SHARE_EACH, ONE_JOB } cap;
    bool mps;
};

static const struct manner manners[] = {
    {"one after the other", false, BARE, false}, {"together", true, BARE, false},
    {"together, MPS", true, BARE, true},         {"gpucap, a share each", true, SHARE_EACH, false},
    {"gpucap, one job", true, ONE_JOB, false},   {"gpucap, one job, and MPS", true, ONE_JOB, true},
};
enum { MANNERS = sizeof(manners) / sizeof(*manners) };

struct measured {
    unsigned trained;
    double wall_rate;     /* steps by wall time, startup included */
    double training_rate; /* without startup: the sum of all rates if run together, else their mean */
};

static struct measured measure(const struct scenario_outcome *outcomes, const struct scenario_total *total,
                               bool together)
{
    struct measured measured = {.trained = total->trained};

    for (unsigned i = 0; i < total->count; i++) {
        if (outcomes[i].end != FLEET_OK)
            continue;
        if (isfinite(outcomes[i].step_ms) && outcomes[i].step_ms > 0)
            measured.training_rate += 1000 / outcomes[i].step_ms;
    }
    if (!together && measured.trained)
        measured.training_rate /= measured.trained;
    measured.wall_rate = total->wall_s > 0 ? (double)total->steps / total->wall_s : 0;
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
    scenario_row(result, manner->name, colour);
    scenario_bar(result, 0, now->training_rate, "%.1f", now->training_rate);
    scenario_bar(result, 1, now->wall_rate, "%.1f", now->wall_rate);
}

static void skip_row(struct scenario_result *result, const struct manner *manner, const char *why)
{
    table_row(&result->table, "%s", manner->name);
    table_set(&result->table, 1, "skipped: %s", why);
    table_fill(&result->table, "-");
}

/* Runs one manner. Returns false if a signal asked to stop. */
static bool run_manner(struct scenario *scenario, const struct manner *manner, struct measured *now)
{
    const unsigned count = scenario->processes;
    const char *const steps[] = {scenario_steps(scenario), "--alloc=cache", NULL};
    struct scenario_outcome outcomes[SCENARIO_PROCESSES];
    struct scenario_total total;
    struct fleet_budget budget;
    char cap[32];
    struct scenario_way way = {.name = manner->name, .base = scenario_work(scenario), .arguments = steps};

    snprintf(cap, sizeof(cap), "%llu",
             (unsigned long long)(scenario->card.set / (manner->cap == SHARE_EACH ? count : 1)));
    way.cap = manner->cap == BARE ? NULL : cap;
    if (manner->cap == ONE_JOB) {
        fleet_budget_begin(&budget, NULL);
        way.run = budget.words;
    }
    scenario_say(scenario, "%u processes, %s", count, manner->name);
    if (!scenario_train_many(scenario, &way, count, manner->together, outcomes, &total))
        return false;
    *now = measure(outcomes, &total, manner->together);
    return true;
}

static void judge_throughput(struct scenario_result *result, const struct measured *figures)
{
    int native = 0, ours = -1;

    for (int i = 1; i < MANNERS; i++) {
        if (manners[i].cap == BARE && figures[i].training_rate > figures[native].training_rate)
            native = i;
        if (manners[i].cap != BARE && (ours < 0 || figures[i].training_rate > figures[ours].training_rate))
            ours = i;
    }
    if (ours < 0 || figures[native].training_rate <= 0)
        return;
    snprintf(result->native, sizeof(result->native), "%s: %.1f steps/s", manners[native].name,
             figures[native].training_rate);
    snprintf(result->gpucap, sizeof(result->gpucap), "%s: %.1f steps/s", manners[ours].name,
             figures[ours].training_rate);
    const double ratio = figures[ours].training_rate / figures[native].training_rate;
    snprintf(result->verdict, sizeof(result->verdict), "%s: %.2f times the steps of the best native way",
             ratio > 1.05 ? "nowhere here: its best way is faster" : "throughput, where all fits", ratio);
    snprintf(result->brief_native, sizeof(result->brief_native), "%.0f steps/s",
             figures[native].training_rate);
    snprintf(result->brief_gpucap, sizeof(result->brief_gpucap), "%.0f/s", figures[ours].training_rate);
    snprintf(result->brief_verdict, sizeof(result->brief_verdict), "%s",
             ratio > 1.05 ? "none" : manners[native].name);
    scenario_note(result, "Where gpucap does not help: %s.", result->verdict);
}

void scenario_throughput(struct scenario *scenario)
{
    struct scenario_result *result = scenario->result;
    const unsigned count = scenario->processes;
    struct measured figures[MANNERS] = {{0}};

    table_begin(&result->table, "processes|train|steps/s while training|against one|steps/s with starting|"
                                "against one after the other");
    scenario_panel(result, true, "steps/s of all while training");
    scenario_panel(result, true, "steps/s, starting included");
    if (!scenario_card(scenario, scenario->size ? scenario->size : scenario->card.whole))
        return;
    scenario_note(result, "%u processes; a share is the card's size / %u, one job has the whole of it.",
                  count, count);
    for (unsigned i = 0; i < MANNERS; i++) {
        if (manners[i].mps && fleet_mps_missing()) {
            skip_row(result, &manners[i], fleet_mps_missing());
            continue;
        }
        if (manners[i].mps && fleet_mps_start()) {
            skip_row(result, &manners[i], "the MPS server did not start");
            continue;
        }
        const bool go_on = run_manner(scenario, &manners[i], &figures[i]);
        if (manners[i].mps)
            fleet_mps_stop();
        if (!go_on)
            return;
        manner_row(result, &manners[i], count, &figures[i], &figures[0],
                   manners[i].cap == BARE ? COLOUR_NATIVE : COLOUR_GPUCAP);
    }
    judge_throughput(result, figures);
}
