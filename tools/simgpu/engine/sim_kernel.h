/* sim_kernel: modules, libraries and kernels. A kernel's name in PTX is bound to a host function.
 *
 * That is the program's own simgpu_kernel_NAME or, failing that, a built-in one (sim_kernel_builtin.c). A
 * kernel that has neither is listed, but a lookup by name and a launch return NOT_FOUND. A module belongs to
 * a context, a library to none. A CUkernel can be launched in place of its CUfunction, but most other calls
 * tell them apart, as in the driver. Guarded by the engine's lock.
 */
#ifndef SIMGPU_KERNEL_H
#define SIMGPU_KERNEL_H

#include "tools/simgpu/engine/sim_context.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_work.h"

simgpu_kernel *sim_kernel_builtin(const char *name); /* NULL: no such kernel */
/* Unloads the modules of a context. Lock held. */
void sim_kernel_end_context(struct CUctx_st *context);

/* The driver's calls; they take the lock. */

CUresult sim_kernel_load_module(CUmodule *out, const void *image);
CUresult sim_kernel_unload_module(CUmodule module);
CUresult sim_kernel_module_function(CUfunction *out, CUmodule module, const char *name);
CUresult sim_kernel_module_global(CUdeviceptr *address, size_t *size, CUmodule module, const char *name);
CUresult sim_kernel_module_count(unsigned int *out, CUmodule module);
/* Lists the first `room` functions of a module, in its order. They need not be loaded yet. */
CUresult sim_kernel_module_functions(CUfunction *out, unsigned int room, CUmodule module);

CUresult sim_kernel_load_library(CUlibrary *out, const void *image);
CUresult sim_kernel_unload_library(CUlibrary library);
CUresult sim_kernel_library_kernel(CUkernel *out, CUlibrary library, const char *name);
CUresult sim_kernel_library_count(unsigned int *out, CUlibrary library);
CUresult sim_kernel_library_kernels(CUkernel *out, unsigned int room, CUlibrary library);
CUresult sim_kernel_function_of(CUfunction *out, CUkernel kernel);

/* `kind` is OBJECT_FUNCTION or OBJECT_KERNEL: a handle of the other kind is invalid. */
CUresult sim_kernel_attribute(int *out, CUfunction_attribute attribute, const void *handle,
                              enum sim_object_kind kind);
CUresult sim_kernel_name(const char **out, const void *handle, enum sim_object_kind kind);
CUresult sim_kernel_parameter(const void *handle, enum sim_object_kind kind, size_t index, size_t *offset,
                              size_t *size);
CUresult sim_kernel_check(const void *handle, enum sim_object_kind kind); /* is the handle valid? */
CUresult sim_kernel_can_run(CUfunction function);                         /* either kind can */
CUresult sim_kernel_module_of(CUmodule *out, CUfunction function);
/* A function is loaded by a lookup by name, by cuFuncLoad or by its first launch. */
CUresult sim_kernel_is_loaded(CUfunctionLoadingState *out, CUfunction function);
CUresult sim_kernel_load(CUfunction function);

struct sim_kernel_launch {
    CUfunction function;
    struct simgpu_dim grid, block;
    void **parameters;
    void **extra;
    bool early; /* may begin before the previous kernel has ended (sim_stream_work.h) */
};
CUresult sim_kernel_work(const struct sim_kernel_launch *launch, struct sim_work **out);
CUresult sim_kernel_launch(const struct sim_kernel_launch *launch, CUstream stream);

#endif
