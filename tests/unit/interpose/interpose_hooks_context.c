/* Hooks on contexts and on what makes a context grow: what each asks for before the driver's call, and what
 * it tells or undoes afterwards. The driver and all that decides (route.h) are the test's own. */
#include "interpose/hook/hooks.h"

#include <string.h>
#include <unity.h>

#include "interpose/hook/growth.h"
#include "interpose/library.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/pool/streams.h"
#include "interpose/route.h"

#define CARD  2
#define FIRST ((CUcontext)0x100)
#define GREEN ((CUgreenCtx)0x200)

/* The engine's own table of the driver: the fake is all there is. */
atomic_bool driver_bound;
struct driver_table driver_entries;

struct driver_table *driver_bind_now(void)
{
    return &driver_entries;
}

static atomic_int mode;
_Atomic(atomic_int *) library_state = &mode;
bool library_limited = true;

static struct device device;

static struct fake {
    CUresult refuse, made; /* the answers of route_grow_... and of route_context_made */
    CUresult result;       /* the driver's */
    bool active;           /* the primary context exists */
    CUcontext current;
    bool inactive, captures;
    int local_bytes; /* stack of a function; -1: it is a kernel */
    bool one_way;    /* the driver's call makes or ends the primary context */
} fake;

static struct {
    int calls, begins, ends, made, failed, end_begins, end_aborts, ended, undone, forgotten;
    uint64_t grow, stack;
    CUdevice ordinal;
    CUcontext context, captured, grown;
    int aborts, waits, wait_ends, distrusts, retains;
    bool waited_well;
    int wrong; /* a call that should not be: no assertion may end a test while a hook holds its lock */
} got;

/* ---- the test's own library ---- */

enum library_mode library_begin(void)
{
    return LIBRARY_ON;
}

bool route_active(void)
{
    return !fake.inactive;
}

bool route_limited(void)
{
    return !fake.inactive;
}

uint64_t route_given_back(void)
{
    return 0;
}

bool route_retry(struct route_attempt *attempt)
{
    (void)attempt;
    return false;
}

static CUresult grow(struct route_growth *growth)
{
    growth->device = fake.refuse ? NULL : &device;
    got.begins++;
    return fake.refuse;
}

CUresult route_grow_begin(struct route_growth *growth, uint64_t bytes)
{
    got.grow = bytes;
    return grow(growth);
}

CUresult route_grow_context_begin(struct route_growth *growth, CUdevice ordinal)
{
    got.ordinal = ordinal;
    return grow(growth);
}

CUresult route_grow_stack_begin(struct route_growth *growth, uint64_t bytes)
{
    got.stack = bytes;
    return grow(growth);
}

CUresult route_grow_heap_begin(struct route_growth *growth, CUlimit which, uint64_t bytes)
{
    got.wrong += which != CU_LIMIT_MALLOC_HEAP_SIZE && which != CU_LIMIT_PRINTF_FIFO_SIZE;
    return route_grow_begin(growth, bytes);
}

void route_grow_heap_end(const struct route_growth *growth, CUlimit which, uint64_t bytes)
{
    got.wrong +=
        (which != CU_LIMIT_MALLOC_HEAP_SIZE && which != CU_LIMIT_PRINTF_FIFO_SIZE) || bytes != got.grow;
    route_grow_end(growth);
}

void route_grow_end(const struct route_growth *growth)
{
    if (growth->device)
        got.ends++;
}

void route_grow_abort(const struct route_growth *growth)
{
    got.aborts++;
    route_grow_end(growth);
}

void route_grow_context_end(const struct route_growth *growth, CUdevice ordinal, CUcontext context)
{
    got.wrong += ordinal != CARD || (context && context != FIRST);
    got.grown = context;
    route_grow_end(growth);
}

CUresult route_context_made(CUdevice ordinal, CUcontext context)
{
    got.wrong += ordinal != CARD;
    got.made++;
    got.context = context;
    return fake.made;
}

