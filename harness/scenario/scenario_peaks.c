/* scenario_peaks: (g) trainings whose peaks alternate share a budget smaller than the sum of their peaks. The
 * peak is a validation whose raw pictures lie on the GPU for a moment; between two of them a training needs
 * little. The budget holds what all need between their peaks, and one peak. See scenario.h. */
#include "harness/scenario/scenario.h"

#include <string.h>

#include "harness/fleet/fleet_budget.h"
#include "harness/scenario/scenario_work.h"
#include "interpose/settings/options.h"

#define PAGE      (UINT64_C(2) << 20)
#define VAL_BATCH 160 /* pictures of 192 KiB: 30 MiB */
#define VAL_GPU   48  /* pictures of 12 MiB: 576 MiB */
#define VAL_TINY  256 /* pictures of 48 KiB: 12 MiB */
#define HALVINGS  3   /* of a validation's batch, until it fits a share */
#define WAIT      "60s"

enum row { SERIAL, NATIVE, SHARE, SHARE_SMALLER, JOB, JOB_WAITS, ROWS };

struct figures {
    bool done;
    struct scenario_total total;
    struct ledger_totals job; /* of a job */
};

struct peaks {
    struct scenario *scenario;
    unsigned batch;      /* of a validation */
    unsigned smaller;    /* that fits a share; 0: none */
    uint64_t base, peak; /* of one training: between its peaks, and at one */
    uint64_t budget;
    struct figures figures[ROWS];
};

static unsigned val_batch(const struct scenario *scenario)
{
    return scenario->tiny ? VAL_TINY : scenario->card.simulated ? VAL_BATCH : VAL_GPU;
}

/* Arguments of a run whose validation has as many samples in batches of another size. */
struct arguments {
    char batch[32], batches[32];
    const char *list[4];
};

static void set_arguments(struct arguments *arguments, const struct peaks *peaks, unsigned batch,
                          const char *steps)
{
    snprintf(arguments->batch, sizeof(arguments->batch), "--val-batch=%u", batch);
    snprintf(arguments->batches, sizeof(arguments->batches), "--val-batches=%u",
             (peaks->batch + batch - 1) / batch);
    arguments->list[0] = steps;
    arguments->list[1] = arguments->batch;
    arguments->list[2] = arguments->batches;
    arguments->list[3] = NULL;
}

/* Measures what one training holds at its peak, and with a validation of single pictures. */
static bool find_needs(struct peaks *peaks)
{
    struct scenario *scenario = peaks->scenario;
    static const char *const single[] = {"--steps=3", "--val-batch=1", "--val-batches=1", NULL};
    struct arguments arguments;
    const struct scenario_way at_peak = {
        .name = "needs: at a peak", .base = scenario_work(scenario), .arguments = arguments.list};
    const struct scenario_way between = {
        .name = "needs: between peaks", .base = scenario_work(scenario), .arguments = single};
    struct scenario_outcome outcome;

    set_arguments(&arguments, peaks, peaks->batch, scenario_few_steps(scenario));
    if (!scenario_needs(scenario, &at_peak, &outcome))
        return false;
    peaks->peak = scenario_held(scenario, &outcome);
    if (!scenario_needs(scenario, &between, &outcome))
        return false;
    peaks->base = scenario_held(scenario, &outcome);
    return peaks->peak > peaks->base;
}

/* Returns what all need between their peaks, plus one peak and a quarter of it. With half of a second peak,
 * two trainings could each get a part of theirs, and both would wait for the rest. */
static uint64_t budget_for(const struct peaks *peaks)
{
    const struct scenario *scenario = peaks->scenario;
    const uint64_t high = peaks->peak - peaks->base;
    const uint64_t spare = scenario->card.simulated ? PAGE : OPTIONS_RESERVE_STANDARD;

    if (scenario->size)
        return scenario->size;
    return (scenario->processes * (peaks->base + spare) + high + high / 4) / PAGE * PAGE;
}

/* Returns true if there is time for a row; otherwise notes that it is missing. */
static bool has_time(struct peaks *peaks, const char *name)
{
    if (scenario_left(peaks->scenario) > 0)
        return true;
    scenario_note(peaks->scenario->result, "No time for: %s.", name);
    return false;
}

