/* prog_recorded: programs whose recordings a test reads. Each scenario prints what the recording must hold:
 * "KIND NUMBER BYTES" per block. Runs under the library only. */
#include "prog_check.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose/gpucap.h"
#include "interpose/see/recording.h"
#include "prog_owner.h"

static void say(enum recording_kind kind, uint64_t number, uint64_t bytes)
{
    printf("%d %" PRIx64 " %" PRIu64 "\n", kind, number, bytes);
}

/* ---- every kind of memory ---- */

static void kinds(void)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    const CUmemAllocationProp place = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr large, small, async, managed;
    CUarray array;

    prog_context(0);
    if (gpucap_tag)
        gpucap_tag("weights");
    MUST(0, cuMemAlloc(&large, 3 * MIB + 5));
    say(RECORDING_MALLOC, large, 3 * MIB + 5);
    if (gpucap_tag)
        gpucap_tag(NULL);
    MUST(0, cuMemAlloc(&small, 700));
    say(RECORDING_MALLOC, small, 700);
    MUST(0, cuMemAllocAsync(&async, MIB, CU_STREAM_PER_THREAD));
    say(RECORDING_ASYNC, async, MIB);
    MUST(0, cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    say(RECORDING_MANAGED, managed, MIB);
    MUST(0, cuMemCreate(&handle, 2 * MIB, &place, 0));
    say(RECORDING_VMM, handle, 2 * MIB);
    MUST(0, cuArrayCreate(&array, &shape));
    say(RECORDING_ARRAY, (uintptr_t)array, 4 * MIB);
    MUST(true, cuMemFree(large + 512) != CUDA_SUCCESS); /* not a block: nothing is recorded */
    MUST(0, cuMemFree(large));
    MUST(0, cuMemFree(small));
    MUST(0, cuMemFreeAsync(async, CU_STREAM_PER_THREAD));
    MUST(0, cuMemFree(managed));
    MUST(0, cuMemRelease(handle));
    MUST(0, cuArrayDestroy(array));
}

/* Blocks that the end of a context releases. */
static void ended_context(void)
{
    CUdeviceptr block;

    prog_context(0);
    for (int i = 0; i < 3; i++)
        MUST(0, cuMemAlloc(&block, MIB << (2 * i)));
    MUST(0, cuMemAlloc(&block, 600));
    MUST(0, cuDevicePrimaryCtxReset(0));
}

static void refused(void)
{
    CUdeviceptr block;

    prog_context(0);
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&block, (size_t)3 << 30));
}

/* What the limit allows, but not the driver. */
static void refused_by_driver(void)
{
    CUdeviceptr block;

    prog_context(0);
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&block, 64 * MIB));
}

/* What the limit allows, on a card of 2 GiB of which another process has more than half. */
static void refused_by_card(void)
{
    CUdeviceptr block;
    int ready[2], done[2];
    char byte = 0;

    MUST(0, pipe(ready));
    MUST(0, pipe(done));
    const pid_t child = fork();
    if (child == 0) {
        close(done[1]);
        prog_context(0);
        MUST(0, cuMemAlloc(&block, 1200 * MIB));
        MUST(1, write(ready[1], &byte, 1));
        MUST(0, read(done[0], &byte, 1));
        _exit(0);
    }
    MUST(1, read(ready[0], &byte, 1));
    prog_context(0);
    MUST(0, cuMemAlloc(&block, 100 * MIB));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&block, 900 * MIB));
    close(done[1]);
    MUST(child, waitpid(child, NULL, 0));
}

/* Blocks of the pool and of the driver's pools, all live at once. */
static void steps(void)
{
    CUdeviceptr block;

    prog_context(0);
    MUST(0, cuMemAlloc(&block, 300 * MIB));
    MUST(0, cuMemAllocAsync(&block, 100 * MIB, CU_STREAM_PER_THREAD));
}

/* ---- threads ---- */

#define THREADS 3
#define PAIRS   200

