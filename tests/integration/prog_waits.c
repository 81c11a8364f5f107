/* prog_waits: programs whose streams, threads and contexts wait for each other. They end natively, and no
 * wait of the library may make them hang. One scenario per run. */
#define CUDA_ENABLE_DEPRECATED /* cuCtxDetach */
#include "prog_check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define BUSY_ROUNDS 20000

static CUstream first, second;
static CUdeviceptr flag;

static void begin(void)
{
    prog_context(0);
    MUST(0, cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    MUST(0, cuMemAlloc(&flag, 4));
}

/* Before the second stream sets it. */
static void lower_flag(void)
{
    MUST(0, cuMemsetD32Async(flag, 0, 1, first));
    MUST(0, cuStreamSynchronize(first));
}

static void be_late(void *unused)
{
    (void)unused;
    usleep(50000);
}

/* ---- streams that wait for each other ---- */

/* The first stream waits for a flag that the second sets, and a block is freed and one taken meanwhile. */
static void raise_flag(size_t bytes, bool both_work)
{
    CUdeviceptr block;

    lower_flag();
    MUST(0, cuMemAlloc(&block, bytes));
    if (both_work)
        MUST(0, cuMemsetD8Async(block + MIB, 1, MIB, second));
    MUST(0, cuMemsetD8Async(block, 1, MIB, first));
    MUST(0, cuMemFree(block));
    MUST(0, cuStreamWaitValue32(first, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(0, cuMemAlloc(&block, bytes));
    MUST(0, cuStreamWriteValue32(second, flag, 1, 0));
    MUST(0, cuCtxSynchronize());
}

static void flags(void)
{
    begin();
    raise_flag(8 * MIB, false);
}

static void flags_both(void)
{
    begin();
    raise_flag(8 * MIB, true);
    raise_flag(96 * MIB, true);
}

/* The first stream's flag comes from the second, and a block is freed in the order of the first: before it
 * waits, or after. */
static void raise_flag_ordered(bool wait_first)
{
    CUdeviceptr block;

    begin();
    lower_flag();
    MUST(0, cuMemAlloc(&block, 8 * MIB));
    MUST(0, cuMemsetD8Async(block, 1, MIB, first));
    if (!wait_first)
        MUST(0, cuMemFreeAsync(block, first));
    MUST(0, cuStreamWaitValue32(first, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    if (wait_first)
        MUST(0, cuMemFreeAsync(block, first));
    MUST(0, cuStreamWriteValue32(second, flag, 1, 0));
    MUST(0, cuCtxSynchronize());
}

static void flags_ordered(void)
{
    raise_flag_ordered(false);
}

static void flags_then_ordered(void)
{
    raise_flag_ordered(true);
}

/* On a full card, memory freed behind work of two streams is released for other kinds of memory. Work
 * submitted later must not be waited for: the first stream waits for a flag that is set only afterwards. */
static void make_way(void)
{
    const CUmemAllocationProp here = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;

    begin();
    lower_flag();
    MUST(0, cuMemAlloc(&block, 1024 * MIB));
    MUST(0, cuStreamWaitValue32(second, flag, 0, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(0, cuMemsetD8Async(block + MIB, 1, MIB, second));
    MUST(0, cuLaunchHostFunc(first, be_late, NULL));
    MUST(0, cuMemsetD8Async(block, 1, MIB, first));
    MUST(0, cuMemFree(block));
    MUST(0, cuStreamWaitValue32(first, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(0, cuMemCreate(&handle, 1024 * MIB, &here, 0));
    MUST(0, cuStreamWriteValue32(second, flag, 1, 0));
    MUST(0, cuCtxSynchronize());
    MUST(0, cuMemRelease(handle));
}

/* A stream waits for a flag that the program sets after an allocation has been refused, so that the library
 * must not wait for work behind that. A small block was freed before, or is freed behind it; neither would
 * make the request fit. */
static void refuse_before_the_flag(bool behind, size_t bytes)
{
    CUdeviceptr large, block;

    begin();
    lower_flag();
    MUST(0, cuMemAlloc(&large, 1024 * MIB));
    MUST(0, cuMemAlloc(&block, 4096));
    MUST(0, cuStreamWaitValue32(second, flag, 0, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(0, cuLaunchHostFunc(first, be_late, NULL));
    MUST(0, cuMemsetD8Async(block, 1, 4096, first));
    if (!behind)
        MUST(0, cuMemFreeAsync(block, first));
    MUST(0, cuStreamWaitValue32(first, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    if (behind)
        MUST(0, cuMemFreeAsync(block, first));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&block, bytes));
    MUST(0, cuStreamWriteValue32(second, flag, 1, 0));
    MUST(0, cuCtxSynchronize());
}

static void refused_then_flag(void)
{
    refuse_before_the_flag(false, 1024 * MIB);
}

static void refused_all_then_flag(void)
{
    refuse_before_the_flag(true, 4096 * MIB);
}

static atomic_bool let_go;

static void until_let_go(void *unused)
{
    (void)unused;
    while (!atomic_load(&let_go))
        usleep(1000);
}

/* One stream waits for the host, which waits for another stream: that one must not wait for the first because
 * a block of it has been freed and a large one asked for. */
static void hosts_turn(void)
{
    CUdeviceptr freed, block, large;

    begin();
    MUST(0, cuMemAlloc(&freed, 4 * MIB));
    MUST(0, cuMemAlloc(&large, 64 * MIB));
    MUST(0, cuMemFree(large));
    MUST(0, cuLaunchHostFunc(first, until_let_go, NULL));
    MUST(0, cuMemsetD8Async(freed, 1, 4 * MIB, second));
    MUST(0, cuMemFreeAsync(freed, second));
    MUST(0, cuMemAlloc(&block, 8 * MIB));
    MUST(0, cuMemsetD8Async(block, 1, 4096, second));
    MUST(0, cuStreamSynchronize(second));
    atomic_store(&let_go, true);
    MUST(0, cuStreamSynchronize(first));
}

/* The first stream waits for the host after a block behind its work was handed out again. The host uses the
 * second stream first: its work must come behind the first stream's, and the host must not wait. */
static void hosts_turn_later(void)
{
    CUdeviceptr block, again;
    unsigned char byte = 0;

    begin();
    MUST(0, cuMemAlloc(&block, MIB));
    MUST(0, cuLaunchHostFunc(first, until_let_go, NULL));
    MUST(0, cuMemsetD8Async(block, 1, MIB, first));
    MUST(0, cuMemFreeAsync(block, first));
    MUST(0, cuMemAlloc(&again, MIB));
    MUST(0, cuMemsetD8Async(again, 2, MIB, second));
    atomic_store(&let_go, true);
    MUST(0, cuStreamSynchronize(first));
    MUST(0, cuStreamSynchronize(second));
    MUST(0, cuMemcpyDtoH(&byte, again, 1));
    MUST(2, byte);
}

/* The second stream waits for the host, which begins to use flags: the library stops relying on the order of
 * the first stream, and must not wait for the second. */
static void hosts_turn_then_flag(void)
{
    CUdeviceptr block;

    begin();
    lower_flag();
    MUST(0, cuMemAlloc(&block, MIB));
    MUST(0, cuMemsetD8Async(block, 1, MIB, first));
    MUST(0, cuMemFreeAsync(block, first));
    MUST(0, cuLaunchHostFunc(second, until_let_go, NULL));
    MUST(0, cuStreamWaitValue32(first, flag, 0, CU_STREAM_WAIT_VALUE_GEQ));
    atomic_store(&let_go, true);
    MUST(0, cuCtxSynchronize());
}

static atomic_bool freed_enough;

static void *takes_and_gives(void *context)
{
    CUdeviceptr block;

    MUST(0, cuCtxSetCurrent(context));
    while (!atomic_load(&freed_enough)) {
        MUST(0, cuMemAlloc(&block, 4096));
        MUST(0, cuMemFree(block));
    }
    return NULL;
}

/* Every free of one thread waits for its work, and another thread's have nothing to wait for: so no stream
 * waits for the first when it begins. */
static void frees_beside_work(void)
{
    CUdeviceptr block;
    CUcontext context;
    pthread_t thread;

    begin();
    MUST(0, cuCtxGetCurrent(&context));
    MUST(0, pthread_create(&thread, NULL, takes_and_gives, context));
    for (int i = 0; i < BUSY_ROUNDS; i++) {
        MUST(0, cuMemAlloc(&block, 4096));
        MUST(0, cuMemsetD8Async(block, 1, 16, first));
        MUST(0, cuMemFree(block));
    }
    atomic_store(&freed_enough, true);
    MUST(0, pthread_join(thread, NULL));
    MUST(0, cuLaunchHostFunc(first, until_let_go, NULL));
    MUST(0, cuMemsetD8Async(flag, 1, 4, second));
    MUST(0, cuStreamSynchronize(second));
    atomic_store(&let_go, true);
    MUST(0, cuStreamSynchronize(first));
}

/* ---- a card that others fill ---- */

#define CROWD_ROUNDS 500

static CUcontext crowd_context;
static atomic_bool crowd_over;

static void *takes_and_frees(void *unused)
{
    CUdeviceptr block;

    MUST(0, cuCtxSetCurrent(crowd_context));
    while (!atomic_load(&crowd_over)) {
        MUST(0, cuMemAlloc(&block, 256 * MIB));
        MUST(0, cuMemFree(block));
    }
    return unused;
}

/* One thread asks for what the cap has room for and the card has not, another for what is there: the first
 * then looks for idle memory in the pool that the second is using. */
static void crowd(void)
{
    const CUmemAllocationProp here = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;
    pthread_t thread;

    if (prog_is_other()) {
        prog_context(0);
        MUST(0, cuMemAlloc(&block, 512 * MIB));
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(true);
    prog_await();
    crowd_context = prog_context(0);
    MUST(0, pthread_create(&thread, NULL, takes_and_frees, NULL));
    for (int i = 0; i < CROWD_ROUNDS; i++)
        MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 1344 * MIB, &here, 0));
    atomic_store(&crowd_over, true);
    pthread_join(thread, NULL);
    prog_signal();
    prog_join(pid);
}

/* ---- contexts that end ---- */

#define ENDING_CONTEXTS 4

static void be_a_little_late(void *unused)
{
    (void)unused;
    usleep(3000);
}

static void *makes_contexts(void *unused)
{
    CUdeviceptr block;
    CUcontext context;

    for (int i = 0; i < ENDING_CONTEXTS; i++) {
        MUST(0, cuCtxCreate(&context, NULL, 0, 0));
        MUST(0, cuMemAlloc(&block, 8 * MIB));
        MUST(0, cuMemsetD8Async(block, 1, MIB, NULL));
        MUST(0, cuMemFree(block));
        MUST(0, cuMemAlloc(&block, 1000));
        MUST(0, cuLaunchHostFunc(NULL, be_a_little_late, NULL));
        MUST(0, cuCtxDestroy(context)); /* waits for it */
    }
    return unused;
}

/* Contexts end with work and memory in them, while others are used. */
static void contexts_end(void)
{
    CUdeviceptr block;
    pthread_t ids_[2];

    prog_context(0);
    for (int i = 0; i < 2; i++)
        MUST(0, pthread_create(&ids_[i], NULL, makes_contexts, NULL));
    for (int i = 0; i < 100; i++) {
        MUST(0, cuMemAlloc(&block, 4 * MIB));
        MUST(0, cuMemsetD8Async(block, 1, MIB, NULL));
        MUST(0, cuMemFree(block));
        usleep(500);
    }
    for (int i = 0; i < 2; i++)
        MUST(0, pthread_join(ids_[i], NULL));
}

/* A block is freed behind work, and what is taken next is written in another context. */
static void write_elsewhere(CUstream here, CUstream there, CUcontext other)
{
    CUdeviceptr block;
    CUcontext own;

    MUST(0, cuMemAlloc(&block, 4096));
    MUST(0, cuLaunchHostFunc(here, be_late, NULL));
    MUST(0, cuMemsetD8Async(block, 1, 4096, here));
    MUST(0, cuMemFree(block));
    MUST(0, cuMemAlloc(&block, 4096));
    MUST(0, cuCtxGetCurrent(&own));
    MUST(0, cuCtxSetCurrent(other));
    MUST(0, cuMemsetD8Async(block, 2, 4096, there));
    MUST(0, cuCtxSynchronize());
    MUST(0, cuCtxSetCurrent(own));
    MUST(0, cuCtxSynchronize());
    MUST(0, prog_wrong(block, 2, 4096));
    MUST(0, cuMemFree(block));
}

static void use_two_contexts(bool default_streams)
{
    CUcontext own = prog_context(0), other;
    CUstream here = NULL, there = NULL;
    CUdeviceptr block;

    MUST(0, cuMemAlloc(&block, 4096)); /* only this context ever has memory of its own */
    if (!default_streams)
        MUST(0, cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
    MUST(0, cuCtxCreate(&other, NULL, 0, 0));
    if (!default_streams)
        MUST(0, cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    MUST(0, cuCtxSetCurrent(own));
    write_elsewhere(here, there, other);
}

static void two_contexts(void)
{
    use_two_contexts(true);
}

static void two_contexts_streams(void)
{
    use_two_contexts(false);
}

/* A context that ends by the last detach gives its memory back, and not before. */
static void detaches(void)
{
    CUcontext own = prog_context(0), context, same;
    CUdeviceptr block, more;

    for (int i = 0; i < 3; i++) {
        MUST(0, cuCtxCreate(&context, NULL, 0, 0));
        MUST(0, cuMemAlloc(&block, 1024 * MIB));
        MUST(0, cuMemAlloc(&more, 1000));
        prog_fill(block, 7, MIB);
        MUST(0, cuCtxAttach(&same, 0));
        MUST(0, cuCtxDetach(context));
        MUST(0, prog_wrong(block, 7, MIB));
        MUST(0, cuMemFree(more));
        if (i == 2)
            MUST(0, cuCtxPushCurrent(context));
        MUST(0, cuCtxDetach(context));
        if (i == 2)
            MUST(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&more, MIB));
        MUST(0, cuCtxSetCurrent(own));
    }
    MUST(0, cuMemAlloc(&block, 1024 * MIB));
    prog_fill(block, 7, MIB);
    MUST(0, cuCtxDetach(own)); /* the primary one stays */
    MUST(0, prog_wrong(block, 7, MIB));
    MUST(0, cuMemFree(block));
}

static atomic_bool released_enough;

static void *retains_and_releases(void *unused)
{
    CUdeviceptr block;
    CUcontext context;

    while (!atomic_load(&released_enough)) {
        MUST(0, cuDevicePrimaryCtxRetain(&context, 0));
        MUST(0, cuCtxSetCurrent(context));
        MUST(0, cuMemAlloc(&block, MIB));
        prog_fill(block, 1, 4096);
        MUST(0, prog_wrong(block, 1, 4096));
        MUST(0, cuMemFree(block));
        MUST(0, cuCtxSetCurrent(NULL));
        MUST(0, cuDevicePrimaryCtxRelease(0));
    }
    return unused;
}

/* The last release of the primary context ends it and the next retain starts it again. No thread may lose a
 * context that it has retained. */
static void primaries_end(void)
{
    pthread_t ids_[3];

    MUST(0, cuInit(0));
    for (int i = 0; i < 3; i++)
        MUST(0, pthread_create(&ids_[i], NULL, retains_and_releases, NULL));
    sleep(1); /* a card takes its time to make a context, simgpu does not */
    atomic_store(&released_enough, true);
    for (int i = 0; i < 3; i++)
        MUST(0, pthread_join(ids_[i], NULL));
}

static atomic_bool counted_enough;

static void *counts(void *unused)
{
    CUcontext context;

    while (!atomic_load(&counted_enough)) {
        MUST(0, cuDevicePrimaryCtxRetain(&context, 0));
        MUST(0, cuDevicePrimaryCtxRelease(0));
    }
    return unused;
}

/* A release that is not the last does not delay the reuse of memory freed in the context. */
static void releases_beside(void)
{
    const CUmemAllocationProp here = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;
    pthread_t thread;

    prog_context(0);
    MUST(0, pthread_create(&thread, NULL, counts, NULL));
    for (int i = 0; i < 30; i++) {
        MUST(0, cuMemAlloc(&block, 1024 * MIB));
        MUST(0, cuMemFree(block));
        MUST(0, cuMemCreate(&handle, 1024 * MIB, &here, 0));
        MUST(0, cuMemRelease(handle));
    }
    atomic_store(&counted_enough, true);
    MUST(0, pthread_join(thread, NULL));
}

/* ---- children of a process that waits ---- */

/* In the child: CUDA does not work here, and says so at once. */
static void try_everything(CUdeviceptr block)
{
    const int no = CUDA_ERROR_NOT_INITIALIZED;
    CUcontext context;
    CUgraph graph;
    CUstream stream;
    size_t free_bytes, total;

    MUST(no, cuInit(0));
    MUST(no, cuMemAlloc(&block, MIB));
    MUST(no, cuMemAlloc(&block, 1000));
    MUST(no, cuMemFree(block));
    MUST(no, cuMemGetInfo(&free_bytes, &total));
    MUST(no, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(no, cuMemsetD8Async(flag, 1, 4, second));
    MUST(no, cuMemsetD8Async(flag, 1, 4, first));
    MUST(no, cuStreamWaitValue32(second, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(no, cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(no, cuStreamEndCapture(second, &graph));
    MUST(no, cuStreamDestroy(first));
    MUST(no, cuDevicePrimaryCtxRetain(&context, 0));
    MUST(no, cuCtxSynchronize());
    exit(0);
}

static void fork_and_try(CUdeviceptr block)
{
    usleep(50000); /* the other thread waits by now, if it does */
    const pid_t pid = fork();
    if (pid == 0)
        try_everything(block);
    prog_join(pid);
}

static void free_behind_work(CUdeviceptr block)
{
    MUST(0, cuLaunchHostFunc(first, until_let_go, NULL));
    MUST(0, cuMemsetD8Async(block, 1, MIB, first));
    MUST(0, cuMemFreeAsync(block, first));
}

static void *works_elsewhere(void *context)
{
    MUST(0, cuCtxSetCurrent(context));
    MUST(0, cuMemsetD8Async(flag, 1, 4, second));
    return NULL;
}

static void *makes_a_context(void *unused)
{
    CUcontext context;

    MUST(0, cuCtxCreate(&context, NULL, 0, 0));
    return unused;
}

/* The process forks while another thread may be waiting for work. */
static void fork_beside(void *(*waits)(void *))
{
    CUdeviceptr block;
    CUcontext context;
    pthread_t thread;

    MUST(0, cuCtxGetCurrent(&context));
    MUST(0, cuMemAlloc(&block, 8 * MIB));
    free_behind_work(block);
    MUST(0, pthread_create(&thread, NULL, waits, context));
    fork_and_try(flag);
    atomic_store(&let_go, true);
    MUST(0, pthread_join(thread, NULL));
    MUST(0, cuCtxSynchronize());
}

static void forks_beside_work(void)
{
    begin();
    fork_beside(works_elsewhere);
}

static void forks_beside_contexts(void)
{
    begin();
    MUST(0, cuStreamWaitValue32(second, flag, 0, CU_STREAM_WAIT_VALUE_GEQ));
    fork_beside(makes_a_context);
}

/* ---- a second context while the first works ---- */

/* Others ask and allocate meanwhile. */
static void context_beside_work(void)
{
    CUdeviceptr block;
    pthread_t thread;
    size_t free_bytes, total;

    begin();
    MUST(0, cuStreamWaitValue32(second, flag, 0, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(0, cuMemAlloc(&block, 8 * MIB));
    free_behind_work(block);
    MUST(0, pthread_create(&thread, NULL, makes_a_context, NULL));
    usleep(50000); /* it waits by now, if it does */
    MUST(0, cuMemGetInfo(&free_bytes, &total));
    MUST(0, cuMemAlloc(&block, 8 * MIB));
    atomic_store(&let_go, true);
    MUST(0, pthread_join(thread, NULL));
    MUST(0, cuMemFree(block));
}

static void *lets_go_soon(void *unused)
{
    usleep(100000);
    atomic_store(&let_go, true);
    return unused;
}

/* While the first one ends, if that waits for its work. */
static void *makes_a_context_late(void *unused)
{
    usleep(70000);
    return makes_a_context(unused);
}

/* The first one ends meanwhile, which waits for its work. */
static void end_beside(void *(*makes)(void *))
{
    CUcontext context;
    CUdeviceptr block;
    pthread_t maker, waker;

    MUST(0, cuInit(0));
    for (int i = 0; i < 3; i++) {
        atomic_store(&let_go, false);
        MUST(0, cuCtxCreate(&context, NULL, 0, 0));
        MUST(0, cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
        MUST(0, cuMemAlloc(&block, 8 * MIB));
        free_behind_work(block);
        MUST(0, pthread_create(&maker, NULL, makes, NULL));
        MUST(0, pthread_create(&waker, NULL, lets_go_soon, NULL));
        usleep(50000);
        MUST(0, cuCtxDestroy(context));
        MUST(0, pthread_join(maker, NULL));
        MUST(0, pthread_join(waker, NULL));
    }
}

static void context_beside_an_end(void)
{
    end_beside(makes_a_context);
}

static void late_context_beside_an_end(void)
{
    end_beside(makes_a_context_late);
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"flags", flags},
        {"flags_both", flags_both},
        {"flags_ordered", flags_ordered},
        {"flags_then_ordered", flags_then_ordered},
        {"make_way", make_way},
        {"refused_then_flag", refused_then_flag},
        {"refused_all_then_flag", refused_all_then_flag},
        {"crowd", crowd},
        {"hosts_turn", hosts_turn},
        {"hosts_turn_later", hosts_turn_later},
        {"hosts_turn_then_flag", hosts_turn_then_flag},
        {"frees_beside_work", frees_beside_work},
        {"contexts_end", contexts_end},
        {"two_contexts", two_contexts},
        {"two_contexts_streams", two_contexts_streams},
        {"primaries_end", primaries_end},
        {"detaches", detaches},
        {"releases_beside", releases_beside},
        {"context_beside_work", context_beside_work},
        {"context_beside_an_end", context_beside_an_end},
        {"late_context_beside_an_end", late_context_beside_an_end},
        {"forks_beside_work", forks_beside_work},
        {"forks_beside_contexts", forks_beside_contexts},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
