/* bridge_kernel: entry points for modules, libraries and launches. Only checks arguments; see
 * engine/sim_kernel.h. */
#include "tools/simgpu/engine/sim_kernel.h"

#include "tools/simgpu/bridge/bridge_per_thread.h"

#include <stdio.h>
#include <stdlib.h>

#define WARP                32
#define THREADS_PER_SM      2048
#define BLOCKS_PER_SM       32
#define SM_COUNT            132
#define THREADS_PER_BLOCK   1024
#define SHARED_BYTES_PER_SM 233472
#define FILE_LIMIT          (64l << 20)

/* ---- modules ---- */

SINGLE(cuModuleLoadData, sim_kernel_load_module(out, image), CUmodule *out, const void *image)

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, CUjit_option *options,
                            void **values)
{
    (void)count, (void)options, (void)values; /* simgpu compiles nothing */
    return CALL(cuModuleLoadDataEx, sim_kernel_load_module(out, image));
}

/* Reads a whole file as text. Returns NULL if it cannot be read. */
static char *read_text(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    long size;

    if (!file)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && size <= FILE_LIMIT) {
        text = calloc(1, (size_t)size + 1);
        rewind(file);
        if (text && fread(text, 1, (size_t)size, file) != (size_t)size) {
            free(text);
            text = NULL;
        }
    }
    fclose(file);
    return text;
}

static CUresult load_file(CUmodule *out, const char *path)
{
    char *text = path ? read_text(path) : NULL;
    CUresult result;

    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    if (!text)
        return CUDA_ERROR_FILE_NOT_FOUND;
    result = sim_kernel_load_module(out, text);
    free(text);
    return result;
}

SINGLE(cuModuleLoad, load_file(out, path), CUmodule *out, const char *path)
SINGLE(cuModuleUnload, sim_kernel_unload_module(module), CUmodule module)

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    return CALL(cuModuleGetFunction, sim_kernel_module_function(out, module, name));
}

SINGLE(cuModuleGetFunctionCount, sim_kernel_module_count(out, module), unsigned int *out, CUmodule module)

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
    return CALL(cuModuleEnumerateFunctions, sim_kernel_module_functions(functions, count, module));
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
    return CALL(cuModuleGetGlobal_v2, sim_kernel_module_global(address, size, module, name));
}

static CUresult loading_mode(CUmoduleLoadingMode *mode)
{
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

SINGLE(cuModuleGetLoadingMode, loading_mode(mode), CUmoduleLoadingMode *mode)

/* ---- libraries ---- */

CUresult cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *options, void **values,
                           unsigned int count, CUlibraryOption *library_options, void **library_values,
                           unsigned int library_count)
{
    (void)options, (void)values, (void)count, (void)library_options, (void)library_values,
        (void)library_count;
    return CALL(cuLibraryLoadData, sim_kernel_load_library(out, code));
}

SINGLE(cuLibraryUnload, sim_kernel_unload_library(library), CUlibrary library)

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
    return CALL(cuLibraryGetKernel, sim_kernel_library_kernel(out, library, name));
}

SINGLE(cuLibraryGetKernelCount, sim_kernel_library_count(out, library), unsigned int *out, CUlibrary library)

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library)
{
    return CALL(cuLibraryEnumerateKernels, sim_kernel_library_kernels(kernels, count, library));
}

SINGLE(cuKernelGetFunction, sim_kernel_function_of(out, kernel), CUfunction *out, CUkernel kernel)
SINGLE(cuKernelGetName, sim_kernel_name(out, kernel, OBJECT_KERNEL), const char **out, CUkernel kernel)

CUresult cuKernelGetAttribute(int *out, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    (void)device; /* all cards are alike */
    return CALL(cuKernelGetAttribute, sim_kernel_attribute(out, attribute, kernel, OBJECT_KERNEL));
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    (void)attribute, (void)value, (void)device; /* host functions have no shared memory to size */
    return CALL(cuKernelSetAttribute, sim_kernel_check(kernel, OBJECT_KERNEL));
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    return CALL(cuKernelGetParamInfo, sim_kernel_parameter(kernel, OBJECT_KERNEL, index, offset, size));
}

/* ---- functions ---- */

CUresult cuFuncGetAttribute(int *out, CUfunction_attribute attribute, CUfunction function)
{
    return CALL(cuFuncGetAttribute, sim_kernel_attribute(out, attribute, function, OBJECT_FUNCTION));
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    (void)attribute, (void)value;
    return CALL(cuFuncSetAttribute, sim_kernel_check(function, OBJECT_FUNCTION));
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    (void)config;
    return CALL(cuFuncSetCacheConfig, sim_kernel_check(function, OBJECT_FUNCTION));
}