void route_context_failed(CUdevice ordinal)
{
    got.wrong += ordinal != CARD;
    got.failed++;
}

void route_context_end_begin(CUcontext context)
{
    got.context = context;
    got.end_begins++;
    got.wrong += got.calls; /* the driver was called before */
}

void route_context_end_abort(CUcontext context)
{
    got.wrong += context != got.context;
    got.end_aborts++;
}

void route_context_end(CUcontext context)
{
    got.wrong += context != got.context;
    got.ended++;
}

struct pools_wait pools_before_wait(CUcontext context)
{
    got.context = context;
    got.waits++;
    return (struct pools_wait){.epoch = 7};
}

void pools_after_wait(const struct pools_wait *wait, bool success)
{
    got.wait_ends += wait->epoch == 7;
    got.waited_well = success;
}

void pools_expect_green(void) {}

void pools_forget_green(void)
{
    got.forgotten++;
}

bool capture_any(void)
{
    return fake.captures;
}

void capture_context_end(CUcontext context)
{
    got.captured = context;
}

_Thread_local uintptr_t streams_last, streams_thread;

uintptr_t streams_new_key(void)
{
    return streams_thread = 5;
}

bool streams_submit_slow(uintptr_t key)
{
    streams_last = key;
    return false;
}

void streams_submit_end(void) {}

void streams_distrust(void)
{
    got.distrusts++;
}

/* ---- the driver ---- */

static CUresult call(void)
{
    got.calls++;
    return fake.result;
}

static CUresult give(CUcontext *context)
{
    const CUresult result = call();

    if (result == CUDA_SUCCESS)
        *context = FIRST;
    return result;
}

static CUresult CUDAAPI ctx_create(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    (void)flags, (void)ordinal;
    return give(context);
}

static CUresult CUDAAPI ctx_create_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags,
                                      CUdevice ordinal)
{
    (void)parameters;
    return ctx_create(context, flags, ordinal);
}

static CUresult CUDAAPI ctx_destroy(CUcontext context)
{
    (void)context;
    if (got.made)
        got.undone++;
    return call();
}

static CUresult CUDAAPI ctx_detach(CUcontext context)
{
    (void)context;
    return call();
}

static CUresult CUDAAPI ctx_synchronize(void)
{
    return call();
}

