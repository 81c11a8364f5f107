/* prog_graphs: graphs that allocate memory. Sizes are parts of what the program is told is free, so that each
 * scenario behaves the same with a cap, without one and natively: a graph that is larger than the card is
 * refused. See prog_check.h.
 */
#include "prog_check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/simgpu/simgpu.h"

#define FULL 2 /* CUDA_ERROR_OUT_OF_MEMORY */

static size_t room, total; /* at the start */
static CUstream stream;

/* ---- NVML: what the process uses, from outside the driver ---- */

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static int (*processes)(void *device, unsigned *count, struct process *list);
static void *card;

static void open_nvml(void)
{
    void *library;

    card = prog_nvml(&library);
    processes = (int (*)(void *, unsigned *, struct process *))dlsym(
        library, "nvmlDeviceGetComputeRunningProcesses_v3");
}

static size_t in_use(void)
{
    struct process list[64];
    unsigned count = 64;
    size_t sum = 0;

    MUST(0, processes(card, &count, list));
    for (unsigned i = 0; i < count; i++)
        sum += list[i].pid == (unsigned)getpid() ? (size_t)list[i].used : 0;
    return sum;
}

static void begin(void)
{
    prog_context(0);
    MUST(0, cuMemGetInfo(&room, &total));
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    open_nvml();
}

static void within(void)
{
    MUST(true, in_use() <= total);
}

/* ---- graphs ---- */

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;

    MUST(0, cuGraphInstantiate(&exec, graph, 0));
    MUST(0, cuGraphDestroy(graph));
    return exec;
}

/* Writes into a block of the graph's, and copies from there. */
static void use(CUstream on, CUdeviceptr block, size_t bytes, CUdeviceptr into)
{
    MUST(0, cuMemsetD8Async(block + bytes - 4096, 0x5a, 4096, on));
    MUST(0, cuMemcpyDtoDAsync(into, block + bytes - 4096, 4096, on));
}

