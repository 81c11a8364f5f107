/* prog_rare: calls that few programs make: mappings of their own that outlive their handle, mapping calls on
 * plain blocks, a card full of freed memory, pools of host memory, compressed arrays, and a second stream
 * that is used from a green context, from a thread without a context or after another context was made. See
 * prog_check.h. */
#include "prog_check.h"

#include <pthread.h>
#include <unistd.h>

#include "tools/simgpu/simgpu.h"

/* Only simgpu has these. */
#pragma weak simgpu_most_used
#pragma weak simgpu_reset_calls
#pragma weak simgpu_set_fault
#pragma weak simgpu_used

#define UNIT   (16 * MIB)
#define PIECE  (64 * MIB)
#define UNITS  256 /* more than fit */
#define ROUNDS 4

static const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc both = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUcontext primary;
static CUstream first, second;

static void begin(void)
{
    primary = prog_context(0);
    MUST(0, cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
}

static size_t told_free(void)
{
    size_t bytes = 0, total;

    MUST(0, cuMemGetInfo(&bytes, &total));
    return bytes;
}

/* ---- the second stream ---- */

static CUdeviceptr block;

static void be_late(void *unused)
{
    (void)unused;
    usleep(50000);
}

/* Gets a block whose bytes the first stream may still write. */
static void reuse_early(void)
{
    CUdeviceptr before;

    MUST(0, cuMemAlloc(&before, UNIT));
    MUST(0, cuLaunchHostFunc(first, be_late, NULL));
    MUST(0, cuMemsetD8Async(before, 1, UNIT, first));
    MUST(0, cuMemFree(before));
    MUST(0, cuMemAlloc(&block, UNIT));
}

static void check_block(void)
{
    MUST(0, cuCtxSetCurrent(primary));
    MUST(0, cuCtxSynchronize());
    MUST(0, prog_wrong(block, 2, UNIT));
}

/* The second stream is a green context's, which is current. */
static void green_second(void)
{
    CUgreenCtx green;
    CUcontext partial;
    CUstream stream;

    begin();
    green = prog_green();
    MUST(0, cuCtxFromGreenCtx(&partial, green));
    MUST(0, cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    reuse_early();
    MUST(0, cuCtxSetCurrent(partial));
    MUST(0, cuMemsetD8Async(block, 2, UNIT, stream));
    check_block();
}

/* Where the driver wants a context for this, the work follows from the main thread. */
static void *fill_without_context(void *filled)
{
    *(bool *)filled = cuMemsetD8Async(block, 2, UNIT, second) == CUDA_SUCCESS;
    return NULL;
}

static void bare_second(void)
{
    bool filled = false;
    pthread_t thread;

    begin();
    reuse_early();
    MUST(0, pthread_create(&thread, NULL, fill_without_context, &filled));
    MUST(0, pthread_join(thread, NULL));
    if (!filled)
        MUST(0, cuMemsetD8Async(block, 2, UNIT, second));
    check_block();
}

/* Another context allocates in between. */
static void context_second(void)
{
    CUcontext other;
    CUdeviceptr elsewhere;

    begin();
    reuse_early();
    MUST(0, cuCtxCreate(&other, NULL, 0, 0));
    MUST(0, cuMemAlloc(&elsewhere, UNIT));
    MUST(0, cuCtxSetCurrent(primary));
    MUST(0, cuMemsetD8Async(block, 2, UNIT, second));
    check_block();
    MUST(0, cuCtxDestroy(other));
}

/* A block is freed in the order of another context's stream, which still writes to it. */
static void freed_in_another_context(void)
{
    CUcontext other;
    CUdeviceptr before;
    CUstream stream;

    begin();
    MUST(0, cuMemAlloc(&before, UNIT));
    MUST(0, cuCtxCreate(&other, NULL, 0, 0));
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuLaunchHostFunc(stream, be_late, NULL));
    MUST(0, cuMemsetD8Async(before, 1, UNIT, stream));
    MUST(0, cuMemFreeAsync(before, stream));
    MUST(0, cuCtxSetCurrent(primary));
    MUST(0, cuMemAlloc(&block, UNIT));
    MUST(0, cuMemsetD8Async(block, 2, UNIT, first));
    MUST(0, cuStreamSynchronize(first));
    MUST(0, cuStreamSynchronize(stream));
    check_block();
    MUST(0, cuCtxDestroy(other));
}

/* ---- mappings ---- */

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr space;

    MUST(0, cuMemAddressReserve(&space, bytes, 0, 0, 0));
    return space;
}