static CUresult CUDAAPI get_current(CUcontext *context)
{
    *context = fake.current;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI mem_alloc(CUdeviceptr *address, size_t bytes)
{
    (void)address, (void)bytes;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult CUDAAPI retain(CUcontext *context, CUdevice ordinal)
{
    (void)ordinal;
    got.retains++;
    *context = FIRST;
    fake.active = fake.active || fake.result == CUDA_SUCCESS;
    return fake.result;
}

static CUresult CUDAAPI release(CUdevice ordinal)
{
    (void)ordinal;
    if (got.retains) {
        got.retains--;
        return fake.result;
    }
    if (fake.one_way)
        fake.active = false;
    return call();
}

static CUresult CUDAAPI get_state(CUdevice ordinal, unsigned int *flags, int *active)
{
    (void)ordinal;
    *flags = 0;
    *active = fake.active;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI green_create(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice ordinal,
                                     unsigned int flags)
{
    (void)resources, (void)ordinal, (void)flags;
    *green = GREEN;
    return call();
}

static CUresult CUDAAPI green_destroy(CUgreenCtx green)
{
    got.wrong += green != GREEN;
    got.undone++;
    return call();
}

static CUresult CUDAAPI from_green(CUcontext *context, CUgreenCtx green)
{
    (void)green;
    *context = FIRST;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI push(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_device(CUdevice *ordinal)
{
    *ordinal = CARD;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI set_limit(CUlimit which, size_t value)
{
    (void)which, (void)value;
    return call();
}

static CUresult CUDAAPI function_attribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    (void)function;
    TEST_ASSERT_EQUAL_INT(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, attribute);
    *value = fake.local_bytes;
    return fake.local_bytes < 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult CUDAAPI kernel_attribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                                         CUdevice ordinal)
{
    (void)kernel, (void)attribute;
    TEST_ASSERT_EQUAL_INT(CARD, ordinal);
    *value = 3000;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI launch(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                               unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                               CUstream stream, void **arguments, void **extra)
{
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
    (void)arguments, (void)extra;
    return call();
}

static CUresult CUDAAPI launch_ex(const CUlaunchConfig *config, CUfunction f, void **arguments, void **extra)
{
    (void)config, (void)f, (void)arguments, (void)extra;
    return call();
}

void setUp(void)
{
    driver_entries = (struct driver_table){.cuCtxCreate_v2 = ctx_create,
                                           .cuCtxCreate_v4 = ctx_create_v4,
                                           .cuCtxDestroy_v2 = ctx_destroy,
                                           .cuCtxDetach = ctx_detach,
                                           .cuCtxSynchronize = ctx_synchronize,
                                           .cuCtxGetCurrent = get_current,
                                           .cuMemAlloc_v2 = mem_alloc,
                                           .cuDevicePrimaryCtxRetain = retain,
                                           .cuDevicePrimaryCtxRelease_v2 = release,
                                           .cuDevicePrimaryCtxReset_v2 = release,
                                           .cuDevicePrimaryCtxGetState = get_state,
                                           .cuGreenCtxCreate = green_create,
                                           .cuGreenCtxDestroy = green_destroy,
                                           .cuCtxFromGreenCtx = from_green,
                                           .cuCtxPushCurrent_v2 = push,
                                           .cuCtxPopCurrent_v2 = pop,
                                           .cuCtxGetDevice = get_device,
                                           .cuCtxSetLimit = set_limit,
                                           .cuFuncGetAttribute = function_attribute,
                                           .cuKernelGetAttribute = kernel_attribute,
                                           .cuLaunchKernel = launch,
                                           .cuLaunchKernelEx = launch_ex};
    atomic_store(&driver_bound, true);
    mode = LIBRARY_ON;
    fake = (struct fake){.current = FIRST};
    memset(&got, 0, sizeof(got));
}

/* The hooks count how often a primary context is retained: a reset sets that to 0. */
void tearDown(void)
{
    TEST_ASSERT_EQUAL_INT(0, got.wrong);
    fake = (struct fake){.current = FIRST};
    memset(&got, 0, sizeof(got));
    cuDevicePrimaryCtxReset_v2(CARD);
}

static void begin(void)
{
    TEST_ASSERT_EQUAL_INT(0, got.wrong);
    memset(&got, 0, sizeof(got));
}

static void expect_grown(int begins, int ends, int calls)
{
    TEST_ASSERT_EQUAL_INT(begins, got.begins);
    TEST_ASSERT_EQUAL_INT(ends, got.ends);
    TEST_ASSERT_EQUAL_INT(calls, got.calls);
}

/* ---- contexts ---- */

static void test_a_context_is_asked_for_and_undone_if_it_does_not_fit(void)
{
    CUcontext context = NULL;

    for (int i = 0; i < 2; i++) {
        begin();
        fake = (struct fake){.result = CUDA_SUCCESS};
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, i ? cuCtxCreate_v4(&context, NULL, 0, CARD)
                                              : cuCtxCreate_v2(&context, 0, CARD));
        expect_grown(1, 1, 1);
        TEST_ASSERT_EQUAL_INT(CARD, got.ordinal);
        TEST_ASSERT_EQUAL_INT(1, got.made);
        TEST_ASSERT_EQUAL_PTR(FIRST, got.context);
        fake.made = CUDA_ERROR_OUT_OF_MEMORY;
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, i ? cuCtxCreate_v4(&context, NULL, 0, CARD)
                                                          : cuCtxCreate_v2(&context, 0, CARD));
        TEST_ASSERT_EQUAL_INT(1, got.undone);
        TEST_ASSERT_NULL(context);
        fake.result = CUDA_ERROR_INVALID_VALUE;
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, i ? cuCtxCreate_v4(&context, NULL, 0, CARD)
                                                          : cuCtxCreate_v2(&context, 0, CARD));
        TEST_ASSERT_EQUAL_INT(1, got.failed);
        TEST_ASSERT_EQUAL_INT(0, got.made);
        fake.refuse = CUDA_ERROR_OUT_OF_MEMORY;
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, i ? cuCtxCreate_v4(&context, NULL, 0, CARD)
                                                          : cuCtxCreate_v2(&context, 0, CARD));
        expect_grown(1, 0, 0);
    }
    mode = LIBRARY_REFUSE;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, cuCtxCreate_v2(&context, 0, CARD));
    expect_grown(0, 0, 0);
}

static void test_the_end_of_a_context_is_told_only_if_the_driver_ends_it(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxDestroy_v2(FIRST));
    TEST_ASSERT_EQUAL_INT(1, got.end_begins);
    TEST_ASSERT_EQUAL_INT(1, got.ended);
    fake.result = CUDA_ERROR_INVALID_CONTEXT;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(FIRST));
    TEST_ASSERT_EQUAL_INT(1, got.end_aborts);
    TEST_ASSERT_EQUAL_INT(0, got.ended);
    fake.result = CUDA_SUCCESS;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxDetach(FIRST)); /* it is still current: attached elsewhere */
    TEST_ASSERT_EQUAL_INT(1, got.end_aborts);
    fake.current = NULL;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxDetach(FIRST));
    TEST_ASSERT_EQUAL_INT(1, got.ended);
    TEST_ASSERT_EQUAL_INT(0, got.end_aborts);
}

