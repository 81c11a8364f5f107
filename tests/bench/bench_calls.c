/* bench_calls: what calls of the driver cost natively, with gpucap and under a cap, side by side.
 *
 * Each engine has a process of its own; all of them live at a time, and each round of each figure is measured
 * in one after the other on the same processor, so that a machine that is slow for a second is slow for all
 * engines. Prints one line of key=value for each figure and engine: the median and the best round in
 * nanoseconds, and the medians over the rounds of the ratio to native and of the difference to it.
 *
 * Two processes differ by more than a hook costs, because the driver's data lie at other places in memory. So
 * launches and pairs are made in short turns by one process, through the hooks and past them, and compared
 * with each other. What the native process shows there, which has no hooks, is the error of the method.
 *
 * The first block of a size needs a fresh process for every sample: see measure_first. */
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_child.h"
#include "bench_cuda.h"
#include "interpose/driver/elfsym.h"
#include "tools/simgpu/simgpu.h"

#define ROUNDS      15
#define ROUNDS_MAX  99
#define FIRST_MAX   5 /* rounds of a first block: each starts a process */
#define CAP         "90%"
#define MODULES     100 /* that are loaded where many are */
#define KERNELS     100 /* in a module */
#define ROUND_NS    4000000
#define LAUNCHES    64 /* between two waits: fewer than a stream takes before a launch waits */
#define PAIRS       64 /* likewise */
#define TURNS       60 /* of a round, in each of which a batch of calls is made either way */
#define PTX_KERNEL  64 /* bytes of one empty kernel's text, at most */
#define COUNT(list) (sizeof(list) / sizeof(*(list)))

static const struct engine {
    struct bench_engine bench;
    bool capped;
} engines[] = {
    {{"native", NULL, BENCH_PLAIN}, false},
    {{"gpucap", "strict", BENCH_PLAIN}, false},
    {{"gpucap-capped", "strict", BENCH_PLAIN}, true},
    {{"gpucap-capped-deferred", "deferred", BENCH_PLAIN}, true},
};
#define ENGINES COUNT(engines)

static const char usage[] =
    "usage: bench_calls [option...]\n"
    "  --rounds=N     rounds of each figure (15)\n"
    "  --modules=N    modules of 100 kernels, where many are loaded (100)\n"
    "  --simulated    on the simulated device (always, without an NVIDIA device)\n"
    "Engines: native; gpucap without a cap; under a cap of " CAP " of the card, strict and deferred.\n";

static uint64_t rounds = ROUNDS, many_modules = MODULES;

/* ---- the driver ---- */

