/* prog_room: programs of several contexts, kinds of memory and streams, of which one holds what another asks
 * for. One scenario a run; see prog_check.h. */
#include "prog_check.h"

#include <unistd.h>

#define BLOCK (8 * MIB)

static CUcontext own, other;
static CUstream here, there;

static void two_contexts(void)
{
    own = prog_context(0);
    MUST(0, cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
    MUST(0, cuCtxCreate(&other, NULL, 0, 0));
    MUST(0, cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    MUST(0, cuCtxSetCurrent(own));
}

static void be_late(void *unused)
{
    (void)unused;
    usleep(100000);
}

/* ---- freed in the order of a stream ---- */

/* A block of another context is freed while a stream still works on it. Work on the next block at those bytes
 * must come behind that. */
static void free_elsewhere(CUcontext current)
{
    CUdeviceptr block, next[4];

    MUST(0, cuMemAlloc(&block, BLOCK));
    MUST(0, cuCtxSetCurrent(other));
    MUST(0, cuLaunchHostFunc(there, be_late, NULL));
    MUST(0, cuMemsetD8Async(block, 1, BLOCK, there));
    MUST(0, cuCtxSetCurrent(current));
    MUST(0, cuMemFreeAsync(block, there));
    MUST(0, cuCtxSetCurrent(own));
    for (int i = 0; i < 4; i++) {
        MUST(0, cuMemAlloc(&next[i], BLOCK));
        MUST(0, cuMemsetD8Async(next[i], 2, BLOCK, here));
    }
    MUST(0, cuStreamSynchronize(here));
    MUST(0, cuStreamSynchronize(there));
    for (int i = 0; i < 4; i++) {
        MUST(0, prog_wrong(next[i], 2, BLOCK));
        MUST(0, cuMemFree(next[i]));
    }
}

static void ordered_elsewhere(void)
{
    two_contexts();
    free_elsewhere(other);
    free_elsewhere(own);
}

/* A free fails with an invalid stream, or in a thread without a context. */
static void ordered_by_none(void)
{
    CUdeviceptr block;
    CUstream ended;

    own = prog_context(0);
    MUST(0, cuStreamCreate(&ended, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamDestroy(ended));
    MUST(0, cuMemAlloc(&block, BLOCK));
    MUST(CUDA_ERROR_INVALID_HANDLE, cuMemFreeAsync(block, ended));
    MUST(0, cuCtxSetCurrent(NULL));
    MUST(CUDA_ERROR_INVALID_CONTEXT, cuMemFreeAsync(block, NULL));
    MUST(0, cuCtxSetCurrent(own));
    prog_fill(block, 1, BLOCK);
    MUST(0, cuMemFree(block));
}

/* ---- what others hold ---- */

static size_t told_free(void)
{
    size_t free_bytes, total;

    MUST(0, cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/* A graph takes memory that the limit did not grant, from the driver's reserve. */
static void let_the_driver_grow(void)
{
    CUgraphExec launchable;
    CUdeviceptr inside;
    CUgraph graph;

    MUST(0, cuStreamBeginCapture(here, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuMemAllocAsync(&inside, 50 * MIB, here));
    MUST(0, cuMemsetD8Async(inside, 1, MIB, here));
    MUST(0, cuMemFreeAsync(inside, here));
    MUST(0, cuStreamEndCapture(here, &graph));
    MUST(0, cuGraphInstantiate(&launchable, graph, 0));
    MUST(0, cuGraphLaunch(launchable, here));
    MUST(0, cuStreamSynchronize(here));
}

/* All memory that is reported as free is idle in the pool, and the driver has grown into the rest. Memory of
 * every kind can still be allocated. */
static void after_growth(void)
{
    const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUDA_ARRAY_DESCRIPTOR square = {512, 512, CU_AD_FORMAT_FLOAT, 1};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr most, block;
    CUarray array;
    size_t pitch;

    own = prog_context(0);
    MUST(0, cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
    MUST(0, cuMemAlloc(&most, told_free() - 16 * MIB));
    MUST(0, cuMemFree(most));
    let_the_driver_grow();
    MUST(0, cuMemAllocPitch(&block, &pitch, 1000, 1000, 4));
    MUST(0, cuMemAllocManaged(&block, MIB, CU_MEM_ATTACH_GLOBAL));
    MUST(0, cuMemCreate(&handle, 2 * MIB, &on_card, 0));
    MUST(0, cuArrayCreate(&array, &square));
    MUST(0, cuMemAllocAsync(&block, MIB, here));
}

/* What one context has freed behind its work makes way for another. */
static void freed_elsewhere(void)
{
    CUdeviceptr block, next;

    two_contexts();
    const size_t most = told_free() / 3 * 2;
    MUST(0, cuMemAlloc(&block, most));
    MUST(0, cuLaunchHostFunc(here, be_late, NULL));
    MUST(0, cuMemsetD8Async(block, 1, MIB, here));
    MUST(0, cuMemFree(block));
    MUST(0, cuCtxSetCurrent(other));
    MUST(0, cuMemAlloc(&next, most));
    MUST(0, cuCtxSetCurrent(own));
    MUST(0, cuCtxSynchronize());
}

/* ---- stream-ordered memory on a small card ---- */

#define CHUNK  (32 * MIB) /* by which the driver's pool grows */
#define ROOM   (4 * CHUNK)
#define SPARE  (6 * MIB)     /* for the driver itself: no chunk fits into it */
#define WEIGHT MIB           /* lives as long as the training does */
#define SCRAP  (CHUNK - MIB) /* taken and freed behind each weight: together one chunk */
enum { WEIGHTS = 4 };

static uint64_t of_pool(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    MUST(0, cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static void take_weights(CUdeviceptr weights[WEIGHTS])
{
    CUdeviceptr scraps[WEIGHTS];

    for (unsigned i = 0; i < WEIGHTS; i++) {
        MUST(0, cuMemAllocAsync(&weights[i], WEIGHT, here));
        MUST(0, cuMemsetD8Async(weights[i], (unsigned char)(100 + i), WEIGHT, here));
        MUST(0, cuMemAllocAsync(&scraps[i], SCRAP, here));
    }
    for (unsigned i = 0; i < WEIGHTS; i++)
        MUST(0, cuMemFreeAsync(scraps[i], here));
    MUST(0, cuStreamSynchronize(here));
}

/* Fills the card except for so many bytes. The driver's default pool, *pool, keeps what is freed. Returns
 * what fills the card. */
static CUdeviceptr leave_room(size_t bytes, CUmemoryPool *pool)
{
    cuuint64_t all = UINT64_MAX;
    CUdeviceptr ballast;

    own = prog_context(0);
    MUST(0, cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
    MUST(0, cuDeviceGetDefaultMemPool(pool, 0));
    MUST(0, cuMemPoolSetAttribute(*pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    MUST(0, cuMemAlloc(&ballast, (told_free() - bytes) / (2 * MIB) * (2 * MIB)));
    return ballast;
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr block;

    MUST(0, cuMemAllocAsync(&block, bytes, here));
    MUST(0, cuMemsetD8Async(block, 5, bytes, here));
    return block;
}

static void give(CUdeviceptr block)
{
    MUST(0, cuMemFreeAsync(block, here));
}

static bool is_refused(size_t bytes)
{
    CUdeviceptr block;

    return cuMemAllocAsync(&block, bytes, here) == CUDA_ERROR_OUT_OF_MEMORY;
}

/* The driver's pool grows by whole chunks; those added for a request that is refused after all stay in it. */
static void pool_grows_by_chunks(void)
{
    CUmemoryPool pool;

    const CUdeviceptr ballast = leave_room(2 * CHUNK + SPARE, &pool);
    MUST(true, is_refused(2 * CHUNK + 2 * MIB));
    MUST(2 * CHUNK, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    give(take(2 * CHUNK)); /* across both */
    MUST(0, cuStreamSynchronize(here));
    MUST(2 * CHUNK, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    MUST(0, cuMemPoolTrimTo(pool, CHUNK));
    MUST(CHUNK, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    MUST(0, cuMemFree(ballast));
}

/* On a full card a chunk in which nothing lives is given back, and serves a larger request elsewhere, another
 * pool or cuMemAlloc, once its free is known to be done. */
static void pool_gives_back_empty_chunks(void)
{
    CUmemoryPool pool;
    CUdeviceptr plain;

    const CUdeviceptr ballast = leave_room(2 * CHUNK + SPARE, &pool);
    const CUdeviceptr first = take(CHUNK), weight = take(WEIGHT), rest = take(SCRAP);
    give(first);
    give(rest);
    MUST(0, cuStreamSynchronize(here));
    const CUdeviceptr large = take(48 * MIB); /* begins in the chunk of the weight */
    MUST(weight + WEIGHT, large);
    MUST(2 * CHUNK, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    MUST(true, is_refused(20 * MIB));
    MUST(0, cuStreamSynchronize(here));
    MUST(0, prog_wrong(weight, 5, WEIGHT));
    MUST(0, prog_wrong(large, 5, 48 * MIB));
    give(weight);
    give(large);
    MUST(0, cuStreamSynchronize(here));
    MUST(0, cuMemAlloc(&plain, 40 * MIB));
    MUST(0, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    MUST(0, cuMemFree(ballast));
}

/* What is free between blocks that live is never joined: 124 MiB are idle, 40 are refused. */
static void pool_joins_no_gaps(void)
{
    CUmemoryPool pool;
    CUdeviceptr weights[WEIGHTS];

    const CUdeviceptr ballast = leave_room(ROOM + SPARE, &pool);
    take_weights(weights);
    MUST(WEIGHTS * WEIGHT, of_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    MUST(true, is_refused(40 * MIB));
    give(take(28 * MIB));
    give(weights[1]);
    MUST(0, cuStreamSynchronize(here));
    give(take(60 * MIB)); /* the two gaps are one now */
    MUST(0, cuStreamSynchronize(here));
    MUST(ROOM, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    MUST(0, cuMemFree(ballast));
}

/* Under a cap the driver's pool has grown into the reserve. A piece that fits what the pool has idle is
 * served once our own idle memory has gone back, although the reserve is not whole again by that. Meant for a
 * cap of 1 GiB with a reserve of 64 MiB. */
static void within_what_is_idle(void)
{
    CUdeviceptr cached, weights[WEIGHTS], large, piece;
    CUmemoryPool pool;

    leave_room(ROOM + 48 * MIB, &pool);
    MUST(0, cuMemAlloc(&cached, 48 * MIB));
    take_weights(weights);
    MUST(0, cuMemAllocAsync(&large, 64 * MIB, here)); /* the last gap and two more chunks */
    MUST(0, cuMemFree(cached));
    MUST(0, cuMemAllocAsync(&piece, 28 * MIB, here));
    MUST(0, cuStreamSynchronize(here));
}

/* Under a cap the driver's pool grows into the whole reserve. Then even a piece that fits a gap is refused:
 * nothing tells beforehand that the pool will not grow again, past the cap. A weight in each chunk keeps the
 * pool from giving memory back; without the weights it does, and the piece is served. Meant for a cap of 1
 * GiB and a reserve of 64 MiB. */
static void kept_by_weights(void)
{
    CUdeviceptr weights[WEIGHTS], large, piece;
    CUmemoryPool pool;

    leave_room(ROOM, &pool);
    take_weights(weights);
    MUST(0, cuMemAllocAsync(&large, 64 * MIB, here));
    MUST(2, cuMemAllocAsync(&piece, 28 * MIB, here));
    MUST(true, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= ROOM + 64 * MIB);
    for (unsigned i = 0; i < WEIGHTS; i++)
        MUST(0, cuMemFreeAsync(weights[i], here));
    MUST(0, cuStreamSynchronize(here));
    MUST(0, cuMemAllocAsync(&piece, 28 * MIB, here));
    MUST(0, cuStreamSynchronize(here));
}

/* ---- what the program is told ---- */

/* Two streams are still at work on blocks that are freed. */
static void free_all_behind_work(size_t all)
{
    const CUstream streams[2] = {here, there};
    CUdeviceptr blocks[2];

    for (int i = 0; i < 2; i++)
        MUST(0, cuMemAlloc(&blocks[i], all / 8 * 3));
    for (int i = 0; i < 2; i++) {
        MUST(0, cuLaunchHostFunc(streams[i], be_late, NULL));
        MUST(0, cuMemsetD8Async(blocks[i], 1, BLOCK, streams[i]));
    }
    for (int i = 0; i < 2; i++)
        MUST(0, cuMemFree(blocks[i]));
}

static void told_behind_work(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;

    prog_context(0);
    MUST(0, cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    const size_t all = told_free(), most = all / 4 * 3 / BLOCK * BLOCK;
    free_all_behind_work(all);
    MUST(true, told_free() + BLOCK >= all);
    MUST(0, cuMemAlloc(&block, most));
    MUST(0, cuMemFree(block));
    free_all_behind_work(all);
    MUST(true, told_free() + BLOCK >= all);
    MUST(0, cuMemCreate(&handle, most, &prop, 0));
    MUST(0, cuMemRelease(handle));
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"ordered_elsewhere", ordered_elsewhere},
        {"ordered_by_none", ordered_by_none},
        {"after_growth", after_growth},
        {"freed_elsewhere", freed_elsewhere},
        {"pool_grows_by_chunks", pool_grows_by_chunks},
        {"pool_gives_back_empty_chunks", pool_gives_back_empty_chunks},
        {"pool_joins_no_gaps", pool_joins_no_gaps},
        {"within_what_is_idle", within_what_is_idle},
        {"kept_by_weights", kept_by_weights},
        {"told_behind_work", told_behind_work},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