static void test_a_wait_of_the_program_is_told_with_its_result(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSynchronize());
    TEST_ASSERT_EQUAL_INT(1, got.waits);
    TEST_ASSERT_NULL(got.context);
    TEST_ASSERT_EQUAL_INT(1, got.wait_ends);
    TEST_ASSERT_TRUE(got.waited_well);
    fake.result = CUDA_ERROR_LAUNCH_FAILED;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    TEST_ASSERT_FALSE(got.waited_well);
    fake.inactive = true;
    begin();
    cuCtxSynchronize();
    TEST_ASSERT_EQUAL_INT(0, got.waits + got.wait_ends);
}

/* ---- primary contexts ---- */

static void test_a_primary_context_is_asked_for_once_and_ends_with_its_last_hold(void)
{
    CUcontext context = NULL;

    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&context, CARD));
    TEST_ASSERT_EQUAL_INT(1, got.begins);
    TEST_ASSERT_EQUAL_INT(1, got.made);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&context, CARD)); /* takes no more memory */
    TEST_ASSERT_EQUAL_INT(1, got.begins);
    TEST_ASSERT_EQUAL_INT(1, got.made);
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2(CARD));
    TEST_ASSERT_EQUAL_INT(0, got.end_begins + got.ended + got.end_aborts); /* not the last one */
    begin();
    fake.one_way = true;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2(CARD));
    TEST_ASSERT_EQUAL_INT(1, got.end_begins);
    TEST_ASSERT_EQUAL_INT(1, got.ended);
    TEST_ASSERT_EQUAL_PTR(FIRST, got.context);
    begin();
    fake.one_way = false;
    fake.result = CUDA_ERROR_INVALID_CONTEXT;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(CARD));
    TEST_ASSERT_EQUAL_INT(1, got.end_begins);
    TEST_ASSERT_EQUAL_INT(1, got.end_aborts);
}

