/* bench_run: one replay of one trace with one engine. See bench_run.h. */
#include "bench_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_caching.h"
#include "bench_cuda.h"
#include "bench_meter.h"

#define SLOW_NS       2000 /* an allocation that took longer has called the driver, and may have made it grow */
#define SAMPLES       1000 /* at least, over a trace */
#define PLAIN_NEAR    8    /* with cudaMalloc each time: sample within an eighth of the peak, */
#define PLAIN_EVERY   64   /* and every so many events elsewhere */
#define DONE_FORMAT   "done %d %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
#define PROBE_CAP     (UINT64_C(16) << 30)
#define ARGUMENT_SIZE 64

/* ---- the child ---- */

struct replay {
    enum bench_policy policy;
    const struct trace *trace;
    void **blocks;   /* by number */
    uint64_t *sizes; /* likewise */
    uint64_t live, peak_live, calls;
    int reply;
};

static bool take(struct replay *replay, const struct trace_event *event)
{
    void **block = &replay->blocks[event->block];
    cudaError_t result = cudaSuccess;

    if (replay->policy == BENCH_CACHING)
        return (*block = caching_alloc(event->bytes, event->stream)) != NULL;
    result = replay->policy == BENCH_ASYNC ? bench_cuda.malloc_async(block, event->bytes, NULL)
                                           : bench_cuda.malloc(block, event->bytes);
    return result == cudaSuccess;
}

static bool give(const struct replay *replay, const struct trace_event *event)
{
    void *block = replay->blocks[event->block];

    if (replay->policy == BENCH_CACHING) {
        caching_free(block);
        return true;
    }
    return (replay->policy == BENCH_ASYNC ? bench_cuda.free_async(block, NULL) : bench_cuda.free(block)) ==
           cudaSuccess;
}

static void account(struct replay *replay, const struct trace_event *event)
{
    uint64_t *size = &replay->sizes[event->block];

    replay->live += event->bytes - *size;
    *size = event->bytes;
    if (replay->live > replay->peak_live)
        replay->peak_live = replay->live;
}

static void ask(const struct replay *replay, uint64_t i)
{
    char answer;

    printf("? %" PRIu64 " %" PRIu64 "\n", i, replay->live);
    fflush(stdout);
    if (read(replay->reply, &answer, 1) != 1)
        bench_fail("nobody measures");
}

/* How many events were replayed: all, unless memory ran out. */
static uint64_t replay_timed(struct replay *replay)
{
    const struct trace *trace = replay->trace;
    uint64_t i;

    for (i = 0; i < trace->count; i++) {
        const struct trace_event *event = &trace->events[i];

        if (!(event->bytes ? take(replay, event) : give(replay, event)))
            break;
    }
    return i;
}

static bool worth_asking(const struct replay *replay, uint64_t i, uint64_t ns)
{
    if (i % (replay->trace->count / SAMPLES + 1) == 0)
        return true;
    if (ns < SLOW_NS)
        return false;
    return replay->policy != BENCH_PLAIN || i % PLAIN_EVERY == 0 ||
           replay->live + replay->live / PLAIN_NEAR > replay->peak_live;
}

static uint64_t replay_measured(struct replay *replay)
{
    const struct trace *trace = replay->trace;
    uint64_t i;

    ask(replay, 0);
    for (i = 0; i < trace->count; i++) {
        const struct trace_event *event = &trace->events[i];
        const uint64_t start = bench_now();

        if (!(event->bytes ? take(replay, event) : give(replay, event)))
            break;
        const uint64_t ns = bench_now() - start;
        account(replay, event);
        if (worth_asking(replay, i, event->bytes ? ns : 0))
            ask(replay, i);
    }
    ask(replay, i);
    return i;
}

