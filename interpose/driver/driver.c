/* driver: see driver.h. The table is built aside and published once; a second thread waits until it is. No
 * lock: a constructor that looks us up may hold the dynamic loader's own. */
#include "interpose/driver/driver.h"

#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>

#include "interpose/driver/real.h"

atomic_bool driver_bound;
struct driver_table driver_entries;

static atomic_flag publishing = ATOMIC_FLAG_INIT;
static void *library_base; /* load address of the bound library; valid once bound */

/* Replaces an entry point that this driver does not have. */
static CUresult missing(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Replaces all entry points if there is no driver. */
static CUresult no_driver(void)
{
    return CUDA_ERROR_NOT_INITIALIZED;
}

static struct driver_table absent = {
#define HOOK(name, type) .name = (type)(void *)no_driver,
#include "interpose/driver/hooks.def"
};

static void *base_of(const void *address)
{
    Dl_info info;

    return address && dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* Returns a handle of the library that defines `symbol` if it is a driver, not merely linked to one. */
static void *owner_of(const void *symbol)
{
    Dl_info info;
    void *handle;

    if (!dladdr(symbol, &info) || !info.dli_fname ||
        !(handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)))
        return NULL;
    if (base_of(real_symbol(handle, "cuInit")) == info.dli_fbase)
        return handle;
    dlclose(handle);
    return NULL;
}

static void publish(const struct driver_table *table)
{
    if (atomic_flag_test_and_set(&publishing)) {
        while (!atomic_load_explicit(&driver_bound, memory_order_acquire))
            sched_yield();
        return;
    }
    driver_entries = *table;
    library_base = base_of((const void *)table->cuInit);
    atomic_store_explicit(&driver_bound, true, memory_order_release);
}

static void *entry(void *handle, const char *symbol)
{
    void *address = real_symbol(handle, symbol);

    return address ? address : (void *)missing;
}

static bool bind_to(void *handle)
{
    struct driver_table table;

    if (!handle || !real_symbol(handle, "cuInit"))
        return false;
#define HOOK(name, type) table.name = (type)entry(handle, #name);
#include "interpose/driver/hooks.def"
    publish(&table);
    return true;
}

bool driver_bind(const void *symbol)
{
    return atomic_load_explicit(&driver_bound, memory_order_acquire) || bind_to(owner_of(symbol));
}

bool driver_owns(const void *address)
{
    void *base = base_of(address), *other;

    if (!base || (atomic_load_explicit(&driver_bound, memory_order_acquire) && base == library_base))
        return base != NULL;
    if ((other = owner_of(address)))
        dlclose(other);
    return other != NULL;
}

struct driver_table *driver_bind_now(void)
{
    /* The program called our symbol in place of the driver's, so it means to use the driver. */
    return bind_to(dlopen("libcuda.so.1", RTLD_LAZY)) ? &driver_entries : &absent;
}

void driver_after_fork(void)
{
    if (!atomic_load_explicit(&driver_bound, memory_order_acquire))
        atomic_flag_clear(&publishing);
}
