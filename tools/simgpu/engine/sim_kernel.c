/* sim_kernel: modules, libraries and kernels. See sim_kernel.h. */
#include "tools/simgpu/engine/sim_kernel.h"

#include "tools/simgpu/engine/sim_alloc.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_ptx.h"
#include "tools/simgpu/engine/sim_stream.h"
#include "tools/simgpu/engine/sim_stream_work.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYMBOL_PREFIX     "simgpu_kernel_"
#define THREADS_PER_BLOCK 1024
#define GRID_Y_MAX        65535u
#define FIRST_OPTION      1

/* A CUfunction, or the CUkernel of a library. */
struct CUfunc_st {
    struct sim_link link; /* in image->functions; a kernel stands before its function */
    struct image *image;
    struct CUfunc_st *function; /* of a kernel, once it has been asked for */
    simgpu_kernel *run;         /* NULL: no host function of that name */
    bool loaded;
    struct sim_ptx_entry entry;
};

struct global {
    struct sim_link link; /* in image->globals */
    char name[PTX_MAX_NAME];
    struct sim_block *block;
};

/* A CUmodule or a CUlibrary. */
struct image {
    struct sim_link link;     /* in context->modules; unused for a library */
    struct CUctx_st *context; /* NULL for a library */
    struct sim_link functions, globals;
    char *text;
};

/* ---- loading ---- */

static void free_image(struct image *image)
{
    sim_object_remove(image);
    sim_list_remove(&image->link);
    while (!sim_list_empty(&image->functions)) {
        struct CUfunc_st *function = LIST_ITEM(image->functions.next, struct CUfunc_st, link);

        sim_object_remove(function);
        sim_list_remove(&function->link);
        free(function);
    }
    while (!sim_list_empty(&image->globals)) {
        struct global *global = LIST_ITEM(image->globals.next, struct global, link);

        sim_list_remove(&global->link);
        sim_block_withdraw(global->block);
        sim_alloc_give_back(global->block);
        free(global);
    }
    free(image->text);
    free(image);
}

static CUresult load(struct image **out, const void *data, struct CUctx_st *context,
                     enum sim_object_kind kind)
{
    struct image *image;