static void map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle)
{
    MUST(0, cuMemMap(at, bytes, 0, handle, 0));
    MUST(0, cuMemSetAccess(at, bytes, &both, 1));
}

/* Each handle is released as soon as it is mapped. */
static void mapped_then_released(void)
{
    CUmemGenericAllocationHandle handle;
    size_t free_bytes, total, count = 0;

    begin();
    const CUdeviceptr space = reserve(UNITS * UNIT);
    MUST(0, cuMemGetInfo(&free_bytes, &total));
    for (; count < UNITS && cuMemCreate(&handle, UNIT, &on_card, 0) == CUDA_SUCCESS; count++) {
        map(space + count * UNIT, UNIT, handle);
        MUST(0, cuMemRelease(handle));
    }
    MUST(true, count > 0 && count < UNITS);
    if (simgpu_most_used)
        MUST(true, simgpu_most_used(0) <= total);
    MUST(0, cuMemUnmap(space, count * UNIT));
    MUST(true, told_free() + MIB > free_bytes);
    for (size_t i = count; i > 0; i--) { /* downwards */
        MUST(0, cuMemCreate(&handle, UNIT, &on_card, 0));
        map(space + (i - 1) * UNIT, UNIT, handle);
        MUST(0, cuMemRelease(handle));
    }
    MUST(0, cuMemUnmap(space + UNIT, UNIT)); /* one of them, then those around it */
    MUST(true, told_free() < free_bytes - UNIT);
    MUST(0, cuMemUnmap(space, count * UNIT));
    MUST(true, told_free() + MIB > free_bytes);
}

/* Memory is there as long as a hold or a mapping is. */
static void mapped_and_held(void)
{
    CUmemGenericAllocationHandle handle, again;
    begin();
    const CUdeviceptr space = reserve(2 * PIECE);
    const size_t before = told_free(), with = before - PIECE;

    MUST(0, cuMemCreate(&handle, PIECE, &on_card, 0));
    map(space, PIECE, handle);
    map(space + PIECE, PIECE, handle);
    MUST(0, cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)space));
    MUST(true, again == handle);
    MUST(0, cuMemRelease(handle));
    MUST(with, told_free());
    MUST(0, cuMemRelease(handle));
    MUST(with, told_free());
    MUST(0, cuMemUnmap(space, PIECE));
    MUST(with, told_free());
    MUST(0, cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(space + PIECE)));
    MUST(0, cuMemUnmap(space + PIECE, PIECE));
    MUST(with, told_free());
    MUST(0, cuMemRelease(again));
    MUST(before, told_free());
    MUST(0, cuMemCreate(&handle, PIECE, &on_card, 0));
    map(space, PIECE, handle);
    MUST(0, cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)space));
    MUST(0, cuMemUnmap(space, PIECE));
    MUST(0, cuMemRelease(handle));
    MUST(with, told_free()); /* one hold is left, and no mapping */
    MUST(0, cuMemRelease(again));
    MUST(before, told_free());
    MUST(0, cuMemAddressFree(space, 2 * PIECE));
}

/* A block of cuMemAlloc is no mapping. */
static void not_mappings(void)
{
    const CUmemAccessDesc none = {.location = both.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUmemGenericAllocationHandle handle;

    begin();
    MUST(0, cuMemAlloc(&block, UNIT));
    prog_fill(block, 7, UNIT);
    const CUdeviceptr start = block / (2 * MIB) * (2 * MIB);
    MUST(0, cuMemCreate(&handle, UNIT, &on_card, 0));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(start, UNIT, &none, 1));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemMap(start, UNIT, 0, handle, 0));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(start, UNIT));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(start, 2 * MIB));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(start, UNIT));
    MUST(0, prog_wrong(block, 7, UNIT));
    MUST(0, cuMemFree(block));
    MUST(0, cuMemRelease(handle));
}

/* ---- a card full of what was freed ---- */

static void fill_and_free(void)
{
    static CUdeviceptr taken[UNITS];
    size_t count = 0;

    while (count < UNITS && cuMemAlloc(&taken[count], UNIT) == CUDA_SUCCESS)
        count++;
    for (size_t i = 0; i < count; i++)
        MUST(0, cuMemFree(taken[i]));
}

/* 2 KiB of local memory a thread: on simgpu the context grows by 264 MiB. */
static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .entry fill_u32(.param .u64 a, .param .u32 v, .param .u64 n)\n"
                            "{ .local .align 16 .b8 depot[2048]; ret; }\n";

