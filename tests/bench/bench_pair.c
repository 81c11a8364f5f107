/* bench_pair: what one allocation and its free cost when the memory is at hand: by size, by the number of
 * other live blocks, by the number of threads; without gpucap (native, and cudaMallocAsync) and with it.
 *
 * Each engine runs in a process of its own. Prints one line of key=value for each measurement, in nanoseconds
 * for a pair as one thread sees it: the median round of the quietest pass, and the best round of all. Passes
 * are apart in time and on different processors, because on a shared machine a processor is slower by three
 * quarters, for seconds, while its sibling hyperthread is busy (seen on an H200's host, one process: 250
 * and 132 ns for the same code; on two of its processors at a time: 219 and 154). A loop of arithmetic before
 * and after each pass tells whether that was so.
 *
 * While a recording runs, a round is no longer than what the thread's ring of events takes (events.h), and a
 * pause follows in which the recorder empties it: an event that finds the ring full is lost and costs less.
 */
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_child.h"
#include "bench_cuda.h"
#include "recording_decode.h"

#define ROUNDS      9
#define PASSES      8
#define PASSES_MAX  32      /* on a device, until one was quiet and not much slower than the best round */
#define MUCH        1.1     /* so many times */
#define ROUND_NS    3000000 /* long enough for the clock, short enough for hundreds of measurements */
#define SPINS       50000   /* a tenth of a millisecond */
#define PAIRS_MIN   2
#define PAIRS_RING  3000    /* two events each: three quarters of a ring */
#define PAUSE_NS    3000000 /* twice what the recorder needs for them */
#define THREADS_MAX 16
#define LIVE_UNIT   512 /* live blocks are of 1 to LIVE_SPREAD of these */
#define LIVE_SPREAD 64
#define LIVE_GAP    4 /* every so many is freed again, so that there are holes of many sizes */

static const struct bench_engine engines[] = {
    {"native", NULL, BENCH_PLAIN},
    {"async", NULL, BENCH_ASYNC},
    {"gpucap-strict", "strict", BENCH_PLAIN},
    {"gpucap-deferred", "deferred", BENCH_PLAIN},
    {"gpucap-record", "deferred", BENCH_PLAIN},
    {"gpucap-stacks", "deferred", BENCH_PLAIN},
    {"wait", NULL, BENCH_WAIT},
};
#define ENGINES (sizeof(engines) / sizeof(*engines))

static const uint64_t sizes[] = {512,      4096,     65536,     1 << 20,    2 << 20,
                                 16 << 20, 64 << 20, 512 << 20, 1ULL << 30, 4ULL << 30};
static const uint64_t lives[] = {1, 100, 1000, 10000, 100000};
static const uint64_t live_sizes[] = {4096, 1 << 20};
static const unsigned thread_counts[] = {2, 4, 8, 16}; /* one: see the sizes */

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define SIZES_MAX    COUNT(sizes)

static const char usage[] =
    "usage: bench_pair [option...]\n"
    "  --engines=A,B   some of: native async gpucap-strict gpucap-deferred (these by default),\n"
    "                  gpucap-record, gpucap-stacks (gpucap-deferred with a recording, with stacks),\n"
    "                  wait (no pair but one cuCtxSynchronize without gpucap: what a strict free must ask)\n"
    "  --live=N        at most so many live blocks (100000)\n"
    "  --by=WHOSE      runtime (cudaMalloc, cudaFree) or driver (cuMemAlloc, cuMemFree): whose\n"
    "                  calls make a pair (runtime)\n"
    "  --passes=N      at most so many, if the machine is busy (32; simulated 8)\n"
    "  --simulated     on the simulated device (always, without an NVIDIA device)\n";

static enum bench_policy policy;
static const char *engine_name;
static int passes_max;
static bool by_driver, records;

static bool has_stacks(const struct bench_engine *engine)
{
    return !strcmp(engine->name, "gpucap-stacks");
}

static bool is_recorded(const struct bench_engine *engine)
{
    return has_stacks(engine) || !strcmp(engine->name, "gpucap-record");
}

/* ---- one measurement ---- */

