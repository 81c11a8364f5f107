/* The hooks on what makes a context grow by itself: code, streams, and above all stacks (a kernel with 16 KiB
 * of local arrays made a context grow by 3.9 GiB on an H200). Growth that would pass the limit is refused as
 * a full card refuses it.
 *
 * A launch is checked once per kernel: after that it costs one compare. Owns no lock.
 */
#include "fence.h"
#include "hooks.h"
#include "route.h"

/* A kernel has one of four places, so that the few hundred kernels of a program do not drive each other out:
 * one that is not found is only checked again, but that takes a microsecond or more. */
#define KNOWN_BITS 10
#define KNOWN_WAYS 4

static _Atomic(void *) known[1 << KNOWN_BITS][KNOWN_WAYS];

static _Atomic(void *) *places_of(CUfunction kernel)
{
    return known[(uint64_t)(uintptr_t)kernel * UINT64_C(0x9e3779b97f4a7c15) >> (64 - KNOWN_BITS)];
}

static void remember_kernel(CUfunction kernel)
{
    static _Atomic unsigned turn;
    _Atomic(void *) *places = places_of(kernel);
    unsigned way = 0;

    while (way < KNOWN_WAYS && atomic_load_explicit(&places[way], memory_order_relaxed))
        way++;
    if (way == KNOWN_WAYS)
        way = atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % KNOWN_WAYS;
    atomic_store_explicit(&places[way], (void *)kernel, memory_order_relaxed);
}

/* An address may be given to another kernel once its module is gone. */
static void forget_kernels(void)
{
    for (int i = 0; i < (1 << KNOWN_BITS) * KNOWN_WAYS; i++)
        atomic_store_explicit(&known[i / KNOWN_WAYS][i % KNOWN_WAYS], NULL, memory_order_relaxed);
}

static uint64_t stack_of(CUfunction kernel)
{
    CUdevice ordinal;
    int bytes = 0;

    if (driver.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel) == CUDA_SUCCESS)
        return bytes > 0 ? (uint64_t)bytes : 0;
    /* A launch also takes a CUkernel in place of a CUfunction. */
    if (driver.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS &&
        driver.cuKernelGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, (CUkernel)kernel, ordinal) ==
            CUDA_SUCCESS)
        return bytes > 0 ? (uint64_t)bytes : 0;
    return 0;
}

static inline bool is_known(CUfunction kernel)
{
    _Atomic(void *) *places = places_of(kernel);

    for (unsigned way = 0; way < KNOWN_WAYS; way++) {
        if (__builtin_expect(atomic_load_explicit(&places[way], memory_order_relaxed) == (void *)kernel, 1))
            return true;
    }
    return false;
}

/* Room for a kernel's stack, and for its code, which asking for the stack loads if it is not there yet. */
static CUresult before_first_launch(CUfunction kernel, struct route_growth *growth)
{
    growth->device = NULL;
    if (!kernel || !route_active())
        return CUDA_SUCCESS;
    uint64_t stack = stack_of(kernel);
    CUresult result = route_grow_stack(growth, stack);
    if (result == CUDA_SUCCESS && !growth->device)
        result = route_grow(growth, 0);
    return result;
}

static void after_first_launch(CUfunction kernel, const struct route_growth *growth, CUresult result)
{
    route_grown(growth);
    if (result == CUDA_SUCCESS)
        remember_kernel(kernel);
}

#define LAUNCH(kernel, stream, call)                                                                         \
    ({                                                                                                       \
        CUresult result_;                                                                                    \
        if (is_known(kernel)) {                                                                              \
            result_ = FENCE_SUBMIT(stream, call);                                                            \
        } else {                                                                                             \
            struct route_growth growth_;                                                                     \
            result_ = before_first_launch(kernel, &growth_);                                                 \
            if (result_ == CUDA_SUCCESS) {                                                                   \
                result_ = FENCE_SUBMIT(stream, call);                                                        \
                after_first_launch(kernel, &growth_, result_);                                               \
            }                                                                                                \
        }                                                                                                    \
        result_;                                                                                             \
    })

