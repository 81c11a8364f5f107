/* kernel: modules, libraries and kernels. A kernel's name in PTX is bound to a host function.
 *
 * First the program's own simgpu_kernel_NAME, then the built-in ones (kernel_builtin.c). A function that has
 * neither can be listed, and is NOT_FOUND by name and at a launch. A module belongs to
 * a context, a library to none; a CUkernel can stand for its CUfunction, as in the driver. Guarded by the
 * engine's lock.
 */
#ifndef SIMGPU_KERNEL_H
#define SIMGPU_KERNEL_H

#include "tools/simgpu/engine/sim_context.h"
#include "tools/simgpu/engine/sim_work.h"

simgpu_kernel *kernel_builtin(const char *name);   /* NULL: there is none */
void kernel_end_context(struct CUctx_st *context); /* lock held */

CUresult kernel_load_module(CUmodule *out, const void *image);
CUresult kernel_unload_module(CUmodule module);
CUresult kernel_module_function(CUfunction *out, CUmodule module, const char *name);
CUresult kernel_module_global(CUdeviceptr *address, size_t *size, CUmodule module, const char *name);
CUresult kernel_module_count(unsigned int *out, CUmodule module);
/* The first `room` functions of a module, in its order, which may not be loaded yet. */
CUresult kernel_module_functions(CUfunction *out, unsigned int room, CUmodule module);

CUresult kernel_load_library(CUlibrary *out, const void *image);
CUresult kernel_unload_library(CUlibrary library);
CUresult kernel_library_kernel(CUkernel *out, CUlibrary library, const char *name);
CUresult kernel_library_count(unsigned int *out, CUlibrary library);
CUresult kernel_library_kernels(CUkernel *out, unsigned int room, CUlibrary library);
CUresult kernel_function_of(CUfunction *out, CUkernel kernel);

CUresult kernel_attribute(int *out, CUfunction_attribute attribute, CUfunction function);
CUresult kernel_name(const char **out, CUfunction function);
CUresult kernel_module_of(CUmodule *out, CUfunction function);
CUresult kernel_parameter(CUfunction function, size_t index, size_t *offset, size_t *size);
CUresult kernel_check(CUfunction function); /* is it one? */
/* A function is loaded when it is asked for by name, by cuFuncLoad or by its first launch. */
CUresult kernel_is_loaded(CUfunctionLoadingState *out, CUfunction function);
CUresult kernel_load(CUfunction function);

struct kernel_launch {
    CUfunction function;
    struct simgpu_dim grid, block;
    void **parameters;
    void **extra;
    bool early; /* may begin before the kernel in front of it has ended (stream.h) */
};
CUresult kernel_work(const struct kernel_launch *launch, struct work **out);
CUresult kernel_launch(const struct kernel_launch *launch, CUstream stream);

#endif
