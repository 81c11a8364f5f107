/* scenario_share: (a) two models in one process, (c) a validation that needs memory for a moment, (d) a
 * workload that fragments: every way to get memory natively, and gpucap under plain cudaMalloc. See
 * scenario_ladder.h. */
#include "harness/scenario/scenario_ladder.h"
#include "harness/scenario/scenario_work.h"

/* The native ways that a recording shows, by their places in the tables below. */
enum { CACHE = 1, PRIVATE_CACHES = 2 };

static const char *const deferred[] = {"GPUCAP_FREE=deferred", NULL};

static const struct ladder_way pair_ways[] = {
    {"naive", {"--alloc=naive"}, false, NULL},
    {"one cache", {"--alloc=cache", "--pair-memory=shared"}, false, NULL},
    {"private caches", {"--alloc=cache", "--pair-memory=private"}, false, NULL},
    {"async", {"--alloc=async"}, false, NULL},
    {"one arena", {"--alloc=arena", "--pair-memory=shared"}, false, NULL},
    {"static", {"--alloc=static"}, false, NULL},
    {"naive under gpucap", {"--alloc=naive"}, true, NULL},
    {"naive under gpucap, deferred", {"--alloc=naive"}, true, deferred},
};

void scenario_pair(struct scenario *scenario)
{
    const struct ladder_plan plan = {.ways = pair_ways,
                                     .count = sizeof(pair_ways) / sizeof(*pair_ways),
                                     .steps = scenario_steps(scenario),
                                     .few_steps = scenario_few_steps(scenario),
                                     .shown = PRIVATE_CACHES};

    ladder_run(scenario, &plan);
}

static const struct ladder_way spike_ways[] = {
    {"naive", {"--alloc=naive", "--val-preprocess=gpu"}, false, NULL},
    {"cache", {"--alloc=cache", "--val-preprocess=gpu"}, false, NULL},
    {"cache, prepared on the CPU", {"--alloc=cache", "--val-preprocess=cpu"}, false, NULL},
    {"async", {"--alloc=async", "--val-preprocess=gpu"}, false, NULL},
    {"arena", {"--alloc=arena", "--val-preprocess=gpu"}, false, NULL},
    {"static", {"--alloc=static", "--val-preprocess=gpu"}, false, NULL},
    {"naive under gpucap", {"--alloc=naive", "--val-preprocess=gpu"}, true, NULL},
    {"naive under gpucap, deferred", {"--alloc=naive", "--val-preprocess=gpu"}, true, deferred},
};

/* Where the pictures are prepared shows in the time of the run, not in that of a step. */
void scenario_spike(struct scenario *scenario)
{
    const struct ladder_plan plan = {.ways = spike_ways,
                                     .count = sizeof(spike_ways) / sizeof(*spike_ways),
                                     .steps = scenario_steps(scenario),
                                     .few_steps = scenario_few_steps(scenario),
                                     .shown = CACHE,
                                     .whole_run = true};

    ladder_run(scenario, &plan);
}

static const struct ladder_way fragment_ways[] = {
    {"naive", {"--alloc=naive"}, false, NULL},
    {"cache", {"--alloc=cache"}, false, NULL},
    {"async", {"--alloc=async"}, false, NULL},
    {"arena", {"--alloc=arena"}, false, NULL},
    {"static", {"--alloc=static"}, false, NULL},
    {"naive under gpucap", {"--alloc=naive"}, true, NULL},
    {"naive under gpucap, deferred", {"--alloc=naive"}, true, deferred},
};

/* A run needs some steps to fragment, also where only the size of the card is searched. */
void scenario_fragments(struct scenario *scenario)
{
    const struct ladder_plan plan = {.ways = fragment_ways,
                                     .count = sizeof(fragment_ways) / sizeof(*fragment_ways),
                                     .steps = scenario_few_steps(scenario),
                                     .few_steps = scenario_few_steps(scenario),
                                     .shown = CACHE};

    ladder_run(scenario, &plan);
}
