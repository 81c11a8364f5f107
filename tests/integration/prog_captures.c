/* prog_captures: programs that capture a stream and meanwhile allocate and free memory, in other threads and
 * in the graph itself. Natively the two do not affect each other. One scenario per run. */
#include "prog_check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* ---- beside a capture ---- */

static atomic_bool captured_enough;

static void capture_once(CUstream stream, CUdeviceptr block)
{
    CUgraph graph;

    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuMemsetD8Async(block, 1, 4096, stream));
    MUST(0, cuStreamEndCapture(stream, &graph));
    MUST(0, cuGraphDestroy(graph));
}

static void *frees_behind_work(void *context)
{
    CUdeviceptr block;
    CUstream stream;

    MUST(0, cuCtxSetCurrent(context));
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!atomic_load(&captured_enough)) {
        MUST(0, cuMemAlloc(&block, MIB));
        MUST(0, cuMemsetD8Async(block, 1, MIB / 16, stream));
        MUST(0, cuMemFree(block));
    }
    return NULL;
}

/* One thread captures while others free blocks all the time: neither affects the other. */
static void captures_beside_frees(void)
{
    pthread_t ids_[2];
    CUcontext context = prog_context(0);
    CUdeviceptr block;
    CUstream stream;

    MUST(0, cuMemAlloc(&block, MIB));
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    capture_once(stream, block);
    for (int i = 0; i < 2; i++)
        MUST(0, pthread_create(&ids_[i], NULL, frees_behind_work, context));
    for (int i = 0; i < 10000; i++)
        capture_once(stream, block);
    atomic_store(&captured_enough, true);
    for (int i = 0; i < 2; i++)
        MUST(0, pthread_join(ids_[i], NULL));
}

static atomic_bool capture_open;

static void *captures_for_a_while(void *context)
{
    CUstream stream;
    CUgraph graph;

    MUST(0, cuCtxSetCurrent(context));
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    atomic_store(&capture_open, true);
    usleep(50000);
    MUST(0, cuStreamEndCapture(stream, &graph));
    MUST(0, cuGraphDestroy(graph));
    return NULL;
}

/* Most of the card is freed and taken again while another thread captures. */
static void freed_beside_a_capture(void)
{
    CUcontext context = prog_context(0);
    CUdeviceptr block;
    pthread_t thread;

    MUST(0, cuMemAlloc(&block, 1024 * MIB));
    MUST(0, pthread_create(&thread, NULL, captures_for_a_while, context));
    while (!atomic_load(&capture_open))
        usleep(100);
    MUST(0, cuMemsetD8Async(block, 1, MIB, CU_STREAM_PER_THREAD));
    MUST(0, cuMemFree(block));
    MUST(0, cuMemAlloc(&block, 1024 * MIB));
    MUST(0, cuMemFree(block));
    MUST(0, pthread_join(thread, NULL));
}

/* ---- what a capture takes and frees ---- */