static void take(void **block, uint64_t bytes)
{
    if (policy == BENCH_WAIT) {
        *block = NULL;
        return;
    }
    const cudaError_t result =
        policy == BENCH_ASYNC ? bench_cuda.malloc_async(block, bytes, NULL) : bench_cuda.malloc(block, bytes);

    if (result != cudaSuccess)
        bench_fail("%s: %" PRIu64 " bytes could not be had (error %d)", engine_name, bytes, (int)result);
}

static void give(void *block)
{
    const cudaError_t result = policy == BENCH_WAIT    ? bench_cuda.context_wait()
                               : policy == BENCH_ASYNC ? bench_cuda.free_async(block, NULL)
                                                       : bench_cuda.free(block);

    if (result != cudaSuccess)
        bench_fail("%s: a free failed (error %d)", engine_name, (int)result);
}

static uint64_t pairs_ns(uint64_t bytes, uint64_t pairs)
{
    const uint64_t start = bench_now();

    for (uint64_t i = 0; i < pairs; i++) {
        void *block;

        take(&block, bytes);
        give(block);
    }
    return bench_now() - start;
}

/* Does not sleep: a processor that slept is slow at first. */
static void wait_for_recorder(void)
{
    for (const uint64_t start = bench_now(); records && bench_now() - start < PAUSE_NS;)
        continue;
}

/* How many pairs make a round. Warms up, too. */
static uint64_t calibrate(uint64_t bytes)
{
    uint64_t pairs = PAIRS_MIN;

    pairs_ns(bytes, pairs);
    while (pairs_ns(bytes, pairs) < ROUND_NS / 2 && !(records && pairs == PAIRS_RING)) {
        pairs *= 2;
        if (records && pairs > PAIRS_RING)
            pairs = PAIRS_RING;
        wait_for_recorder();
    }
    wait_for_recorder();
    return pairs;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* The quietest pass so far, and the best round of all. */
struct figure {
    double median, best;
    bool quiet; /* a pass had its processor to itself, by all that is known of it */
};

/* Sums that do not wait for each other, as many as a processor can do at a time: they take longer when a
 * sibling does some. */
static uint64_t spin_ns(void)
{
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;
    const uint64_t start = bench_now();

    for (int i = 0; i < SPINS; i++) {
        a += a << 2, b += b << 2, c += c << 2, d += d << 2, e += e << 2, f += f << 2;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    }
    return bench_now() - start;
}

static bool is_quiet(void)
{
    static uint64_t best;
    const uint64_t ns = spin_ns();

    if (!best || ns < best)
        best = ns;
    return (double)ns <= (double)best * MUCH;
}

/* Sorts the rounds. */
static void add_pass(struct figure *figure, double *ns)
{
    qsort(ns, ROUNDS, sizeof(*ns), by_value);
    if (!figure->median || ns[ROUNDS / 2] < figure->median)
        figure->median = ns[ROUNDS / 2];
    if (!figure->best || ns[0] < figure->best)
        figure->best = ns[0];
}

static void print_pair(uint64_t bytes, uint64_t live, unsigned threads, const struct figure *figure)
{
    printf("pair engine=%s bytes=%" PRIu64 " live=%" PRIu64 " threads=%u by=%s ns=%.1f best_ns=%.1f\n",
           engine_name, bytes, live, threads, by_driver ? "driver" : "runtime", figure->median, figure->best);
    fflush(stdout);
}

static void measure(uint64_t bytes, struct figure *figure)
{
    const uint64_t pairs = calibrate(bytes);
    const bool quiet_before = is_quiet();
    double ns[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        ns[i] = (double)pairs_ns(bytes, pairs) / (double)pairs;
        wait_for_recorder();
    }
    add_pass(figure, ns);
    figure->quiet |= is_quiet() && quiet_before;
}

/* From now on this thread runs on one of the processors that it was given, another one for each pass. Where
 * that cannot be it stays where it is. */
static void move_to_processor_of(int pass, const cpu_set_t *given)
{
    const int count = CPU_COUNT(given);
    int skip = count ? (pass % PASSES * count / PASSES + pass / PASSES) % count : 0;

    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, given) && skip-- == 0) {
            cpu_set_t one;

            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof(one), &one);
        }
    }
}

static bool disturbed(const struct figure *figure)
{
    return !figure->quiet || figure->median > figure->best * MUCH;
}