/* Runs all trainings in one way. Returns false if a signal asked to stop. */
static bool run_row(struct peaks *peaks, enum row row, const char *name, unsigned batch)
{
    struct scenario *scenario = peaks->scenario;
    struct figures *figures = &peaks->figures[row];
    struct scenario_outcome outcomes[SCENARIO_PROCESSES];
    struct fleet_budget budget = {.job = ""};
    struct arguments arguments;
    char cap[32];
    struct scenario_way way = {.name = name, .base = scenario_work(scenario), .arguments = arguments.list};
    const bool job = row == JOB || row == JOB_WAITS, share = row == SHARE || row == SHARE_SMALLER;

    set_arguments(&arguments, peaks, batch, scenario_steps(scenario));
    snprintf(cap, sizeof(cap), "%llu",
             (unsigned long long)(scenario->card.set / (share ? scenario->processes : 1)));
    way.cap = job || share ? cap : NULL;
    if (job) {
        fleet_budget_begin(&budget, row == JOB_WAITS ? WAIT : NULL);
        way.run = budget.words;
    }
    if (!scenario_train_many(scenario, &way, scenario->processes, row != SERIAL, outcomes, &figures->total))
        return false;
    figures->done = true;
    fleet_budget_read(&budget, &figures->job);
    if (figures->job.peak > figures->total.peak_of_sum)
        figures->total.peak_of_sum = figures->job.peak;
    scenario_say(scenario, "%-36s %u of %u train, %.1f s, waited %.1f s", name, figures->total.trained,
                 figures->total.count, figures->total.wall_s, (double)figures->job.waited_ms / 1000);
    return true;
}

/* Runs validations in smaller and smaller batches, until one fits a share. */
static bool run_smaller(struct peaks *peaks, const char *name)
{
    const uint64_t share = peaks->scenario->card.set / peaks->scenario->processes;
    unsigned batch = share > peaks->base ? (unsigned)((double)peaks->batch * (double)(share - peaks->base) /
                                                      (double)(peaks->peak - peaks->base))
                                         : 1;

    for (unsigned i = 0; i < HALVINGS && batch >= 1; i++, batch /= 2) {
        if (!run_row(peaks, SHARE_SMALLER, name, batch))
            return false;
        peaks->smaller = batch;
        if (peaks->figures[SHARE_SMALLER].total.trained == peaks->scenario->processes)
            break;
    }
    return true;
}

static void fill_row(struct peaks *peaks, enum row row, const char *name)
{
    struct scenario_result *result = peaks->scenario->result;
    const struct figures *figures = &peaks->figures[row];
    const struct scenario_total *total = &figures->total;
    const bool job = row == JOB || row == JOB_WAITS;
    char sum[32], peak[32], lent[32];

    if (!figures->done)
        return;
    scenario_cell_bytes(total->sum_of_peaks, sum, sizeof(sum));
    scenario_cell_bytes(total->peak_of_sum, peak, sizeof(peak));
    scenario_cell_bytes(figures->job.lent, lent, sizeof(lent));
    table_row(&result->table, "%s", name);
    table_set(&result->table, 1, "%u of %u", total->trained, total->count);
    table_set(&result->table, 2, "%u", total->without_memory);
    table_set(&result->table, 3, "%.1f s", total->wall_s);
    table_set(&result->table, 4, "%s", sum);
    table_set(&result->table, 5, "%s", peak);
    if (job) {
        table_set(&result->table, 6, "%.1f s", (double)figures->job.waited_ms / 1000);
        table_set(&result->table, 7, "%s", lent);
    }
    table_fill(&result->table);
    scenario_row(result, name, row < SHARE ? COLOUR_NATIVE : COLOUR_GPUCAP);
    scenario_bar(result, 0, total->trained, "%u of %u", total->trained, total->count);
    scenario_bar(result, 1, total->trained == total->count ? total->wall_s : 0,
                 total->trained == total->count ? "%.1f" : "not all train", total->wall_s);
    scenario_bar(result, 2, (double)total->peak_of_sum / (1 << 20), "%s", peak);
}

static bool all_train(const struct figures *figures)
{
    return figures->done && figures->total.trained == figures->total.count;
}

