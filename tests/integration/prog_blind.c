/* prog_blind: a program that takes all the memory it can get, in every way, while little is known about the
 * card: NVML is missing or blind, or the driver does not name the card. It compares what the card itself has
 * given it with what it was told the card has, which a cap makes less. See prog_check.h. */
#include "prog_check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/simgpu/simgpu.h"

#define STEP   (16 * MIB)
#define ALLOCS 256 /* more than fit */

static _Thread_local CUstream stream;

/* The library asks in which PID namespace it is: PROG_CONTAINER puts the program into one. */
ssize_t readlink(const char *path, char *buffer, size_t size);
ssize_t readlink(const char *path, char *buffer, size_t size)
{
    const char *answer = getenv("PROG_CONTAINER") ? "pid:[4026532000]" : "pid:[4026531836]";

    if (strcmp(path, "/proc/self/ns/pid") || size < strlen(answer))
        return readlinkat(AT_FDCWD, path, buffer, size);
    memcpy(buffer, answer, strlen(answer));
    return (ssize_t)strlen(answer);
}

static size_t told_total(CUdevice card)
{
    size_t total = 0;

    MUST(0, cuDeviceTotalMem(&total, card));
    return total;
}

static void within(CUdevice card)
{
    MUST(true, simgpu_most_used(card) <= told_total(card));
}

static void begin(void)
{
    prog_context(0);
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

/* ---- taking all there is ---- */

static CUresult take_async(CUdeviceptr *block)
{
    return cuMemAllocAsync(block, STEP, stream);
}

static CUresult take_block(CUdeviceptr *block)
{
    return cuMemAlloc(block, STEP);
}

static CUresult take_handle(CUdeviceptr *block)
{
    const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;

    *block = 0;
    return cuMemCreate(&handle, STEP, &on_card, 0);
}

static CUresult take_array(CUdeviceptr *block)
{
    const CUDA_ARRAY_DESCRIPTOR square = {2048, 2048, CU_AD_FORMAT_FLOAT, 1}; /* STEP bytes */
    CUarray array;

    *block = 0;
    return cuArrayCreate(&array, &square);
}

/* A graph whose block stays when it is done. */
static CUresult take_graph(CUdeviceptr *block)
{
    CUgraphExec exec;
    CUgraph graph;

    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuMemAllocAsync(block, STEP, stream));
    MUST(0, cuStreamEndCapture(stream, &graph));
    const CUresult made = cuGraphInstantiate(&exec, graph, 0);
    return made ? made : cuGraphLaunch(exec, stream);
}

/* Takes until it is refused, at least once. The refusal is "out of memory". */
static int take_all(CUresult (*take)(CUdeviceptr *block), CUdeviceptr *blocks)
{
    int count = 0;
    CUresult result;

    while ((result = take(&blocks[count])) == CUDA_SUCCESS && count < ALLOCS)
        count++;
    MUST(CUDA_ERROR_OUT_OF_MEMORY, result);
    MUST(0, cuStreamSynchronize(stream));
    within(0);
    return count;
}

/* Takes everything in one way; then nothing is left for the others. */
static void fill(CUresult (*take)(CUdeviceptr *block))
{
    static CUdeviceptr blocks[ALLOCS + 1];

    begin();
    MUST(true, take_all(take, blocks) > 0);
    take_all(take_async, blocks);
    take_all(take_graph, blocks);
    take_all(take_block, blocks);
    take_all(take_handle, blocks);
    take_all(take_array, blocks);
}

static void async(void)
{
    fill(take_async);
}

static void graphs(void)
{
    fill(take_graph);
}

static void blocks(void)
{
    fill(take_block);
}

static void handles(void)
{
    fill(take_handle);
}

static void arrays(void)
{
    fill(take_array);
}

/* Everything that is freed can be allocated again, in any way. */
static void again(void)
{
    static CUdeviceptr blocks[ALLOCS + 1];

    begin();
    const int first = take_all(take_async, blocks);
    for (int i = 0; i < first; i++)
        MUST(0, cuMemFreeAsync(blocks[i], stream));
    MUST(0, cuStreamSynchronize(stream));
    const int second = take_all(take_block, blocks);
    MUST(true, second + 4 >= first);
    for (int i = 0; i < second; i++)
        MUST(0, cuMemFree(blocks[i]));
    const int third = take_all(take_async, blocks);
    MUST(true, third + 4 >= first);
}