static CUfunction load(void)
{
    CUfunction function;
    CUmodule module;

    MUST(0, cuModuleLoadData(&module, image));
    MUST(0, cuModuleGetFunction(&function, module, "fill_u32"));
    return function;
}

static CUresult launch(CUfunction function)
{
    static CUdeviceptr none;
    static unsigned int value;
    static unsigned long long count;

    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, first, (void *[]){&none, &value, &count}, NULL);
}

/* The driver gets the memory for a kernel's stack, and for code that it loads late. */
static void stack_on_a_full_card(void)
{
    begin();
    const CUfunction function = load();
    fill_and_free();
    MUST(0, launch(function));
    MUST(0, cuStreamSynchronize(first));
    fill_and_free();
    MUST(0, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
}

/* simgpu refuses the first call of each, as a full card does: not natively. */
static void code_on_a_full_card(void)
{
    CUgraphExec exec;
    CUgraph graph;
    CUevent event;

    begin();
    fill_and_free();
    simgpu_reset_calls();
    MUST(0, simgpu_set_fault("cuModuleGetFunction:1=2,cuEventCreate:1=2,cuGraphInstantiateWithFlags:1=2"));
    MUST(0, cuEventCreate(&event, 0));
    fill_and_free();
    load();
    fill_and_free();
    MUST(0, cuGraphCreate(&graph, 0));
    MUST(0, cuGraphInstantiate(&exec, graph, 0));
}

/* Returns what simgpu says that this process holds; 0 on another driver. */
static unsigned long long held(void)
{
    return simgpu_used ? simgpu_used(0) : 0;
}

/* What could not be met anyway does not cost the program its idle memory. */
static void idle_is_kept_from_the_impossible(void)
{
    CUmemGenericAllocationHandle handle;
    size_t pitch;

    begin();
    MUST(0, cuMemAlloc(&block, PIECE));
    MUST(0, cuMemFree(block));
    const unsigned long long before = held();
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&block, 4096 * MIB));
    MUST(before, held());
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 4096 * MIB, &on_card, 0));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch(&block, &pitch, MIB, 4096, 4));
    MUST(before, held());
}

/* With decay=0. */
static void freed_at_once(void)
{
    begin();
    const unsigned long long before = held();
    MUST(0, cuMemAlloc(&block, PIECE));
    MUST(0, cuMemFree(block));
    MUST(before, held());
}

/* With zero=on, the fill of a new block fails. */
static void fill_fails(void)
{
    begin();
    MUST(0, cuMemAlloc(&block, PIECE)); /* has made the stream for fills */
    MUST(0, cuMemFree(block));
    const size_t before = told_free();
    simgpu_reset_calls();
    MUST(0, simgpu_set_fault("cuMemsetD8Async:1=719"));
    MUST(719, cuMemAlloc(&block, PIECE));
    MUST(0, block);
    MUST(before, told_free());
}

/* With zero=on, a green context is current at the first allocation, and then ends. */
static void filled_after_a_green_context(void)
{
    CUcontext partial;

    begin();
    CUgreenCtx green = prog_green();
    MUST(0, cuCtxFromGreenCtx(&partial, green));
    MUST(0, cuCtxPushCurrent(partial));
    MUST(0, cuMemAlloc(&block, PIECE));
    MUST(0, cuCtxPopCurrent(&partial));
    MUST(0, cuGreenCtxDestroy(green));
    prog_fill(block, 0x5a, PIECE);
    MUST(0, cuMemFree(block));
    MUST(0, cuMemAlloc(&block, PIECE));
    MUST(0, prog_wrong(block, 0, PIECE));
}

/* Memory that was taken while a green context was current ends with the primary context behind it. */
static void taken_in_a_green_context(void)
{
    CUcontext partial;

    for (int i = 0; i < 6; i++) {
        prog_context(0);
        CUgreenCtx green = prog_green();
        MUST(0, cuCtxFromGreenCtx(&partial, green));
        MUST(0, cuCtxPushCurrent(partial));
        MUST(0, cuMemAllocManaged(&block, 256 * MIB, CU_MEM_ATTACH_GLOBAL));
        MUST(0, cuCtxPopCurrent(&partial));
        MUST(0, cuGreenCtxDestroy(green));
        MUST(0, cuDevicePrimaryCtxReset(0));
    }
}

/* ---- contexts ---- */

