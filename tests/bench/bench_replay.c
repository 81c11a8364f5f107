/* bench_replay: the allocations of real programs, replayed through each engine: how much of what is held do
 * they fill, how long does an operation take, and how small may the card be?
 *
 * Each engine runs in a process of its own, twice: once for the time, once to look at the memory in use, from
 * outside. Prints one line of key=value for each trace and engine. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cuda.h"
#include "bench_meter.h"
#include "bench_run.h"
#include "bench_svg.h"

#define PAGE           (UINT64_C(2) << 20)
#define CAPACITY_LEAST (2 * PAGE) /* simgpu has no smaller card */

static const struct bench_engine engines[] = {
    {"gpucap", "strict", BENCH_PLAIN}, {"gpucap-deferred", "deferred", BENCH_PLAIN},
    {"driver", NULL, BENCH_PLAIN},     {"caching", NULL, BENCH_CACHING},
    {"async", NULL, BENCH_ASYNC},
};
#define ENGINES (sizeof(engines) / sizeof(*engines))

static const char usage[] =
    "usage: bench_replay [option...] TRACE...\n"
    "  --capacity=BYTES   as if the card had so much to allocate; says completes=yes or no\n"
    "  --find-capacity    also the smallest capacity that completes\n"
    "  --engines=A,B      some of: gpucap gpucap-deferred driver caching async\n"
    "                     (all; without async on the simulated device)\n"
    "  --svg=FILE         a plot of live and physical bytes over each trace\n"
    "  --simulated        on the simulated device (always, without an NVIDIA device)\n"
    "A TRACE is text, \"a ID BYTES STREAM\" and \"f ID\" lines, plain or gzipped;\n"
    "or a recording (gpucap run --record), of which the first device counts.\n";

struct settings {
    struct bench_place place;
    bool wanted[ENGINES];
    bool find_capacity, simulated, probe;
    const char *svg, *child;
    int trace_file, reply;
};

static const struct bench_engine *engine_named(const char *name, size_t length)
{
    for (size_t i = 0; i < ENGINES; i++) {
        if (strlen(engines[i].name) == length && !strncmp(engines[i].name, name, length))
            return &engines[i];
    }
    bench_fail("\"%.*s\" is no engine", (int)length, name);
}

static void choose_engines(struct settings *settings, const char *list)
{
    memset(settings->wanted, 0, sizeof(settings->wanted));
    for (const char *name = list; *name;) {
        const size_t length = strcspn(name, ",");

        settings->wanted[engine_named(name, length) - engines] = true;
        name += length + (name[length] == ',');
    }
}

static void read_options(struct settings *settings, int argc, char **argv)
{
    static const struct option options[] = {
        {"capacity", required_argument, NULL, 'c'},
        {"find-capacity", no_argument, NULL, 'f'},
        {"engines", required_argument, NULL, 'e'},
        {"svg", required_argument, NULL, 's'},
        {"simulated", no_argument, NULL, 'S'},
        {"child", required_argument, NULL, 'C'},
        {"trace-file", required_argument, NULL, 'T'},
        {"reply", required_argument, NULL, 'R'},
        {"probe", no_argument, NULL, 'P'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *list = NULL;
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            settings->place.capacity = bench_bytes(optarg) / PAGE * PAGE;
            if (settings->place.capacity < CAPACITY_LEAST)
                bench_fail("a card of %s is too small for any trace: at least 4M", optarg);
            break;
        case 'f':
            settings->find_capacity = true;
            break;
        case 'e':
            list = optarg;
            break;
        case 's':
            settings->svg = optarg;
            break;
        case 'S':
            settings->simulated = true;
            break;
        case 'C':
            settings->child = optarg;
            break;
        case 'T':
            settings->trace_file = atoi(optarg);
            break;
        case 'R':
            settings->reply = atoi(optarg);
            break;
        case 'P':
            settings->probe = true;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            fputs(usage, stderr);
            exit(2);
        }
    }
    settings->place.simulated = bench_simulated(settings->simulated);
    for (size_t i = 0; i < ENGINES; i++)
        settings->wanted[i] = !settings->place.simulated || engines[i].policy != BENCH_ASYNC;
    if (list)
        choose_engines(settings, list);
}

