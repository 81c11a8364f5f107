/* tx_driver: fills the table of tx_driver.h. Never links the driver, and calls it only for lookups. Owns no
 * lock. */
#include "tx_driver.h"

#include <dlfcn.h>
#include <stdio.h>

struct driver drv;

static void *library;
static PFN_cuGetProcAddress_v12000 get_proc_address;

/* Called in place of a missing entry point of any type. Ignores its arguments. */
static CUresult absent(void)
{
    return DRIVER_ABSENT;
}

void *driver_symbol(const char *symbol)
{
    return dlsym(library, symbol);
}

void *driver_procaddr(const char *name, int version, cuuint64_t flags)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    if (!get_proc_address || get_proc_address(name, &found, version, flags, &status) != CUDA_SUCCESS)
        return NULL;
    return found;
}

static void *resolve(const char *name, int version, const char *symbol, enum driver_lookup how)
{
    void *found = how == DRIVER_BY_DLSYM ? driver_symbol(symbol)
                                         : driver_procaddr(name, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    return found ? found : (void *)absent;
}

bool driver_open(enum driver_lookup how)
{
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        return false;
    }
    get_proc_address = (PFN_cuGetProcAddress_v12000)driver_symbol("cuGetProcAddress_v2");
#define X(base, version, symbol) drv.base = (PFN_##base##_v##version)resolve(#base, version, symbol, how);
    DRIVER_LIST(X)
#undef X
    return true;
}