/* Code that was loaded while a green context was current ends with the primary context behind it. */
static void grown_in_a_green_context(void)
{
    size_t before = 0;

    for (int i = 0; i < 3; i++) {
        CUcontext partial;

        prog_context(0);
        before = before ? before : told_free();
        MUST(before, told_free());
        CUgreenCtx green = prog_green();
        MUST(0, cuCtxFromGreenCtx(&partial, green));
        MUST(0, cuCtxPushCurrent(partial));
        load();
        MUST(0, cuCtxPopCurrent(&partial));
        MUST(0, cuGreenCtxDestroy(green));
        MUST(0, cuDevicePrimaryCtxReset(0));
    }
}

/* Each context counts once while it lives, whichever ends first. */
static void contexts_overlap(void)
{
    CUcontext older, newer;

    MUST(0, cuInit(0));
    MUST(0, cuCtxCreate(&older, NULL, 0, 0));
    const size_t with_one = told_free();
    for (int i = 0; i < 4; i++) {
        MUST(0, cuCtxCreate(&newer, NULL, 0, 0));
        MUST(true, told_free() < with_one);
        MUST(0, cuCtxDestroy(older));
        MUST(with_one, told_free());
        older = newer;
    }
}

/* A heap counts by its largest size in a context, however often that is set; each context has its own. */
static void heap_set_again(void)
{
    size_t with_heap = 0;

    for (int i = 0; i < 2; i++) {
        prog_context(0);
        for (int again = 0; again < 3; again++) {
            MUST(0, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, PIECE));
            with_heap = with_heap ? with_heap : told_free();
            MUST(with_heap, told_free());
            MUST(0, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, UNIT));
        }
        MUST(0, cuDevicePrimaryCtxReset(0));
    }
}

/* The driver takes whole pages for the stacks of each context. */
static void stacks_in_pages(void)
{
    CUcontext context;

    begin();
    MUST(0, cuCtxCreate(&context, NULL, 0, 0));
    const size_t before = told_free();
    const unsigned long long held_before = held();
    MUST(0, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1032)); /* a little more than a page */
    MUST(0, cuCtxSetCurrent(primary));
    MUST(0, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1032));
    MUST(true, before - told_free() >= held() - held_before);
}

/* A primary context that does not fit ends, also if the program has retained it before a reset. */
static void refused_after_a_reset(void)
{
    CUmemGenericAllocationHandle handle;
    size_t count = 0;

    prog_context(0);
    MUST(0, cuDevicePrimaryCtxReset(0));
    while (count < UNITS && cuMemCreate(&handle, UNIT, &on_card, 0) == CUDA_SUCCESS)
        count++;
    const unsigned long long before = held();
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(before, held());
}

/* ---- pools and arrays ---- */