static CUgraph captured(CUstream on, size_t bytes, CUdeviceptr into)
{
    CUdeviceptr block;
    CUgraph graph;

    MUST(0, cuStreamBeginCapture(on, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuMemAllocAsync(&block, bytes, on));
    if (into)
        use(on, block, bytes, into);
    MUST(0, cuMemFreeAsync(block, on));
    MUST(0, cuStreamEndCapture(on, &graph));
    return graph;
}

static CUgraphExec graph_of(size_t bytes)
{
    return instantiate(captured(stream, bytes, 0));
}

static void launch(CUgraphExec exec)
{
    MUST(0, cuGraphLaunch(exec, stream));
    MUST(0, cuStreamSynchronize(stream));
    within();
}

/* A small graph, with data that must be right. */
static void works(void)
{
    CUdeviceptr out;

    MUST(0, cuMemAlloc(&out, 4096));
    prog_fill(out, 0, 4096);
    CUgraphExec exec = instantiate(captured(stream, room / 4, out));
    launch(exec);
    MUST(0, prog_wrong(out, 0x5a, 4096));
    MUST(0, cuGraphExecDestroy(exec));
    MUST(0, cuMemFree(out));
}

static void larger(void)
{
    CUdeviceptr block;

    begin();
    CUgraphExec exec = graph_of(total);
    const size_t before = in_use();
    for (int i = 0; i < 3; i++) {
        MUST(FULL, cuGraphLaunch(exec, stream));
        MUST(0, cuStreamSynchronize(stream));
        MUST(before, in_use());
    }
    works();
    MUST(0, cuMemAlloc(&block, 16 * MIB));
    MUST(0, cuMemFree(block));
    MUST(FULL, cuGraphLaunch(exec, stream));
    MUST(0, cuGraphExecDestroy(exec));
}

/* The default streams, also as the runtime finds those of threads. */
static void other_ways(void)
{
    begin();
    CUgraphExec exec = graph_of(total);
    MUST(FULL, cuGraphLaunch(exec, NULL));
    MUST(FULL, cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
    CUresult (*found)(CUgraphExec, CUstream) = NULL;
    MUST(0, cuGetProcAddress("cuGraphLaunch", (void **)&found, 13000,
                             CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
    MUST(FULL, found(exec, NULL));
    CUgraphExec small = graph_of(room / 4);
    MUST(0, found(small, NULL));
    MUST(0, cuCtxSynchronize());
    within();
    MUST(0, cuGraphExecDestroy(small));
    MUST(0, cuGraphExecDestroy(exec));
}

static void again(void)
{
    CUdeviceptr blocks[4096];
    int count = 0;
    CUresult result;

    begin();
    CUgraphExec exec = graph_of(room / 2);
    launch(exec);
    while (count < 4096 && (result = cuMemAlloc(&blocks[count], total / 64)) == CUDA_SUCCESS)
        count++;
    MUST(FULL, result);
    MUST(true, count > 0);
    for (int i = 0; i < 100; i++)
        launch(exec);
    while (count)
        MUST(0, cuMemFree(blocks[--count]));
    MUST(0, cuGraphExecDestroy(exec));
}

static void reuse(void)
{
    CUdeviceptr block, out;
    CUgraph graph;

    begin();
    const size_t bytes = room / 4 * 3;
    MUST(0, cuMemAlloc(&out, 2 * 4096));
    prog_fill(out, 0, 2 * 4096);
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 2; i++) {
        MUST(0, cuMemAllocAsync(&block, bytes, stream));
        use(stream, block, bytes, out + (size_t)i * 4096);
        MUST(0, cuMemFreeAsync(block, stream));
    }
    MUST(0, cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 10; i++)
        launch(exec);
    MUST(0, prog_wrong(out, 0x5a, 2 * 4096));
    MUST(0, cuGraphExecDestroy(exec));
    MUST(0, cuMemFree(out));
}

static CUgraphNode add_on(int device, CUgraph graph, const CUgraphNode *after, size_t bytes, bool freed)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = bytes};
    CUgraphNode node, end;

    MUST(0, cuGraphAddMemAllocNode(&node, graph, after, after != NULL, &params));
    if (!freed)
        return node;
    MUST(0, cuGraphAddMemFreeNode(&end, graph, &node, 1, params.dptr));
    return end;
}

static CUgraphNode add(CUgraph graph, const CUgraphNode *after, size_t bytes, bool freed)
{
    return add_on(0, graph, after, bytes, freed);
}

static CUgraph empty(void)
{
    CUgraph graph;

    MUST(0, cuGraphCreate(&graph, 0));
    return graph;
}

static void nodes(void)
{
    CUgraph graph, child;
    CUgraphExec exec;
    CUgraphNode node;

    begin();
    add(graph = empty(), NULL, total, true);
    exec = instantiate(graph);
    MUST(FULL, cuGraphLaunch(exec, stream));
    MUST(0, cuGraphExecDestroy(exec));

    graph = empty(); /* beside each other: both at once */
    add(graph, NULL, room / 4 * 3, true);
    add(graph, NULL, room / 4 * 3, true);
    exec = instantiate(graph);
    MUST(FULL, cuGraphLaunch(exec, stream));
    MUST(0, cuGraphExecDestroy(exec));

    graph = empty(); /* one after the other */
    node = add(graph, NULL, room / 4 * 3, true);
    add(graph, &node, room / 4 * 3, true);
    exec = instantiate(graph);
    launch(exec);
    MUST(0, cuGraphExecDestroy(exec));

    add(child = empty(), NULL, total, true);
    graph = empty();
    MUST(0, cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    MUST(0, cuGraphDestroy(child));
    exec = instantiate(graph);
    MUST(FULL, cuGraphLaunch(exec, stream));
    within();
    MUST(0, cuGraphExecDestroy(exec));
}

static void upload(void)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    CUgraphExec exec, at_once;
    CUgraph graph;

    begin();
    params.hUploadStream = stream;
    exec = graph_of(total);
    MUST(FULL, cuGraphUpload(exec, stream));
    MUST(0, cuGraphExecDestroy(exec));
    graph = captured(stream, total, 0);
    MUST(FULL, cuGraphInstantiateWithParams(&at_once, graph, &params));
    MUST(CUDA_GRAPH_INSTANTIATE_ERROR, params.result_out);
    MUST(0, cuGraphDestroy(graph));
    within();

    const size_t before = in_use();
    exec = graph_of(room / 8 * 3);
    MUST(0, cuGraphUpload(exec, stream));
    graph = captured(stream, room / 8 * 3, 0);
    MUST(0, cuGraphInstantiateWithParams(&at_once, graph, &params));
    MUST(0, cuGraphDestroy(graph));
    MUST(true, in_use() - before >= room / 8 * 6);
    for (int i = 0; i < 10; i++) {
        launch(exec);
        launch(at_once);
    }
    MUST(true, in_use() - before >= room / 8 * 6);
    MUST(0, cuGraphExecDestroy(exec));
    MUST(0, cuGraphExecDestroy(at_once));
}

static void gives_back(void)
{
    CUdeviceptr block;

    begin();
    CUgraphExec exec = graph_of(room / 4 * 3);
    launch(exec);
    MUST(FULL, cuMemAlloc(&block, room / 2));
    MUST(0, cuGraphExecDestroy(exec));
    MUST(0, cuDeviceGraphMemTrim(0));
    MUST(0, cuMemAlloc(&block, room / 2));
    within();
    exec = graph_of(room / 4 * 3);
    MUST(FULL, cuGraphLaunch(exec, stream));
    MUST(0, cuMemFree(block));
    launch(exec);
    MUST(0, cuGraphExecDestroy(exec));
}

/* Two graphs that fit beside each other, in any streams; then two of which one must release its memory. */
static void several(void)
{
    CUstream other;
    CUgraphExec small[2], large[2];

    begin();
    MUST(0, cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++)
        small[i] = graph_of(room / 8 * 3);
    for (int i = 0; i < 50; i++) {
        MUST(0, cuGraphLaunch(small[i % 2], i % 3 ? stream : other));
        within();
    }
    MUST(0, cuCtxSynchronize());
    for (int i = 0; i < 2; i++)
        large[i] = graph_of(room / 4 * 3);
    for (int i = 0; i < 20; i++)
        launch(large[i % 2]);
    for (int i = 0; i < 2; i++) {
        MUST(0, cuGraphExecDestroy(small[i]));
        MUST(0, cuGraphExecDestroy(large[i]));
    }
    MUST(0, cuStreamDestroy(other));
}

static CUgraphExec leaving(size_t bytes, CUdeviceptr *block)
{
    CUgraph graph;

    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuMemAllocAsync(block, bytes, stream));
    MUST(0, cuMemsetD8Async(*block, 0x33, 4096, stream));
    MUST(0, cuStreamEndCapture(stream, &graph));
    return instantiate(graph);
}

