/* Hooks on what makes a context grow by itself: code, streams, and above all stacks (a kernel with 16 KiB of
 * local arrays made a context grow by 3.9 GiB on an H200). Growth beyond the limit is refused as a full card
 * would refuse it. Owns no lock.
 *
 * Under a limit each launch asks for the stack of its kernel: 14 ns (H200). That needs no table of kernels,
 * and is right on every card, after a reset, and when modules are loaded or unloaded.
 */
#include "interpose/hook/growth.h"
#include "interpose/hook/hooks.h"
#include "interpose/hook/submit.h"
#include "interpose/pool/streams.h"
#include "interpose/route.h"

uint64_t growth_stack_of(CUfunction kernel)
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

/* Runs a launch after asking for the kernel's stack. */
#define LAUNCH(kernel, stream, call)                                                                         \
    ({                                                                                                       \
        struct route_growth growth_ = {.device = NULL};                                                      \
        CUresult result_ = CUDA_SUCCESS;                                                                     \
        if (route_limited() && (kernel))                                                                     \
            result_ = route_grow_stack_begin(&growth_, growth_stack_of(kernel));                             \
        if (result_ == CUDA_SUCCESS)                                                                         \
            result_ = ROUTE_TRY_SELDOM(STREAMS_SUBMIT(stream, call));                                        \
        if (__builtin_expect(growth_.device != NULL, 0))                                                     \
            route_grow_end(&growth_);                                                                        \
        result_;                                                                                             \
    })

/* Stops relying on the order of streams if a kernel may begin before the one before it in its stream has
 * ended. */
static void look_at_attributes(const CUlaunchConfig *config)
{
    for (unsigned int i = 0; config->attrs && i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];

        if ((attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
             attribute->value.programmaticStreamSerializationAllowed) ||
            attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
            streams_distrust();
    }
}

#define SUFFIX
#include "interpose/hook/hook_growth_launch.inc"
#undef SUFFIX
#define SUFFIX _ptsz
#include "interpose/hook/hook_growth_launch.inc"
#undef SUFFIX

/* Runs a driver call that makes the context grow by an amount that is not known beforehand. */
#define GROWING(call)                                                                                        \
    ({                                                                                                       \
        struct route_growth growth_;                                                                         \
        CUresult result_ = route_grow_begin(&growth_, 0);                                                    \
        if (result_ == CUDA_SUCCESS) {                                                                       \
            result_ = ROUTE_TRY(call, ROUTE_CURRENT, 0);                                                     \
            if (result_ == CUDA_SUCCESS)                                                                     \
                route_grow_end(&growth_);                                                                    \
            else                                                                                             \
                route_grow_abort(&growth_);                                                                  \
        }                                                                                                    \
        result_;                                                                                             \
    })

CUresult cuModuleLoad(CUmodule *module, const char *file)
{
    return GROWING(driver.cuModuleLoad(module, file));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return GROWING(driver.cuModuleLoadData(module, image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                            void **values)
{
    return GROWING(driver.cuModuleLoadDataEx(module, image, count, options, values));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return GROWING(driver.cuModuleLoadFatBinary(module, image));
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                           unsigned int jit_count, CUlibraryOption *options, void **values,
                           unsigned int count)
{
    return GROWING(
        driver.cuLibraryLoadData(library, code, jit_options, jit_values, jit_count, options, values, count));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, CUjit_option *jit_options,
                               void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                               void **values, unsigned int count)
{
    return GROWING(driver.cuLibraryLoadFromFile(library, file, jit_options, jit_values, jit_count, options,
                                                values, count));
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return GROWING(driver.cuStreamCreate(stream, flags));
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    return GROWING(driver.cuStreamCreateWithPriority(stream, flags, priority));
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned int flags, int priority)
{
    return GROWING(driver.cuGreenCtxStreamCreate(stream, context, flags, priority));
}

static CUresult set_heap(CUlimit which, size_t value)
{
    struct route_growth growth;
    CUresult result = route_grow_heap_begin(&growth, which, value);

    if (result != CUDA_SUCCESS)
        return result;
    result = ROUTE_TRY(driver.cuCtxSetLimit(which, value), ROUTE_CURRENT, 0);
    if (result == CUDA_SUCCESS)
        route_grow_heap_end(&growth, which, value);
    else
        route_grow_abort(&growth);
    return result;
}

CUresult cuCtxSetLimit(CUlimit which, size_t value)
{
    if (which == CU_LIMIT_MALLOC_HEAP_SIZE || which == CU_LIMIT_PRINTF_FIFO_SIZE)
        return set_heap(which, value);
    if (which != CU_LIMIT_STACK_SIZE)
        return driver.cuCtxSetLimit(which, value);
    struct route_growth growth;
    CUresult result = route_grow_stack_begin(&growth, value);
    if (result == CUDA_SUCCESS) {
        result = ROUTE_TRY_SELDOM(driver.cuCtxSetLimit(which, value));
        route_grow_end(&growth);
    }
    return result;
}

/* ---- what loads code late, or takes a little memory once in a while ----
 *
 * These need no grant: the reserve is kept for them. If our idle memory fills the card, it is given back.
 */

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    return ROUTE_TRY_SELDOM(driver.cuModuleGetFunction(function, module, name));
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    return ROUTE_TRY_SELDOM(driver.cuKernelGetFunction(function, kernel));
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    return ROUTE_TRY_SELDOM(driver.cuLibraryGetModule(module, library));
}

CUresult cuFuncLoad(CUfunction function)
{
    return ROUTE_TRY_SELDOM(driver.cuFuncLoad(function));
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    return ROUTE_TRY_SELDOM(driver.cuEventCreate(event, flags));
}