/* Says where gpucap does not help: where another way trains all in no more time. */
static void judge(struct peaks *peaks, const char *const names[ROWS])
{
    struct scenario_result *result = peaks->scenario->result;
    const struct figures *ours = &peaks->figures[JOB_WAITS], *native = &peaks->figures[NATIVE];
    const char *as_good = "none"; /* natively */
    char others[256] = "", sum[32], peak[32];

    for (unsigned row = 0; row < JOB; row++) {
        const struct figures *other = &peaks->figures[row];

        if (!all_train(other) ||
            (all_train(ours) && other->total.wall_s > ours->total.wall_s * SCENARIO_SAME_ONCE))
            continue;
        if (row < SHARE)
            as_good = names[row];
        snprintf(others + strlen(others), sizeof(others) - strlen(others), "%s%s (%.1f s)",
                 *others ? ", " : "", names[row], other->total.wall_s);
    }
    scenario_cell_bytes(ours->total.sum_of_peaks, sum, sizeof(sum));
    scenario_cell_bytes(ours->total.peak_of_sum, peak, sizeof(peak));
    snprintf(result->native, sizeof(result->native), "%u of %u train together", native->total.trained,
             native->total.count);
    snprintf(result->gpucap, sizeof(result->gpucap),
             "one job that lends and waits: %u of %u in %.1f s; peak of the sum %s, sum of the peaks %s; "
             "waited %.1f s",
             ours->total.trained, ours->total.count, ours->total.wall_s, peak, sum,
             (double)ours->job.waited_ms / 1000);
    snprintf(result->brief_native, sizeof(result->brief_native), "%u of %u train", native->total.trained,
             native->total.count);
    snprintf(result->brief_gpucap, sizeof(result->brief_gpucap), "%u of %u train", ours->total.trained,
             ours->total.count);
    snprintf(result->brief_verdict, sizeof(result->brief_verdict), "%.27s", as_good);
    if (*others)
        snprintf(
            result->verdict, sizeof(result->verdict),
            "as fast without one job (%.1f s; a single run each: less than half longer counts as equal): %s",
            ours->total.wall_s, others);
    else
        snprintf(result->verdict, sizeof(result->verdict),
                 all_train(ours) ? "nowhere here: no other way trains all in as little time"
                                 : SCENARIO_NOT_ALL);
    scenario_note(result, "Where gpucap does not help: %s.", result->verdict);
}

void scenario_peaks(struct scenario *scenario)
{
    static const char *const names[ROWS] = {
        "native, one after the other",      "native, together",       "gpucap, a share each",
        "a share each, smaller validation", "gpucap, one job, lends", "gpucap, one job, lends and waits"};
    /* What there may be no time for comes last. */
    static const enum row order[] = {NATIVE, JOB_WAITS, SERIAL, SHARE, JOB};
    struct scenario_result *result = scenario->result;
    struct peaks peaks = {.scenario = scenario, .batch = val_batch(scenario)};
    char base[32], peak[32], budget[32], smaller[48] = "";

    table_begin(&result->table,
                "trainings|train|out of memory|wall time|sum of the peaks|peak of the sum|waited|lent");
    scenario_panel(result, true, "processes that train");
    scenario_panel(result, false, "time until all are done, s");
    scenario_panel(result, false, "peak of the sum, MiB");
    if (!find_needs(&peaks))
        return;
    peaks.budget = budget_for(&peaks);
    if (!scenario_card(scenario, peaks.budget))
        return;
    for (unsigned i = 0; i < sizeof(order) / sizeof(*order); i++) {
        if ((scenario->tiny && order[i] == SERIAL) || !has_time(&peaks, names[order[i]]))
            continue;
        if (!run_row(&peaks, order[i], names[order[i]], peaks.batch))
            return;
    }
    if (!scenario->tiny && has_time(&peaks, names[SHARE_SMALLER]) &&
        !run_smaller(&peaks, names[SHARE_SMALLER]))
        return;
    if (!peaks.figures[JOB_WAITS].done || !peaks.figures[NATIVE].done)
        snprintf(result->skipped, sizeof(result->skipped), "no time for the ways that it compares");
    for (unsigned row = 0; row < ROWS; row++)
        fill_row(&peaks, (enum row)row, names[row]);
    scenario_cell_bytes(peaks.base, base, sizeof(base));
    scenario_cell_bytes(peaks.peak, peak, sizeof(peak));
    scenario_cell_bytes(scenario->card.set, budget, sizeof(budget));
    if (peaks.smaller)
        snprintf(smaller, sizeof(smaller), "; a smaller validation has %u at once", peaks.smaller);
    scenario_note(
        result,
        "%u trainings on a card of %s. One holds %s, and %s while it validates %u pictures at once. A "
        "share is the card's size / %u%s. One job has the whole card, and its requests wait up to " WAIT ".",
        scenario->processes, budget, base, peak, peaks.batch, scenario->processes, smaller);
    if (!result->skipped[0])
        judge(&peaks, names);
}
