/* driver: see driver.h. Owns bind_lock, held only while the table is filled. */
#include "driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "resolve.h"

struct driver_table driver;

static atomic_bool bound;
static pthread_mutex_t bind_lock = PTHREAD_MUTEX_INITIALIZER;
static char bound_path[PATH_MAX];

/* Stands in for an entry point that this driver does not have. */
static CUresult missing(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void *open_driver(const void *symbol)
{
    Dl_info info;
    void *handle;

    if (symbol && dladdr(symbol, &info) && info.dli_fname && (handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)))
        return handle;
    handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    /* The calling program holds our symbol instead of the driver's, so it means to use the driver. */
    return handle || symbol ? handle : dlopen("libcuda.so.1", RTLD_LAZY);
}

static void *entry(void *handle, const char *symbol)
{
    void *address = resolve_real(handle, symbol);

    return address ? address : (void *)missing;
}

bool driver_bind(const void *symbol)
{
    if (atomic_load_explicit(&bound, memory_order_acquire))
        return true;
    pthread_mutex_lock(&bind_lock);
    if (!atomic_load_explicit(&bound, memory_order_relaxed)) {
        void *handle = open_driver(symbol);
        void *init = handle ? resolve_real(handle, "cuInit") : NULL;

        if (init) {
            Dl_info info;
#define HOOK(name, type) driver.name = (type)entry(handle, #name);
#define CALL(name, type) driver.name = (type)entry(handle, #name);
#include "hooks.def"
#undef HOOK
#undef CALL
            if (dladdr(init, &info) && info.dli_fname)
                strncpy(bound_path, info.dli_fname, sizeof bound_path - 1);
            atomic_store_explicit(&bound, true, memory_order_release);
        }
    }
    pthread_mutex_unlock(&bind_lock);
    return atomic_load_explicit(&bound, memory_order_acquire);
}

const char *driver_path(void)
{
    return atomic_load_explicit(&bound, memory_order_acquire) ? bound_path : NULL;
}