struct calls {
    CUresult (*init)(unsigned flags);
    CUresult (*retain)(CUcontext *context, CUdevice device);
    CUresult (*set_current)(CUcontext context);
    CUresult (*memory)(size_t *free_bytes, size_t *total);
    CUresult (*alloc)(CUdeviceptr *pointer, size_t bytes);
    CUresult (*free)(CUdeviceptr pointer);
    CUresult (*range)(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer);
    CUresult (*pool)(CUmemoryPool *pool, CUdevice device);
    CUresult (*pool_set)(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
    CUresult (*alloc_async)(CUdeviceptr *pointer, size_t bytes, CUstream stream);
    CUresult (*free_async)(CUdeviceptr pointer, CUstream stream);
    CUresult (*stream_create)(CUstream *stream, unsigned flags);
    CUresult (*stream_wait)(CUstream stream);
    CUresult (*load)(CUmodule *module, const void *image);
    CUresult (*unload)(CUmodule module);
    CUresult (*function)(CUfunction *function, CUmodule module, const char *name);
    CUresult (*load_library)(CUlibrary *library, const void *image, CUjit_option *options, void **values,
                             unsigned count, CUlibraryOption *library_options, void **library_values,
                             unsigned library_count);
    CUresult (*kernel)(CUkernel *kernel, CUlibrary library, const char *name);
    CUresult (*launch)(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
                       void **parameters, void **extra);
};
static struct calls cuda,
    past; /* as a program finds them: the hooks, if there are any; and the driver's own */

static const struct {
    size_t where;
    const char *name;
} entries[] = {
    {offsetof(struct calls, init), "cuInit"},
    {offsetof(struct calls, retain), "cuDevicePrimaryCtxRetain"},
    {offsetof(struct calls, set_current), "cuCtxSetCurrent"},
    {offsetof(struct calls, memory), "cuMemGetInfo_v2"},
    {offsetof(struct calls, alloc), "cuMemAlloc_v2"},
    {offsetof(struct calls, free), "cuMemFree_v2"},
    {offsetof(struct calls, range), "cuMemGetAddressRange_v2"},
    {offsetof(struct calls, pool), "cuDeviceGetDefaultMemPool"},
    {offsetof(struct calls, pool_set), "cuMemPoolSetAttribute"},
    {offsetof(struct calls, alloc_async), "cuMemAllocAsync"},
    {offsetof(struct calls, free_async), "cuMemFreeAsync"},
    {offsetof(struct calls, stream_create), "cuStreamCreate"},
    {offsetof(struct calls, stream_wait), "cuStreamSynchronize"},
    {offsetof(struct calls, load), "cuModuleLoadData"},
    {offsetof(struct calls, unload), "cuModuleUnload"},
    {offsetof(struct calls, function), "cuModuleGetFunction"},
    {offsetof(struct calls, load_library), "cuLibraryLoadData"},
    {offsetof(struct calls, kernel), "cuLibraryGetKernel"},
    {offsetof(struct calls, launch), "cuLaunchKernel"},
};

static const char *engine_name; /* of this child */
static CUstream stream;

static void must(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS)
        bench_fail("%s: %s = %d", engine_name, call, (int)result);
}
#define MUST(call) must((call), #call)

static void start_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    uint64_t keep = UINT64_MAX;
    CUcontext context;
    CUmemoryPool pool;

    if (!library)
        bench_fail("%s", dlerror());
    for (size_t i = 0; i < COUNT(entries); i++) {
        void *address = dlsym(library, entries[i].name);
        void *own = elfsym_find("libcuda.so", entries[i].name);

        if (!address || !own)
            bench_fail("there is no %s", entries[i].name);
        memcpy((char *)&cuda + entries[i].where, &address, sizeof(address));
        memcpy((char *)&past + entries[i].where, &own, sizeof(own));
    }
    MUST(cuda.init(0));
    MUST(cuda.retain(&context, 0));
    MUST(cuda.set_current(context));
    MUST(cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuda.pool(&pool, 0));
    MUST(cuda.pool_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
}

static bool has_room(uint64_t bytes)
{
    size_t free_bytes, total;

    MUST(cuda.memory(&free_bytes, &total));
    return bytes < free_bytes;
}

/* ---- kernels ---- */

/* On simgpu a kernel is a function of the program. */
#define KERNEL(n)                                                                                            \
    simgpu_kernel simgpu_kernel_empty_##n;                                                                   \
    void simgpu_kernel_empty_##n(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block) \
    {                                                                                                        \
        (void)args, (void)grid, (void)block;                                                                 \
    }