#define LAUNCH_HOOKS(suffix)                                                                                 \
    CUresult cuLaunchKernel##suffix(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,         \
                                    unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,  \
                                    CUstream stream, void **arguments, void **extra)                         \
    {                                                                                                        \
        return LAUNCH(                                                                                       \
            f, fence_stream##suffix(stream),                                                                 \
            driver.cuLaunchKernel##suffix(f, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra));     \
    }                                                                                                        \
                                                                                                             \
    CUresult cuLaunchKernelEx##suffix(const CUlaunchConfig *config, CUfunction f, void **arguments,          \
                                      void **extra)                                                          \
    {                                                                                                        \
        return LAUNCH(f, config ? fence_stream##suffix(config->hStream) : 1,                                 \
                      driver.cuLaunchKernelEx##suffix(config, f, arguments, extra));                         \
    }                                                                                                        \
                                                                                                             \
    CUresult cuLaunchCooperativeKernel##suffix(                                                              \
        CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,   \
        unsigned int bz, unsigned int shared, CUstream stream, void **arguments)                             \
    {                                                                                                        \
        return LAUNCH(                                                                                       \
            f, fence_stream##suffix(stream),                                                                 \
            driver.cuLaunchCooperativeKernel##suffix(f, gx, gy, gz, bx, by, bz, shared, stream, arguments)); \
    }

LAUNCH_HOOKS()
LAUNCH_HOOKS(_ptsz)

/* Runs a driver call that makes the context grow by `bytes`; 0: by an amount nobody knows beforehand. */
#define GROWING(bytes, call)                                                                                 \
    ({                                                                                                       \
        struct route_growth growth_;                                                                         \
        CUresult result_ = route_grow(&growth_, bytes);                                                      \
        if (result_ == CUDA_SUCCESS) {                                                                       \
            result_ = ROUTE_TRY(call, ROUTE_CURRENT);                                                        \
            route_grown(&growth_);                                                                           \
        }                                                                                                    \
        result_;                                                                                             \
    })

CUresult cuModuleLoad(CUmodule *module, const char *file)
{
    return GROWING(0, driver.cuModuleLoad(module, file));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return GROWING(0, driver.cuModuleLoadData(module, image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                            void **values)
{
    return GROWING(0, driver.cuModuleLoadDataEx(module, image, count, options, values));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return GROWING(0, driver.cuModuleLoadFatBinary(module, image));
}

CUresult cuModuleUnload(CUmodule module)
{
    forget_kernels();
    return driver.cuModuleUnload(module);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                           unsigned int jit_count, CUlibraryOption *options, void **values,
                           unsigned int count)
{
    return GROWING(0, driver.cuLibraryLoadData(library, code, jit_options, jit_values, jit_count, options,
                                               values, count));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, CUjit_option *jit_options,
                               void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                               void **values, unsigned int count)
{
    return GROWING(0, driver.cuLibraryLoadFromFile(library, file, jit_options, jit_values, jit_count, options,
                                                   values, count));
}

CUresult cuLibraryUnload(CUlibrary library)
{
    forget_kernels();
    return driver.cuLibraryUnload(library);
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return GROWING(0, driver.cuStreamCreate(stream, flags));
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    return GROWING(0, driver.cuStreamCreateWithPriority(stream, flags, priority));
}

CUresult cuCtxSetLimit(CUlimit which, size_t value)
{
    if (which == CU_LIMIT_MALLOC_HEAP_SIZE || which == CU_LIMIT_PRINTF_FIFO_SIZE)
        return GROWING(value, driver.cuCtxSetLimit(which, value));
    if (which != CU_LIMIT_STACK_SIZE)
        return driver.cuCtxSetLimit(which, value);
    struct route_growth growth;
    CUresult result = route_grow_stack(&growth, value);
    if (result == CUDA_SUCCESS) {
        result = driver.cuCtxSetLimit(which, value);
        route_grown(&growth);
    }
    return result;
}