/* ---- threads ---- */

#define THREADS 4
#define ROUNDS  30

/* Allocates in one way, and frees where that is quick, again and again. */
static void *race(void *argument)
{
    CUresult (*const ways[])(CUdeviceptr *) = {take_async, take_graph, take_block, take_async};
    const int own = *(int *)argument;
    CUcontext context;

    MUST(0, cuDevicePrimaryCtxRetain(&context, 0));
    MUST(0, cuCtxSetCurrent(context));
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr taken[16];
        int count = 0;
        CUresult result = CUDA_SUCCESS;

        while (count < 16 && (result = ways[own](&taken[count])) == CUDA_SUCCESS)
            count++;
        MUST(true, result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        while (count > 0)
            MUST(0, cuMemFreeAsync(taken[--count], stream));
        MUST(0, cuStreamSynchronize(stream));
    }
    return argument;
}

/* Threads that take memory in every way at once do not pass the cap together. */
static void threads(void)
{
    pthread_t others[THREADS];
    int own[THREADS];

    begin();
    for (int i = 0; i < THREADS; i++) {
        own[i] = i;
        MUST(0, pthread_create(&others[i], NULL, race, &own[i]));
    }
    for (int i = 0; i < THREADS; i++)
        MUST(0, pthread_join(others[i], NULL));
    within(0);
}

/* ---- processes that begin meanwhile ---- */

/* Another process begins on the second card when this one has nothing there but memory without a context: it
 * must not be taken for this one. */
static void stranger(void)
{
    const CUmemAllocationProp elsewhere = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    static CUdeviceptr blocks[ALLOCS + 1];
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;

    if (prog_is_other()) {
        prog_context(1);
        MUST(0, cuMemAlloc(&block, 64 * MIB));
        prog_signal();
        prog_await();
        return;
    }
    MUST(0, cuInit(0));
    (void)told_total(1);
    const pid_t other = prog_start(true);
    prog_await();
    for (int i = 0; i < ALLOCS && cuMemCreate(&handle, STEP, &elsewhere, 0) == CUDA_SUCCESS; i++)
        continue;
    within(1);
    begin();
    take_all(take_async, blocks);
    take_all(take_block, blocks);
    prog_signal();
    prog_join(other);
}

/* ---- slices ---- */

static unsigned long long nvml_total(void)
{
    unsigned long long figures[3] = {0}; /* total, free, used */
    void *library, *card = prog_nvml(&library);
    int (*memory)(void *, unsigned long long *) =
        (int (*)(void *, unsigned long long *))dlsym(library, "nvmlDeviceGetMemoryInfo");

    MUST(0, memory(card, figures));
    return figures[0];
}

/* The card's UUID in NVML is the one that the rule names: the rule's limit is told by CUDA and by NVML, and
 * holds. */
static void slice(void)
{
    static CUdeviceptr blocks[ALLOCS + 1];

    begin();
    MUST(512 * MIB, told_total(0));
    MUST(true, take_all(take_async, blocks) > 0);
    take_all(take_block, blocks);
    MUST(512 * MIB, nvml_total());
}

/* ---- a card without a name ---- */

/* Nothing is granted on a card that the driver does not name; the program goes on. */
static void unnamed(void)
{
    CUdeviceptr block = 0;
    CUcontext context;

    MUST(0, cuInit(0));
    const CUresult made = cuDevicePrimaryCtxRetain(&context, 0);
    if (made == CUDA_SUCCESS)
        MUST(0, cuCtxSetCurrent(context));
    const unsigned long long before = simgpu_used(0);
    MUST(true, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS);
    stream = NULL;
    MUST(true, take_block(&block) != CUDA_SUCCESS);
    MUST(true, take_async(&block) != CUDA_SUCCESS);
    MUST(true, take_array(&block) != CUDA_SUCCESS);
    if (made != CUDA_SUCCESS) /* a handle names its card itself */
        MUST(true, take_handle(&block) != CUDA_SUCCESS);
    MUST(before, simgpu_used(0));
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"async", async},   {"graphs", graphs},   {"blocks", blocks},   {"handles", handles},
        {"arrays", arrays}, {"again", again},     {"threads", threads}, {"stranger", stranger},
        {"slice", slice},   {"unnamed", unnamed},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
