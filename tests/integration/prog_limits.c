/* prog_limits: a program that allocates memory in unusual ways: behind a flag, on another
 * card's stream, without a context, by a kernel's stack, by a descriptor, in a green context. It compares
 * what the card itself has given it with what it was told the card has, which a cap makes less. See
 * prog_check.h. */
#include "prog_check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/simgpu/simgpu.h"

/* Only simgpu has these figures. On a real card another process watches the cap. */
#pragma weak simgpu_used
#pragma weak simgpu_most_used
#pragma weak simgpu_reset_calls
#pragma weak simgpu_set_fault

#define STEP    (16 * MIB)
#define ALLOCS  256 /* more than fit */
#define AT_ONCE 10  /* seconds: far more than any answer takes */

static CUstream stream;

static size_t told_total(CUdevice card)
{
    size_t total = 0;

    MUST(0, cuDeviceTotalMem(&total, card));
    return total;
}

static void within(CUdevice card)
{
    if (simgpu_most_used)
        MUST(true, simgpu_most_used(card) <= told_total(card));
}

static size_t told_free(void)
{
    size_t bytes = 0, total;

    MUST(0, cuMemGetInfo(&bytes, &total));
    return bytes;
}

static CUcontext begin(CUdevice card)
{
    CUcontext context = prog_context(card);

    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return context;
}

static const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};

/* ---- behind a flag ---- */

static CUdeviceptr flag;
static CUstream flagger;

/* From now on the stream waits. */
static void wait_for_flag(void)
{
    MUST(0, cuMemAlloc(&flag, 4));
    prog_fill(flag, 0, 4);
    MUST(0, cuStreamCreate(&flagger, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void set_flag(void)
{
    MUST(0, cuStreamWriteValue32(flagger, flag, 1, 0));
    MUST(0, cuStreamSynchronize(stream));
    within(0);
}

static CUgraph graph_of(size_t bytes)
{
    CUdeviceptr inside;
    CUgraph graph;
    CUstream capturing;

    MUST(0, cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuMemAllocAsync(&inside, bytes, capturing));
    MUST(0, cuMemFreeAsync(inside, capturing));
    MUST(0, cuStreamEndCapture(capturing, &graph));
    MUST(0, cuStreamDestroy(capturing));
    return graph;
}

static CUresult launch_of(CUgraph graph)
{
    CUgraphExec exec;
    const CUresult made = cuGraphInstantiate(&exec, graph, 0);

    return made ? made : cuGraphLaunch(exec, stream);
}

/* Asks for more than there is, in every way. */
static void ask_for(size_t bytes, CUgraph graph)
{
    const CUDA_ARRAY_DESCRIPTOR rows = {16384, bytes / 65536 + 1, CU_AD_FORMAT_FLOAT, 1};
    const size_t whole = bytes / (2 * MIB) * (2 * MIB);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;
    CUarray array;
    size_t pitch;

    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&block, bytes, stream));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&block, bytes));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch(&block, &pitch, 65536, bytes / 65536 + 1, 4));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuArrayCreate(&array, &rows));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, whole, &on_card, 0));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, launch_of(graph));
}

/* A request that cannot be met is refused at once, whatever a stream waits for. */
static void behind_a_flag(void)
{
    CUdeviceptr half;
    struct timespec before, after;

    begin(0);
    const size_t total = told_total(0);
    CUgraph never = graph_of(total), not_now = graph_of(total / 4 * 3);
    MUST(0, cuMemAlloc(&half, total / 2));
    wait_for_flag();
    clock_gettime(CLOCK_MONOTONIC, &before);
    ask_for(total, never);
    ask_for(total / 4 * 3, not_now);
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemFree(half + 512)); /* not a block */
    clock_gettime(CLOCK_MONOTONIC, &after);
    MUST(true, after.tv_sec - before.tv_sec < AT_ONCE);
    set_flag();
}

/* The same where memory of the stream-ordered pool and of cuMemAlloc was freed behind the flag, and would not
 * do. */