static void print_line(const struct trace *trace, const struct bench_engine *engine,
                       const struct bench_place *place, const struct run_result *timed,
                       const struct run_result *measured)
{
    const double utilization =
        measured->peak_physical ? (double)measured->peak_live / (double)measured->peak_physical : 0;

    printf("trace=%s engine=%s utilization=%.4f peak_live=%" PRIu64 " peak_physical=%" PRIu64
           " ns_per_op=%.1f stitches=%" PRIu64 " driver_calls=%" PRIu64,
           trace->name, engine->name, utilization, measured->peak_live, measured->peak_physical,
           (double)timed->ns / (double)(timed->ops ? timed->ops : 1), timed->stitches, timed->driver_calls);
    if (place->capacity)
        printf(" capacity=%" PRIu64 " completes=%s", place->capacity,
               timed->completes && measured->completes ? "yes" : "no");
    else if (!timed->completes)
        printf(" completes=no");
    putchar('\n');
    fflush(stdout);
}

static bool completes_with(const struct bench_engine *engine, struct bench_place place,
                           const struct trace *trace, uint64_t capacity)
{
    place.capacity = capacity;
    return run_replay(engine, &place, trace, RUN_TIMED).completes;
}

/* Between what lives at once, and what was held without a limit or, where that is not enough, more. */
static void find_capacity(const struct bench_engine *engine, const struct bench_place *place,
                          const struct trace *trace, const struct run_result *measured)
{
    uint64_t low = trace->peak_live / PAGE * PAGE, high = measured->peak_physical / PAGE * PAGE + PAGE;

    high = high > low ? high : low + PAGE;
    while (!completes_with(engine, *place, trace, high)) {
        low = high;
        high += high / 16 / PAGE * PAGE + PAGE;
    }
    while (high - low > PAGE) {
        const uint64_t middle = (low + high) / 2 / PAGE * PAGE;

        if (completes_with(engine, *place, trace, middle))
            high = middle;
        else
            low = middle;
    }
    printf("trace=%s engine=%s smallest_capacity=%" PRIu64 " peak_live=%" PRIu64 " ratio=%.4f\n", trace->name,
           engine->name, high, trace->peak_live, (double)high / (double)trace->peak_live);
    fflush(stdout);
}

static void replay_trace(const struct settings *settings, const char *path, struct plot *svg, unsigned panel)
{
    struct run_result results[ENGINES] = {{0}};
    struct svg_line lines[ENGINES];
    unsigned count = 0;
    struct trace trace;

    trace_read(&trace, path);
    for (size_t i = 0; i < ENGINES; i++) {
        const struct bench_engine *engine = &engines[i];

        if (!settings->wanted[i])
            continue;
        struct run_result timed = run_replay(engine, &settings->place, &trace, RUN_TIMED);
        results[i] = run_replay(engine, &settings->place, &trace, RUN_MEASURED);
        print_line(&trace, engine, &settings->place, &timed, &results[i]);
        if (settings->find_capacity)
            find_capacity(engine, &settings->place, &trace, &results[i]);
        lines[count++] = (struct svg_line){engine->name, &results[i]};
    }
    if (svg)
        svg_panel(svg, panel, &trace, lines, count);
    for (size_t i = 0; i < ENGINES; i++)
        run_forget(&results[i]);
    trace_close(&trace);
}

int main(int argc, char **argv)
{
    struct settings settings = {.trace_file = -1, .reply = -1};

    read_options(&settings, argc, argv);
    if (settings.probe)
        return run_probe_child();
    if (settings.child)
        return run_child(engine_named(settings.child, strlen(settings.child)), settings.trace_file,
                         settings.reply);
    if (optind == argc) {
        fputs(usage, stderr);
        return 2;
    }
    bench_join_place(&settings.place);
    if (!settings.place.simulated && (settings.place.capacity || settings.find_capacity))
        settings.place.overhead = run_probe(&engines[0], &settings.place);
    meter_open(&settings.place);
    struct plot svg;
    if (settings.svg)
        svg_open(&svg, settings.svg, (unsigned)(argc - optind));
    for (int i = optind; i < argc; i++)
        replay_trace(&settings, argv[i], settings.svg ? &svg : NULL, (unsigned)(i - optind));
    if (settings.svg)
        svg_close(&svg);
    return 0;
}
