/* prog_driver: how test programs find the driver. See prog_driver.h. Compiled twice: with PROG_DIRECT the
 * program is linked with libcuda. */
#include "prog_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct prog_driver cu;

/* How one entry point is found. */
typedef void *finder(const char *name, const char *symbol, int version);

static void *library;
static PFN_cuGetProcAddress_v12000 get_v2;
static PFN_cuGetProcAddress_v11030 get_v1;
static cuuint64_t flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM;

static void *by_dlsym(const char *name, const char *symbol, int version)
{
    (void)name, (void)version;
    return dlsym(library, symbol);
}

static void *by_get_v2(const char *name, const char *symbol, int version)
{
    CUdriverProcAddressQueryResult status;
    void *found = NULL;

    (void)symbol;
    /* Per-thread streams came with 7.0, whatever the age of the call itself. */
    if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && version < 7000)
        version = 7000;
    return get_v2(name, &found, version, flags, &status) == CUDA_SUCCESS ? found : NULL;
}

static void *by_get_v1(const char *name, const char *symbol, int version)
{
    void *found = NULL;

    (void)symbol;
    return get_v1(name, &found, version, flags) == CUDA_SUCCESS ? found : NULL;
}

static bool fill(finder *find)
{
    bool complete = true;

#define FIND(name, symbol, version, type)                                                                    \
    if (!(cu.name = (type)find(#name, #symbol, version))) {                                                  \
        fprintf(stderr, "prog: no %s\n", #symbol);                                                           \
        complete = false;                                                                                    \
    }
    DRIVER_TABLE(FIND)
#undef FIND
    return complete;
}

#ifdef PROG_DIRECT
static bool fill_direct(void)
{
#define TAKE(name, symbol, version, type) cu.name = symbol;
    DRIVER_TABLE(TAKE)
#undef TAKE
    return true;
}
#endif

bool prog_driver_open(const char *way)
{
#ifdef PROG_DIRECT
    if (!strcmp(way, "direct"))
        return fill_direct();
#endif
    const bool everywhere = !strcmp(way, "default");

    library = dlopen("libcuda.so.1", RTLD_NOW | (everywhere ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library) {
        fprintf(stderr, "prog: %s\n", dlerror());
        return false;
    }
    if (everywhere)
        library = RTLD_DEFAULT;
    if (!strcmp(way, "dlsym") || everywhere)
        return fill(by_dlsym);
    get_v2 = (PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
    get_v1 = (PFN_cuGetProcAddress_v11030)dlsym(library, "cuGetProcAddress");
    if (!strcmp(way, "ptsz"))
        flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!strcmp(way, "proc1"))
        return get_v1 && fill(by_get_v1);
    return get_v2 && fill(by_get_v2);
}

unsigned long prog_driver_leaks(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    unsigned long (*leaks)(void) = driver ? (unsigned long (*)(void))dlsym(driver, "simgpu_leaks") : NULL;

    return leaks ? leaks() : 0;
}

int prog_driver_fault(const char *script)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*set)(const char *) = driver ? (int (*)(const char *))dlsym(driver, "simgpu_set_fault") : NULL;
    void (*reset)(void) = driver ? (void (*)(void))dlsym(driver, "simgpu_reset_calls") : NULL;

    if (reset)
        reset();
    return set ? set(script) : -1;
}
