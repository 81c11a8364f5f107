/* litmus_scenarios: the scenarios. See litmus.h. A block is "mine" while a kernel reads it, and "theirs" when
 * it has been freed and allocated again. Owns no lock. */
#include "litmus.h"

#include <dlfcn.h>

#define EAGER       4   /* blocks that the second thread takes without waiting for the free */
#define LULL_FREES  128 /* enough frees for a pool to notice that the work of other streams is done */
#define LULL_BYTES  512
#define ONE_PROCESS 1000
#define SOME_VISITS                                                                                          \
    60 /* runs per process: a pool may change its strategy if other streams are used often                   \
        */
#define STITCH_BYTES ((size_t)2 << 20)  /* one piece of a pool's memory */
#define LARGE_BYTES  ((size_t)96 << 20) /* so large that a pool reuses the memory rather than growing */

/* Fills a block and waits for that, so that whatever overwrites it comes later. */
static void fill_mine(struct litmus *l, CUdeviceptr block, CUstream stream)
{
    litmus_fill(l, block, l->mine, stream);
    LITMUS_OK(drv.cuStreamSynchronize(stream));
}

/* Returns a new block that the main stream has filled. */
static CUdeviceptr mine(struct litmus *l)
{
    CUdeviceptr block = litmus_take(l, l->bytes);
    fill_mine(l, block, l->home);
    return block;
}

/* Launches a kernel that reads the block when the gate opens. */
static void read_late(struct litmus *l, CUdeviceptr block, CUstream stream)
{
    litmus_shut(l);
    litmus_wait_at_gate(l, stream);
    litmus_check(l, block, l->mine, stream);
}

/* Allocates a block of the same size and overwrites it, before the gate opens unless the allocator waits for
 * that. */
static CUdeviceptr theirs(struct litmus *l, CUstream stream)
{
    CUdeviceptr block = litmus_take(l, l->bytes);
    litmus_fill(l, block, l->theirs, stream);
    LITMUS_OK(drv.cuStreamSynchronize(stream));
    return block;
}

/* Allocates and frees small blocks while no work runs, until a pool has noticed that all is done. */
static void lull(struct litmus *l)
{
    for (int i = 0; i < LULL_FREES; i++)
        litmus_give(l, litmus_take(l, LULL_BYTES));
}

static void run_legacy(struct litmus *l)
{
    CUdeviceptr block = mine(l);
    read_late(l, block, l->home);
    litmus_give(l, block);
    block = litmus_take(l, l->bytes);
    LITMUS_OK(drv.cuMemsetD32(block, l->theirs, litmus_words(l)));
    LITMUS_OK(drv.cuStreamSynchronize(NULL));
    litmus_finish(l);
    litmus_give(l, block);
}

static void run_cross_stream(struct litmus *l)
{
    CUdeviceptr scratch = litmus_take(l, l->bytes), block = mine(l);
    litmus_fill(l, scratch, 0, l->other);
    read_late(l, block, l->home);
    litmus_give(l, block);
    block = theirs(l, l->other);
    litmus_finish(l);
    litmus_give(l, block);
    litmus_give(l, scratch);
}

static void take_and_write(struct litmus *l)
{
    for (int i = 0; i < EAGER; i++) {
        l->taken[i] = litmus_take(l, l->bytes);
        litmus_fill(l, l->taken[i], l->theirs, l->other);
    }
    sem_wait(&l->freed);
    l->taken[EAGER] = theirs(l, l->other);
}

static void run_cross_thread(struct litmus *l)
{
    CUdeviceptr block = mine(l);
    read_late(l, block, l->home);
    litmus_start_job(l, take_and_write);
    litmus_give(l, block);
    sem_post(&l->freed);
    litmus_end_job(l);
    litmus_finish(l);
    for (int i = 0; i <= EAGER; i++)
        litmus_give(l, l->taken[i]);
}

static void give_and_write(struct litmus *l)
{
    litmus_give(l, l->taken[0]);
    l->taken[0] = theirs(l, l->third);
}

static void read_in_second(struct litmus *l)
{
    read_late(l, l->taken[0], l->mine & 2 ? l->other : l->home);
}

/* One thread reads, and the other frees the block. They swap roles, and every other run begins with all work
 * done. */