static void *work(void *context)
{
    CUdeviceptr block;

    MUST(0, cuCtxSetCurrent(context));
    for (size_t i = 0; i < PAIRS; i++) {
        MUST(0, cuMemAlloc(&block, 512 + 4096 * (i % 7)));
        MUST(0, cuMemFree(block));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    CUcontext context = prog_context(0);

    for (int i = 0; i < THREADS; i++)
        MUST(0, pthread_create(&all[i], NULL, work, context));
    for (int i = 0; i < THREADS; i++)
        MUST(0, pthread_join(all[i], NULL));
    printf("%d\n", THREADS * PAIRS);
}

/* Half of the memory is idle, in pieces that no chunk consists of: what does not fit into one is refused. */
static void in_pieces(void)
{
    enum { MOST = 2048 };
    static CUdeviceptr pieces[MOST];
    CUdeviceptr large;
    int count = 0;

    prog_context(0);
    while (count < MOST && cuMemAlloc(&pieces[count], MIB + MIB / 2) == CUDA_SUCCESS)
        count++;
    MUST(true, count > 100 && count < MOST);
    for (int i = 0; i < count; i += 2)
        MUST(0, cuMemFree(pieces[i]));
    MUST(2, cuMemAlloc(&large, (size_t)count / 4 * MIB));
}

/* ---- how it ends ---- */

/* Dies as soon as something was flushed. */
static void killed(void)
{
    const char *path = getenv("GPUCAP_RECORD");
    struct stat file = {.st_size = 0};
    CUdeviceptr block;

    prog_context(0);
    while (stat(path, &file) || file.st_size <= (off_t)sizeof(struct recording_head)) {
        MUST(0, cuMemAlloc(&block, MIB));
        MUST(0, cuMemFree(block));
        usleep(1000);
    }
    raise(SIGKILL);
}

/* A child from before CUDA, which can use it, and one from after. */
static void forks(void)
{
    CUdeviceptr block;
    int status;
    pid_t child = fork();

    prog_context(0);
    MUST(0, cuMemAlloc(&block, MIB));
    if (child) {
        MUST(child, waitpid(child, &status, 0));
        MUST(0, status);
        child = fork(); /* cannot use CUDA any more */
        if (child == 0)
            _exit(cuMemAlloc(&block, MIB) == CUDA_SUCCESS);
        MUST(child, waitpid(child, &status, 0));
        MUST(0, status);
    }
    MUST(0, cuMemFree(block));
}

/* ---- while it runs ---- */

/* Runs the command on this process; its output is ours. */
static int command(const char *words)
{
    char line[1024];

    fflush(stdout);
    snprintf(line, sizeof(line), "exec \"%s/gpucap\" %s", getenv("GPUCAP_BUILD"), words);
    const int status = system(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int command_on_me(const char *words, const char *more)
{
    char line[512];

    snprintf(line, sizeof(line), "%s%ld %s", words, (long)getpid(), more);
    return command(line);
}

static int command_on_file(const char *words)
{
    char line[512];

    snprintf(line, sizeof(line), "%s%s", words, getenv("GPUCAP_RECORD"));
    return command(line);
}

static const struct gpucap_owner *find_owner(const struct gpucap_owner *list, size_t count, const char *kind,
                                             const char *tag)
{
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(list[i].kind, kind) && !strcmp(list[i].tag, tag))
            return &list[i];
    }
    printf("no %s\n", kind);
    exit(1);
}

/* What gpucap_owners tells adds up to what the driver counts. */
static void check_owners(uint64_t tagged, uint64_t plain)
{
    struct gpucap_owner list[32];
    struct gpucap_stats stats;
    size_t count = 1;
    uint64_t sum = 0;

    MUST(0, gpucap_owners(0, list, sizeof(*list), &count));
    MUST(true, count > 1 && count < 32);
    MUST(0, gpucap_owners(0, list, sizeof(*list), &count));
    for (size_t i = 0; i < count; i++)
        sum += list[i].bytes;
    MUST(tagged, find_owner(list, count, "malloc", "weights")->bytes);
    MUST(plain, find_owner(list, count, "malloc", "")->bytes);
    MUST(0, gpucap_stats(0, &stats, sizeof(stats)));
    MUST(stats.used, sum);
    MUST(true, find_owner(list, count, "context", "")->bytes == 128 * MIB);
}

static void by_command(void)
{
    char to[256];
    CUdeviceptr early, small, late;
    size_t count = 0;

    snprintf(to, sizeof(to), "--to=%s", getenv("TEST_RECORDING"));
    prog_context(0);
    gpucap_tag("weights");
    MUST(0, cuMemAlloc(&early, 3 * MIB));
    say(RECORDING_MALLOC, early, 3 * MIB);
    gpucap_tag(NULL);
    MUST(0, cuMemAlloc(&small, 700));
    say(RECORDING_MALLOC, small, 700);
    MUST(-1, gpucap_owners(0, NULL, 0, &count));
    MUST(1, command_on_me("ps --owners=", ""));
    MUST(1, command_on_me("record stop ", ""));
    MUST(0, command_on_me("record start ", to));
    MUST(1, command_on_me("record start ", to));
    MUST(0, cuMemAlloc(&late, 5 * MIB));
    say(RECORDING_MALLOC, late, 5 * MIB);
    check_owners(3 * MIB, 5 * MIB + 700);
    MUST(0, command_on_me("ps --owners=", ""));
    MUST(0, command_on_me("ps --owners=", "--bytes"));
    MUST(125, command("ps --bytes"));
    MUST(0, cuMemFree(early));
    MUST(0, command_on_me("record stop ", ""));
    MUST(0, cuMemFree(late));
}

static uint64_t owned_by(const char *owner, const char *kind)
{
    struct gpucap_owner list[32];
    size_t count = 32;

    MUST(0, gpucap_owners(0, list, sizeof(*list), &count));
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(list[i].owner, owner) && !strcmp(list[i].kind, kind))
            return list[i].bytes;
    }
    return 0;
}