int run_child(const struct bench_engine *engine, int trace_file, int reply)
{
    struct trace trace = {0};

    trace_map(&trace, trace_file);
    struct replay replay = {.policy = engine->policy, .trace = &trace, .reply = reply};
    replay.blocks = calloc(trace.blocks, sizeof(*replay.blocks));
    replay.sizes = calloc(trace.blocks, sizeof(*replay.sizes));
    if (!replay.blocks || !replay.sizes)
        bench_fail("no memory");
    bench_cuda_start();
    const uint64_t start = bench_now();
    const uint64_t ops = reply < 0 ? replay_timed(&replay) : replay_measured(&replay);
    const uint64_t ns = bench_now() - start;
    const struct bench_stats stats = bench_stats();
    uint64_t calls = stats.driver_calls;
    if (engine->policy == BENCH_CACHING)
        calls += caching_calls();
    else if (engine->policy == BENCH_PLAIN && !engine->free)
        calls += ops;
    printf("done %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", ops == trace.count, ops,
           ns, replay.peak_live, stats.stitches, calls);
    free(replay.blocks);
    free(replay.sizes);
    trace_close(&trace);
    return 0;
}

int run_probe_child(void)
{
    size_t free_bytes, total;

    bench_cuda_start();
    if (bench_cuda.memory(&free_bytes, &total) != cudaSuccess)
        bench_fail("the device does not answer");
    printf("%zu\n", total - free_bytes);
    return 0;
}

/* ---- the parent ---- */

static void add_sample(struct run_result *result, struct run_sample sample)
{
    if (result->sample_count % 1024 == 0) {
        result->samples = realloc(result->samples, (result->sample_count + 1024) * sizeof(*result->samples));
        if (!result->samples)
            bench_fail("no memory");
    }
    result->samples[result->sample_count++] = sample;
    if (sample.physical > result->peak_physical)
        result->peak_physical = sample.physical;
}

/* Reads what the child says until its end; true if it said that it is done. */
static bool listen_to(FILE *child, int reply, struct run_result *result)
{
    uint64_t baseline = 0;
    bool done = false;
    char line[256];

    while (fgets(line, sizeof(line), child)) {
        struct run_sample sample;
        int completes;

        if (sscanf(line, "? %" SCNu64 " %" SCNu64, &sample.event, &sample.live) == 2) {
            const uint64_t used = meter_used();

            if (!result->sample_count)
                baseline = used;
            sample.physical = used > baseline ? used - baseline : 0;
            add_sample(result, sample);
            if (write(reply, "", 1) != 1)
                break;
        } else if (sscanf(line, DONE_FORMAT, &completes, &result->ops, &result->ns, &result->peak_live,
                          &result->stitches, &result->driver_calls) == 6) {
            result->completes = completes;
            done = true;
        }
    }
    return done;
}

struct run_result run_replay(const struct bench_engine *engine, const struct bench_place *place,
                             const struct trace *trace, enum run_pass pass)
{
    char name[ARGUMENT_SIZE], file[ARGUMENT_SIZE], reply[ARGUMENT_SIZE];
    char *arguments[] = {name, file, reply, NULL};
    struct run_result result = {0};
    int answers[2], from;

    if (pipe(answers))
        bench_fail("no pipe");
    snprintf(name, sizeof(name), "--child=%s", engine->name);
    snprintf(file, sizeof(file), "--trace-file=%d", trace->file);
    snprintf(reply, sizeof(reply), "--reply=%d", pass == RUN_MEASURED ? answers[0] : -1);
    const int kept[] = {trace->file, answers[0], -1};
    const pid_t child = bench_spawn(engine, place, arguments, kept, &from);
    close(answers[0]);
    FILE *lines = fdopen(from, "r");
    const bool done = lines && listen_to(lines, answers[1], &result);
    if (!bench_reap(child) || !done)
        bench_fail("the replay of %s with %s broke off", trace->name, engine->name);
    fclose(lines);
    close(answers[1]);
    return result;
}

void run_forget(struct run_result *result)
{
    free(result->samples);
    result->samples = NULL;
    result->sample_count = 0;
}

uint64_t run_probe(const struct bench_engine *engine, const struct bench_place *place)
{
    const struct bench_place probed = {.simulated = place->simulated, .capacity = PROBE_CAP};
    char argument[] = "--probe";
    char *arguments[] = {argument, NULL};
    const int kept[] = {-1};
    uint64_t bytes = 0;
    int from;

    const pid_t child = bench_spawn(engine, &probed, arguments, kept, &from);
    FILE *line = fdopen(from, "r");
    if (!line || fscanf(line, "%" SCNu64, &bytes) != 1 || !bench_reap(child))
        bench_fail("the device does not answer");
    fclose(line);
    return bytes;
}
