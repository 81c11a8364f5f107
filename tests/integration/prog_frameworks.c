/* prog_frameworks: how well-known programs use device memory: an engine that gives its memory up while it
 * sleeps, one that captures a graph for each token, a decoder with a floating context, and a pool that takes
 * all that is free. One scenario a run; see prog_check.h. */
#include "prog_check.h"

#include <pthread.h>
#include <stdlib.h>

static const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};

static size_t told_free(void)
{
    size_t free_bytes, total;

    MUST(0, cuMemGetInfo(&free_bytes, &total));
    MUST(true, free_bytes <= total);
    return free_bytes;
}

static void map_new(CUdeviceptr address, size_t bytes)
{
    const CUmemAccessDesc access = {.location = on_card.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;

    MUST(0, cuMemCreate(&handle, bytes, &on_card, 0));
    MUST(0, cuMemMap(address, bytes, 0, handle, 0));
    MUST(0, cuMemRelease(handle));
    MUST(0, cuMemSetAccess(address, bytes, &access, 1));
}

/* vLLM's sleep mode: weights are copied to the host and unmapped, another program part uses the memory, and
 * the weights come back at the same addresses. */
static void sleeps(void)
{
    enum { WEIGHTS = 4 };
    const size_t bytes = 8 * MIB;
    CUdeviceptr weights[WEIGHTS], meanwhile;
    char *copies = malloc(WEIGHTS * bytes);

    prog_context(0);
    for (int i = 0; i < WEIGHTS; i++) {
        MUST(0, cuMemAddressReserve(&weights[i], bytes, 0, 0, 0));
        map_new(weights[i], bytes);
        prog_fill(weights[i], (unsigned char)(i + 1), bytes);
    }
    for (int round = 0; round < 2; round++) {
        const size_t awake = told_free();

        for (int i = 0; i < WEIGHTS; i++) {
            MUST(0, cuMemcpyDtoH(copies + i * bytes, weights[i], bytes));
            MUST(0, cuMemUnmap(weights[i], bytes));
        }
        MUST(true, told_free() >= awake + WEIGHTS * bytes);
        MUST(0, cuMemAlloc(&meanwhile, WEIGHTS * bytes));
        prog_fill(meanwhile, 9, WEIGHTS * bytes);
        MUST(0, cuMemFree(meanwhile));
        for (int i = 0; i < WEIGHTS; i++) {
            map_new(weights[i], bytes);
            MUST(0, cuMemcpyHtoD(weights[i], copies + i * bytes, bytes));
            MUST(0, prog_wrong(weights[i], (unsigned char)(i + 1), bytes));
        }
    }
    free(copies);
}

/* llama.cpp: a pool that grows at the end of one reservation, and a graph that is captured, and updated or
 * made anew, for each token. A plain block comes and goes during one capture. */
static void tokens(void)
{
    const size_t page = 2 * MIB, span = 1024 * MIB, part = 4096;
    CUdeviceptr pool, out, passing;
    CUgraphExec launchable = NULL;
    CUstream stream;

    prog_context(0);
    MUST(0, cuMemAddressReserve(&pool, span, 0, 0, 0));
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuMemAlloc(&out, part));
    for (unsigned token = 1; token <= 6; token++) {
        CUgraphExecUpdateResultInfo info;
        CUgraph graph;

        map_new(pool + (token - 1) * page, page);
        MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(0, cuMemsetD8Async(pool, (unsigned char)token, token * page, stream));
        MUST(0, cuMemcpyDtoDAsync(out, pool + token * page - part, part, stream));
        if (token == 3) {
            MUST(0, cuMemAlloc(&passing, 3 * MIB));
            MUST(0, cuMemsetD8Async(passing, 1, part, stream));
        }
        MUST(0, cuStreamEndCapture(stream, &graph));
        if (!launchable || cuGraphExecUpdate(launchable, graph, &info) != CUDA_SUCCESS) {
            if (launchable)
                MUST(0, cuGraphExecDestroy(launchable));
            MUST(0, cuGraphInstantiate(&launchable, graph, 0));
        }
        MUST(0, cuGraphDestroy(graph));
        MUST(0, cuGraphLaunch(launchable, stream));
        MUST(0, cuStreamSynchronize(stream));
        MUST(0, prog_wrong(out, (unsigned char)token, part));
    }
    MUST(0, cuMemFree(passing));
    MUST(0, cuGraphExecDestroy(launchable));
    MUST(0, cuMemUnmap(pool, 6 * page));
    MUST(0, cuMemAddressFree(pool, span));
}