/* The driver's own pool keeps what is freed, and gives it back when it is told to. */
static void drivers_pool(void)
{
    cuuint64_t all = UINT64_MAX;
    CUmemoryPool pool;
    CUdeviceptr first, second;

    prog_context(0);
    MUST(0, cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(0, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    MUST(0, cuMemAllocAsync(&first, 64 * MIB, NULL));
    MUST(0, cuMemAllocAsync(&second, 32 * MIB, NULL));
    MUST(0, owned_by("driver", "idle"));
    MUST(128 * MIB, owned_by("driver", "context"));
    MUST(0, cuMemFreeAsync(first, NULL));
    MUST(0, cuCtxSynchronize());
    MUST(64 * MIB, owned_by("driver", "idle"));
    MUST(128 * MIB, owned_by("driver", "context"));
    MUST(0, command_on_me("ps --owners=", ""));
    MUST(0, cuMemPoolTrimTo(pool, 0));
    MUST(0, cuMemFreeAsync(second, NULL));
    MUST(0, cuCtxSynchronize());
    MUST(32 * MIB, owned_by("driver", "idle"));
    MUST(128 * MIB, owned_by("driver", "context"));
}

/* Every other one of blocks that share chunks is freed: 300 MiB idle that no request of more than a block can
 * have. Then the command explains the refusal, from the ledger and from the recording. */
static void apart(void)
{
    static CUdeviceptr blocks[400];
    CUdeviceptr more;

    prog_context(0);
    for (int i = 0; i < 400; i++)
        MUST(0, cuMemAlloc(&blocks[i], 3 * MIB / 2));
    for (int i = 0; i < 400; i += 2)
        MUST(0, cuMemFree(blocks[i]));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 512 * MIB));
    MUST(0, command_on_me("why ", ""));
    MUST(0, command_on_me("record stop ", ""));
    MUST(0, command_on_file("why "));
}

/* ---- who asked ---- */

static void owners(void)
{
    void *block;

    MUST(0, cudaMalloc(&block, MIB));
    say(RECORDING_MALLOC, (uintptr_t)block, MIB);
    for (int i = 0; i < 3; i++) {
        MUST(0, owner_shared_take(&block, 2 * MIB));
        say(RECORDING_MALLOC, (uintptr_t)block, 2 * MIB);
        MUST(0, owner_shared_take_deep(&block, 2 * MIB));
        say(RECORDING_MALLOC, (uintptr_t)block, 2 * MIB);
        MUST(0, owner_static_take(&block, 4 * MIB));
        say(RECORDING_MALLOC, (uintptr_t)block, 4 * MIB);
        MUST(0, cudaMalloc(&block, MIB));
        say(RECORDING_MALLOC, (uintptr_t)block, MIB);
    }
}

__attribute__((noinline)) static CUresult inner(CUdeviceptr *block)
{
    const CUresult result = cuMemAlloc(block, MIB);

    __asm__ volatile("" ::: "memory"); /* not a tail call */
    return result;
}

__attribute__((noinline)) static CUresult middle(CUdeviceptr *block)
{
    const CUresult result = inner(block);

    __asm__ volatile("" ::: "memory");
    return result;
}

static void stacks(void)
{
    CUdeviceptr block;

    prog_context(0);
    for (volatile int i = 0; i < 2; i++)
        MUST(0, middle(&block));
    MUST(0, inner(&block));
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"kinds", kinds},
        {"ended_context", ended_context},
        {"refused", refused},
        {"threads", threads},
        {"refused_by_driver", refused_by_driver},
        {"refused_by_card", refused_by_card},
        {"steps", steps},
        {"in_pieces", in_pieces},
        {"killed", killed},
        {"forks", forks},
        {"owners", owners},
        {"stacks", stacks},
        {"by_command", by_command},
        {"apart", apart},
        {"drivers_pool", drivers_pool},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
