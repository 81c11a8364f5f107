/* prog_api: programs that use gpucap.h. One scenario per run; see prog_check.h. Runs only under the library.
 */
#include "prog_check.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>

#include "interpose/gpucap.h"
#include "tools/simgpu/simgpu.h"

static struct gpucap_stats stats(void)
{
    struct gpucap_stats s;

    MUST(0, gpucap_stats(0, &s, sizeof(s)));
    return s;
}

static size_t told_free(void)
{
    size_t free_bytes, total;

    MUST(0, cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/* ---- the limit ---- */

/* A lower limit releases cached memory, keeps live blocks, and refuses what does not fit. */
static void lowered(void)
{
    CUdeviceptr live, freed, more;

    prog_context(0);
    MUST(0, cuMemAlloc(&live, 32 * MIB));
    MUST(0, cuMemAlloc(&freed, 512 * MIB));
    prog_fill(live, 7, 32 * MIB);
    MUST(0, cuMemFree(freed));
    const uint64_t used = stats().used;
    MUST(true, stats().cached >= 512 * MIB && used > 256 * MIB);
    MUST(0, gpucap_set_limit(0, 256 * MIB));
    MUST(true, stats().used <= 256 * MIB);
    MUST(true, stats().live == 32 * MIB && stats().limit == 256 * MIB);
    MUST(0, prog_wrong(live, 7, 32 * MIB));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 512 * MIB));
    MUST(0, gpucap_set_limit(0, 64 * MIB)); /* less than what is in use */
    MUST(true, stats().physical == 32 * MIB && stats().live == 32 * MIB);
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 8 * MIB));
    MUST(0, told_free());
    MUST(0, gpucap_set_limit(0, 768 * MIB));
    MUST(0, cuMemAlloc(&more, 256 * MIB));
    MUST(0, prog_wrong(live, 7, 32 * MIB));
}

struct nvml_memory {
    unsigned long long total, free, used;
};

static int (*nvml_memory)(void *card, struct nvml_memory *memory);
static void *card;

static void open_nvml(void)
{
    void *library;

    card = prog_nvml(&library);
    nvml_memory = (int (*)(void *, struct nvml_memory *))dlsym(library, "nvmlDeviceGetMemoryInfo");
}

static void nvml_tells(uint64_t limit)
{
    struct nvml_memory memory;
    size_t free_bytes, total;

    MUST(0, cuMemGetInfo(&free_bytes, &total));
    MUST(limit, total);
    MUST(0, nvml_memory(card, &memory));
    MUST(limit, memory.total);
    MUST(true, memory.used + memory.free <= limit);
}

/* The driver and NVML both report the current limit. */
static void nvml_knows(void)
{
    CUdeviceptr block;

    prog_context(0);
    open_nvml();
    MUST(0, cuMemAlloc(&block, 64 * MIB));
    nvml_tells(1024 * MIB);
    MUST(0, gpucap_set_limit(0, 512 * MIB));
    nvml_tells(512 * MIB);
    MUST(0, gpucap_set_limit(0, 768 * MIB));
    nvml_tells(768 * MIB);
}

/* ---- zero=on ---- */

static void refuses_dirty(const char *script, CUresult expected, size_t bytes)
{
    CUdeviceptr block = 1;
    const uint64_t count = stats().live_count;

    MUST(0, simgpu_set_fault(script));
    MUST(expected, cuMemAlloc(&block, bytes));
    MUST(0, block);
    MUST(0, simgpu_set_fault(NULL));
    MUST(count, stats().live_count);
    MUST(0, cuMemAlloc(&block, bytes));
    MUST(0, prog_wrong(block, 0, bytes));
    prog_fill(block, 9, bytes);
    MUST(0, cuMemFree(block));
}

/* A block that could not be cleared is not handed out, whatever its size. */
static void cleared_or_refused(void)
{
    static const size_t sizes[] = {1000, 100000, 8 * MIB};

    prog_context(0);
    refuses_dirty("cuStreamCreate:*=2", CUDA_ERROR_OUT_OF_MEMORY, 8 * MIB); /* before there is a stream */
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        refuses_dirty("cuMemsetD8Async:*=1", CUDA_ERROR_INVALID_VALUE, sizes[i]);
        refuses_dirty("cuStreamSynchronize:*=999", CUDA_ERROR_UNKNOWN, sizes[i]);
    }
}

/* ---- what is free ---- */

