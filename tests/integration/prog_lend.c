/* prog_lend: two or three processes on one card or two, beyond what prog_job has: which card memory is given
 * back on, what a context is taken for, requests in a capture, and requests beside the min of another job.
 * One scenario a run; all processes are this program (prog_is_other). Contexts take 128 MiB.
 */
#include "prog_check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CONTEXT (128 * MIB)
#define HALF    (512 * MIB)
#define MIN     (768 * MIB) /* of the first process, as the test sets it */
#define BESIDE  (2048 * MIB - 2 * CONTEXT - (MIN - CONTEXT))

/* On two cards of 1 GiB: the other process has idle memory on both, and each time gives back that of the card
 * that is short. */
static void lends_on_one_card(void)
{
    const CUcontext contexts[] = {prog_context(0), prog_context(1)};
    const bool other = prog_is_other();
    const pid_t pid = other ? 0 : prog_start(false);
    unsigned long long (*used)(int) = NULL; /* simgpu_used() */
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUdeviceptr block;

    if (library)
        *(void **)&used = dlsym(library, "simgpu_used");
    for (int card = 0; other && card < 2; card++) {
        MUST(0, cuCtxSetCurrent(contexts[card]));
        MUST(0, cuMemAlloc(&block, HALF));
        MUST(0, cuMemFree(block));
    }
    for (int card = 0; card < 2; card++) {
        const unsigned long long before = other && used ? used(1 - card) : 0;

        if (other) {
            prog_signal();
            prog_await();
            MUST(before, used ? used(1 - card) : 0);
            continue;
        }
        prog_await();
        MUST(0, cuCtxSetCurrent(contexts[card]));
        MUST(0, cuMemAlloc(&block, 320 * MIB));
        prog_signal();
    }
    if (!other)
        prog_join(pid);
}

/* Creates a handle of the first card. */
static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};

    return cuMemCreate(handle, bytes, &prop, 0);
}

/* In a job of 1 GiB with a reserve of 64 MiB: the other process has 384 MiB idle. This one takes all that is
 * left in small pieces, so that it is measured near its limit, and frees them. It then asks for more than it
 * had, which fits beside the two contexts. */
static void borrows_after_frees(void)
{
    CUmemGenericAllocationHandle pieces[10], handle;
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other()) {
        MUST(0, cuMemAlloc(&block, 384 * MIB));
        MUST(0, cuMemFree(block));
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(false);
    prog_await();
    for (int i = 0; i < 10; i++)
        MUST(0, create(&pieces[i], 32 * MIB));
    for (int i = 0; i < 10; i++)
        MUST(0, cuMemRelease(pieces[i]));
    MUST(0, create(&handle, 640 * MIB));
    prog_signal();
    prog_join(pid);
}

/* A process that holds 512 MiB makes its context anew: the size of a context is not taken for more, and the
 * other process may have one. */
static void context_beside_handles(void)
{
    CUmemGenericAllocationHandle handle;

    if (prog_is_other()) {
        prog_context(0);
        return;
    }
    prog_context(0);
    MUST(0, create(&handle, HALF));
    MUST(0, cuDevicePrimaryCtxReset(0));
    prog_context(0);
    prog_join(prog_start(false));
    MUST(0, cuMemRelease(handle));
}

/* Without NVML, beside a program that uses half of the card: each context counts once, and no longer than it
 * lives. */