static void run_freed_elsewhere(struct litmus *l)
{
    l->taken[0] = mine(l);
    if (l->mine & 1) {
        lull(l);
        litmus_start_job(l, lull);
        litmus_end_job(l);
    }
    if (l->mine & 4) {
        read_late(l, l->taken[0], l->mine & 2 ? l->other : l->home);
        litmus_start_job(l, give_and_write);
        litmus_end_job(l);
    } else {
        litmus_start_job(l, read_in_second);
        litmus_end_job(l);
        give_and_write(l);
    }
    litmus_finish(l);
    litmus_give(l, l->taken[0]);
}

static void write_per_thread(struct litmus *l)
{
    PFN_cuMemsetD32Async_v7000_ptsz memset_own =
        (PFN_cuMemsetD32Async_v7000_ptsz)driver_symbol("cuMemsetD32Async_ptsz");
    l->taken[0] = litmus_take(l, l->bytes);
    LITMUS_OK(memset_own(l->taken[0], l->theirs, litmus_words(l), NULL));
    LITMUS_OK(drv.cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

/* Two threads, each on its own default stream. */
static void run_per_thread(struct litmus *l)
{
    CUdeviceptr block = litmus_take(l, l->bytes);
    fill_mine(l, block, CU_STREAM_PER_THREAD);
    read_late(l, block, CU_STREAM_PER_THREAD);
    litmus_give(l, block);
    litmus_start_job(l, write_per_thread);
    litmus_end_job(l);
    litmus_finish(l);
    litmus_give(l, l->taken[0]);
}

/* A second stream is used for the first time, or again after a lull, when two blocks have been freed and
 * allocated again. The main stream may use its block at once. */
static void run_late_stream(struct litmus *l)
{
    CUdeviceptr first = mine(l), second = mine(l);
    read_late(l, first, l->home);
    litmus_check(l, second, l->mine, l->home);
    litmus_give(l, first);
    litmus_give(l, second);
    first = litmus_take(l, l->bytes);
    second = litmus_take(l, l->bytes);
    litmus_fill(l, first, l->theirs, l->home);
    litmus_fill(l, second, l->theirs, l->other);
    LITMUS_OK(drv.cuStreamSynchronize(l->other));
    litmus_finish(l);
    litmus_give(l, first);
    litmus_give(l, second);
    lull(l);
}

/* Another stream reads once, and the main stream goes on. */
static void run_other_reads(struct litmus *l)
{
    CUdeviceptr block = mine(l);
    read_late(l, block, l->other);
    litmus_give(l, block);
    block = theirs(l, l->home);
    litmus_finish(l);
    litmus_give(l, block);
    lull(l);
}

/* Another stream writes late into a freed block; the block that the main stream got must not change. */
static void run_other_writes(struct litmus *l)
{
    CUdeviceptr block = mine(l);
    litmus_shut(l);
    litmus_wait_at_gate(l, l->other);
    LITMUS_OK(drv.cuMemsetD32Async(block, l->theirs, litmus_words(l), l->other));
    litmus_give(l, block);
    block = mine(l);
    litmus_finish(l);
    litmus_check(l, block, l->mine, l->home);
    LITMUS_OK(drv.cuStreamSynchronize(l->home));
    litmus_give(l, block);
    lull(l);
}

/* Nothing can be waited for while another stream is captured. */
static void run_capture(struct litmus *l)
{
    CUdeviceptr scratch = litmus_take(l, l->bytes), block = mine(l);
    CUgraph graph;
    LITMUS_OK(drv.cuStreamBeginCapture(l->third, CU_STREAM_CAPTURE_MODE_RELAXED));
    read_late(l, block, l->home);
    litmus_fill(l, scratch, 0, l->third);
    litmus_give(l, block);
    block = theirs(l, l->other);
    LITMUS_OK(drv.cuStreamEndCapture(l->third, &graph));
    litmus_finish(l);
    LITMUS_OK(drv.cuGraphDestroy(graph));
    litmus_give(l, block);
    litmus_give(l, scratch);
}

/* A capture begins when the block has been freed and allocated again, and a second stream is used during it.
 */
static void run_late_capture(struct litmus *l)
{
    CUdeviceptr block = mine(l);
    CUgraph graph;
    read_late(l, block, l->home);
    litmus_give(l, block);
    block = litmus_take(l, l->bytes);
    LITMUS_OK(drv.cuStreamBeginCapture(l->home, CU_STREAM_CAPTURE_MODE_RELAXED));
    litmus_fill(l, block, l->theirs, l->other);
    LITMUS_OK(drv.cuStreamSynchronize(l->other));
    LITMUS_OK(drv.cuStreamEndCapture(l->home, &graph));
    litmus_finish(l);
    LITMUS_OK(drv.cuGraphDestroy(graph));
    litmus_give(l, block);
    lull(l);
}

/* The second launch of a graph still runs when the block that it reads is freed. */
static void run_graph(struct litmus *l)
{
    CUdeviceptr block = mine(l);
    CUgraphExec exec;
    CUgraph graph;
    LITMUS_OK(drv.cuStreamBeginCapture(l->third, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    litmus_wait_at_gate(l, l->third);
    litmus_check(l, block, l->mine, l->third);
    LITMUS_OK(drv.cuStreamEndCapture(l->third, &graph));
    LITMUS_OK(drv.cuGraphInstantiateWithFlags(&exec, graph, 0));
    LITMUS_OK(drv.cuGraphLaunch(exec, l->third)); /* the gate is open since the last run */
    LITMUS_OK(drv.cuStreamSynchronize(l->third));
    litmus_shut(l);
    LITMUS_OK(drv.cuGraphLaunch(exec, l->third));
    litmus_give(l, block);
    block = theirs(l, l->other);
    litmus_finish(l);
    LITMUS_OK(drv.cuGraphExecDestroy(exec));
    LITMUS_OK(drv.cuGraphDestroy(graph));
    litmus_give(l, block);
}

/* What a pool without fences does when it stitches: it maps other memory at an address that a kernel is about
 * to read. */
static void remap_unfenced(struct litmus *l)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = l->device}};
    const CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle pieces[2];
    CUdeviceptr at;
    LITMUS_OK(drv.cuMemAddressReserve(&at, l->bytes, 0, 0, 0));
    LITMUS_OK(drv.cuMemCreate(&pieces[0], l->bytes, &prop, 0));
    LITMUS_OK(drv.cuMemCreate(&pieces[1], l->bytes, &prop, 0));
    LITMUS_OK(drv.cuMemMap(at, l->bytes, 0, pieces[0], 0));
    LITMUS_OK(drv.cuMemSetAccess(at, l->bytes, &access, 1));
    fill_mine(l, at, l->home);
    read_late(l, at, l->home);
    LITMUS_OK(drv.cuMemUnmap(at, l->bytes));
    LITMUS_OK(drv.cuMemMap(at, l->bytes, 0, pieces[1], 0));
    LITMUS_OK(drv.cuMemSetAccess(at, l->bytes, &access, 1));
    litmus_finish(l);
    LITMUS_OK(drv.cuMemUnmap(at, l->bytes));
    LITMUS_OK(drv.cuMemRelease(pieces[0]));
    LITMUS_OK(drv.cuMemRelease(pieces[1]));
    LITMUS_OK(drv.cuMemAddressFree(at, l->bytes));
}

/* Two blocks that are read and freed would, stitched together, fit the next request. Their memory must stay
 * mapped: else the reader faults, or the memory is overwritten at its new place. */
static void run_unmapped_by(struct litmus *l, CUstream writer)
{
    l->bytes = STITCH_BYTES;
    if (l->unfenced) {
        remap_unfenced(l);
        return;
    }
    CUdeviceptr low = mine(l), wall = mine(l), high = mine(l);
    litmus_shut(l);
    litmus_wait_at_gate(l, l->home);
    litmus_check(l, low, l->mine, l->home);
    litmus_check(l, high, l->mine, l->home);
    litmus_give(l, low);
    litmus_give(l, high);
    CUdeviceptr large = litmus_take(l, 2 * STITCH_BYTES);
    litmus_fill(l, large, l->theirs, writer);
    litmus_fill(l, large + STITCH_BYTES, l->theirs, writer);
    if (writer != l->home) /* the main stream waits at the gate */
        LITMUS_OK(drv.cuStreamSynchronize(writer));
    litmus_check(l, wall, l->mine, l->home);
    litmus_finish(l);
    litmus_give(l, large);
    litmus_give(l, wall);
}

static void run_unmapped(struct litmus *l)
{
    run_unmapped_by(l, l->home);
}

static void run_unmapped_cross(struct litmus *l)
{
    run_unmapped_by(l, l->other);
}

static void write_legacy(struct litmus *l, CUdeviceptr block)
{
    LITMUS_OK(drv.cuMemsetD32(block, l->theirs, litmus_words(l)));
    LITMUS_OK(drv.cuStreamSynchronize(NULL));
}

static void write_other(struct litmus *l, CUdeviceptr block)
{
    litmus_fill(l, block, l->theirs, l->other);
    LITMUS_OK(drv.cuStreamSynchronize(l->other));
}

static void write_per_thread_stream(struct litmus *l, CUdeviceptr block)
{
    litmus_fill(l, block, l->theirs, CU_STREAM_PER_THREAD);
    LITMUS_OK(drv.cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

static void write_new_stream(struct litmus *l, CUdeviceptr block)
{
    CUstream stream;
    LITMUS_OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    LITMUS_OK(drv.cuMemsetD32Async(block, l->theirs, litmus_words(l), stream));
    LITMUS_OK(drv.cuStreamSynchronize(stream));
    LITMUS_OK(drv.cuStreamDestroy(stream));
}

static void write_from_host(struct litmus *l, CUdeviceptr block)
{
    uint32_t words[64];
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        words[i] = l->theirs;
    LITMUS_OK(drv.cuMemcpyHtoD(block, words, sizeof(words)));
}

/* Two streams are at work and the block is large. A pool that does not want to hold a second one has to wait,
 * or to order every write into it behind the reader, however it is submitted. */
static void run_large(struct litmus *l)
{
    static void (*const writers[])(struct litmus * l, CUdeviceptr block) = {
        write_other, write_legacy, write_new_stream, write_per_thread_stream, write_from_host};
    l->bytes = LARGE_BYTES;
    CUdeviceptr scratch = litmus_take(l, LARGE_BYTES), block = mine(l);
    litmus_fill(l, scratch, 0, l->other);
    read_late(l, block, l->home);
    litmus_give(l, block);
    block = litmus_take(l, l->bytes);
    writers[l->mine % (sizeof(writers) / sizeof(writers[0]))](l, block);
    litmus_finish(l);
    litmus_give(l, block);
    litmus_give(l, scratch);
}

/* The stream is destroyed while its kernel still has to read. */
static void run_destroyed(struct litmus *l)
{
    CUdeviceptr block = mine(l);
    CUstream stream;
    LITMUS_OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    read_late(l, block, stream);
    LITMUS_OK(drv.cuStreamDestroy(stream));
    litmus_give(l, block);
    block = theirs(l, l->mine & 1 ? l->home : l->other);
    litmus_finish(l);
    litmus_give(l, block);
}

/* ---- green contexts ---- */

#define GREEN_SMS 16

/* A part of the card with a stream of its own; its memory is the primary context's. Made once in a process.
 */
static struct {
    CUcontext context;
    CUstream stream;
    CUevent event;
} green;

/* These entry points are newer than the others, and only this scenario needs them. */
static void *green_entry(const char *name)
{
    void *entry = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    LITMUS_OK(entry ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
    return entry;
}

static void make_green(struct litmus *l)
{
    CUdevResource whole, part;
    CUdevResourceDesc description;
    CUgreenCtx made;
    unsigned count = 1;
    if (green.stream)
        return;
    const PFN_cuDeviceGetDevResource_v12040 resource =
        (PFN_cuDeviceGetDevResource_v12040)green_entry("cuDeviceGetDevResource");
    const PFN_cuDevSmResourceSplitByCount_v12040 split =
        (PFN_cuDevSmResourceSplitByCount_v12040)green_entry("cuDevSmResourceSplitByCount");
    const PFN_cuDevResourceGenerateDesc_v12040 describe =
        (PFN_cuDevResourceGenerateDesc_v12040)green_entry("cuDevResourceGenerateDesc");
    const PFN_cuGreenCtxCreate_v12040 create = (PFN_cuGreenCtxCreate_v12040)green_entry("cuGreenCtxCreate");
    const PFN_cuCtxFromGreenCtx_v12040 context =
        (PFN_cuCtxFromGreenCtx_v12040)green_entry("cuCtxFromGreenCtx");
    const PFN_cuGreenCtxStreamCreate_v12050 stream =
        (PFN_cuGreenCtxStreamCreate_v12050)green_entry("cuGreenCtxStreamCreate");
    LITMUS_OK(resource(l->device, &whole, CU_DEV_RESOURCE_TYPE_SM));
    LITMUS_OK(split(&part, &count, &whole, NULL, 0, GREEN_SMS));
    LITMUS_OK(describe(&description, &part, 1));
    LITMUS_OK(create(&made, description, l->device, CU_GREEN_CTX_DEFAULT_STREAM));
    LITMUS_OK(context(&green.context, made));
    LITMUS_OK(stream(&green.stream, made, CU_STREAM_NON_BLOCKING, 0));
    LITMUS_OK(drv.cuEventCreate(&green.event, CU_EVENT_DISABLE_TIMING));
}

/* The green stream goes on when the gate opens; the kernel at the gate is the primary context's. */
static void hold_green(struct litmus *l)
{
    litmus_shut(l);
    litmus_wait_at_gate(l, l->third);
    LITMUS_OK(drv.cuEventRecord(green.event, l->third));
    LITMUS_OK(drv.cuStreamWaitEvent(green.stream, green.event, 0));
}

/* Frees a block in every other run with the green context current. */
static void give_in_turn(struct litmus *l, CUdeviceptr block)
{
    LITMUS_OK(drv.cuCtxSetCurrent(l->mine & 2 ? green.context : l->context));
    litmus_give(l, block);
    LITMUS_OK(drv.cuCtxSetCurrent(l->context));
}

/* The green stream reads (copies) a block that the program frees meanwhile. */
static void run_green_reads(struct litmus *l)
{
    make_green(l);
    CUdeviceptr copy = litmus_take(l, l->bytes), block = mine(l);
    hold_green(l);
    LITMUS_OK(drv.cuMemcpyDtoDAsync(copy, block, litmus_words(l) * sizeof(uint32_t), green.stream));
    give_in_turn(l, block);
    block = theirs(l, l->mine & 1 ? l->home : l->other);
    litmus_finish(l);
    LITMUS_OK(drv.cuStreamSynchronize(green.stream));
    litmus_check(l, copy, l->mine, l->home);
    LITMUS_OK(drv.cuStreamSynchronize(l->home));
    litmus_give(l, block);
    litmus_give(l, copy);
}

/* The green stream writes into what a stream of the primary context still reads. */
static void run_green_writes(struct litmus *l)
{
    make_green(l);
    CUdeviceptr block = mine(l);
    read_late(l, block, l->home);
    give_in_turn(l, block);
    block = litmus_take(l, l->bytes);
    LITMUS_OK(drv.cuMemsetD32Async(block, l->theirs, litmus_words(l), green.stream));
    LITMUS_OK(drv.cuStreamSynchronize(green.stream));
    litmus_finish(l);
    litmus_give(l, block);
}

const struct litmus_scenario litmus_scenarios[] = {
    {"legacy", "read on a non-blocking stream, overwritten on the default one", run_legacy, ONE_PROCESS,
     NULL},
    {"cross_stream", "read on one stream, overwritten on another", run_cross_stream, ONE_PROCESS, NULL},
    {"cross_thread", "freed by one thread, taken by another at once", run_cross_thread, ONE_PROCESS, NULL},
    {"freed_elsewhere", "read by one thread's work, freed by another thread", run_freed_elsewhere,
     ONE_PROCESS, NULL},
    {"per_thread", "two threads on their own default streams", run_per_thread, ONE_PROCESS, NULL},
    {"late_stream", "a second stream begins after the reuse", run_late_stream, SOME_VISITS, NULL},
    {"other_reads", "another stream reads once, the first goes on", run_other_reads, SOME_VISITS, NULL},
    {"other_writes", "another stream writes once, the first goes on", run_other_writes, SOME_VISITS, NULL},
    {"destroyed", "read on a stream that is destroyed meanwhile", run_destroyed, SOME_VISITS, NULL},
    {"capture", "freed and taken during a capture", run_capture, ONE_PROCESS, NULL},
    {"late_capture", "a capture and a second stream begin after the reuse", run_late_capture, SOME_VISITS,
     NULL},
    {"graph", "freed while the launch of a graph reads it", run_graph, ONE_PROCESS, NULL},
    {"unmapped", "memory that is still read could be stitched", run_unmapped, ONE_PROCESS, "0"},
    {"unmapped_cross", "the same, with a second stream", run_unmapped_cross, ONE_PROCESS, "0"},
    {"green_reads", "read on a green context's stream, overwritten on another", run_green_reads, ONE_PROCESS,
     NULL},
    {"green_writes", "read on a stream, overwritten on a green context's", run_green_writes, ONE_PROCESS,
     NULL},
    {"large", "two streams, and a block that is too large to be held twice", run_large, ONE_PROCESS, NULL},
};
const unsigned litmus_scenario_count = sizeof(litmus_scenarios) / sizeof(litmus_scenarios[0]);
