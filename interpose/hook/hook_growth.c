/* Hooks on what makes a context grow by itself: code, streams, and above all stacks (a kernel with 16 KiB of
 * local arrays made a context grow by 3.9 GiB on an H200). Growth beyond the limit is refused as a full card
 * would refuse it. Owns no lock.
 *
 * Under a limit a launch asks for the stack of its kernel, unless the kernel is known to need little.
 */
#include "interpose/hook/growth.h"

#include "interpose/account/known_kernels.h"
#include "interpose/hook/hooks.h"
#include "interpose/hook/submit.h"
#include "interpose/pool/streams.h"
#include "interpose/route.h"

uint64_t growth_stack_of(CUfunction kernel)
{
    CUdevice ordinal;
    int bytes = 0;

    /* A launch also takes a CUkernel, as the runtime of CUDA 13 passes it. */
    if (driver.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel) != CUDA_SUCCESS &&
        (driver.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS ||
         driver.cuKernelGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, (CUkernel)kernel, ordinal) !=
             CUDA_SUCCESS))
        return 0;
    if (bytes <= ROUTE_STACK)
        known_kernels_add(kernel);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* Runs a launch after asking for the kernel's stack, if that is not known to be small. */
#define LAUNCH(kernel, stream, call)                                                                         \
    ({                                                                                                       \
        struct route_growth growth_ = {.device = NULL};                                                      \
        CUresult result_ = CUDA_SUCCESS;                                                                     \
        if (route_limited() && (kernel) && !known_kernels_has(kernel))                                       \
            result_ = route_grow_stack_begin(&growth_, growth_stack_of(kernel));                             \
        if (result_ == CUDA_SUCCESS)                                                                         \
            result_ = ROUTE_TRY_SELDOM(STREAMS_SUBMIT(stream, call));                                        \
        if (__builtin_expect(growth_.device != NULL, 0))                                                     \
            route_grow_result(&growth_, result_);                                                            \
        result_;                                                                                             \
    })

/* Stops relying on the order of streams if a kernel may begin before its predecessor has ended. */
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

/* A hook on a call that makes the context grow by an amount that is not known beforehand. */
#define GROWING(symbol, parameters, arguments)                                                               \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        struct route_growth growth;                                                                          \
        CUresult result = route_grow_begin(&growth, 0);                                                      \
        if (result == CUDA_SUCCESS) {                                                                        \
            result = ROUTE_TRY(driver.symbol arguments, ROUTE_CURRENT, 0);                                   \
            route_grow_result(&growth, result);                                                              \
        }                                                                                                    \
        return result;                                                                                       \
    }
/* A hook on a call that loads code late, or takes a little memory once in a while. It needs no grant: the
 * reserve is kept for it. If our idle memory fills the card, that is given back. */
#define SELDOM(symbol, parameters, arguments)                                                                \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        return ROUTE_TRY_SELDOM(driver.symbol arguments);                                                    \
    }
/* clang-format off */
GROWING(cuModuleLoad, (CUmodule *module, const char *file), (module, file))
GROWING(cuModuleLoadData, (CUmodule *module, const void *image), (module, image))
GROWING(cuModuleLoadDataEx, (CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                             void **values), (module, image, count, options, values))
GROWING(cuModuleLoadFatBinary, (CUmodule *module, const void *image), (module, image))
GROWING(cuLibraryLoadData, (CUlibrary *library, const void *code, CUjit_option *jit_options,
                            void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                            void **values, unsigned int count),
        (library, code, jit_options, jit_values, jit_count, options, values, count))
GROWING(cuLibraryLoadFromFile, (CUlibrary *library, const char *file, CUjit_option *jit_options,
                                void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                                void **values, unsigned int count),
        (library, file, jit_options, jit_values, jit_count, options, values, count))
GROWING(cuStreamCreate, (CUstream *stream, unsigned int flags), (stream, flags))
GROWING(cuStreamCreateWithPriority, (CUstream *stream, unsigned int flags, int priority),
        (stream, flags, priority))
GROWING(cuGreenCtxStreamCreate, (CUstream *stream, CUgreenCtx context, unsigned int flags, int priority),
        (stream, context, flags, priority))
SELDOM(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name),
       (function, module, name))
SELDOM(cuKernelGetFunction, (CUfunction *function, CUkernel kernel), (function, kernel))
SELDOM(cuLibraryGetModule, (CUmodule *module, CUlibrary library), (module, library))
SELDOM(cuFuncLoad, (CUfunction function), (function))
SELDOM(cuEventCreate, (CUevent *event, unsigned int flags), (event, flags))
/* clang-format on */

CUresult cuModuleUnload(CUmodule module)
{
    known_kernels_forget();
    return driver.cuModuleUnload(module);
}

CUresult cuLibraryUnload(CUlibrary library)
{
    known_kernels_forget();
    return driver.cuLibraryUnload(library);
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
        route_grow_result(&growth, result);
    }
    return result;
}