static void test_a_primary_context_that_does_not_fit_is_released_again(void)
{
    CUcontext context = FIRST;

    fake.made = CUDA_ERROR_OUT_OF_MEMORY;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuDevicePrimaryCtxRetain(&context, CARD));
    TEST_ASSERT_NULL(context);
    TEST_ASSERT_EQUAL_INT(0, got.retains);
    fake.active = false;
    fake.result = CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuDevicePrimaryCtxRetain(&context, CARD));
    TEST_ASSERT_EQUAL_INT(1, got.failed);
    mode = LIBRARY_REFUSE;
    fake.active = true;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, cuDevicePrimaryCtxRetain(&context, CARD));
}

static void test_a_reset_ends_the_context_unless_the_driver_refuses(void)
{
    CUcontext context;

    cuDevicePrimaryCtxRetain(&context, CARD);
    cuDevicePrimaryCtxRetain(&context, CARD);
    begin();
    fake.result = CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuDevicePrimaryCtxReset_v2(CARD));
    TEST_ASSERT_EQUAL_INT(1, got.end_begins);
    TEST_ASSERT_EQUAL_INT(1, got.end_aborts);
    TEST_ASSERT_EQUAL_INT(0, got.ended);
    begin();
    fake.result = CUDA_SUCCESS;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDevicePrimaryCtxReset_v2(CARD));
    TEST_ASSERT_EQUAL_INT(1, got.ended);
    begin();
    cuDevicePrimaryCtxRetain(&context, CARD);
    begin();
    cuDevicePrimaryCtxRelease_v2(CARD);
    TEST_ASSERT_EQUAL_INT(1, got.end_begins); /* the holds of before count no more */
}

/* ---- green contexts ---- */

static void test_a_green_context_makes_and_holds_its_primary(void)
{
    CUgreenCtx green;

    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxCreate(&green, NULL, CARD, 0));
    expect_grown(1, 1, 1);
    TEST_ASSERT_EQUAL_INT(1, got.made);
    TEST_ASSERT_EQUAL_PTR(FIRST, got.context);
    TEST_ASSERT_EQUAL_PTR(FIRST, got.grown);
    TEST_ASSERT_EQUAL_INT(0, got.retains); /* looked at, not kept */
    begin();
    fake.active = true;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxCreate(&green, NULL, CARD, 0));
    expect_grown(0, 0, 1); /* it exists */
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_EQUAL_INT(1, got.forgotten);  /* another context may get the handle */
    TEST_ASSERT_EQUAL_INT(0, got.end_begins); /* the first one holds it */
    begin();
    fake.active = false;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_EQUAL_INT(1, got.ended);
}

static void test_a_green_context_that_fails_or_does_not_fit_leaves_nothing(void)
{
    CUgreenCtx green;

    fake.result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, NULL, CARD, 0));
    TEST_ASSERT_EQUAL_INT(1, got.failed);
    TEST_ASSERT_EQUAL_INT(0, got.made);
    TEST_ASSERT_NULL(got.grown);
    fake.result = CUDA_SUCCESS;
    fake.active = false;
    fake.made = CUDA_ERROR_OUT_OF_MEMORY;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuGreenCtxCreate(&green, NULL, CARD, 0));
    TEST_ASSERT_EQUAL_INT(1, got.undone);
    fake.refuse = CUDA_ERROR_OUT_OF_MEMORY;
    fake.active = false;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuGreenCtxCreate(&green, NULL, CARD, 0));
    expect_grown(1, 0, 0);
    mode = LIBRARY_REFUSE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, cuGreenCtxCreate(&green, NULL, CARD, 0));
}

static void test_captures_of_a_green_context_end_with_it(void)
{
    fake.captures = true;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_EQUAL_PTR(FIRST, got.captured);
    begin();
    got.captured = NULL;
    fake.result = CUDA_ERROR_INVALID_CONTEXT;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_NULL(got.captured);
    begin();
    fake.result = CUDA_ERROR_CONTEXT_IS_DESTROYED; /* by a reset of its primary context */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_EQUAL_PTR(FIRST, got.captured);
    begin();
    got.captured = NULL;
    fake.captures = false;
    fake.result = CUDA_SUCCESS;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_NULL(got.captured);
}

