/* prog_job: two processes of one job, which share a budget. One scenario a run; both processes are this
 * program (prog_is_other). Meant for a card of 2 GiB whose contexts take 128 MiB, a job of 1 GiB and a
 * reserve of 64 MiB.
 */
#include "prog_check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BUDGET  (1024 * MIB)
#define CONTEXT (128 * MIB)
#define RESERVE (64 * MIB)
#define HALF    (512 * MIB)

/* ---- requests of every kind ---- */

enum kind { LINEAR, HANDLE, ASYNC, ARRAY, MANAGED, KINDS };

struct memory {
    enum kind kind;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    CUarray array;
};

static CUresult take(struct memory *memory, enum kind kind, size_t bytes)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUDA_ARRAY_DESCRIPTOR array = {
        .Width = 4096, .Height = bytes / 4096 / 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};

    memory->kind = kind;
    switch (kind) {
    case LINEAR:
        return cuMemAlloc(&memory->address, bytes);
    case HANDLE:
        return cuMemCreate(&memory->handle, bytes, &prop, 0);
    case ASYNC:
        return cuMemAllocAsync(&memory->address, bytes, NULL);
    case ARRAY:
        return cuArrayCreate(&memory->array, &array);
    default:
        return cuMemAllocManaged(&memory->address, bytes, CU_MEM_ATTACH_GLOBAL);
    }
}

static void give(const struct memory *memory)
{
    switch (memory->kind) {
    case HANDLE:
        MUST(0, cuMemRelease(memory->handle));
        break;
    case ASYNC:
        MUST(0, cuMemFreeAsync(memory->address, NULL));
        break;
    case ARRAY:
        MUST(0, cuArrayDestroy(memory->array));
        break;
    default:
        MUST(0, cuMemFree(memory->address));
    }
}

/* What the driver's own pool keeps. */
static void give_up_idle(void)
{
    CUmemoryPool pool;

    MUST(0, cuDeviceGetMemPool(&pool, 0));
    MUST(0, cuMemPoolTrimTo(pool, 0));
}

/* ---- one budget ---- */