#define FRAMES 4
#define WIDTH  1920
#define HEIGHT 810

static CUcontext decoder;
static CUdeviceptr frames[FRAMES];

static void *free_frames(void *unused)
{
    CUcontext popped;

    for (int i = 0; i < FRAMES; i++) {
        MUST(0, cuCtxPushCurrent(decoder));
        MUST(0, cuMemFree(frames[i]));
        MUST(0, cuCtxPopCurrent(&popped));
    }
    return unused;
}

/* FFmpeg: a context that is current only during a call, pitched frames, and another thread that frees them.
 */
static void decodes(void)
{
    unsigned char *picture = malloc((size_t)WIDTH * HEIGHT);
    CUcontext popped;
    pthread_t thread;
    size_t pitch;

    MUST(0, cuInit(0));
    MUST(0, cuCtxCreate(&decoder, NULL, CU_CTX_SCHED_BLOCKING_SYNC, 0));
    MUST(0, cuCtxPopCurrent(&popped));
    MUST(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocPitch(&frames[0], &pitch, WIDTH, HEIGHT, 16));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < FRAMES; i++) {
            MUST(0, cuCtxPushCurrent(decoder));
            MUST(0, cuMemAllocPitch(&frames[i], &pitch, WIDTH, HEIGHT, 16));
            MUST(0, cuMemsetD2D8(frames[i], pitch, (unsigned char)(i + 1), WIDTH, HEIGHT));
            const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                        .srcDevice = frames[i],
                                        .srcPitch = pitch,
                                        .dstMemoryType = CU_MEMORYTYPE_HOST,
                                        .dstHost = picture,
                                        .dstPitch = WIDTH,
                                        .WidthInBytes = WIDTH,
                                        .Height = HEIGHT};
            MUST(0, cuMemcpy2D(&copy));
            MUST(i + 1, picture[0]);
            MUST(i + 1, picture[(size_t)WIDTH * HEIGHT - 1]);
            MUST(0, cuCtxPopCurrent(&popped));
        }
        MUST(0, pthread_create(&thread, NULL, free_frames, NULL));
        MUST(0, pthread_join(thread, NULL));
    }
    MUST(0, cuCtxDestroy(decoder));
    free(picture);
}

/* RMM, XLA: nearly all that is free, by one kind of memory after the other. */
static void takes_all(void)
{
    const size_t margin = 64 * MIB, page = 2 * MIB;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;

    prog_context(0);
    const size_t all = told_free(), most = (all - margin) / page * page;
    for (int round = 0; round < 2; round++) {
        MUST(0, cuMemAlloc(&block, most));
        MUST(true, told_free() <= margin + page);
        MUST(0, cuMemsetD8(block + most - 1, 1, 1));
        MUST(0, cuMemFree(block));
        MUST(0, cuMemCreate(&handle, most, &on_card, 0));
        MUST(0, cuMemRelease(handle));
        MUST(0, cuMemAllocAsync(&block, most, NULL));
        MUST(0, cuMemFreeAsync(block, NULL));
        MUST(0, cuStreamSynchronize(NULL));
        MUST(true, told_free() + page >= all);
    }
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"sleeps", sleeps}, {"tokens", tokens}, {"decodes", decodes}, {"takes_all", takes_all}};

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