static void contexts_come_and_go(void)
{
    CUcontext context;
    CUdeviceptr block;
    size_t first = 0, free_bytes, total;

    if (prog_is_other()) {
        prog_context(0);
        MUST(0, cuMemAlloc(&block, 1024 * MIB));
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(true);
    prog_await();
    MUST(0, cuInit(0));
    for (int i = 0; i < 8; i++) {
        const bool primary = i % 2;

        if (primary)
            context = prog_context(0);
        else
            MUST(0, cuCtxCreate(&context, NULL, 0, 0));
        MUST(0, cuMemGetInfo(&free_bytes, &total));
        first = first ? first : free_bytes;
        MUST(first, free_bytes);
        MUST(0, cuMemAlloc(&block, 256 * MIB));
        MUST(0, primary ? cuDevicePrimaryCtxReset(0) : cuCtxDestroy(context));
    }
    prog_signal();
    prog_join(pid);
}

/* The same for code that cannot be loaded. */
static void loads_that_fail(void)
{
    CUdeviceptr block;
    CUmodule module;
    size_t before, after, total;

    prog_context(0);
    if (prog_is_other()) {
        MUST(0, cuMemAlloc(&block, 1024 * MIB));
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(true);
    prog_await();
    MUST(0, cuMemGetInfo(&before, &total));
    for (int i = 0; i < 300; i++)
        MUST(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nonexistent"));
    MUST(0, cuMemGetInfo(&after, &total));
    MUST(before, after);
    prog_signal();
    prog_join(pid);
}

/* On a full card of 1 GiB: all that the other process has idle is in the driver's own pool. No request waits,
 * so the other must give it back with its answer. */
static void lends_from_drivers_pool(void)
{
    cuuint64_t all = UINT64_MAX;
    CUmemoryPool pool;
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other()) {
        MUST(0, cuDeviceGetMemPool(&pool, 0));
        MUST(0, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
        MUST(0, cuMemAllocAsync(&block, HALF, NULL));
        MUST(0, cuMemFreeAsync(block, NULL));
        MUST(0, cuCtxSynchronize());
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(false);
    prog_await();
    MUST(0, cuMemAlloc(&block, HALF));
    prog_signal();
    prog_join(pid);
}

/* A process outside the ledger holds much of the card: a second context is not taken for as large. */
static void second_context(void)
{
    CUdeviceptr block;
    CUcontext made;

    if (prog_is_other()) {
        prog_context(0);
        MUST(0, cuMemAlloc(&block, 700 * MIB));
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(true);
    prog_await();
    prog_context(0);
    MUST(0, cuCtxCreate(&made, NULL, 0, 0));
    prog_signal();
    prog_join(pid);
}

/* A request in a capture does not wait: what the other frees may depend on the graph. */
static void captures(void)
{
    CUdeviceptr block;
    CUstream stream;
    CUgraph graph;

    prog_context(0);
    if (prog_is_other()) {
        MUST(0, cuMemAlloc(&block, HALF));
        prog_signal();
        prog_await();
        return;
    }
    const pid_t pid = prog_start(false);
    prog_await();
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&block, HALF));
    MUST(0, cuStreamEndCapture(stream, &graph));
    prog_signal();
    prog_join(pid);
}

/* ---- beside a min ---- */

/* Starts the other process, which has no limit, and for which nothing is kept. */
static pid_t start_without_limits(void)
{
    unsetenv("GPUCAP_MAX");
    unsetenv("GPUCAP_MIN");
    unsetenv("GPUCAP_RESERVE");
    return prog_start(false);
}

/* A third process makes a context, and ends. */
static void make_context_elsewhere(void)
{
    const pid_t pid = fork();

    if (pid == 0) {
        setenv("THIRD", "1", 1);
        execl("/proc/self/exe", "prog_lend", "context_beside_a_min", (char *)NULL);
        _exit(127);
    }
    prog_join(pid);
}

/* The other process fills what is beside the min of the first, which is not used. A third one gets a context
 * once the other has given back what it has idle. */
static void context_beside_a_min(void)
{
    CUdeviceptr block;

    prog_context(0);
    if (getenv("THIRD"))
        return;
    if (prog_is_other()) {
        MUST(0, cuMemAlloc(&block, BESIDE - 2 * CONTEXT));
        MUST(0, cuMemAlloc(&block, CONTEXT + CONTEXT / 2));
        MUST(0, cuMemFree(block));
        prog_signal();
        prog_await();
        return;
    }
    const pid_t other = start_without_limits();
    prog_await();
    make_context_elsewhere();
    prog_signal();
    prog_join(other);
}

static void *free_later(void *block)
{
    const struct timespec while_ = {.tv_nsec = 100000000};

    nanosleep(&while_, NULL); /* the request that waits is most likely under way; it is granted in any case */
    MUST(0, cuMemFree(*(const CUdeviceptr *)block));
    return NULL;
}

/* What the other process asks for does not fit beside the min until it has freed something itself. */
static void waits_beside_a_min(void)
{
    CUdeviceptr block, more;
    pthread_t thread;

    prog_context(0);
    if (prog_is_other()) {
        /* A capture that did not begin is none. */
        MUST(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
             cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(0, cuMemAlloc(&block, BESIDE - 128 * MIB));
        MUST(0, pthread_create(&thread, NULL, free_later, &block));
        MUST(0, cuMemAlloc(&more, 256 * MIB));
        pthread_join(thread, NULL);
        return;
    }
    prog_join(start_without_limits());
}

/* A process that cannot measure its context counts more for it. The next one still knows its size and has
 * room for it. */
static void blind_beside_others(void)
{
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other())
        return;
    MUST(0, setenv("GPUCAP_SIM_NVML", "absent", 1));
    prog_join(prog_start(false));
    MUST(0, unsetenv("GPUCAP_SIM_NVML"));
    MUST(0, cuMemAlloc(&block, HALF + 160 * MIB)); /* leaves less than two contexts */
    prog_join(prog_start(false));
}

int main(int argc, char **argv)
{
    static const struct prog_scenario scenarios[] = {
        {"lends_on_one_card", lends_on_one_card},
        {"borrows_after_frees", borrows_after_frees},
        {"context_beside_handles", context_beside_handles},
        {"contexts_come_and_go", contexts_come_and_go},
        {"loads_that_fail", loads_that_fail},
        {"lends_from_drivers_pool", lends_from_drivers_pool},
        {"second_context", second_context},
        {"captures", captures},
        {"context_beside_a_min", context_beside_a_min},
        {"waits_beside_a_min", waits_beside_a_min},
        {"blind_beside_others", blind_beside_others},
    };

    return prog_main(argc, argv, scenarios, sizeof(scenarios) / sizeof(*scenarios));
}