static void freed_behind_a_flag(void)
{
    CUdeviceptr pooled, block;
    struct timespec before, after;

    begin(0);
    const size_t total = told_total(0);
    CUgraph never = graph_of(total);
    MUST(0, cuMemAllocAsync(&pooled, total / 4, stream));
    MUST(0, cuMemAlloc(&block, total / 4));
    wait_for_flag();
    MUST(0, cuMemFreeAsync(pooled, stream));
    MUST(0, cuMemFreeAsync(block, stream));
    clock_gettime(CLOCK_MONOTONIC, &before);
    ask_for(total, never);
    clock_gettime(CLOCK_MONOTONIC, &after);
    MUST(true, after.tv_sec - before.tv_sec < AT_ONCE);
    set_flag();
}

/* A request that could be met by what was freed behind the flag is answered too: the thread that asks may be
 * the one that would set the flag. */
static void room_behind_a_flag(void)
{
    CUdeviceptr block, more;
    struct timespec before, after;

    begin(0);
    const size_t total = told_total(0);
    MUST(0, cuMemAlloc(&block, total / 2));
    wait_for_flag();
    MUST(0, cuMemFreeAsync(block, stream));
    clock_gettime(CLOCK_MONOTONIC, &before);
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, total / 8 * 5));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&more, total / 8 * 5, flagger));
    clock_gettime(CLOCK_MONOTONIC, &after);
    MUST(true, after.tv_sec - before.tv_sec < AT_ONCE);
    set_flag();
    MUST(0, cuMemAlloc(&more, total / 8 * 5));
}

static atomic_bool let_go, given_up;

static void until_let_go(void *unused)
{
    (void)unused;
    for (int ms = 0; ms < AT_ONCE * 1000 && !atomic_load(&let_go); ms++)
        usleep(1000);
    atomic_store(&given_up, !atomic_load(&let_go));
}

