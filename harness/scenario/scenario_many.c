/* scenario_many: (f) throughput of several processes in total. See scenario.h. */
#include "harness/scenario/scenario.h"

#include <math.h>

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

enum { TURNS = 3 }; /* of the two ways that the verdict compares */

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
    table_fill(&result->table);
    scenario_row(result, manner->name, colour);
    scenario_bar(result, 0, now->training_rate, "%.1f", now->training_rate);
    scenario_bar(result, 1, now->wall_rate, "%.1f", now->wall_rate);
}

static void skip_row(struct scenario_result *result, const struct manner *manner, const char *why)
{
    table_row(&result->table, "%s", manner->name);
    table_set(&result->table, 1, "skipped: %s", why);
    table_fill(&result->table);
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

/* The faster ones of the ways without and with gpucap; -1: none. */
struct rivals {
    int native, ours;
};

static struct rivals find_rivals(const struct measured *figures)
{
    struct rivals rivals = {-1, -1};

    for (int i = 0; i < MANNERS; i++) {
        int *best = manners[i].cap == BARE ? &rivals.native : &rivals.ours;

        if (figures[i].training_rate > 0 &&
            (*best < 0 || figures[i].training_rate > figures[*best].training_rate))
            *best = i;
    }
    return rivals;
}

/* Runs one manner, MPS around it where it has it. Returns false if a signal asked to stop; `why` then or
 * otherwise says why there is no figure. */
static bool try_manner(struct scenario *scenario, const struct manner *manner, struct measured *now,
                       const char **why)
{
    *why = manner->mps ? fleet_mps_missing() : NULL;
    if (!*why && scenario_left(scenario) <= 0)
        *why = "no time";
    if (!*why && manner->mps && fleet_mps_start())
        *why = "the MPS server did not start";
    if (*why)
        return true;
    const bool go_on = run_manner(scenario, manner, now);
    if (manner->mps)
        fleet_mps_stop();
    return go_on;
}

/* Runs the two again in turns; rate[][0] is of the first turn. Returns how many turns both have. */
static unsigned take_turns(struct scenario *scenario, struct rivals rivals, double rate[2][TURNS],
                           double turn_s)
{
    const int both[2] = {rivals.native, rivals.ours};
    struct measured now = {0};
    const char *why;
    unsigned turns = 1;

    for (; !scenario->tiny && turns < TURNS && scenario_left(scenario) > turn_s; turns++) {
        for (int i = 0; i < 2; i++) {
            if (!try_manner(scenario, &manners[both[i]], &now, &why) || why || now.training_rate <= 0)
                return turns;
            rate[i][turns] = now.training_rate;
        }
    }
    return turns;
}

static double median_of(double *values, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        for (unsigned at = i; at > 0 && values[at - 1] > values[at]; at--) {
            const double swap = values[at];

            values[at] = values[at - 1];
            values[at - 1] = swap;
        }
    }
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Writes the verdict: gpucap helps only if it is faster in every turn, and by more than the turns differ. */
static void judge_throughput(struct scenario *scenario, const struct measured *figures, double turn_s)
{
    struct scenario_result *result = scenario->result;
    const struct rivals rivals = find_rivals(figures);
    double rate[2][TURNS] = {{0}}, ratio[TURNS] = {0};
    bool always = true;

    if (rivals.native < 0 || rivals.ours < 0) {
        snprintf(result->skipped, sizeof(result->skipped), "no figure with and without gpucap");
        return;
    }
    rate[0][0] = figures[rivals.native].training_rate;
    rate[1][0] = figures[rivals.ours].training_rate;
    const unsigned turns = take_turns(scenario, rivals, rate, turn_s);
    for (unsigned i = 0; i < turns; i++) {
        ratio[i] = rate[1][i] / rate[0][i];
        always &= ratio[i] > 1;
    }
    const double middle = median_of(ratio, turns);
    const double native = median_of(rate[0], turns), ours = median_of(rate[1], turns);
    const bool helps = always && middle > (turns == TURNS ? SCENARIO_SAME : SCENARIO_SAME_ONCE);
    snprintf(result->native, sizeof(result->native), "%s: %.1f steps/s", manners[rivals.native].name, native);
    snprintf(result->gpucap, sizeof(result->gpucap), "%s: %.1f steps/s", manners[rivals.ours].name, ours);
    snprintf(result->verdict, sizeof(result->verdict),
             "%s: %.2f times the steps of the best native way (%s; median of %u in turns)",
             helps ? "nowhere here: its best way is faster" : "throughput, where all fits", middle,
             manners[rivals.native].name, turns);
    snprintf(result->brief_native, sizeof(result->brief_native), "%.0f steps/s", native);
    snprintf(result->brief_gpucap, sizeof(result->brief_gpucap), "%.0f/s", ours);
    snprintf(result->brief_verdict, sizeof(result->brief_verdict), "%s",
             helps ? "none" : manners[rivals.native].name);
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
    const uint64_t start = fleet_now();
    for (unsigned i = 0; i < MANNERS; i++) {
        const char *why;

        if (!try_manner(scenario, &manners[i], &figures[i], &why))
            return;
        if (why) {
            skip_row(result, &manners[i], why);
            continue;
        }
        manner_row(result, &manners[i], count, &figures[i], &figures[0],
                   manners[i].cap == BARE ? COLOUR_NATIVE : COLOUR_GPUCAP);
    }
    judge_throughput(scenario, figures, (double)(fleet_now() - start) / 1e9 / 2);
}
