/* context_fake: see context_fake.h. */
#include "context_fake.h"

#include <pthread.h>
#include <string.h>
#include <unity.h>

#include "interpose/hook/hooks.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/pool/streams.h"

atomic_int fake_mode;
_Atomic(atomic_int *) library_state = &fake_mode;
bool library_limited = true;
struct fake fake;
struct got got;

static struct device device;

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

void route_grow_result(const struct route_growth *growth, CUresult result)
{
    if (result == CUDA_SUCCESS)
        route_grow_end(growth);
    else
        route_grow_abort(growth);
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

/* A thread that is cancelled here would leave a context ending. */
static bool can_be_cancelled(void)
{
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcancelstate(state, NULL);
    return state == PTHREAD_CANCEL_ENABLE;
}

static CUresult CUDAAPI ctx_destroy(CUcontext context)
{
    (void)context;
    got.wrong += got.end_begins && can_be_cancelled();
    if (got.made)
        got.undone++;
    return call();
}

static CUresult CUDAAPI ctx_detach(CUcontext context)
{
    (void)context;
    got.wrong += can_be_cancelled();
    return call();
}

static CUresult CUDAAPI ctx_synchronize(void)
{
    return call();
}

static CUresult CUDAAPI ctx_synchronize_v2(CUcontext context)
{
    got.wrong += context != FIRST;
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
    if (fake.no_primary)
        return CUDA_ERROR_UNKNOWN;
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

static CUresult CUDAAPI reset(CUdevice ordinal)
{
    got.resets++;
    return release(ordinal);
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
    got.pushed++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
    (void)context;
    got.pushed--;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_device(CUdevice *ordinal)
{
    *ordinal = CARD;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_count(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI unload_module(CUmodule module)
{
    (void)module;
    return call();
}

static CUresult CUDAAPI unload_library(CUlibrary library)
{
    (void)library;
    return call();
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
    *value = fake.kernel_bytes;
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

void context_fake_setup(void)
{
    driver_entries = (struct driver_table){.cuCtxCreate_v2 = ctx_create,
                                           .cuCtxCreate_v4 = ctx_create_v4,
                                           .cuCtxDestroy_v2 = ctx_destroy,
                                           .cuCtxDetach = ctx_detach,
                                           .cuCtxSynchronize = ctx_synchronize,
                                           .cuCtxSynchronize_v2 = ctx_synchronize_v2,
                                           .cuCtxGetCurrent = get_current,
                                           .cuMemAlloc_v2 = mem_alloc,
                                           .cuDevicePrimaryCtxRetain = retain,
                                           .cuDevicePrimaryCtxRelease_v2 = release,
                                           .cuDevicePrimaryCtxReset_v2 = reset,
                                           .cuDevicePrimaryCtxGetState = get_state,
                                           .cuGreenCtxCreate = green_create,
                                           .cuGreenCtxDestroy = green_destroy,
                                           .cuCtxFromGreenCtx = from_green,
                                           .cuCtxPushCurrent_v2 = push,
                                           .cuCtxPopCurrent_v2 = pop,
                                           .cuCtxGetDevice = get_device,
                                           .cuCtxSetLimit = set_limit,
                                           .cuDeviceGetCount = get_count,
                                           .cuModuleUnload = unload_module,
                                           .cuLibraryUnload = unload_library,
                                           .cuFuncGetAttribute = function_attribute,
                                           .cuKernelGetAttribute = kernel_attribute,
                                           .cuLaunchKernel = launch,
                                           .cuLaunchKernelEx = launch_ex};
    fake_mode = LIBRARY_ON;
    fake = (struct fake){.current = FIRST};
    memset(&got, 0, sizeof(got));
}