/* ---- growth ---- */

static void test_a_call_that_fails_makes_no_context_grow(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 5000));
    expect_grown(1, 1, 1);
    TEST_ASSERT_EQUAL_INT(0, got.aborts);
    begin();
    fake.result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 5000));
    expect_grown(1, 1, 1);
    TEST_ASSERT_EQUAL_INT(1, got.aborts);
}

static void test_the_limits_of_a_context_are_asked_for(void)
{
    static const CUlimit heaps[] = {CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE};

    for (int i = 0; i < 2; i++) {
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSetLimit(heaps[i], 12345));
        TEST_ASSERT_EQUAL_UINT64(12345, got.grow);
        expect_grown(1, 1, 1);
    }
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    TEST_ASSERT_EQUAL_UINT64(4096, got.stack); /* per thread */
    expect_grown(1, 1, 1);
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64));
    expect_grown(0, 0, 1);
    fake.refuse = CUDA_ERROR_OUT_OF_MEMORY;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 4096));
    expect_grown(2, 0, 0);
}

static void test_a_launch_asks_for_the_stack_of_its_kernel(void)
{
    const CUfunction kernel = (CUfunction)0x300;

    fake.local_bytes = 2000;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TEST_ASSERT_EQUAL_UINT64(2000, got.stack);
    expect_grown(1, 1, 1);
    fake.local_bytes = -1; /* a CUkernel, which a launch takes too */
    TEST_ASSERT_EQUAL_UINT64(3000, growth_stack_of(kernel));
    fake.local_bytes = 0;
    TEST_ASSERT_EQUAL_UINT64(0, growth_stack_of(kernel));
    fake.refuse = CUDA_ERROR_OUT_OF_MEMORY;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY,
                          cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    expect_grown(1, 0, 0);
    fake.inactive = true; /* no limit, no question */
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    expect_grown(0, 0, 1);
}

static void expect_distrust(const CUlaunchAttribute *attribute, int distrusts)
{
    CUlaunchAttribute list[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY}, *attribute};
    const CUlaunchConfig config = {.attrs = list, .numAttrs = 2};

    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuLaunchKernelEx(&config, (CUfunction)0x300, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(distrusts, got.distrusts);
}

static void test_kernels_that_may_overlap_end_the_order_of_streams(void)
{
    CUlaunchAttribute serial = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    const CUlaunchAttribute event = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT};
    const CUlaunchAttribute other = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE};

    expect_distrust(&other, 0);
    expect_distrust(&serial, 0); /* not allowed */
    serial.value.programmaticStreamSerializationAllowed = 1;
    expect_distrust(&serial, 1);
    expect_distrust(&event, 1);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_context_is_asked_for_and_undone_if_it_does_not_fit);
    RUN_TEST(test_the_end_of_a_context_is_told_only_if_the_driver_ends_it);
    RUN_TEST(test_a_wait_of_the_program_is_told_with_its_result);
    RUN_TEST(test_a_primary_context_is_asked_for_once_and_ends_with_its_last_hold);
    RUN_TEST(test_a_primary_context_that_does_not_fit_is_released_again);
    RUN_TEST(test_a_reset_ends_the_context_unless_the_driver_refuses);
    RUN_TEST(test_a_green_context_makes_and_holds_its_primary);
    RUN_TEST(test_a_green_context_that_fails_or_does_not_fit_leaves_nothing);
    RUN_TEST(test_captures_of_a_green_context_end_with_it);
    RUN_TEST(test_a_call_that_fails_makes_no_context_grow);
    RUN_TEST(test_the_limits_of_a_context_are_asked_for);
    RUN_TEST(test_a_launch_asks_for_the_stack_of_its_kernel);
    RUN_TEST(test_kernels_that_may_overlap_end_the_order_of_streams);
    return UNITY_END();
}