/* Far more host memory than a cap allows, and then memory of the card. */
static void host_pool(void)
{
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
    CUmemoryPool pool;
    CUdeviceptr piece;

    begin();
    MUST(0, cuMemGetDefaultMemPool(&pool, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    MUST(0, cuMemAllocFromPoolAsync(&piece, 1536 * MIB, pool, first));
    MUST(0, cuStreamSynchronize(first));
    MUST(0, cuMemAllocAsync(&piece, 512 * MIB, first));
    MUST(0, cuMemFreeAsync(piece, first));
    MUST(0, cuMemGetMemPool(&pool, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    MUST(0, cuMemAllocFromPoolAsync(&piece, PIECE, pool, first));
    MUST(0, cuStreamSynchronize(first));
}

static void many_pools(void)
{
    CUmemoryPool pools[100];
    CUdeviceptr piece;

    begin();
    for (int i = 0; i < 100; i++) {
        pools[i] = prog_pool(0);
        MUST(0, cuMemAllocFromPoolAsync(&piece, MIB, pools[i], first));
        MUST(0, cuMemFreeAsync(piece, first));
        MUST(0, cuStreamSynchronize(first));
    }
    for (int i = 0; i < 100; i++)
        MUST(0, cuMemPoolDestroy(pools[i]));
}

/* An array is not taken for many times its size. simgpu has no such formats. */
static void compressed(void)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = 16384, .Height = 16384, .Format = CU_AD_FORMAT_BC7_UNORM, .NumChannels = 4};
    CUarray array;

    begin();
    CUresult result = cuArray3DCreate(&array, &d);
    MUST(true, result != CUDA_ERROR_OUT_OF_MEMORY);
    if (result == CUDA_SUCCESS)
        MUST(0, cuArrayDestroy(array));
    d.Width = 8192;
    d.Format = CU_AD_FORMAT_UNORM_INT8X4; /* 512 MiB */
    result = cuArray3DCreate(&array, &d);
    MUST(true, result != CUDA_ERROR_OUT_OF_MEMORY);
}

/* The smaller copies of an array count as well: 768 MiB take a GiB. */
static void levels(void)
{
    const CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = 16384, .Height = 12288, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUmipmappedArray array;
    size_t free_bytes, total;

    begin();
    MUST(0, cuMemGetInfo(&free_bytes, &total));
    (void)cuMipmappedArrayCreate(&array, &d, 8);
    MUST(true, held() <= total);
}

/* Handles need no context. NVML does not list a process that has none, and they count all the same. */
static void handles_without_a_context(void)
{
    CUmemGenericAllocationHandle handles[UNITS];
    size_t count = 0, room, total;
    CUdevice device;

    begin();
    MUST(0, cuMemGetInfo(&room, &total));
    MUST(0, cuDeviceGet(&device, 0));
    MUST(0, cuMemCreate(&handles[count++], PIECE, &on_card, 0));
    MUST(0, cuDevicePrimaryCtxRelease(device));
    while (count < UNITS && cuMemCreate(&handles[count], PIECE, &on_card, 0) == CUDA_SUCCESS)
        count++;
    MUST(true, count * PIECE <= total && (count + 1) * PIECE > room);
    while (count > 0)
        MUST(0, cuMemRelease(handles[--count]));
    prog_context(0);
    MUST(true, told_free() >= room); /* the two streams are gone */
}

static void use_handles_alone(void)
{
    CUmemGenericAllocationHandle handle;

    MUST(0, cuInit(0));
    MUST(0, cuMemCreate(&handle, 10 * PIECE, &on_card, 0));
    MUST(0, cuMemRelease(handle));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 10 * PIECE + 1, &on_card, 0));
    MUST(0, cuMemCreate(&handle, PIECE, &on_card, 0));
    prog_signal();
    prog_await();
}

/* What a process of the job released, which never had a context, is free for the others, and so is what it
 * could have taken beside what it holds. */
static void neighbour_without_a_context(void)
{
    if (prog_is_other()) {
        use_handles_alone();
        return;
    }
    const pid_t other = prog_start(false);
    prog_await();
    begin();
    MUST(0, cuMemAlloc(&block, told_free() / PIECE * PIECE));
    prog_signal();
    prog_join(other);
}

/* A pool may be destroyed before its blocks are freed. The driver keeps their memory, and no pool tells of it
 * any more. Takes all there is in such blocks. Only once per program: a driver (580.159.04, on an H200)
 * divides by zero where a new pool is asked after all blocks of destroyed ones were freed. */
static size_t take_from_destroyed_pools(CUdeviceptr *blocks)
{
    CUresult result = CUDA_SUCCESS;
    size_t count = 0, room, total;

    while (count < UNITS && result == CUDA_SUCCESS) {
        CUmemoryPool pool = prog_pool(0);
        result = cuMemAllocFromPoolAsync(&blocks[count], PIECE, pool, first);
        count += result == CUDA_SUCCESS;
        MUST(0, cuMemPoolDestroy(pool));
    }
    MUST(CUDA_ERROR_OUT_OF_MEMORY, result);
    MUST(0, cuMemGetInfo(&room, &total));
    MUST(true, count > 0 && held() <= total);
    return count;
}

static void free_all(const CUdeviceptr *blocks, size_t count, CUstream stream)
{
    for (size_t i = 0; i < count; i++)
        MUST(0, cuMemFreeAsync(blocks[i], stream));
    MUST(0, cuCtxSynchronize());
}

static void pools_destroyed_in_use(void)
{
    CUdeviceptr blocks[UNITS];

    begin();
    const size_t room = told_free();
    free_all(blocks, take_from_destroyed_pools(blocks), first);
    MUST(true, told_free() >= room);
    MUST(0, cuMemAlloc(&block, room / PIECE * PIECE));
}

/* Blocks of a pool outlive the context, also if the pool is destroyed. */
static void pools_destroyed_before_a_context_ends(void)
{
    CUdeviceptr blocks[UNITS];
    CUdevice device;

    begin();
    const size_t room = told_free(), count = take_from_destroyed_pools(blocks);
    MUST(0, cuDeviceGet(&device, 0));
    MUST(0, cuDevicePrimaryCtxRelease(device));
    prog_context(0);
    MUST(true, told_free() < room / 2);
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&block, room / PIECE * PIECE));
    free_all(blocks, count, NULL);
    MUST(true, told_free() >= room);
    MUST(0, cuMemAlloc(&block, room / PIECE * PIECE));
}