/* Pass by pass over all sizes, so that the passes of a size are apart; after the first ones only over those
 * that had no quiet one yet. */
static void measure_all(const uint64_t *of, size_t count, uint64_t live)
{
    struct figure figures[SIZES_MAX] = {0};
    size_t free_bytes = 0, total;
    cpu_set_t given;

    if (sched_getaffinity(0, sizeof(given), &given))
        CPU_ZERO(&given);
    for (int pass = 0; pass < passes_max; pass++) {
        move_to_processor_of(pass, &given);
        for (size_t i = 0; i < count; i++) {
            if ((pass < PASSES || disturbed(&figures[i])) &&
                bench_cuda.memory(&free_bytes, &total) == cudaSuccess && of[i] < free_bytes)
                measure(of[i], &figures[i]);
        }
    }
    sched_setaffinity(0, sizeof(given), &given);
    for (size_t i = 0; i < count; i++) {
        if (figures[i].best)
            print_pair(of[i], live, 1, &figures[i]);
    }
}

/* ---- by size, by live blocks ---- */

/* The device is idle in all of it, but has worked before: an idle device that never worked is too easy. */
static void work_once(void)
{
    void *block;

    if (bench_cuda.malloc(&block, 4096) != cudaSuccess ||
        bench_cuda.memset_async(block, 0, 4096, NULL) != cudaSuccess ||
        bench_cuda.synchronize() != cudaSuccess || bench_cuda.free(block) != cudaSuccess)
        bench_fail("the device does not work");
}

static void measure_live(uint64_t most)
{
    void **blocks = calloc(most * LIVE_GAP / (LIVE_GAP - 1) + LIVE_GAP, sizeof(*blocks));
    uint64_t count = 0, live = 0, state = 1;

    if (!blocks)
        bench_fail("no memory");
    for (size_t i = 0; i < COUNT(lives) && lives[i] <= most; i++) {
        const uint64_t first = count;

        for (; live < lives[i]; count++) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            take(&blocks[count], (1 + (state >> 33) % LIVE_SPREAD) * LIVE_UNIT);
            live += count % LIVE_GAP != LIVE_GAP - 1;
        }
        for (uint64_t b = first; b < count; b++) {
            if (b % LIVE_GAP == LIVE_GAP - 1) {
                give(blocks[b]);
                blocks[b] = NULL;
            }
        }
        measure_all(live_sizes, COUNT(live_sizes), lives[i]);
    }
    for (uint64_t b = 0; b < count; b++) {
        if (blocks[b])
            give(blocks[b]);
    }
    free(blocks);
}

/* ---- by threads ---- */

static pthread_barrier_t barrier;

struct worker {
    pthread_t thread;
    uint64_t bytes, pairs;
    double ns[ROUNDS];
};

static void *work(void *argument)
{
    struct worker *worker = argument;

    if (bench_cuda.set_device(0) != cudaSuccess)
        bench_fail("a thread has no device");
    pairs_ns(worker->bytes, PAIRS_MIN);
    for (int i = 0; i < ROUNDS; i++) {
        wait_for_recorder();
        pthread_barrier_wait(&barrier);
        worker->ns[i] = (double)pairs_ns(worker->bytes, worker->pairs) / (double)worker->pairs;
    }
    return NULL;
}

static void measure_threads(uint64_t bytes, unsigned threads)
{
    struct worker workers[THREADS_MAX];
    struct figure figure = {0};
    double ns[ROUNDS];
    const uint64_t pairs = calibrate(bytes);

    pthread_barrier_init(&barrier, NULL, threads);
    for (unsigned t = 0; t < threads; t++) {
        workers[t].bytes = bytes;
        workers[t].pairs = pairs;
        if (pthread_create(&workers[t].thread, NULL, work, &workers[t]))
            bench_fail("no thread");
    }
    for (unsigned t = 0; t < threads; t++)
        pthread_join(workers[t].thread, NULL);
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        ns[i] = 0;
        for (unsigned t = 0; t < threads; t++)
            ns[i] += workers[t].ns[i] / threads;
    }
    add_pass(&figure, ns);
    print_pair(bytes, 0, threads, &figure);
}