/* Blocks that a graph leaves to the program. */
static void left(void)
{
    CUdeviceptr a, b;

    begin();
    CUgraphExec first = leaving(room / 4 * 3, &a), second = leaving(room / 4 * 3, &b);
    launch(first);
    MUST(FULL, cuGraphLaunch(second, stream));
    MUST(0, prog_wrong(a, 0x33, 4096));
    MUST(0, cuGraphExecDestroy(first)); /* frees nothing of it */
    MUST(FULL, cuGraphLaunch(second, stream));
    MUST(0, prog_wrong(a, 0x33, 4096));
    MUST(0, cuMemFreeAsync(a, stream));
    launch(second);
    MUST(0, prog_wrong(b, 0x33, 4096));
    MUST(0, cuMemFree(b));
    MUST(0, cuGraphExecDestroy(second));
}

static void update(void)
{
    CUgraphExecUpdateResultInfo info;

    begin();
    CUgraphExec exec = graph_of(16 * MIB);
    launch(exec);
    CUgraph graph = captured(stream, total, 0);
    MUST(0, cuGraphExecUpdate(exec, graph, &info));
    MUST(FULL, cuGraphLaunch(exec, stream));
    within();
    MUST(0, cuGraphDestroy(graph));
    MUST(0, cuGraphExecDestroy(exec));
}