SINGLE(cuFuncGetModule, sim_kernel_module_of(out, function), CUmodule *out, CUfunction function)
SINGLE(cuFuncGetName, sim_kernel_name(out, function, OBJECT_FUNCTION), const char **out, CUfunction function)

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    return CALL(cuFuncGetParamInfo, sim_kernel_parameter(function, OBJECT_FUNCTION, index, offset, size));
}

SINGLE(cuFuncIsLoaded, sim_kernel_is_loaded(out, function), CUfunctionLoadingState *out, CUfunction function)
SINGLE(cuFuncLoad, sim_kernel_load(function), CUfunction function)

/* ---- launches ---- */

#define DIM(name) unsigned int name##_x, unsigned int name##_y, unsigned int name##_z
#define LAUNCH(function, parameters, extra)                                                                  \
    (&(struct sim_kernel_launch){                                                                            \
        function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, parameters, extra, false})

PAIR(cuLaunchKernel,
     (CUfunction function, DIM(grid), DIM(block), unsigned int shared, CUstream stream, void **parameters,
      void **extra),
     ((void)shared, sim_kernel_launch(LAUNCH(function, parameters, extra), stream)))

PAIR(cuLaunchCooperativeKernel,
     (CUfunction function, DIM(grid), DIM(block), unsigned int shared, CUstream stream, void **parameters),
     ((void)shared, sim_kernel_launch(LAUNCH(function, parameters, NULL), stream)))

/* Was it launched with programmatic stream serialization? */
static bool is_early(const CUlaunchConfig *config)
{
    unsigned int i;

    for (i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return config->attrs[i].value.programmaticStreamSerializationAllowed != 0;
    return false;
}

/* cuLaunchKernelEx: the stream is in the configuration. */
static CUresult launch_ex(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra,
                          bool per_thread_stream)
{
    struct sim_kernel_launch launch;

    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    launch = (struct sim_kernel_launch){.function = function,
                                        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                                        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                                        .parameters = parameters,
                                        .extra = extra,
                                        .early = is_early(config)};
    return sim_kernel_launch(&launch, per_thread_stream ? sim_per_thread(config->hStream) : config->hStream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    return CALL(cuLaunchKernelEx, launch_ex(config, function, parameters, extra, false));
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **parameters,
                               void **extra)
{
    return CALL(cuLaunchKernelEx_ptsz, launch_ex(config, function, parameters, extra, true));
}

/* ---- occupancy ---- */

static CUresult blocks_per_sm(int *out, CUfunction function, int block_size, size_t shared)
{
    CUresult result = sim_kernel_can_run(function);
    int blocks;

    if (!out || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    blocks = block_size > THREADS_PER_BLOCK ? 0 : THREADS_PER_SM / ((block_size + WARP - 1) / WARP * WARP);
    if (blocks > BLOCKS_PER_SM)
        blocks = BLOCKS_PER_SM;
    if (shared > 0 && (size_t)blocks > SHARED_BYTES_PER_SM / shared)
        blocks = (int)(SHARED_BYTES_PER_SM / shared);
    *out = blocks;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction function, int block_size,
                                                     size_t shared)
{
    return CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor,
                blocks_per_sm(out, function, block_size, shared));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, CUfunction function, int block_size,
                                                              size_t shared, unsigned int flags)
{
    (void)flags;
    return CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
                blocks_per_sm(out, function, block_size, shared));
}

static CUresult best_block(int *grid, int *block, CUfunction function, int limit)
{
    CUresult result = sim_kernel_can_run(function);

    if (!grid || !block)
        return CUDA_ERROR_INVALID_VALUE;
    *block = limit > 0 && limit < THREADS_PER_BLOCK ? limit : THREADS_PER_BLOCK;
    *grid = SM_COUNT * (THREADS_PER_SM / THREADS_PER_BLOCK);
    return result;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                          CUoccupancyB2DSize to_shared, size_t shared, int limit)
{
    (void)to_shared, (void)shared;
    return CALL(cuOccupancyMaxPotentialBlockSize, best_block(grid, block, function, limit));
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                   CUoccupancyB2DSize to_shared, size_t shared, int limit,
                                                   unsigned int flags)
{
    (void)to_shared, (void)shared, (void)flags;
    return CALL(cuOccupancyMaxPotentialBlockSizeWithFlags, best_block(grid, block, function, limit));
}