/* The other process holds a half. This one gets everything within the budget and nothing beyond. */
static void shared(void)
{
    struct memory block;

    prog_context(0);
    if (prog_is_other()) {
        MUST(0, take(&block, LINEAR, HALF));
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(false);
    const size_t left = BUDGET - 2 * CONTEXT - HALF - RESERVE;
    prog_await();
    for (enum kind kind = LINEAR; kind < KINDS; kind++) {
        MUST(CUDA_ERROR_OUT_OF_MEMORY, take(&block, kind, left + 64 * MIB));
        MUST(0, take(&block, kind, left / 2));
        give(&block);
        MUST(0, cuCtxSynchronize());
    }
    prog_signal();
    prog_join(pid);
    MUST(0, take(&block, LINEAR, HALF));
}

/* Both are told exactly what they leave each other, by CUDA and by NVML, whatever they have leased. */
static void told(void)
{
    struct memory block;
    size_t free_bytes, total;
    unsigned long long memory[3]; /* total, free, used */
    void *library;

    prog_context(0);
    if (prog_is_other()) {
        prog_signal();
        prog_await();
        MUST(0, take(&block, HANDLE, 100 * MIB));
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(false);
    prog_await();
    MUST(0, cuMemGetInfo(&free_bytes, &total));
    MUST(BUDGET - 2 * CONTEXT - RESERVE, free_bytes);
    prog_signal();
    prog_await();
    MUST(0, cuMemGetInfo(&free_bytes, &total));
    MUST(BUDGET - 2 * CONTEXT - RESERVE - 100 * MIB, free_bytes);
    void *card = prog_nvml(&library);
    int (*nvml_memory)(void *, unsigned long long *) =
        (int (*)(void *, unsigned long long *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    MUST(0, nvml_memory(card, memory));
    MUST(BUDGET, memory[0]);
    MUST(free_bytes, memory[1]);
    MUST(2 * CONTEXT + 100 * MIB, memory[2]);
    MUST(0, take(&block, HANDLE, free_bytes)); /* and can be had */
    prog_signal();
    prog_join(pid);
}

/* Half of the budget lies idle in the pool when a request is refused. */
static void idles(void)
{
    struct memory block;

    prog_context(0);
    MUST(0, take(&block, LINEAR, HALF));
    give(&block);
    MUST(CUDA_ERROR_OUT_OF_MEMORY, take(&block, LINEAR, BUDGET - CONTEXT - RESERVE + 2 * MIB));
    MUST(0, take(&block, LINEAR, BUDGET - CONTEXT - RESERVE));
}

/* The other process has not said what the job may use. */
static void joins(void)
{
    struct memory block;

    if (prog_is_other()) {
        prog_context(0);
        MUST(CUDA_ERROR_OUT_OF_MEMORY, take(&block, LINEAR, BUDGET));
        return;
    }
    prog_context(0);
    unsetenv("GPUCAP_MAX");
    prog_join(prog_start(false));
}

static void keep_idle(void)
{
    cuuint64_t all = UINT64_MAX;
    CUmemoryPool pool;

    MUST(0, cuDeviceGetMemPool(&pool, 0));
    MUST(0, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
}

/* The other process has freed its half and keeps it cached, and the driver's pool keeps some: this one gets
 * both, as any kind of memory. */
static void lends(void)
{
    struct memory block;

    prog_context(0);
    if (prog_is_other()) {
        keep_idle();
        for (enum kind kind = LINEAR; kind < KINDS; kind++) {
            MUST(0, take(&block, LINEAR, HALF));
            give(&block);
            MUST(0, take(&block, ASYNC, 128 * MIB));
            give(&block);
            MUST(0, cuCtxSynchronize());
            prog_signal();
            prog_await();
        }
        return;
    }
    const pid_t pid = prog_start(false);
    for (enum kind kind = LINEAR; kind < KINDS; kind++) {
        prog_await();
        MUST(0, take(&block, kind, HALF + 96 * MIB));
        give(&block);
        MUST(0, cuCtxSynchronize());
        prog_signal();
    }
    prog_join(pid);
}

/* On a card of 1 GiB, a graph that lacks 64 MiB takes no more than that from what the other keeps idle. */
static void lends_to_a_graph(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS node = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = 448 * MIB};
    struct memory block;
    CUgraphNode nodes[2];
    CUgraph graph;
    CUgraphExec exec;

    prog_context(0);
    if (prog_is_other()) {
        MUST(0, take(&block, LINEAR, 128 * MIB));
        struct memory more[2];
        MUST(0, take(&more[0], LINEAR, 128 * MIB));
        MUST(0, take(&more[1], LINEAR, 128 * MIB));
        give(&block);
        give(&more[0]);
        give(&more[1]);
        MUST(0, cuCtxSynchronize());
        prog_signal();
        prog_await();
        unsigned long long (*used)(int) = NULL; /* simgpu_used() */
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        if (library && (*(void **)&used = dlsym(library, "simgpu_used")))
            MUST(true, used(0) >= CONTEXT + 256 * MIB && used(0) < CONTEXT + 384 * MIB);
        return;
    }
    const pid_t pid = prog_start(false);
    prog_await();
    MUST(0, cuGraphCreate(&graph, 0));
    MUST(0, cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &node));
    MUST(0, cuGraphAddMemFreeNode(&nodes[1], graph, &nodes[0], 1, node.dptr));
    MUST(0, cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(0, cuGraphLaunch(exec, NULL));
    MUST(0, cuCtxSynchronize());
    prog_signal();
    prog_join(pid);
}

/* The other process's idle memory would not be enough: this one holds too much itself. */
static void vain(void)
{
    struct memory live, block;
    size_t before, after, total;

    prog_context(0);
    if (prog_is_other()) {
        MUST(0, take(&block, LINEAR, 256 * MIB));
        give(&block);
        MUST(0, cuCtxSynchronize());
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(false);
    prog_await();
    MUST(0, take(&live, LINEAR, 256 * MIB));
    MUST(0, cuMemGetInfo(&before, &total));
    for (enum kind kind = LINEAR; kind < KINDS; kind++)
        MUST(CUDA_ERROR_OUT_OF_MEMORY, take(&block, kind, BUDGET - CONTEXT - 128 * MIB));
    MUST(0, cuMemGetInfo(&after, &total));
    MUST(before / MIB, after / MIB); /* what the other keeps is not free for us */
    prog_signal();
    prog_join(pid);
}

/* The memory of a killed process is available at once. */
static void killed(void)
{
    struct memory block;

    prog_context(0);
    if (prog_is_other()) {
        MUST(0, take(&block, LINEAR, HALF));
        prog_signal();
        prog_await();
        return;
    }
    for (enum kind kind = LINEAR; kind < KINDS; kind++) {
        const pid_t pid = prog_start(false);
        prog_await();
        MUST(CUDA_ERROR_OUT_OF_MEMORY, take(&block, kind, HALF));
        kill(pid, SIGKILL);
        prog_reap(pid);
        MUST(0, take(&block, kind, HALF));
        give(&block);
        MUST(0, cuCtxSynchronize());
        give_up_idle();
    }
}

/* ---- with wait ---- */

static void *free_later(void *argument)
{
    const struct timespec while_ = {.tv_nsec = 100000000};

    nanosleep(&while_, NULL); /* the request that waits is most likely under way; it is granted in any case */
    give(argument);
    return NULL;
}

/* The other holds what this process needs, and frees it a little later. */
static void waits(void)
{
    struct memory block;
    pthread_t thread;

    prog_context(0);
    for (enum kind kind = LINEAR; kind < KINDS; kind++) {
        if (prog_is_other()) {
            MUST(0, take(&block, LINEAR, HALF));
            prog_signal();
            MUST(0, pthread_create(&thread, NULL, free_later, &block));
            pthread_join(thread, NULL);
            prog_await();
            continue;
        }
        static pid_t pid;
        if (kind == LINEAR)
            pid = prog_start(false);
        prog_await();
        MUST(0, take(&block, kind, HALF));
        give(&block);
        MUST(0, cuCtxSynchronize());
        prog_signal();
        if (kind == KINDS - 1)
            prog_join(pid);
    }
}

/* Both hold a quarter and ask for more than is left: one is refused, and then the other one gets it. */
static void cycle(void)
{
    struct memory first, second;
    CUresult mine, theirs;

    prog_context(0);
    const pid_t pid = prog_is_other() ? 0 : prog_start(false);
    MUST(0, take(&first, LINEAR, 256 * MIB));
    prog_signal();
    prog_await();
    mine = take(&second, LINEAR, 384 * MIB);
    if (mine != CUDA_SUCCESS) {
        MUST(CUDA_ERROR_OUT_OF_MEMORY, mine);
        give(&first);
    }
    prog_send(&mine, sizeof(mine));
    prog_receive(&theirs, sizeof(theirs));
    MUST(true, (mine == CUDA_SUCCESS) != (theirs == CUDA_SUCCESS));
    if (!prog_is_other())
        prog_join(pid);
}

/* What can never fit is not waited for. */
static void hopeless(void)
{
    struct memory block;

    prog_context(0);
    for (enum kind kind = LINEAR; kind < KINDS; kind++)
        MUST(CUDA_ERROR_OUT_OF_MEMORY, take(&block, kind, BUDGET));
}

/* On a card of 1 GiB this process has too much itself: what the other one holds would not be enough. */
static void alone(void)
{
    struct memory block, held;

    prog_context(0);
    if (prog_is_other()) {
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(false);
    prog_await();
    MUST(0, take(&held, LINEAR, 256 * MIB));
    for (enum kind kind = LINEAR; kind < MANAGED; kind++)
        MUST(CUDA_ERROR_OUT_OF_MEMORY, take(&block, kind, 656 * MIB));
    prog_signal();
    prog_join(pid);
}

/* ---- min and high ---- */

#define MIN    (768 * MIB) /* of each, as the test sets it */
#define BESIDE (2048 * MIB - 2 * CONTEXT - (MIN - CONTEXT))

/* Two jobs on a card of 2 GiB. The other one gets what is beside the first one's min, and no more; the first
 * one then gets its min. */
static void guaranteed(void)
{
    const size_t beside = BESIDE;
    struct memory block;

    prog_context(0);
    const pid_t pid = prog_is_other() ? 0 : prog_start(false);
    prog_signal();
    prog_await(); /* both have a context */
    for (enum kind kind = LINEAR; kind < MANAGED; kind++) {
        if (prog_is_other()) {
            MUST(CUDA_ERROR_OUT_OF_MEMORY, take(&block, kind, beside + 32 * MIB));
            MUST(0, take(&block, kind, beside));
            prog_signal();
            prog_await();
            give(&block);
            MUST(0, cuCtxSynchronize());
            give_up_idle();
            prog_signal();
            continue;
        }
        prog_await();
        MUST(0, take(&block, LINEAR, MIN - CONTEXT));
        give(&block);
        MUST(0, cuCtxSynchronize());
        prog_signal();
        prog_await();
    }
    if (!prog_is_other())
        prog_join(pid);
}

/* Processes that this one starts have no limit, and nothing is kept for them. */
static void start_without_limits(void)
{
    unsetenv("GPUCAP_MAX");
    unsetenv("GPUCAP_MIN");
    unsetenv("GPUCAP_RESERVE");
}

/* The same, but the other process has no limit. */
static void guaranteed_from_unlimited(void)
{
    prog_context(0); /* before: it has limits itself */
    start_without_limits();
    guaranteed();
}

/* A graph that allocates and frees `bytes`, launched once. */
static CUresult launch_graph(size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS node = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = bytes};
    CUgraphNode nodes[2];
    CUgraph graph;
    CUgraphExec exec;

    MUST(0, cuGraphCreate(&graph, 0));
    MUST(0, cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &node));
    MUST(0, cuGraphAddMemFreeNode(&nodes[1], graph, &nodes[0], 1, node.dptr));
    MUST(0, cuGraphInstantiateWithFlags(&exec, graph, 0));
    const CUresult result = cuGraphLaunch(exec, NULL);
    MUST(0, cuCtxSynchronize());
    return result;
}

/* The other process has no limit. The memory of its graphs, and what its context grows by, leave the min. */
static void graphs_leave_a_min(void)
{
    struct memory block, more;

    prog_context(0);
    if (prog_is_other()) {
        MUST(0, take(&block, HANDLE, BESIDE - 128 * MIB));
        MUST(CUDA_ERROR_OUT_OF_MEMORY, launch_graph(160 * MIB));
        MUST(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 160 * MIB));
        MUST(0, launch_graph(96 * MIB));
        MUST(0, take(&more, HANDLE, 16 * MIB)); /* what the graph has taken counts once */
        prog_signal();
        prog_await();
        return;
    }
    start_without_limits();
    const pid_t pid = prog_start(false);
    prog_await();
    MUST(0, take(&block, LINEAR, MIN - CONTEXT));
    prog_signal();
    prog_join(pid);
}

/* A third process makes a context and ends; `expected` is the driver's answer. max NULL: it has no limit. */
static void run_late(const char *expected, const char *max)
{
    const pid_t pid = fork();

    if (pid == 0) {
        setenv("LATE", expected, 1);
        if (max)
            setenv("GPUCAP_MAX", max, 1);
        execl("/proc/self/exe", "prog_job", "no_context_in_a_min", (char *)NULL);
        _exit(127);
    }
    prog_join(pid);
}

/* The other process fills what is beside the min of the first. Then there is room for a context only where
 * memory is kept: a third process, with a limit or without, gets none, and the first one gets its min. What
 * the other has idle is given back for a context. */
static void no_context_in_a_min(void)
{
    struct memory block, held;
    CUcontext made;

    if (getenv("LATE")) {
        MUST(0, cuInit(0));
        MUST(atoi(getenv("LATE")), cuDevicePrimaryCtxRetain(&made, 0));
        return;
    }
    prog_context(0);
    if (prog_is_other()) {
        MUST(0, take(&held, LINEAR, BESIDE - 2 * CONTEXT));
        MUST(0, take(&block, LINEAR, CONTEXT + CONTEXT / 2));
        prog_signal();
        prog_await();
        give(&block);
        prog_signal();
        prog_await();
        return;
    }
    start_without_limits();
    const pid_t other = prog_start(false);
    prog_await();
    run_late("2", NULL); /* CUDA_ERROR_OUT_OF_MEMORY */
    run_late("2", "1G");
    MUST(0, take(&block, LINEAR, MIN - CONTEXT));
    give(&block);
    prog_signal();
    prog_await();
    run_late("0", NULL);
    run_late("0", "1G");
    prog_signal();
    prog_join(other);
}

/* A job above its high does not keep idle memory: a process outside sees it come free. */
static void gives_early(void)
{
    struct memory block;
    size_t free_bytes = 0, total = 1;
    CUcontext own;

    if (prog_is_other()) {
        MUST(0, cuInit(0));
        MUST(0, cuCtxCreate(&own, NULL, 0, 0));
        prog_signal();
        prog_await();
        for (int tries = 0; tries < 20000 && total - free_bytes > 2 * CONTEXT + 256 * MIB; tries++) {
            MUST(0, cuMemGetInfo(&free_bytes, &total));
            usleep(10000);
        }
        MUST(true, total - free_bytes <= 2 * CONTEXT + 256 * MIB);
        return;
    }
    prog_context(0);
    const pid_t pid = prog_start(true);
    prog_await();
    MUST(0, take(&block, LINEAR, HALF));
    give(&block);
    prog_signal();
    prog_join(pid);
}

/* ---- many at once ---- */

#define PROCESSES 4
#define THREADS   3
#define ROUNDS    40

static CUcontext context;

static void *allocates(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument ^ (unsigned)getpid();

    MUST(0, cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS; i++) {
        struct memory block;
        const CUresult result =
            take(&block, (enum kind)(rand_r(&seed) % KINDS), (1 + (size_t)rand_r(&seed) % 8) * 16 * MIB);

        MUST(true, result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        if (result == CUDA_SUCCESS)
            give(&block);
    }
    return NULL;
}

/* Looks, without the library, at what the whole card has in use, until the first process says that it is
 * over. */
static void watch(void)
{
    CUcontext own;
    size_t least = SIZE_MAX, free_bytes, total;
    char over = 0;

    MUST(0, cuInit(0));
    MUST(0, cuCtxCreate(&own, NULL, 0, 0));
    prog_signal();
    while (!over) {
        MUST(0, cuMemGetInfo(&free_bytes, &total));
        least = free_bytes < least ? free_bytes : least;
        over = prog_poll();
    }
    /* Its own context is no part of the job. */
    MUST(true, total - least - CONTEXT <= BUDGET);
}

/* Other processes may have all that is left at the moment. */
static CUcontext context_when_it_fits(void)
{
    CUcontext made;
    CUresult result;

    MUST(0, cuInit(0));
    do
        result = cuDevicePrimaryCtxRetain(&made, 0);
    while (result == CUDA_ERROR_OUT_OF_MEMORY);
    MUST(0, result);
    return made;
}

static void races(void)
{
    pthread_t threads[THREADS];
    pid_t pids[PROCESSES];
    struct memory block;

    if (prog_is_other() && prog_is_bare()) {
        watch();
        return;
    }
    context = prog_is_other() ? context_when_it_fits() : prog_context(0);
    if (!prog_is_other()) {
        for (int i = 0; i < PROCESSES; i++)
            pids[i] = prog_start(false);
        const pid_t watcher = prog_start(true);
        prog_await();
        for (int i = 0; i < PROCESSES; i++)
            prog_join(pids[i]);
        prog_signal();
        prog_join(watcher);
        MUST(0, take(&block, LINEAR, HALF)); /* nothing is left of the others */
        return;
    }
    for (uintptr_t i = 0; i < THREADS; i++)
        MUST(0, pthread_create(&threads[i], NULL, allocates, (void *)i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    static const struct prog_scenario scenarios[] = {
        {"shared", shared},
        {"told", told},
        {"idles", idles},
        {"joins", joins},
        {"lends", lends},
        {"killed", killed},
        {"waits", waits},
        {"cycle", cycle},
        {"races", races},
        {"hopeless", hopeless},
        {"vain", vain},
        {"alone", alone},
        {"lends_to_a_graph", lends_to_a_graph},
        {"guaranteed", guaranteed},
        {"gives_early", gives_early},
        {"guaranteed_from_unlimited", guaranteed_from_unlimited},
        {"no_context_in_a_min", no_context_in_a_min},
        {"graphs_leave_a_min", graphs_leave_a_min},
    };

    return prog_main(argc, argv, scenarios, sizeof(scenarios) / sizeof(*scenarios));
}