/* Blocks of all kinds are freed behind work of two streams. */
static void free_behind_work(CUstream first, CUstream second)
{
    static const size_t sizes[] = {1000, 100000, 8 * MIB, 64 * MIB};
    enum { SIZES = sizeof(sizes) / sizeof(*sizes) };
    CUdeviceptr blocks[SIZES];

    for (int i = 0; i < SIZES; i++)
        MUST(0, cuMemAlloc(&blocks[i], sizes[i]));
    for (int i = 0; i < SIZES; i++) {
        MUST(0, cuMemsetD8Async(blocks[i], 1, sizes[i] / 2, first));
        MUST(0, cuMemsetD8Async(blocks[i] + sizes[i] / 2, 2, sizes[i] / 2, second));
        MUST(0, cuMemFree(blocks[i]));
    }
}

/* Their bytes are reported as free when the program has waited. */
static void free_when_waited(void)
{
    CUstream first, second;

    prog_context(0);
    MUST(0, cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    const size_t before = told_free();
    free_behind_work(first, second);
    MUST(0, cuCtxSynchronize());
    MUST(before, told_free());
    MUST(0, stats().pending);
}

#ifdef __SANITIZE_THREAD__ /* it looks at every byte that is filled */
#define TIMES_TOLD 6
#else
#define TIMES_TOLD 20
#endif

/* What is reported as free can be allocated, even if work is pending on it; so can the memory that the driver
 * needs for a stream, from what was just freed. */
static void told_can_be_had(void)
{
    CUstream first, second, more;
    CUdeviceptr all;

    prog_context(0);
    MUST(0, cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < TIMES_TOLD; i++) {
        free_behind_work(first, second);
        if (i % 2)
            MUST(0, cuCtxSynchronize());
        const size_t bytes = told_free();
        MUST(0, cuMemAlloc(&all, bytes));
        MUST(0, cuMemsetD8Async(all, 3, MIB, first));
        MUST(0, cuMemsetD8Async(all + MIB, 3, MIB, second));
        MUST(0, cuMemFree(all));
        MUST(0, cuStreamCreate(&more, CU_STREAM_NON_BLOCKING));
        MUST(0, cuStreamDestroy(more));
    }
}

static void be_late(void *unused)
{
    (void)unused;
    usleep(20000);
}

/* With decay=0 the bytes then go back to the driver, without another allocation or free. */
static void given_back_when_waited(void)
{
    CUstream first, second;

    prog_context(0);
    MUST(0, cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    const uint64_t before = stats().used;
    MUST(0, cuLaunchHostFunc(first, be_late, NULL));
    free_behind_work(first, second);
    MUST(0, cuCtxSynchronize());
    MUST(before, stats().used);
    MUST(0, stats().physical);
}

static atomic_bool stream_held;

static void hold(void *unused)
{
    (void)unused;
    while (atomic_load(&stream_held))
        usleep(100);
}

/* A wait that fails says nothing about the work. */
static void failed_wait(void)
{
    CUstream first, second;

    prog_context(0);
    MUST(0, cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    const size_t before = told_free();
    atomic_store(&stream_held, true);
    MUST(0, cuLaunchHostFunc(first, hold, NULL));
    free_behind_work(first, second);
    MUST(0, simgpu_set_fault("cuCtxSynchronize:*=999"));
    MUST(999, cuCtxSynchronize());
    MUST(0, simgpu_set_fault(NULL));
    MUST(true, stats().pending >= 64 * MIB);
    atomic_store(&stream_held, false);
    MUST(0, cuCtxSynchronize());
    MUST(before, told_free());
}

/* The helper thread gives idle memory back. */
static void given_back_in_time(void)
{
    CUdeviceptr block;

    prog_context(0);
    MUST(0, cuMemAlloc(&block, 64 * MIB));
    MUST(0, cuMemFree(block));
    for (int ms = 0; stats().physical && ms < 60000; ms++)
        usleep(1000);
    MUST(0, stats().physical);
}

/* Every second block is free, and a request fits into none of the gaps. */
static uint64_t stitches_for_96_mib(void)
{
    CUdeviceptr blocks[32], large;

    prog_context(0);
    for (int i = 0; i < 32; i++)
        MUST(0, cuMemAlloc(&blocks[i], 8 * MIB));
    for (int i = 0; i < 32; i += 2)
        MUST(0, cuMemFree(blocks[i]));
    MUST(0, cuMemAlloc(&large, 96 * MIB));
    return stats().stitches;
}

/* With much slack a pool grows rather than moving chunks; with little it moves them. */
static void much_slack(void)
{
    MUST(0, stitches_for_96_mib());
}

static void little_slack(void)
{
    MUST(1, stitches_for_96_mib());
}

/* ---- calls that the driver refuses ---- */

/* A context that could not be destroyed lives on: what is idle in it can be given back. */
static void refused_destroy(void)
{
    CUcontext own = prog_context(0), other;
    CUdeviceptr block;
    uint64_t given = 0;

    MUST(0, cuCtxCreate(&other, NULL, 0, 0));
    MUST(0, cuMemAlloc(&block, 64 * MIB));
    MUST(0, cuMemFree(block));
    MUST(0, simgpu_set_fault("cuCtxDestroy_v2:*=999"));
    MUST(999, cuCtxDestroy(other));
    MUST(0, simgpu_set_fault(NULL));
    MUST(0, cuCtxSetCurrent(own));
    MUST(0, gpucap_trim(0, 64 * MIB, &given));
    MUST(64 * MIB, given);
    MUST(0, cuCtxSetCurrent(other));
    MUST(0, cuMemAlloc(&block, 64 * MIB));
    MUST(0, cuCtxDestroy(other));
    MUST(0, stats().physical);
}

/* What a card may do with an address. */
static unsigned long long access_of(CUdeviceptr address, int card_number)
{
    const CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = card_number};
    unsigned long long flags = 77;

    MUST(0, cuMemGetAccess(&flags, &where, address));
    return flags;
}

/* The other card gets no access to the first of two blocks when the second refuses it. */
static void refused_peer(void)
{
    CUcontext first = prog_context(0), second = prog_context(1);
    CUdeviceptr blocks[2];

    for (int i = 0; i < 2; i++)
        MUST(0, cuMemAlloc(&blocks[i], 2 * MIB));
    MUST(0, cuCtxSetCurrent(first));
    simgpu_reset_calls();
    MUST(0, simgpu_set_fault("cuMemSetAccess:2=999"));
    MUST(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(second, 0));
    MUST(0, simgpu_set_fault(NULL));
    for (int i = 0; i < 2; i++)
        MUST(0, access_of(blocks[i], 0));
    MUST(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(second));
    MUST(0, cuCtxEnablePeerAccess(second, 0));
    for (int i = 0; i < 2; i++)
        MUST(3, access_of(blocks[i], 0));
}

/* A request that cannot be met does not release memory that is held for others. */
static void refused_in_vain(void)
{
    CUdeviceptr blocks[16], never;

    prog_context(0);
    for (int i = 0; i < 16; i++)
        MUST(0, cuMemAlloc(&blocks[i], 32 * MIB));
    for (int i = 8; i < 16; i++)
        MUST(0, cuMemFree(blocks[i]));
    const uint64_t held = stats().physical;
    MUST(2, cuMemAlloc(&never, (size_t)4 << 40));
    MUST(2, cuMemAlloc(&never, 800 * MIB));
    MUST(held, stats().physical);
}

/* ---- names ---- */

static uint64_t under(const char *name)
{
    uint64_t live, peak;

    MUST(0, gpucap_tag_stats(name, &live, &peak));
    return live;
}

/* What ends with its context is no longer under its name. */
static void names_end(void)
{
    CUdeviceptr stays, small, large;
    CUcontext own = prog_context(0), other;

    MUST(0, gpucap_tag("weights"));
    MUST(0, cuMemAlloc(&stays, 4 * MIB));
    MUST(0, cuCtxCreate(&other, NULL, 0, 0));
    MUST(0, cuMemAlloc(&large, 8 * MIB));
    MUST(0, cuMemAlloc(&small, 1024));
    MUST(12 * MIB + 1024, under("weights"));
    MUST(0, cuMemAlloc(&large, 2 * MIB));
    MUST(0, cuMemAlloc(&small, 512));
    MUST(0, cuMemFree(large)); /* cached by the thread: no longer under a tag */
    MUST(0, cuMemFree(small));
    MUST(0, cuCtxDestroy(other));
    MUST(4 * MIB, under("weights"));
    MUST(0, cuCtxSetCurrent(own));
    MUST(0, cuMemFree(stays));
    MUST(0, under("weights"));
}

/* ---- calls without an answer ---- */

static void no_answers(void)
{
    struct gpucap_stats s;
    uint64_t given = 1;

    prog_context(0);
    MUST(-1, gpucap_stats(77, &s, sizeof(s)));
    MUST(-1, gpucap_stats(-1, &s, sizeof(s)));
    MUST(-1, gpucap_trim(77, 1, &given));
    MUST(-1, gpucap_trim(0, 1, &given)); /* no pool yet */
    MUST(-1, gpucap_set_limit(77, MIB));
    MUST(-1, gpucap_set_limit(0, 0));
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"lowered", lowered},
        {"nvml_knows", nvml_knows},
        {"cleared_or_refused", cleared_or_refused},
        {"free_when_waited", free_when_waited},
        {"told_can_be_had", told_can_be_had},
        {"given_back_when_waited", given_back_when_waited},
        {"failed_wait", failed_wait},
        {"given_back_in_time", given_back_in_time},
        {"much_slack", much_slack},
        {"little_slack", little_slack},
        {"refused_destroy", refused_destroy},
        {"refused_peer", refused_peer},
        {"refused_in_vain", refused_in_vain},
        {"names_end", names_end},
        {"no_answers", no_answers},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
