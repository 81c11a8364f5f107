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

#define ROOM   (128 * MIB)
#define SPARE  (6 * MIB)  /* for the driver itself; less than any piece and than a step of its pool */
#define WEIGHT MIB        /* lives as long as the training does */
#define SCRAP  (31 * MIB) /* taken and freed behind each weight: together one step by which a pool grows */
enum { WEIGHTS = 4, PIECES = 3, STEPS = 12 };

static uint64_t of_pool(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    MUST(0, cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

/* Of one step of a training whose batch changes: 96 MiB at most, with the weights 100 of 128. */
static size_t size_of_piece(unsigned step, unsigned i)
{
    static const size_t largest[PIECES] = {52, 28, 16};

    return (largest[(i + step) % PIECES] - step % 5) * MIB;
}

/* Takes all pieces, writes them, and frees them in another order. */
static void varying_step(CUmemoryPool pool, unsigned step)
{
    CUdeviceptr pieces[PIECES];

    for (unsigned i = 0; i < PIECES; i++) {
        MUST(0, cuMemAllocAsync(&pieces[i], size_of_piece(step, i), here));
        MUST(0, cuMemsetD8Async(pieces[i], (unsigned char)i, size_of_piece(step, i), here));
    }
    MUST(0, cuStreamSynchronize(here));
    MUST(true, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= ROOM);
    for (unsigned i = 0; i < PIECES; i++) {
        const unsigned next = (i * 2 + step) % PIECES; /* each once: 2 and PIECES have no common divisor */

        MUST(0, prog_wrong(pieces[next], (unsigned char)next, size_of_piece(step, next)));
        MUST(0, cuMemFreeAsync(pieces[next], here));
    }
    MUST(0, cuStreamSynchronize(here));
    MUST(WEIGHTS * WEIGHT, of_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
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

/* A pool that keeps what is freed serves sizes that change every step on a card not much larger than what is
 * live at once, although what is free lies between blocks that stay. So does simgpu; an H200 refused a piece
 * (17 November 2026, driver 580.159.04), so simgpu is kinder here than the driver. */
static void varying_on_a_small_card(void)
{
    CUdeviceptr weights[WEIGHTS];
    CUmemoryPool pool;

    const CUdeviceptr ballast = leave_room(ROOM + SPARE, &pool);
    take_weights(weights);
    for (unsigned step = 0; step < STEPS; step++)
        varying_step(pool, step);
    for (unsigned i = 0; i < WEIGHTS; i++) {
        MUST(0, prog_wrong(weights[i], (unsigned char)(100 + i), WEIGHT));
        MUST(0, cuMemFreeAsync(weights[i], here));
    }
    MUST(0, cuStreamSynchronize(here));
    MUST(true, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) > 0);
    MUST(0, cuMemPoolTrimTo(pool, 0));
    MUST(0, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
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
    MUST(0, cuMemAllocAsync(&large, 52 * MIB, here)); /* fits into no piece that is idle: 64 MiB of growth */
    MUST(0, cuMemFree(cached));
    MUST(0, cuMemAllocAsync(&piece, 28 * MIB, here));
    MUST(0, cuStreamSynchronize(here));
}

/* Under a cap the driver does not know that its card is full: for a piece that fits no gap its pool grows
 * instead of making one block of the gaps, which simgpu's does on a full card (varying_on_a_small_card).
 * Here it grows into the whole reserve. Then even a piece that fits a gap is refused: nothing tells
 * beforehand that the pool will not grow again, past the cap. A weight in each of its steps keeps it from
 * giving memory back; without the weights it does, and the piece is served. Meant for a cap of 1 GiB and a
 * reserve of 64 MiB. */
static void kept_by_weights(void)
{
    CUdeviceptr weights[WEIGHTS], large, piece;
    CUmemoryPool pool;

    leave_room(ROOM, &pool);
    take_weights(weights);
    MUST(0, cuMemAllocAsync(&large, 52 * MIB, here));
    MUST(2, cuMemAllocAsync(&piece, 28 * MIB, here));
    MUST(true, of_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= ROOM + 64 * MIB);
    for (unsigned i = 0; i < WEIGHTS; i++)
        MUST(0, cuMemFreeAsync(weights[i], here));
    MUST(0, cuStreamSynchronize(here));
    MUST(0, cuMemAllocAsync(&piece, 28 * MIB, here));
    MUST(0, cuStreamSynchronize(here));
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"ordered_elsewhere", ordered_elsewhere},
        {"ordered_by_none", ordered_by_none},
        {"after_growth", after_growth},
        {"freed_elsewhere", freed_elsewhere},
        {"varying_on_a_small_card", varying_on_a_small_card},
        {"within_what_is_idle", within_what_is_idle},
        {"kept_by_weights", kept_by_weights},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