    if (!sim_ptx_is_text(data))
        return CUDA_ERROR_INVALID_IMAGE;
    image = calloc(1, sizeof(*image));
    if (!image)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_list_init(&image->link);
    sim_list_init(&image->functions);
    sim_list_init(&image->globals);
    image->text = strdup(data);
    if (!image->text || !sim_object_add(image, kind)) {
        free_image(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    image->context = context;
    if (context)
        sim_list_append(&context->modules, &image->link);
    *out = image;
    return CUDA_SUCCESS;
}

CUresult sim_kernel_load_module(CUmodule *out, const void *data)
{
    struct CUctx_st *context;

    if (!out || !data)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    return load((struct image **)out, data, context, OBJECT_MODULE);
}

CUresult sim_kernel_load_library(CUlibrary *out, const void *data)
{
    if (!out || !data)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    return load((struct image **)out, data, NULL, OBJECT_LIBRARY);
}

static CUresult unload(void *handle, enum sim_object_kind kind)
{
    struct image *image = handle;

    SIM_LOCKED();
    if (!sim_object_is(handle, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    if (image->context)
        sim_stream_wait_context(image->context);
    if (sim_object_is(handle, kind)) /* no other thread has unloaded it while we waited */
        free_image(image);
    return CUDA_SUCCESS;
}

CUresult sim_kernel_unload_module(CUmodule module)
{
    return unload(module, OBJECT_MODULE);
}

CUresult sim_kernel_unload_library(CUlibrary library)
{
    return unload(library, OBJECT_LIBRARY);
}

void sim_kernel_end_context(struct CUctx_st *context)
{
    while (!sim_list_empty(&context->modules))
        free_image(LIST_ITEM(context->modules.next, struct image, link));
}

/* ---- functions ---- */

static simgpu_kernel *bind(const char *name)
{
    char symbol[sizeof(SYMBOL_PREFIX) + PTX_MAX_NAME];
    simgpu_kernel *own;

    snprintf(symbol, sizeof(symbol), SYMBOL_PREFIX "%s", name);
    *(void **)&own = dlsym(RTLD_DEFAULT, symbol);
    return own ? own : sim_kernel_builtin(name);
}

static struct CUfunc_st *find_function(struct image *image, const char *name)
{
    struct sim_link *at;

    for (at = image->functions.next; at != &image->functions; at = at->next)
        if (strcmp(LIST_ITEM(at, struct CUfunc_st, link)->entry.name, name) == 0)
            return LIST_ITEM(at, struct CUfunc_st, link);
    return NULL;
}

static struct CUfunc_st *add_function(struct image *image, const struct sim_ptx_entry *entry,
                                      enum sim_object_kind kind)
{
    struct CUfunc_st *function = calloc(1, sizeof(*function));

    if (!function || !sim_object_add(function, kind)) {
        free(function);
        return NULL;
    }
    function->entry = *entry;
    function->run = bind(entry->name);
    function->image = image;
    sim_list_append(&image->functions, &function->link);
    return function;
}

static struct CUfunc_st *make_function(struct image *image, const char *name, enum sim_object_kind kind)
{
    const char *at = image->text;
    struct sim_ptx_entry entry;

    while (sim_ptx_next_entry(&at, &entry))
        if (strcmp(entry.name, name) == 0)
            return add_function(image, &entry, kind);
    return NULL;
}

static CUresult get_function(void *handle, enum sim_object_kind owner, const char *name,
                             enum sim_object_kind kind, void **out)
{
    struct CUfunc_st *function;

    if (!out || !name)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!sim_object_is(handle, owner))
        return CUDA_ERROR_INVALID_HANDLE;
    function = find_function(handle, name);
    if (!function)
        function = make_function(handle, name, kind);
    if (!function || !function->run)
        return CUDA_ERROR_NOT_FOUND;
    function->loaded = true;
    *out = function;
    return CUDA_SUCCESS;
}

static CUresult list_functions(void **out, unsigned int room, void *handle, enum sim_object_kind owner,
                               enum sim_object_kind kind)
{
    struct sim_ptx_entry entry;
    unsigned int i;
    const char *at;

    if (!out && room > 0)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!sim_object_is(handle, owner))
        return CUDA_ERROR_INVALID_HANDLE;
    at = ((struct image *)handle)->text;
    for (i = 0; i < room && sim_ptx_next_entry(&at, &entry); i++) {
        out[i] = find_function(handle, entry.name);
        if (!out[i])
            out[i] = add_function(handle, &entry, kind);
        if (!out[i])
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult sim_kernel_module_functions(CUfunction *out, unsigned int room, CUmodule module)
{
    return list_functions((void **)out, room, module, OBJECT_MODULE, OBJECT_FUNCTION);
}

CUresult sim_kernel_library_kernels(CUkernel *out, unsigned int room, CUlibrary library)
{
    return list_functions((void **)out, room, library, OBJECT_LIBRARY, OBJECT_KERNEL);
}

CUresult sim_kernel_module_function(CUfunction *out, CUmodule module, const char *name)
{
    return get_function(module, OBJECT_MODULE, name, OBJECT_FUNCTION, (void **)out);
}

CUresult sim_kernel_library_kernel(CUkernel *out, CUlibrary library, const char *name)
{
    return get_function(library, OBJECT_LIBRARY, name, OBJECT_KERNEL, (void **)out);
}

CUresult sim_kernel_function_of(CUfunction *out, CUkernel handle)
{
    struct CUfunc_st *kernel = (struct CUfunc_st *)handle;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!sim_object_is(kernel, OBJECT_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!kernel->function)
        kernel->function = add_function(kernel->image, &kernel->entry, OBJECT_FUNCTION);
    if (!kernel->function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->function->loaded = true;
    *out = kernel->function;
    return CUDA_SUCCESS;
}

static CUresult count(unsigned int *out, void *handle, enum sim_object_kind kind)
{
    struct sim_ptx_entry entry;
    const char *at;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!sim_object_is(handle, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = 0;
    for (at = ((struct image *)handle)->text; sim_ptx_next_entry(&at, &entry);)
        (*out)++;
    return CUDA_SUCCESS;
}

CUresult sim_kernel_module_count(unsigned int *out, CUmodule module)
{
    return count(out, module, OBJECT_MODULE);
}

CUresult sim_kernel_library_count(unsigned int *out, CUlibrary library)
{
    return count(out, library, OBJECT_LIBRARY);
}

/* ---- variables ---- */

static struct global *find_global(struct image *image, const char *name)
{
    struct sim_link *at;

    for (at = image->globals.next; at != &image->globals; at = at->next)
        if (strcmp(LIST_ITEM(at, struct global, link)->name, name) == 0)
            return LIST_ITEM(at, struct global, link);
    return NULL;
}

static CUresult make_global(struct image *image, const char *name, struct global **out)
{
    const char *at = image->text;
    struct sim_ptx_variable variable;
    struct global *global;
    CUresult result;

    while (sim_ptx_next_variable(&at, &variable)) {
        if (strcmp(variable.name, name) != 0)
            continue;
        global = calloc(1, sizeof(*global));
        if (!global)
            return CUDA_ERROR_OUT_OF_MEMORY;
        result = sim_alloc_block(image->context, BLOCK_DEVICE, variable.size, &global->block);
        if (result != CUDA_SUCCESS) {
            free(global);
            return result;
        }
        sim_object_remove(
            global->block); /* owned by the module: does not count as a leak, cannot be freed by address */
        global->block->kind = BLOCK_GLOBAL;
        sim_list_remove(&global->block->link);
        memcpy(global->name, variable.name, sizeof(global->name));
        sim_list_append(&image->globals, &global->link);
        *out = global;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult sim_kernel_module_global(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
    struct global *global;

    if (!name || (!address && !size))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!sim_object_is(module, OBJECT_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    global = find_global((struct image *)module, name);
    if (!global)
        SIM_TRY(make_global((struct image *)module, name, &global));
    if (address)
        *address = global->block->range.start;
    if (size)
        *size = global->block->range.size;
    return CUDA_SUCCESS;
}

/* ---- attributes ---- */

static bool can_run(CUfunction function)
{
    return sim_object_is(function, OBJECT_FUNCTION) || sim_object_is(function, OBJECT_KERNEL);
}

CUresult sim_kernel_can_run(CUfunction function)
{
    SIM_LOCKED();
    return can_run(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_kernel_check(const void *handle, enum sim_object_kind kind)
{
    SIM_LOCKED();
    return sim_object_is(handle, kind) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_kernel_is_loaded(CUfunctionLoadingState *out, CUfunction function)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!sim_object_is(function, OBJECT_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = function->loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

CUresult sim_kernel_load(CUfunction function)
{
    SIM_LOCKED();
    if (!sim_object_is(function, OBJECT_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    function->loaded = true;
    return CUDA_SUCCESS;
}

CUresult sim_kernel_attribute(int *out, CUfunction_attribute attribute, const void *handle,
                              enum sim_object_kind kind)
{
    const struct CUfunc_st *function = handle;

    if (!out || (unsigned int)attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_kernel_check(function, kind));
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *out = THREADS_PER_BLOCK;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *out = (int)function->entry.local;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *out = 16;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *out = 90;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *out = 49152;
        break;
    default:
        *out = 0;
    }
    return CUDA_SUCCESS;
}

CUresult sim_kernel_name(const char **out, const void *handle, enum sim_object_kind kind)
{
    const struct CUfunc_st *function = handle;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_kernel_check(function, kind));
    *out = function->entry.name;
    return CUDA_SUCCESS;
}

CUresult sim_kernel_module_of(CUmodule *out, CUfunction function)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_kernel_check(function, OBJECT_FUNCTION));
    *out = (CUmodule)function->image;
    return CUDA_SUCCESS;
}

CUresult sim_kernel_parameter(const void *handle, enum sim_object_kind kind, size_t index, size_t *offset,
                              size_t *size)
{
    const struct CUfunc_st *function = handle;

    SIM_TRY(sim_kernel_check(function, kind));
    if (!offset || index >= function->entry.count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = function->entry.offset[index];
    if (size)
        *size = function->entry.size[index];
    return CUDA_SUCCESS;
}

/* ---- launching ---- */

/* Reads the `extra` list of a launch, which ends with CU_LAUNCH_PARAM_END. It holds a pointer to the buffer's
 * size. */
static bool read_extra(void **extra, const char **buffer, size_t *size)
{
    *buffer = NULL;
    *size = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *buffer = extra[FIRST_OPTION];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *size = *(size_t *)extra[FIRST_OPTION];
        else
            return false;
    }
    return *buffer != NULL;
}

/* Fills the work's buffer: pointers to the arguments, then the arguments. */
static CUresult copy_arguments(struct sim_work *work, const struct sim_ptx_entry *entry,
                               const struct sim_kernel_launch *launch)
{
    size_t head = (entry->count * sizeof(void *) + 255) & ~(size_t)255, size = 0;
    const char *buffer = NULL;
    unsigned int i;
    char *base;

    if (launch->extra &&
        (launch->parameters || !read_extra(launch->extra, &buffer, &size) || size < entry->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (entry->count > 0 && !launch->parameters && !buffer)
        return CUDA_ERROR_INVALID_VALUE;
    work->owned_size = head + entry->bytes + 1;
    work->owned = base = calloc(1, work->owned_size);
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (i = 0; i < entry->count; i++) {
        ((void **)work->owned)[i] = base + head + entry->offset[i];
        memcpy(base + head + entry->offset[i], buffer ? buffer + entry->offset[i] : launch->parameters[i],
               entry->size[i]);
    }
    return CUDA_SUCCESS;
}

static bool good_dims(const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    return grid->x > 0 && grid->x <= INT32_MAX && grid->y > 0 && grid->y <= GRID_Y_MAX && grid->z > 0 &&
           grid->z <= GRID_Y_MAX && block->x > 0 && block->y > 0 && block->z > 0 && block->z <= 64 &&
           (uint64_t)block->x * block->y <= THREADS_PER_BLOCK &&
           (uint64_t)block->x * block->y * block->z <= THREADS_PER_BLOCK;
}

/* Makes the work of a launch. Lock held. */
static CUresult make_work(const struct sim_kernel_launch *launch, struct sim_work **out)
{
    struct sim_work *work;
    CUresult result;

    if (!can_run(launch->function))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!launch->function->run)
        return CUDA_ERROR_NOT_FOUND;
    if (!good_dims(&launch->grid, &launch->block))
        return CUDA_ERROR_INVALID_VALUE;
    work = sim_work_new(WORK_KERNEL);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = copy_arguments(work, &launch->function->entry, launch);
    if (result != CUDA_SUCCESS) {
        sim_work_delete(work);
        return result;
    }
    work->kernel.function = launch->function->run;
    work->kernel.handle = launch->function;
    work->kernel.early = launch->early;
    work->kernel.count = launch->function->entry.count;
    work->kernel.local = launch->function->entry.local;
    work->kernel.grid = launch->grid;
    work->kernel.block = launch->block;
    launch->function->loaded = true;
    *out = work;
    return CUDA_SUCCESS;
}

CUresult sim_kernel_work(const struct sim_kernel_launch *launch, struct sim_work **out)
{
    SIM_LOCKED();
    return make_work(launch, out);
}

CUresult sim_kernel_launch(const struct sim_kernel_launch *launch, CUstream handle)
{
    struct CUstream_st *stream;
    struct sim_work *work;

    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    SIM_TRY(make_work(launch, &work));
    return sim_stream_submit(stream, work, false);
}