/* What a stream has freed in its order does not wait for work that comes later. */
static void freed_in_order_beside_work(void)
{
    const size_t bytes = 128 * MIB;
    CUdeviceptr block, rest, more;
    CUstream other;

    begin(0);
    MUST(0, cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(0, cuMemAlloc(&block, bytes));
    MUST(0, cuMemAlloc(&rest, told_free() - bytes / 2));
    MUST(0, cuMemsetD8Async(block, 1, MIB, stream));
    MUST(0, cuMemFreeAsync(block, stream));
    MUST(0, cuStreamSynchronize(stream));
    MUST(0, cuLaunchHostFunc(other, until_let_go, NULL));
    MUST(0, cuMemAlloc(&more, bytes));
    MUST(false, atomic_load(&given_up));
    atomic_store(&let_go, true);
    within(0);
}

/* ---- on another card's stream ---- */

/* Takes until it is refused, at least once. */
static void take_all(CUdevice card, CUmemoryPool pool)
{
    CUdeviceptr block;
    CUresult result = CUDA_SUCCESS;
    int count = 0;

    for (; result == CUDA_SUCCESS && count < ALLOCS; count++)
        result = pool ? cuMemAllocFromPoolAsync(&block, STEP, pool, stream)
                      : cuMemAllocAsync(&block, STEP, stream);
    MUST(CUDA_ERROR_OUT_OF_MEMORY, result);
    within(card);
}

/* The second card's stream, and the first one's context. */
static void elsewhere(void)
{
    CUcontext here = prog_context(0);

    begin(1);
    MUST(0, cuCtxSetCurrent(here));
    take_all(1, NULL);
    MUST(true, simgpu_used(1) > 128 * MIB + STEP);
    MUST(true, simgpu_used(0) <= 128 * MIB);
    CUcontext current;
    MUST(0, cuCtxPopCurrent(&current));
    MUST(true, current == here);
    MUST(0, cuCtxGetCurrent(&current));
    MUST(true, current == NULL); /* as it was before */
}

static void *take_without_context(void *unused)
{
    CUcontext current = NULL;
    CUdeviceptr block;

    MUST(0, cuCtxGetCurrent(&current));
    MUST(true, current == NULL);
    MUST(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync(&block, STEP, NULL));
    take_all(1, NULL);
    return unused;
}

static void without_context(void)
{
    pthread_t thread;

    prog_context(0);
    begin(1);
    MUST(0, pthread_create(&thread, NULL, take_without_context, NULL));
    MUST(0, pthread_join(thread, NULL));
}

/* A pool of the second card, on a stream of the first. */
static void pool_elsewhere(void)
{
    prog_context(1);
    begin(0);
    take_all(1, prog_pool(1));
    within(0);
}

/* ---- stacks ---- */

/* 2 KiB of local memory a thread: on simgpu the context grows by 264 MiB. */
static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .entry fill_u32(.param .u64 a, .param .u32 v, .param .u64 n)\n"
                            "{ .local .align 16 .b8 depot[2048]; ret; }\n";

/* The same without. */
static const char small_image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                  ".visible .entry fill_u32(.param .u64 a, .param .u32 v, .param .u64 n)\n"
                                  "{ ret; }\n";

static CUlibrary library;
static CUkernel kernel;

static void load_kernel_of(const char *code)
{
    MUST(0, cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
    MUST(0, cuLibraryGetKernel(&kernel, library, "fill_u32"));
}

static void load_kernel(void)
{
    load_kernel_of(image);
}

/* Leaves less than a kernel's stack needs. */
static void leave_little(void)
{
    CUdeviceptr block;

    while (cuMemAlloc(&block, STEP) == CUDA_SUCCESS)
        continue;
}

static CUresult launch_kernel(CUstream on)
{
    static CUdeviceptr none;
    static unsigned int value;
    static unsigned long long count;
    CUfunction function;

    MUST(0, cuKernelGetFunction(&function, kernel));
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, (void *[]){&none, &value, &count}, NULL);
}

static CUgraph graph_with_kernel(void)
{
    static CUdeviceptr none;
    static unsigned int value;
    static unsigned long long count;
    CUDA_KERNEL_NODE_PARAMS params = {.gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&none, &value, &count}};
    CUgraphNode node;
    CUgraph graph;

    MUST(0, cuKernelGetFunction(&params.func, kernel));
    MUST(0, cuGraphCreate(&graph, 0));
    MUST(0, cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    return graph;
}

/* A kernel whose stack exceeds the cap must be refused, at the instantiation or at the launch. */
static void stack_in_graph(void)
{
    CUgraph graph, parent;
    CUgraphNode child;

    begin(0);
    load_kernel();
    graph = graph_with_kernel();
    MUST(0, cuGraphCreate(&parent, 0));
    MUST(0, cuGraphAddChildGraphNode(&child, parent, NULL, 0, graph));
    leave_little();
    MUST(CUDA_ERROR_OUT_OF_MEMORY, launch_of(graph));
    MUST(CUDA_ERROR_OUT_OF_MEMORY, launch_of(parent));
    within(0);
}

/* Captured, and with room: it runs. */
static void stack_with_room(void)
{
    CUdeviceptr block;
    CUgraph graph;

    begin(0);
    load_kernel();
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, launch_kernel(stream));
    MUST(0, cuStreamEndCapture(stream, &graph));
    MUST(0, launch_of(graph));
    MUST(0, cuStreamSynchronize(stream));
    MUST(0, cuMemAlloc(&block, 4 * STEP));
    MUST(0, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096)); /* grows by the difference, for which there is room */
    leave_little();
    MUST(0, launch_of(graph)); /* the context has grown already */
    MUST(0, launch_kernel(stream));
    MUST(0, cuStreamSynchronize(stream));
    within(0);
}

static void stack_on_second_card(void)
{
    begin(0);
    load_kernel();
    MUST(0, launch_kernel(stream));
    MUST(0, cuStreamSynchronize(stream));
    begin(1);
    leave_little();
    MUST(CUDA_ERROR_OUT_OF_MEMORY, launch_kernel(stream));
    within(1);
}

static void stack_after_reset(void)
{
    begin(0);
    load_kernel();
    MUST(0, launch_kernel(stream));
    MUST(0, cuStreamSynchronize(stream));
    MUST(0, cuDevicePrimaryCtxReset(0));
    begin(0);
    leave_little();
    MUST(CUDA_ERROR_OUT_OF_MEMORY, launch_kernel(stream));
    within(0);
}

/* A kernel may get the handle of one that needed little stack. */
static void stack_with_a_used_handle(void)
{
    begin(0);
    load_kernel_of(small_image);
    MUST(0, launch_kernel(stream));
    MUST(0, cuStreamSynchronize(stream));
    MUST(0, cuLibraryUnload(library));
    load_kernel();
    leave_little();
    MUST(CUDA_ERROR_OUT_OF_MEMORY, launch_kernel(stream));
    within(0);
}