/* The memory of a pool with frees that no stream has reached yet goes back by itself. */
static void pools_destroyed_behind_frees(void)
{
    begin();
    const size_t room = told_free();
    for (int i = 0; i < ROUNDS; i++) {
        CUmemoryPool pool = prog_pool(0);
        MUST(0, cuMemAllocFromPoolAsync(&block, PIECE, pool, first));
        MUST(0, cuMemsetD8Async(block, i, PIECE, first));
        MUST(0, cuMemFreeAsync(block, first));
        MUST(0, cuMemPoolDestroy(pool));
        MUST(0, cuCtxSynchronize());
    }
    MUST(true, told_free() >= room);
}

/* A pool that keeps what is freed, and whose blocks are freed with cuMemFree. */
static void kept_and_freed_at_once(void)
{
    cuuint64_t most = UINT64_MAX;
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool;
    CUdevice device;

    begin();
    MUST(0, cuDeviceGet(&device, 0));
    MUST(0, cuDeviceGetDefaultMemPool(&pool, device));
    MUST(0, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
    const size_t part = told_free() / 5 * 4 / PIECE * PIECE;
    for (int i = 0; i < ROUNDS; i++) {
        MUST(0, cuMemAllocAsync(&block, part, first));
        MUST(0, cuStreamSynchronize(first));
        MUST(0, cuMemFree(block));
        MUST(0, cuMemCreate(&handle, part, &on_card, 0));
        MUST(0, cuMemRelease(handle));
    }
    MUST(0, cuMemAllocAsync(&block, part, first));
    MUST(0, cuMemFree(block));
    MUST(0, cuMemAlloc(&block, part));
}

/* The pool counts what cuMemFree has given it as used, also when it is destroyed. */
static void freed_at_once_before_their_pool_ends(void)
{
    CUdeviceptr small;

    begin();
    const size_t room = told_free();
    CUmemoryPool pool = prog_pool(0);
    MUST(0, cuMemAllocFromPoolAsync(&small, MIB, pool, first));
    MUST(0, cuMemAllocFromPoolAsync(&block, UNIT, pool, first));
    MUST(0, cuStreamSynchronize(first));
    MUST(0, cuMemFree(block));
    MUST(0, cuMemPoolDestroy(pool));
    MUST(0, cuMemFreeAsync(small, first));
    MUST(0, cuCtxSynchronize());
    MUST(true, told_free() >= room);
}

int main(int argc, char **argv)
{
    static const struct prog_scenario scenarios[] = {
        {"green_second", green_second},
        {"bare_second", bare_second},
        {"context_second", context_second},
        {"freed_in_another_context", freed_in_another_context},
        {"idle_is_kept_from_the_impossible", idle_is_kept_from_the_impossible},
        {"freed_at_once", freed_at_once},
        {"fill_fails", fill_fails},
        {"filled_after_a_green_context", filled_after_a_green_context},
        {"taken_in_a_green_context", taken_in_a_green_context},
        {"mapped_then_released", mapped_then_released},
        {"mapped_and_held", mapped_and_held},
        {"contexts_overlap", contexts_overlap},
        {"stacks_in_pages", stacks_in_pages},
        {"refused_after_a_reset", refused_after_a_reset},
        {"heap_set_again", heap_set_again},
        {"grown_in_a_green_context", grown_in_a_green_context},
        {"not_mappings", not_mappings},
        {"stack_on_a_full_card", stack_on_a_full_card},
        {"code_on_a_full_card", code_on_a_full_card},
        {"host_pool", host_pool},
        {"many_pools", many_pools},
        {"compressed", compressed},
        {"levels", levels},
        {"handles_without_a_context", handles_without_a_context},
        {"neighbour_without_a_context", neighbour_without_a_context},
        {"kept_and_freed_at_once", kept_and_freed_at_once},
        {"freed_at_once_before_their_pool_ends", freed_at_once_before_their_pool_ends},
        {"pools_destroyed_in_use", pools_destroyed_in_use},
        {"pools_destroyed_before_a_context_ends", pools_destroyed_before_a_context_ends},
        {"pools_destroyed_behind_frees", pools_destroyed_behind_frees},
    };

    return prog_main(argc, argv, scenarios, sizeof(scenarios) / sizeof(*scenarios));
}