/* Entry points of per-thread default streams, which mean that stream by NULL. */
static void *own_entry(const char *name)
{
    void *found = NULL;

    MUST(0, cuGetProcAddress(name, &found, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
    return found;
}

typedef CUresult free_async(CUdeviceptr address, CUstream stream);
typedef CUresult alloc_async(CUdeviceptr *address, size_t bytes, CUstream stream);

/* A graph can only free what a graph has allocated: the block stays the program's. */
static void free_into(CUstream stream, free_async *give, CUstream named)
{
    CUstreamCaptureStatus status;
    CUdeviceptr block, other;
    CUgraph graph = NULL;

    MUST(0, cuMemAlloc(&block, 4 * MIB));
    prog_fill(block, 5, 4 * MIB);
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(true, give(block, named) != CUDA_SUCCESS);
    MUST(0, cuStreamIsCapturing(stream, &status));
    MUST(true, status != CU_STREAM_CAPTURE_STATUS_NONE);
    /* The driver decides whether the refusal invalidates the capture; ending it must agree. */
    MUST(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    if (graph)
        MUST(0, cuGraphDestroy(graph));
    MUST(0, cuMemAlloc(&other, 4 * MIB));
    prog_fill(other, 6, 4 * MIB);
    MUST(0, prog_wrong(block, 5, 4 * MIB));
    MUST(0, cuMemFree(other));
    MUST(0, cuMemFree(block));
}

static void freed_into_a_graph(void)
{
    CUstream stream;

    prog_context(0);
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    free_async *own = (free_async *)own_entry("cuMemFreeAsync");
    free_into(stream, cuMemFreeAsync, stream);
    free_into(stream, own, stream);
    free_into(CU_STREAM_PER_THREAD, cuMemFreeAsync, CU_STREAM_PER_THREAD);
    free_into(CU_STREAM_PER_THREAD, own, NULL);
}

/* A captured allocation takes no memory: it is neither refused nor waited for. */
static void alloc_into(CUstream stream, alloc_async *take, CUstream named, size_t bytes)
{
    CUdeviceptr block;
    CUgraph graph;

    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, take(&block, bytes, named));
    MUST(0, cuStreamEndCapture(stream, &graph));
    MUST(0, cuGraphDestroy(graph));
}

static void allocated_into_a_graph(void)
{
    size_t free_bytes, total;
    CUdeviceptr most;
    CUstream stream;

    prog_context(0);
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    alloc_async *own = (alloc_async *)own_entry("cuMemAllocAsync");
    MUST(0, cuMemGetInfo(&free_bytes, &total));
    /* On a small card it does not fit twice. */
    const size_t part = free_bytes / 8 * 5 & ~(2 * MIB - 1), bytes = part < 1024 * MIB ? part : 1024 * MIB;
    MUST(0, cuMemAlloc(&most, bytes));
    alloc_into(stream, cuMemAllocAsync, stream, bytes);
    alloc_into(stream, own, stream, bytes);
    alloc_into(CU_STREAM_PER_THREAD, cuMemAllocAsync, CU_STREAM_PER_THREAD, bytes);
    alloc_into(CU_STREAM_PER_THREAD, own, NULL, bytes);
    MUST(0, cuMemFree(most));
}

static void *asks_what_is_free(void *context)
{
    size_t free_bytes, total;

    MUST(0, cuCtxSetCurrent(context));
    MUST(0, cuMemGetInfo(&free_bytes, &total));
    return NULL;
}

/* The driver takes questions about its pools for unsafe, and ends a capture for them. To ask what is free is
 * safe, also if a pool is in use. */
static void told_beside_a_capture(void)
{
    CUcontext context = prog_context(0);
    CUstream captured, other;
    CUdeviceptr block, pooled;
    pthread_t asker;
    CUgraph graph;

    MUST(0, cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(0, cuMemAlloc(&block, MIB));
    MUST(0, cuMemAllocAsync(&pooled, MIB, other));
    MUST(0, cuStreamSynchronize(other));
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        MUST(0, cuStreamBeginCapture(captured, (CUstreamCaptureMode)mode));
        MUST(0, cuMemsetD8Async(block, 1, MIB, captured));
        asks_what_is_free(context);
        MUST(0, pthread_create(&asker, NULL, asks_what_is_free, context));
        MUST(0, pthread_join(asker, NULL));
        MUST(0, cuStreamEndCapture(captured, &graph));
        MUST(0, cuGraphDestroy(graph));
    }
    MUST(0, cuMemFreeAsync(pooled, other));
}

/* A capture that is open when its context ends has ended: what is freed after that can be had again. */
static void capture_ends_with_context(void)
{
    CUcontext context = prog_context(0), other;
    CUdeviceptr block;
    CUstream stream;

    MUST(0, cuCtxCreate(&other, NULL, 0, 0));
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuCtxDestroy(other));
    MUST(0, cuCtxSetCurrent(context));
    for (int i = 0; i < 3; i++) {
        MUST(0, cuMemAlloc(&block, 1024 * MIB));
        MUST(0, cuMemsetD8Async(block, 1, MIB, CU_STREAM_PER_THREAD));
        MUST(0, cuMemFree(block));
    }
}

/* ---- beginning beside work that does not end by itself ---- */

#define FREED 40 /* enough for the library to ask what is done */

static CUcontext context_of_all;
static CUstream home, another, third;
static CUdeviceptr word, blocks[FREED];
static atomic_bool let_go;

static void until_let_go(void *unused)
{
    (void)unused;
    while (!atomic_load(&let_go))
        usleep(1000);
}

static void begin_streams(void)
{
    context_of_all = prog_context(0);
    MUST(0, cuStreamCreate(&home, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&another, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    MUST(0, cuMemAlloc(&word, 4096));
}

/* The main stream works until go_on(), and a block has been freed behind that work. */
static void begin_work(bool several_streams)
{
    CUdeviceptr block;

    begin_streams();
    if (several_streams)
        MUST(0, cuStreamWaitValue32(another, word, 0, CU_STREAM_WAIT_VALUE_GEQ));
    for (int i = 0; i < FREED; i++)
        MUST(0, cuMemAlloc(&blocks[i], 3 * MIB));
    MUST(0, cuMemAlloc(&block, 2 * MIB));
    MUST(0, cuMemsetD8Async(block, 1, MIB, home));
    MUST(0, cuLaunchHostFunc(home, until_let_go, NULL));
    MUST(0, cuMemFreeAsync(block, home));
}

static void *begins(void *stream)
{
    MUST(0, cuCtxSetCurrent(context_of_all));
    capture_once(stream, word);
    return NULL;
}

/* Ends the work of the main stream. The thread that calls this must not be made to wait for it. */
static void go_on(void)
{
    size_t free_bytes, total;
    CUdeviceptr large, small;

    usleep(50000);
    MUST(0, cuMemGetInfo(&free_bytes, &total));
    MUST(0, cuMemAlloc(&large, 2 * MIB));
    MUST(0, cuMemAlloc(&small, 1000));
    for (int i = 0; i < FREED; i++)
        MUST(0, cuMemFreeAsync(blocks[i], home));
    atomic_store(&let_go, true);
}

static void begin_beside(void *(*waits)(void *), CUstream captures)
{
    pthread_t waiter, beginner;

    if (waits)
        MUST(0, pthread_create(&waiter, NULL, waits, NULL));
    usleep(50000);
    MUST(0, pthread_create(&beginner, NULL, begins, captures));
    go_on();
    if (waits)
        MUST(0, pthread_join(waiter, NULL));
    MUST(0, pthread_join(beginner, NULL));
}

static void begins_beside_work(void)
{
    begin_work(false);
    begin_beside(NULL, home);
}

static void *works_elsewhere(void *unused)
{
    MUST(0, cuCtxSetCurrent(context_of_all));
    MUST(0, cuMemsetD8Async(word, 1, 4, another));
    return unused;
}

static void begins_beside_another_stream(void)
{
    begin_work(false);
    begin_beside(works_elsewhere, home);
}

static void *makes_a_context(void *unused)
{
    CUcontext made;

    MUST(0, cuCtxCreate(&made, NULL, 0, 0));
    return unused;
}

static void begins_beside_a_context(void)
{
    begin_work(true);
    begin_beside(makes_a_context, third);
}

static void *frees_the_first(void *unused)
{
    MUST(0, cuCtxSetCurrent(context_of_all));
    MUST(0, cuMemFree(blocks[0]));
    return unused;
}

/* Many captures, while a free waits since before the first of them. */
static void begins_beside_a_free(void)
{
    pthread_t freer;

    begin_work(true);
    MUST(0, pthread_create(&freer, NULL, frees_the_first, NULL));
    usleep(50000);
    for (int i = 0; i < 400; i++)
        capture_once(third, word);
    atomic_store(&let_go, true);
    MUST(0, pthread_join(freer, NULL));
}

static void *lets_go_later(void *milliseconds)
{
    usleep(1000 * (unsigned)(uintptr_t)milliseconds);
    atomic_store(&let_go, true);
    return NULL;
}

/* A block may have been handed out while the main stream still works on it. It goes to another process while
 * a capture is about to begin: nothing that was submitted before writes there. */
static void exported_beside_a_beginning(void)
{
    CUdeviceptr block, again;
    CUipcMemHandle handle;
    pthread_t beginner, waker;

    if (prog_is_other()) {
        prog_context(0);
        prog_receive(&handle, sizeof(handle));
        MUST(0, cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        prog_fill(block, 7, 2 * MIB);
        prog_signal();
        prog_await();
        MUST(0, prog_wrong(block, 7, 2 * MIB));
        MUST(0, cuIpcCloseMemHandle(block));
        return;
    }
    const pid_t other = prog_start(false);
    begin_streams();
    MUST(0, cuMemAlloc(&block, 2 * MIB));
    MUST(0, cuLaunchHostFunc(home, until_let_go, NULL));
    MUST(0, cuMemsetD8Async(block, 1, 2 * MIB, home));
    MUST(0, cuMemFreeAsync(block, home));
    MUST(0, cuMemAlloc(&again, 2 * MIB));
    MUST(0, pthread_create(&beginner, NULL, begins, home));
    usleep(50000);
    MUST(0, pthread_create(&waker, NULL, lets_go_later, (void *)300));
    MUST(0, cuIpcGetMemHandle(&handle, again));
    prog_send(&handle, sizeof(handle));
    prog_await();
    MUST(0, pthread_join(waker, NULL));
    MUST(0, pthread_join(beginner, NULL));
    MUST(0, cuStreamSynchronize(home));
    prog_signal();
    prog_join(other);
}

/* Memory must be moved to be had, while a capture waits to begin, longer than the library waits for an open
 * one. */
static void room_beside_a_beginning(void)
{
    CUdeviceptr parts[8], large;
    pthread_t beginner, waker;

    begin_streams();
    for (int i = 0; i < 8; i++)
        MUST(0, cuMemAlloc(&parts[i], 200 * MIB));
    MUST(0, cuMemsetD8Async(parts[0], 1, MIB, home));
    MUST(0, cuLaunchHostFunc(home, until_let_go, NULL));
    MUST(0, pthread_create(&waker, NULL, lets_go_later, (void *)(uintptr_t)(prog_is_bare() ? 100 : 1500)));
    for (int i = 0; i < 8; i += 2)
        MUST(0, cuMemFree(parts[i]));
    MUST(0, pthread_create(&beginner, NULL, begins, home));
    usleep(50000);
    MUST(0, cuMemAlloc(&large, 600 * MIB));
    MUST(0, pthread_join(waker, NULL));
    MUST(0, pthread_join(beginner, NULL));
}

/* ---- who has begun a capture ---- */

static void *only_begins(void *stream)
{
    MUST(0, cuCtxSetCurrent(context_of_all));
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    return NULL;
}

static void *ends_soon(void *stream)
{
    CUgraph graph;

    MUST(0, cuCtxSetCurrent(context_of_all));
    usleep(100000);
    MUST(0, cuStreamEndCapture(stream, &graph));
    MUST(0, cuGraphDestroy(graph));
    return NULL;
}

/* There is room for one of the two, and what is freed cannot be used before the capture ends. */
static void *takes_twice(void *unused)
{
    CUdeviceptr block;

    MUST(0, cuCtxSetCurrent(context_of_all));
    MUST(0, cuMemAlloc(&block, 1200 * MIB));
    MUST(0, cuMemsetD8Async(block, 1, MIB, another));
    MUST(0, cuMemFree(block));
    MUST(0, cuMemAlloc(&block, 1201 * MIB));
    return unused;
}

static void take_until_it_ends(void *(*takes)(void *))
{
    pthread_t taker, ender;

    MUST(0, pthread_create(&taker, NULL, takes, NULL));
    MUST(0, pthread_create(&ender, NULL, ends_soon, third));
    MUST(0, pthread_join(taker, NULL));
    MUST(0, pthread_join(ender, NULL));
}

/* The thread that began it has ended, and another may have its address. */
static void begun_by_the_dead(void)
{
    pthread_t dead;

    begin_streams();
    MUST(0, pthread_create(&dead, NULL, only_begins, third));
    MUST(0, pthread_join(dead, NULL));
    take_until_it_ends(takes_twice);
}

static void *begins_too_late(void *unused)
{
    MUST(0, cuCtxSetCurrent(context_of_all));
    MUST(true, cuStreamBeginCapture(third, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS);
    return takes_twice(unused);
}

static void begun_twice(void)
{
    begin_streams();
    only_begins(third);
    take_until_it_ends(begins_too_late);
}

static atomic_bool handed_enough;

static void *begins_when_it_can(void *unused)
{
    MUST(0, cuCtxSetCurrent(context_of_all));
    while (!atomic_load(&handed_enough))
        cuStreamBeginCapture(third, CU_STREAM_CAPTURE_MODE_RELAXED);
    return unused;
}

static void *ends_when_it_can(void *unused)
{
    CUgraph graph;

    MUST(0, cuCtxSetCurrent(context_of_all));
    while (!atomic_load(&handed_enough)) {
        if (cuStreamEndCapture(third, &graph) == CUDA_SUCCESS)
            MUST(0, cuGraphDestroy(graph));
    }
    return unused;
}

/* One thread begins and two end the captures of one stream. When all have ended, the library knows that none
 * is open. */
static void handed_over(void)
{
    void *(*const parts[])(void *) = {begins_when_it_can, ends_when_it_can, ends_when_it_can};
    pthread_t ids_[3];
    CUgraph graph;

    begin_streams();
    for (int i = 0; i < 3; i++)
        MUST(0, pthread_create(&ids_[i], NULL, parts[i], NULL));
    usleep(500000);
    atomic_store(&handed_enough, true);
    for (int i = 0; i < 3; i++)
        MUST(0, pthread_join(ids_[i], NULL));
    if (cuStreamEndCapture(third, &graph) == CUDA_SUCCESS)
        MUST(0, cuGraphDestroy(graph));
    takes_twice(NULL);
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"captures_beside_frees", captures_beside_frees},
        {"freed_beside_a_capture", freed_beside_a_capture},
        {"freed_into_a_graph", freed_into_a_graph},
        {"allocated_into_a_graph", allocated_into_a_graph},
        {"told_beside_a_capture", told_beside_a_capture},
        {"capture_ends_with_context", capture_ends_with_context},
        {"begins_beside_work", begins_beside_work},
        {"begins_beside_another_stream", begins_beside_another_stream},
        {"begins_beside_a_context", begins_beside_a_context},
        {"begins_beside_a_free", begins_beside_a_free},
        {"exported_beside_a_beginning", exported_beside_a_beginning},
        {"room_beside_a_beginning", room_beside_a_beginning},
        {"begun_by_the_dead", begun_by_the_dead},
        {"begun_twice", begun_twice},
        {"handed_over", handed_over},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