/* A context that has grown stays so when one that was made before it ends. */
static void stack_beside_an_ended_context(void)
{
    CUcontext other;

    MUST(0, cuInit(0));
    MUST(0, cuCtxCreate(&other, NULL, 0, 0));
    begin(0);
    load_kernel();
    MUST(0, launch_kernel(stream));
    MUST(0, cuStreamSynchronize(stream));
    MUST(0, cuCtxDestroy(other));
    leave_little();
    MUST(0, launch_kernel(stream));
    MUST(0, cuStreamSynchronize(stream));
    within(0);
}

/* ---- work that does not run in stream order ---- */

static const char pair_image[] =
    ".version 7.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry late_fill(.param .u64 a, .param .u32 v, .param .u64 n) { ret; }\n"
    ".visible .entry plain_fill(.param .u64 a, .param .u32 v, .param .u64 n) { ret; }\n";

void simgpu_kernel_late_fill(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block);
void simgpu_kernel_plain_fill(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block);

void simgpu_kernel_plain_fill(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    (void)grid, (void)block;
    memset(*(void **)args[0], *(int *)args[1], *(size_t *)args[2]);
}

void simgpu_kernel_late_fill(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    usleep(50000);
    simgpu_kernel_plain_fill(args, grid, block);
}

static void launch_early(CUfunction function, CUdeviceptr block, int value, size_t bytes)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};

    attribute.value.programmaticStreamSerializationAllowed = 1;
    MUST(0, cuLaunchKernelEx(&config, function, (void *[]){&block, &value, &bytes}, NULL));
}

/* A kernel that begins before the one in front of it has ended does not get that one's freed memory. */
static void dependent_launch(void)
{
    size_t bytes = 8 * MIB;
    CUfunction late, plain;
    CUdeviceptr block, next;
    CUmodule module;
    int one = 1;

    begin(0);
    MUST(0, cuModuleLoadData(&module, pair_image));
    MUST(0, cuModuleGetFunction(&late, module, "late_fill"));
    MUST(0, cuModuleGetFunction(&plain, module, "plain_fill"));
    for (int i = 0; i < 3; i++) {
        MUST(0, cuMemAlloc(&block, bytes));
        MUST(0, cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&block, &one, &bytes}, NULL));
        MUST(0, cuMemFree(block));
        MUST(0, cuMemAlloc(&next, bytes));
        launch_early(plain, next, 2, bytes);
        MUST(0, cuStreamSynchronize(stream));
        MUST(0, prog_wrong(next, 2, bytes));
        MUST(0, cuMemFree(next));
    }
}

/* A graph waits for a flag that another stream sets later: nothing may put that stream behind the graph. */
static void graph_with_flag(void)
{
    CUstreamBatchMemOpParams wait = {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                                   .value = 1,
                                                   .flags = CU_STREAM_WAIT_VALUE_EQ}};
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    CUdeviceptr block, next;
    CUgraphNode node;
    CUgraph graph;

    begin(0);
    const size_t half = told_total(0) / 2;
    MUST(0, cuMemAlloc(&flag, 4));
    prog_fill(flag, 0, 4);
    MUST(0, cuStreamCreate(&flagger, CU_STREAM_NON_BLOCKING));
    wait.waitValue.address = flag;
    MUST(0, cuCtxGetCurrent(&params.memOp.ctx));
    params.memOp.count = 1;
    params.memOp.paramArray = &wait;
    MUST(0, cuGraphCreate(&graph, 0));
    MUST(0, cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    MUST(0, cuMemAlloc(&block, half));
    MUST(0, cuMemsetD8Async(block, 1, MIB, flagger));
    MUST(0, launch_of(graph));
    MUST(0, cuMemFreeAsync(block, flagger));
    (void)cuMemAlloc(&next, half); /* must be answered */
    set_flag();
}

static atomic_bool other_waits;

static void *wait_for_context(void *context)
{
    MUST(0, cuCtxSetCurrent(context));
    atomic_store(&other_waits, true);
    MUST(0, cuCtxSynchronize());
    return NULL;
}

/* While one thread waits for a stream that waits for a flag, the thread that will set it lets others reach
 * memory, as a library does that will receive what the stream waits for, and makes another context. */