#define TEN_KERNELS(n)                                                                                       \
    KERNEL(n##0)                                                                                             \
    KERNEL(n##1)                                                                                             \
    KERNEL(n##2)                                                                                             \
    KERNEL(n##3)                                                                                             \
    KERNEL(n##4)                                                                                             \
    KERNEL(n##5)                                                                                             \
    KERNEL(n##6)                                                                                             \
    KERNEL(n##7)                                                                                             \
    KERNEL(n##8)                                                                                             \
    KERNEL(n##9)
TEN_KERNELS(0)
TEN_KERNELS(1)
TEN_KERNELS(2)
TEN_KERNELS(3)
TEN_KERNELS(4)
TEN_KERNELS(5)
TEN_KERNELS(6)
TEN_KERNELS(7)
TEN_KERNELS(8)
TEN_KERNELS(9)

static const char *image(unsigned kernels)
{
    static char text[128 + KERNELS * PTX_KERNEL];
    int at = snprintf(text, sizeof(text), ".version 7.0\n.target sm_75\n.address_size 64\n");

    for (unsigned i = 0; i < kernels; i++)
        at +=
            snprintf(text + at, sizeof(text) - (size_t)at, ".visible .entry empty_%02u()\n{\n ret;\n}\n", i);
    return text;
}

static void launch(const struct calls *by, CUfunction function)
{
    MUST(by->launch(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

/* The functions that figures launch, in turn. A single one until many are loaded. */
struct kernels {
    CUfunction *functions;
    uint64_t count, next;
};
static struct kernels of_modules, of_libraries;

static void add_kernel(struct kernels *kernels, CUfunction function)
{
    kernels->functions[kernels->count++] = function;
    launch(&cuda, function); /* a driver that loads lazily has loaded it now */
    MUST(cuda.stream_wait(stream));
}

static void add_module(unsigned kernels)
{
    CUmodule module;

    MUST(cuda.load(&module, image(kernels)));
    for (unsigned i = 0; i < kernels; i++) {
        CUfunction function;
        char name[32];

        snprintf(name, sizeof(name), "empty_%02u", i);
        MUST(cuda.function(&function, module, name));
        add_kernel(&of_modules, function);
    }
}

/* Its kernels are launched by their own handles, as the runtime of CUDA 13 does it. */
static void add_library(unsigned kernels)
{
    CUlibrary library;

    MUST(cuda.load_library(&library, image(kernels), NULL, NULL, 0, NULL, NULL, 0));
    for (unsigned i = 0; i < kernels; i++) {
        CUkernel kernel;
        char name[32];

        snprintf(name, sizeof(name), "empty_%02u", i);
        MUST(cuda.kernel(&kernel, library, name));
        add_kernel(&of_libraries, (CUfunction)kernel);
    }
}

/* Half of the modules are libraries. */
static void load_many(void)
{
    while (of_modules.count + of_libraries.count < many_modules * KERNELS) {
        add_module(KERNELS);
        add_library(KERNELS);
    }
}

static void start_kernels(void)
{
    const uint64_t most = (many_modules + 3) * KERNELS;

    of_modules.functions = calloc(most, sizeof(CUfunction));
    of_libraries.functions = calloc(most, sizeof(CUfunction));
    if (!of_modules.functions || !of_libraries.functions)
        bench_fail("no memory");
    add_module(1);
    add_library(1);
}

/* A step that is prime to the count of functions, so that neighbours in a table are not launched in turn. */
static CUfunction next_kernel(struct kernels *kernels)
{
    kernels->next = (kernels->next + 7919) % kernels->count;
    return kernels->functions[kernels->next];
}

/* ---- one round of a figure ---- */

/* Nanoseconds of one call. All 0: the card has no room for it. */
struct sample {
    double ns;
    double past; /* by the same process, past the hooks; 0: not measured */
};

/* A few calls, then a wait for their work. Returns nanoseconds, without the wait. */
typedef uint64_t batch(const struct calls *by, void *argument);

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *values, uint64_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

/* Makes batches of `calls` calls through the hooks and past them, and takes the median batch of each: now and
 * then one waits for the device. Either way goes first in every other turn, because the first batch of a turn
 * may be slower. */
static struct sample in_turns(batch *make, void *argument, int calls)
{
    static double ns[2][TURNS]; /* through the hooks, past them */

    for (uint64_t turn = 0; turn < TURNS; turn++) {
        for (uint64_t i = 0; i < 2; i++) {
            const bool is_past = (turn + i) % 2;

            ns[is_past][turn] = (double)make(is_past ? &past : &cuda, argument) / calls;
        }
    }
    return (struct sample){median(ns[0], TURNS), median(ns[1], TURNS)};
}

static uint64_t async_batch(const struct calls *by, void *bytes)
{
    const uint64_t start = bench_now();
    CUdeviceptr block;

    for (int i = 0; i < PAIRS; i++) {
        MUST(by->alloc_async(&block, *(const uint64_t *)bytes, stream));
        MUST(by->free_async(block, stream));
    }
    const uint64_t ns = bench_now() - start;
    MUST(cuda.stream_wait(stream));
    return ns;
}

static struct sample round_async(uint64_t bytes)
{
    if (!has_room(bytes))
        return (struct sample){0};
    async_batch(&cuda, &bytes); /* makes the driver's pool grow */
    return in_turns(async_batch, &bytes, PAIRS);
}

static uint64_t launch_batch(const struct calls *by, void *kernels)
{
    const uint64_t start = bench_now();

    for (int i = 0; i < LAUNCHES; i++)
        launch(by, next_kernel(kernels));
    const uint64_t ns = bench_now() - start;
    MUST(cuda.stream_wait(stream));
    return ns;
}

static struct sample round_module(uint64_t unused)
{
    (void)unused;
    return in_turns(launch_batch, &of_modules, LAUNCHES);
}

static struct sample round_library(uint64_t unused)
{
    (void)unused;
    return in_turns(launch_batch, &of_libraries, LAUNCHES);
}

/* One of many that are loaded, again and again. */
static struct sample round_same(uint64_t unused)
{
    struct kernels one = {.functions = of_modules.functions, .count = 1};

    (void)unused;
    return in_turns(launch_batch, &one, LAUNCHES);
}

/* The first launch after a module was loaded and another unloaded. */
static uint64_t reload_batch(const struct calls *by, void *kernels)
{
    CUmodule module;

    MUST(cuda.load(&module, image(1)));
    MUST(cuda.unload(module));
    const uint64_t start = bench_now();
    launch(by, next_kernel(kernels));
    const uint64_t ns = bench_now() - start;
    MUST(cuda.stream_wait(stream));
    return ns;
}

static struct sample round_reload(uint64_t unused)
{
    (void)unused;
    return in_turns(reload_batch, &of_modules, 1);
}

static struct sample round_range(uint64_t bytes)
{
    uint64_t calls = 0, ns;
    CUdeviceptr block, base;
    size_t size;

    if (!has_room(bytes))
        return (struct sample){0};
    MUST(cuda.alloc(&block, bytes));
    const uint64_t start = bench_now();
    do {
        for (int i = 0; i < LAUNCHES; i++)
            MUST(cuda.range(&base, &size, block + bytes / 2));
        calls += LAUNCHES;
        ns = bench_now() - start;
    } while (ns < ROUND_NS);
    if (base != block || size != bytes)
        bench_fail("%s: the range of a block of %" PRIu64 " bytes is wrong", engine_name, bytes);
    MUST(cuda.free(block));
    return (struct sample){.ns = (double)ns / (double)calls};
}

static const struct figure {
    const char *what;
    uint64_t bytes;
    bool many; /* kernels are loaded from here on */
    struct sample (*round)(uint64_t bytes);
} figures[] = {
    /* clang-format off */
    {"async_pair", 4 << 10, false, round_async},
    {"async_pair", 1 << 20, false, round_async},
    {"async_pair", 64 << 20, false, round_async},
    {"launch", 0, false, round_module},
    {"launch_of_library", 0, false, round_library},
    {"launch_after_load", 0, false, round_reload},
    {"address_range", 4 << 10, false, round_range},
    {"address_range", 1 << 20, false, round_range},
    {"address_range", 1ULL << 30, false, round_range},
    {"address_range", 16ULL << 30, false, round_range},
    {"launch_of_same", 0, true, round_same},
    {"launch", 0, true, round_module},
    {"launch_of_library", 0, true, round_library},
    {"launch_after_load", 0, true, round_reload},
    /* clang-format on */
};

static const uint64_t first_sizes[] = {8ULL << 30, 100ULL << 30};

/* ---- the children ---- */

/* What a child is asked for: a round of a figure. */
struct order {
    unsigned char figure, round;
};

/* The thread that measures runs on a processor that the number of the round picks from those given. Where
 * that cannot be it stays where it is. */
static void move_to_processor_of(unsigned round, const cpu_set_t *given)
{
    const int count = CPU_COUNT(given);
    unsigned skip = count ? round % (unsigned)count : 0;

    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, given) && skip-- == 0) {
            cpu_set_t one;

            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof(one), &one);
            return;
        }
    }
}

/* Measures what it is asked for until there are no more orders. */
static int run_rounds(int orders)
{
    struct order order;
    cpu_set_t given;

    if (sched_getaffinity(0, sizeof(given), &given))
        CPU_ZERO(&given);
    start_driver();
    start_kernels();
    while (read(orders, &order, sizeof(order)) == sizeof(order)) {
        const struct figure *figure = &figures[order.figure];

        if (figure->many)
            load_many();
        move_to_processor_of(order.round, &given);
        const struct sample sample = figure->round(figure->bytes);
        printf("%.1f %.1f\n", sample.ns, sample.past);
        fflush(stdout);
    }
    return 0;
}

/* The first block of this process: its cuMemAlloc, and its cuMemFree. */
static int run_first(uint64_t bytes)
{
    uint64_t start, alloc = 0, free = 0;
    CUdeviceptr block;

    start_driver();
    if (has_room(bytes)) {
        start = bench_now();
        MUST(cuda.alloc(&block, bytes));
        alloc = bench_now() - start;
        start = bench_now();
        MUST(cuda.free(block));
        free = bench_now() - start;
    }
    printf("%" PRIu64 " %" PRIu64 "\n", alloc, free);
    return 0;
}

/* ---- the parent ---- */

struct child {
    pid_t pid;
    int orders;
    FILE *answers;
};

/* Every engine's rounds of one figure. */
struct samples {
    struct sample of[ENGINES][ROUNDS_MAX];
    uint64_t count;
};

/* The median, the best, and compared round by round with the driver's own call, or else with native. */
static void print_compared(const struct samples *samples, size_t engine)
{
    double ns[ROUNDS_MAX], ratios[ROUNDS_MAX], extra[ROUNDS_MAX];

    for (uint64_t i = 0; i < samples->count; i++) {
        const struct sample *sample = &samples->of[engine][i];
        const double native = sample->past > 0 ? sample->past : samples->of[0][i].ns;

        ns[i] = sample->ns;
        ratios[i] = native > 0 ? ns[i] / native : 0;
        extra[i] = ns[i] - native;
    }
    const double middle = median(ns, samples->count); /* sorts them */
    if (ns[0] > 0)
        printf(" ns=%.1f best_ns=%.1f ratio=%.3f extra_ns=%.1f\n", middle, ns[0],
               median(ratios, samples->count), median(extra, samples->count));
    else
        printf(" skipped=no_room\n");
}

static void print_figure(const char *what, uint64_t bytes, uint64_t kernels, const struct samples *samples)
{
    for (size_t e = 0; e < ENGINES; e++) {
        printf("call what=%s", what);
        if (bytes)
            printf(" bytes=%" PRIu64, bytes);
        if (kernels)
            printf(" kernels=%" PRIu64, kernels);
        printf(" engine=%s", engines[e].bench.name);
        print_compared(samples, e);
    }
    fflush(stdout);
}

/* With `orders` as the file that it reads, or -1. */
static struct child start_child(const struct engine *engine, const struct bench_place *place, char *what,
                                int orders)
{
    char name[64], modules[64];
    char *arguments[] = {name, modules, what, NULL};
    const int kept[] = {orders, -1};
    struct child child = {.orders = -1};
    int from;

    snprintf(name, sizeof(name), "--child=%s", engine->bench.name);
    snprintf(modules, sizeof(modules), "--modules=%" PRIu64, many_modules);
    if (engine->capped)
        setenv("GPUCAP_MAX", CAP, 1);
    else
        unsetenv("GPUCAP_MAX");
    child.pid = bench_spawn(&engine->bench, place, arguments, kept, &from);
    child.answers = fdopen(from, "r");
    if (!child.answers)
        bench_fail("no memory");
    return child;
}

static struct child start_measuring(const struct engine *engine, const struct bench_place *place)
{
    char what[64];
    int orders[2];

    if (pipe2(orders, O_CLOEXEC))
        bench_fail("no pipe");
    snprintf(what, sizeof(what), "--orders=%d", orders[0]);
    struct child child = start_child(engine, place, what, orders[0]);
    close(orders[0]);
    child.orders = orders[1];
    return child;
}

static void end_child(const struct engine *engine, struct child *child)
{
    if (child->orders >= 0)
        close(child->orders);
    if (!bench_reap(child->pid))
        bench_fail("%s broke off", engine->bench.name);
    fclose(child->answers);
}

static struct sample ask(const struct engine *engine, struct child *child, size_t figure, uint64_t round)
{
    const struct order order = {(unsigned char)figure, (unsigned char)round};
    struct sample sample;

    if (write(child->orders, &order, sizeof(order)) != sizeof(order) ||
        fscanf(child->answers, "%lf %lf", &sample.ns, &sample.past) != 2)
        bench_fail("%s broke off", engine->bench.name);
    return sample;
}

static void measure_figures(const struct bench_place *place)
{
    struct child children[ENGINES];
    struct samples samples;

    for (size_t e = 0; e < ENGINES; e++)
        children[e] = start_measuring(&engines[e], place);
    for (size_t f = 0; f < COUNT(figures); f++) {
        const bool launches = !figures[f].bytes;

        for (size_t e = 0; e < ENGINES; e++)
            ask(&engines[e], &children[e], f, 0); /* a first round that warms up */
        for (samples.count = 0; samples.count < rounds; samples.count++) {
            for (size_t e = 0; e < ENGINES; e++)
                samples.of[e][samples.count] = ask(&engines[e], &children[e], f, samples.count);
        }
        print_figure(figures[f].what, figures[f].bytes,
                     !launches ? 0 : (figures[f].many ? many_modules * KERNELS : 1), &samples);
    }
    for (size_t e = 0; e < ENGINES; e++)
        end_child(&engines[e], &children[e]);
}

/* Nothing else is on the card while such a block is made. */
static void measure_first(const struct bench_place *place, uint64_t bytes)
{
    struct samples allocs = {.count = 0}, frees = {.count = 0};
    char what[64];

    snprintf(what, sizeof(what), "--first=%" PRIu64, bytes);
    for (; allocs.count < rounds && allocs.count < FIRST_MAX; allocs.count++) {
        for (size_t e = 0; e < ENGINES; e++) {
            struct child child = start_child(&engines[e], place, what, -1);
            double *alloc = &allocs.of[e][allocs.count].ns, *free = &frees.of[e][allocs.count].ns;

            if (fscanf(child.answers, "%lf %lf", alloc, free) != 2)
                bench_fail("%s broke off", engines[e].bench.name);
            end_child(&engines[e], &child);
        }
    }
    frees.count = allocs.count;
    print_figure("first_alloc", bytes, 0, &allocs);
    print_figure("first_free", bytes, 0, &frees);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"rounds", required_argument, NULL, 'r'}, {"modules", required_argument, NULL, 'm'},
        {"simulated", no_argument, NULL, 'S'},    {"child", required_argument, NULL, 'C'},
        {"orders", required_argument, NULL, 'O'}, {"first", required_argument, NULL, 'F'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    uint64_t first = 0;
    int option, orders = -1;
    bool simulated = false;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'r':
            rounds = bench_bytes(optarg);
            break;
        case 'm':
            many_modules = bench_bytes(optarg);
            break;
        case 'S':
            simulated = true;
            break;
        case 'C':
            engine_name = optarg;
            break;
        case 'O':
            orders = atoi(optarg);
            break;
        case 'F':
            first = bench_bytes(optarg);
            break;
        default:
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? 0 : 2;
        }
    }
    if (!rounds || rounds > ROUNDS_MAX || !many_modules || many_modules > UINT16_MAX)
        bench_fail("from 1 to %d rounds, and from 1 to %d modules", ROUNDS_MAX, UINT16_MAX);
    if (engine_name)
        return first ? run_first(first) : run_rounds(orders);
    const struct bench_place place = {.simulated = bench_simulated(simulated)};
    bench_join_place(&place);
    measure_figures(&place);
    for (size_t i = 0; i < COUNT(first_sizes); i++)
        measure_first(&place, first_sizes[i]);
    return 0;
}