/* A child has no CUDA, and must not hang. */
static void forked(void)
{
    int status;

    begin();
    CUgraphExec exec = graph_of(room / 2), unused = graph_of(room / 2);
    launch(exec);
    const pid_t pid = fork();
    if (pid == 0) {
        const bool refused = cuGraphLaunch(exec, stream) == CUDA_ERROR_NOT_INITIALIZED &&
                             cuGraphExecDestroy(unused) == CUDA_ERROR_NOT_INITIALIZED;
        _exit(refused ? 0 : 1);
    }
    MUST(pid, waitpid(pid, &status, 0));
    MUST(0, status);
    launch(exec);
    MUST(0, cuGraphExecDestroy(exec));
    MUST(0, cuGraphExecDestroy(unused));
}

/* Without a cap the library does not look into graphs. */
static void unseen(void)
{
    begin();
    CUgraphExec exec = graph_of(room / 2);
    simgpu_reset_calls();
    launch(exec);
    MUST(0, cuGraphUpload(exec, stream));
    MUST(0, cuGraphExecDestroy(exec));
    exec = graph_of(room / 2);
    MUST(0, simgpu_calls("cuGraphGetNodes") + simgpu_calls("cuGraphNodeGetType") +
                simgpu_calls("cuGraphMemAllocNodeGetParams") + simgpu_calls("cuDeviceGetGraphMemAttribute") +
                simgpu_calls("cuDeviceGraphMemTrim"));
    MUST(0, cuGraphExecDestroy(exec));
}

/* A graph without allocations is inspected once, and its launches query nothing. */
static void plain(void)
{
    CUdeviceptr block;
    CUgraph graph;

    begin();
    MUST(0, cuMemAlloc(&block, 4096));
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuMemsetD8Async(block, 1, 4096, stream));
    MUST(0, cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = instantiate(graph);
    MUST(0, cuGraphLaunch(exec, stream));
    simgpu_reset_calls();
    for (int i = 0; i < 10; i++)
        MUST(0, cuGraphLaunch(exec, stream));
    MUST(10, simgpu_calls_total());
    MUST(0, cuStreamSynchronize(stream));
    MUST(0, cuGraphExecDestroy(exec));
    MUST(0, cuMemFree(block));
}

/* ---- threads ---- */

#define THREADS 6
#define ROUNDS  60

static CUcontext context;
static atomic_bool racing = true;
static atomic_size_t peak;
static atomic_int granted, refused;

static void *watch(void *unused)
{
    while (atomic_load(&racing)) {
        const size_t now = in_use();

        if (now > atomic_load(&peak))
            atomic_store(&peak, now);
    }
    return unused;
}