static void reached_behind_a_flag(void)
{
    CUcontext own = begin(0), other;
    CUipcMemHandle handle;
    CUdeviceptr block;
    unsigned int on = 1;
    pthread_t thread;
    int fd;

    MUST(0, cuMemAlloc(&block, 8 * MIB));
    MUST(0, cuMemFree(block));
    wait_for_flag();
    MUST(0, pthread_create(&thread, NULL, wait_for_context, own));
    while (!atomic_load(&other_waits))
        usleep(1000);
    usleep(20000); /* it is in the driver's call by now */
    MUST(0, cuMemAlloc(&block, 8 * MIB));
    MUST(0, cuIpcGetMemHandle(&handle, block));
    MUST(0, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    MUST(0, cuMemAlloc(&block, 8 * MIB));
    MUST(0, cuMemGetHandleForAddressRange(&fd, block, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    MUST(0, close(fd));
    MUST(0, cuCtxCreate(&other, NULL, 0, 0));
    MUST(0, cuCtxSetCurrent(own));
    set_flag();
    MUST(0, pthread_join(thread, NULL));
}

/* ---- descriptors ---- */

static int exported(CUdeviceptr block, size_t bytes)
{
    int fd = -1;

    MUST(0, cuMemGetHandleForAddressRange(&fd, block, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    return fd;
}

/* Exported memory does not accumulate. */
static void exports(void)
{
    const size_t bytes = 64 * MIB;
    CUdeviceptr pair[2];
    int none;

    begin(0);
    MUST(0, cuMemAlloc(&pair[0], bytes));
    MUST(0, cuMemAlloc(&pair[1], bytes));
    for (int i = 0; i < 2; i++) { /* not with what is behind the block */
        MUST(CUDA_ERROR_INVALID_VALUE, cuMemGetHandleForAddressRange(&none, pair[i], bytes + 2 * MIB,
                                                                     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
        MUST(0, cuMemFree(pair[i]));
    }
    const size_t before = told_free(), context = simgpu_used ? simgpu_used(0) : 0;
    for (int i = 0; i < 100; i++) {
        CUdeviceptr block;

        MUST(0, cuMemAlloc(&block, bytes));
        const int fd = exported(block, bytes);
        if (i % 2)
            MUST(0, close(fd));
        MUST(0, cuMemFree(block));
        if (i % 2 == 0)
            MUST(0, close(fd));
        MUST(true, told_free() + 3 * bytes >= before);
        if (simgpu_used)
            MUST(true, simgpu_used(0) <= context + 3 * bytes);
    }
    within(0);
}

/* ---- green contexts ---- */

static CUcontext primary, partial;
static CUgreenCtx green;
static atomic_int passed;

static void be_late(void *unused)
{
    (void)unused;
    usleep(50000);
    atomic_store(&passed, 1);
}

static void make_green(void)
{
    primary = prog_context(0);
    green = prog_green();
    MUST(0, cuCtxFromGreenCtx(&partial, green));
    MUST(0, cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
}

/* A block that was made in one context is freed in another, behind work of the green one's stream. */
static void free_in(CUcontext made_in, CUcontext freed_in, bool waits)
{
    const size_t bytes = 8 * MIB;
    CUdeviceptr block, next[3];
    CUcontext owner = NULL;
    CUstream other;

    MUST(0, cuCtxSetCurrent(made_in));
    MUST(0, cuMemAlloc(&block, bytes));
    MUST(0, cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, block));
    MUST(true, owner == primary);
    atomic_store(&passed, 0);
    MUST(0, cuLaunchHostFunc(stream, be_late, NULL));
    MUST(0, cuMemsetD8Async(block, 1, bytes, stream));
    MUST(0, cuCtxSetCurrent(freed_in));
    MUST(0, cuMemFree(block));
    if (waits)
        MUST(1, atomic_load(&passed));
    MUST(0, cuCtxSetCurrent(primary));
    MUST(0, cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++) {
        MUST(0, cuMemAlloc(&next[i], bytes));
        MUST(0, cuMemsetD8Async(next[i], 2, bytes, other));
    }
    MUST(0, cuStreamSynchronize(other));
    MUST(0, cuStreamSynchronize(stream));
    for (int i = 0; i < 3; i++) {
        MUST(0, prog_wrong(next[i], 2, bytes));
        MUST(0, cuMemFree(next[i]));
    }
}

static void free_everywhere(bool waits)
{
    make_green();
    free_in(partial, partial, waits);
    free_in(partial, primary, waits);
    free_in(primary, partial, waits);
    free_in(primary, primary, waits);
    within(0);
}

static void green_frees(void)
{
    free_everywhere(true);
}

/* Where a free does not wait. */
static void green_frees_later(void)
{
    free_everywhere(false);
}

/* The default stream of a green context does not follow that of the primary one, although they have the same
 * handle. */
static void green_default_stream(void)
{
    const size_t bytes = 8 * MIB;
    CUdeviceptr block, copy, next;

    make_green();
    MUST(0, cuMemAlloc(&block, bytes));
    MUST(0, cuMemAlloc(&copy, bytes));
    prog_fill(block, 1, bytes);
    MUST(0, cuLaunchHostFunc(NULL, be_late, NULL));
    MUST(0, cuMemcpyDtoDAsync(copy, block, bytes, NULL));
    MUST(0, cuMemFree(block));
    MUST(0, cuCtxSetCurrent(partial));
    MUST(0, cuMemAlloc(&next, bytes));
    MUST(0, cuMemsetD8Async(next, 2, bytes, NULL));
    MUST(0, cuStreamSynchronize(NULL));
    MUST(0, cuCtxSetCurrent(primary));
    MUST(0, prog_wrong(copy, 1, bytes));
    MUST(0, prog_wrong(next, 2, bytes));
}

static void green_ends(void)
{
    const size_t bytes = 8 * MIB;
    CUdeviceptr block, another;

    make_green();
    MUST(0, cuCtxSetCurrent(partial));
    MUST(0, cuMemAlloc(&block, bytes));
    prog_fill(block, 7, bytes);
    MUST(0, cuCtxSetCurrent(primary));
    MUST(0, cuStreamDestroy(stream));
    MUST(0, cuGreenCtxDestroy(green));
    MUST(0, prog_wrong(block, 7, bytes));
    MUST(0, cuMemAlloc(&another, bytes));
    prog_fill(another, 8, bytes);
    MUST(0, prog_wrong(block, 7, bytes));
    MUST(0, cuMemFree(block));
    MUST(0, cuMemFree(another));
}

/* ---- a driver that fails for once ---- */

/* Memory that could not be given back is given back later. */
static void release_again(void)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    CUdeviceptr block;

    begin(0);
    MUST(0, cuMemAlloc(&block, 4096)); /* the pool is open */
    MUST(0, cuMemFree(block));
    MUST(0, cuMemAlloc(&block, 64 * MIB));
    simgpu_reset_calls();
    MUST(0, simgpu_set_fault("cuMemRelease:1=999,cuMemRelease:2=999"));
    MUST(0, cuMemFree(block));
    for (int i = 0; i < 40000 && simgpu_used(0) > 128 * MIB; i++)
        nanosleep(&moment, NULL);
    MUST(128 * MIB, simgpu_used(0));
}

/* A block can be exported after a cuMemCreate has failed with an error that says nothing about memory. */
static void create_again(void)
{
    CUipcMemHandle handle;
    CUdeviceptr first, block;

    begin(0);
    (void)cuMemAlloc(&first, 4 * MIB); /* the call that fails may be this one's */
    MUST(0, simgpu_set_fault(NULL));
    for (int i = 0; i < 3; i++) {
        MUST(0, cuMemAlloc(&block, 40 * MIB));
        MUST(0, cuIpcGetMemHandle(&handle, block));
        MUST(0, close(exported(block, 40 * MIB)));
    }
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"behind_a_flag", behind_a_flag},
        {"freed_behind_a_flag", freed_behind_a_flag},
        {"room_behind_a_flag", room_behind_a_flag},
        {"freed_in_order_beside_work", freed_in_order_beside_work},
        {"elsewhere", elsewhere},
        {"without_context", without_context},
        {"pool_elsewhere", pool_elsewhere},
        {"stack_in_graph", stack_in_graph},
        {"stack_with_room", stack_with_room},
        {"stack_on_second_card", stack_on_second_card},
        {"stack_after_reset", stack_after_reset},
        {"stack_with_a_used_handle", stack_with_a_used_handle},
        {"stack_beside_an_ended_context", stack_beside_an_ended_context},
        {"dependent_launch", dependent_launch},
        {"graph_with_flag", graph_with_flag},
        {"reached_behind_a_flag", reached_behind_a_flag},
        {"exports", exports},
        {"green_frees", green_frees},
        {"green_frees_later", green_frees_later},
        {"green_default_stream", green_default_stream},
        {"green_ends", green_ends},
        {"release_again", release_again},
        {"create_again", create_again},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