static int run_engine(const struct bench_engine *engine, uint64_t most_live)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);

    policy = engine->policy;
    engine_name = engine->name;
    records = is_recorded(engine);
    bench_cuda_start();
    if (by_driver)
        bench_cuda_by_driver();
    work_once();
    measure_all(sizes, COUNT(sizes), 0);
    measure_live(most_live);
    for (size_t i = 0; i < COUNT(thread_counts) && (long)thread_counts[i] <= processors; i++)
        measure_threads(65536, thread_counts[i]);
    return 0;
}

/* ---- all of them ---- */

static const struct bench_engine *engine_named(const char *name, size_t length)
{
    for (size_t i = 0; i < ENGINES; i++) {
        if (strlen(engines[i].name) == length && !strncmp(engines[i].name, name, length))
            return &engines[i];
    }
    bench_fail("\"%.*s\" is no engine", (int)length, name);
}

/* How much of what happened was recorded: an event that is lost costs less. */
static void print_recording(const struct bench_engine *engine, const char *path)
{
    struct recording_decode recording;
    const struct recording_event *event;
    const char *why;
    uint64_t lost = 0;
    size_t at = 0, events = 0;

    if (!recording_decode(&recording, path, &why))
        bench_fail("%s: %s", path, why);
    while ((event = recording_decode_next(&recording, &at, 0))) {
        lost += event->head.type == RECORDING_DROPPED ? event->bytes : 0;
        events++;
    }
    printf("engine=%s events=%zu lost=%" PRIu64 "\n", engine->name, events, lost);
    recording_decode_free(&recording);
    unlink(path);
}

static void run_in_child(const struct bench_engine *engine, const struct bench_place *place, uint64_t live)
{
    char name[64], most[64], passes[64], line[256];
    char by[] = "--by=driver";
    char *arguments[] = {name, most, passes, by_driver ? by : NULL, NULL};
    char recording[64];
    const int kept[] = {-1};
    int from;

    snprintf(recording, sizeof(recording), "/tmp/bench_pair-%ld.gpucap", (long)getpid());
    setenv("GPUCAP_RECORD", is_recorded(engine) ? recording : "off", 1);
    setenv("GPUCAP_STACKS", has_stacks(engine) ? "on" : "off", 1);
    snprintf(name, sizeof(name), "--child=%s", engine->name);
    snprintf(most, sizeof(most), "--live=%" PRIu64, live);
    snprintf(passes, sizeof(passes), "--passes=%d", passes_max);
    const pid_t child = bench_spawn(engine, place, arguments, kept, &from);
    FILE *lines = fdopen(from, "r");
    while (lines && fgets(line, sizeof(line), lines)) {
        fputs(line, stdout);
        fflush(stdout);
    }
    if (!bench_reap(child))
        bench_fail("%s broke off", engine->name);
    fclose(lines);
    if (is_recorded(engine))
        print_recording(engine, recording);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"engines", required_argument, NULL, 'e'}, {"live", required_argument, NULL, 'l'},
        {"by", required_argument, NULL, 'b'},      {"passes", required_argument, NULL, 'p'},
        {"simulated", no_argument, NULL, 'S'},     {"child", required_argument, NULL, 'C'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    const char *list = "native,async,gpucap-strict,gpucap-deferred", *child = NULL;
    uint64_t live = lives[COUNT(lives) - 1];
    bool simulated = false;
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'e':
            list = optarg;
            break;
        case 'l':
            live = bench_bytes(optarg);
            break;
        case 'b':
            by_driver = !strcmp(optarg, "driver");
            if (!by_driver && strcmp(optarg, "runtime"))
                bench_fail("pairs are made by \"runtime\" or \"driver\", not by \"%s\"", optarg);
            break;
        case 'p':
            passes_max = (int)bench_bytes(optarg);
            break;
        case 'S':
            simulated = true;
            break;
        case 'C':
            child = optarg;
            break;
        default:
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? 0 : 2;
        }
    }
    if (child)
        return run_engine(engine_named(child, strlen(child)), live);
    const struct bench_place place = {.simulated = bench_simulated(simulated)};
    if (!passes_max)
        passes_max = place.simulated ? PASSES : PASSES_MAX;
    for (const char *name = list; *name;) {
        const size_t length = strcspn(name, ",");

        run_in_child(engine_named(name, length), &place, live);
        name += length + (name[length] == ',');
    }
    return 0;
}