static bool went(CUresult result)
{
    MUST(true, result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    atomic_fetch_add(result == CUDA_SUCCESS ? &granted : &refused, 1);
    return result == CUDA_SUCCESS;
}

/* Made before the race, which leaves no room for them. */
static CUstream streams[THREADS];

static void make_streams(void)
{
    for (int i = 0; i < THREADS; i++)
        MUST(0, cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

static void *launches(void *argument)
{
    const uintptr_t number = (uintptr_t)argument;
    unsigned seed = (unsigned)number + 1;
    CUstream own = streams[number];

    MUST(0, cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS; i++) {
        CUgraph graph = empty(); /* no capture, which would forbid the others much */

        add(graph, NULL, room / 16 * (1 + (size_t)rand_r(&seed) % 8), true);
        CUgraphExec exec = instantiate(graph);
        for (int k = 0; k < 4; k++)
            went(cuGraphLaunch(exec, own));
        MUST(0, cuGraphExecDestroy(exec));
    }
    MUST(0, cuStreamSynchronize(own));
    return NULL;
}

static void *allocates(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument + 1;

    MUST(0, cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS * 4; i++) {
        const size_t bytes = room / 32 * (1 + (size_t)rand_r(&seed) % 8);
        CUdeviceptr block;

        if (i % 2 ? went(cuMemAlloc(&block, bytes)) : went(cuMemAllocAsync(&block, bytes, stream)))
            MUST(0, i % 2 ? cuMemFree(block) : cuMemFreeAsync(block, stream));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t watcher, racers[THREADS];

    begin();
    make_streams();
    MUST(0, cuCtxGetCurrent(&context));
    MUST(0, pthread_create(&watcher, NULL, watch, NULL));
    for (uintptr_t i = 0; i < THREADS; i++)
        MUST(0, pthread_create(&racers[i], NULL, i % 2 ? allocates : launches, (void *)i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(racers[i], NULL);
    atomic_store(&racing, false);
    pthread_join(watcher, NULL);
    MUST(true, atomic_load(&peak) <= total);
    MUST(true, atomic_load(&granted) > 0);
    MUST(0, cuCtxSynchronize());
    MUST(0, cuDeviceGraphMemTrim(0));
    works();
}

#define FITTING 2

static pthread_barrier_t together;

/* Graphs that just fit beside each other are never refused, however their launches overlap. */
static void *launches_fitting(void *argument)
{
    CUstream *const own = argument;
    const size_t bytes = (room - 64 * MIB) / FITTING / (2 * MIB) * (2 * MIB);

    MUST(0, cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS; i++) {
        CUgraph graph = empty();

        add(graph, NULL, bytes, true);
        CUgraphExec exec = instantiate(graph);
        pthread_barrier_wait(&together);
        for (int k = 0; k < 20; k++)
            MUST(0, cuGraphLaunch(exec, own[k % 2]));
        for (int k = 0; k < 2; k++)
            MUST(0, cuStreamSynchronize(own[k]));
        MUST(0, cuGraphExecDestroy(exec));
        if (i % 16 == 15)
            MUST(0, cuDeviceGraphMemTrim(0));
    }
    return NULL;
}

static void threads_fit(void)
{
    pthread_t racers[FITTING];

    begin();
    make_streams();
    MUST(0, cuCtxGetCurrent(&context));
    MUST(0, pthread_barrier_init(&together, NULL, FITTING));
    for (int i = 0; i < FITTING; i++)
        MUST(0, pthread_create(&racers[i], NULL, launches_fitting, &streams[2 * i]));
    for (int i = 0; i < FITTING; i++)
        pthread_join(racers[i], NULL);
    within();
}

/* A graph that fits on the first card and not on the second leaves nothing asked for on the first. */
static void refused_on_the_second(void)
{
    CUgraph graph = empty(), alone = empty();

    MUST(0, cuDeviceGraphMemTrim(0));
    MUST(0, cuDeviceGraphMemTrim(1));
    add_on(0, graph, NULL, room / 4 * 3, true);
    add_on(1, graph, NULL, 2 * room, true);
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 2; i++)
        MUST(FULL, cuGraphLaunch(exec, stream));
    add_on(0, alone, NULL, room / 4 * 3, true);
    CUgraphExec fits = instantiate(alone);
    MUST(0, cuGraphLaunch(fits, stream));
    MUST(0, cuCtxSynchronize());
    MUST(0, cuGraphExecDestroy(fits));
    MUST(0, cuGraphExecDestroy(exec));
}

/* A graph with memory on two cards, most of each. */
static void two_cards(void)
{
    CUgraph graph = NULL;
    CUstream other;

    prog_context(1);
    begin();
    MUST(0, cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    graph = empty();
    add_on(0, graph, NULL, room / 4 * 3, true);
    add_on(1, graph, NULL, room / 4 * 3, true);
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 20; i++)
        MUST(0, cuGraphLaunch(exec, i % 3 ? stream : other));
    MUST(0, cuCtxSynchronize());
    within();
    MUST(0, cuGraphExecDestroy(exec));
    refused_on_the_second();
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"larger", larger},         {"other_ways", other_ways}, {"again", again},
        {"reuse", reuse},           {"nodes", nodes},           {"upload", upload},
        {"gives_back", gives_back}, {"several", several},       {"left", left},
        {"update", update},         {"forked", forked},         {"unseen", unseen},
        {"plain", plain},           {"threads", threads},       {"threads_fit", threads_fit},
        {"two_cards", two_cards},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
