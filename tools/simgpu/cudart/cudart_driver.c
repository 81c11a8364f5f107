/* cudart_driver: finds the driver and all its entry points, once per process. Must find them only as the real
 * runtime does, because that is what gpucap intercepts. Owns one pthread_once_t.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

#include <dlfcn.h>
#include <pthread.h>

#define FIRST_PER_THREAD_VERSION 7000 /* older entry points got their per-thread forms with CUDA 7.0 */

struct cudart_driver cudart_driver[2];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUresult load_result;
static int driver_version;
static void *library;

/* Called instead of an entry point that the driver lacks. Ignores the caller's arguments. */
static CUresult missing(void)
{
    return (CUresult)cudaErrorCallRequiresNewerDriver;
}

static void *look_up(PFN_cuGetProcAddress_v12000 get, const char *name, int version, cuuint64_t flags)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && version < FIRST_PER_THREAD_VERSION)
        version = FIRST_PER_THREAD_VERSION;
    if (get(name, &found, version, flags, &status) != CUDA_SUCCESS || !found)
        return (void *)(uintptr_t)missing;
    return found;
}

static void look_up_all(PFN_cuGetProcAddress_v12000 get)
{
    const cuuint64_t legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
#define DRIVER(name, version)                                                                                \
    *(void **)&cudart_driver[0].name = look_up(get, #name, version, legacy);                                 \
    cudart_driver[1].name = cudart_driver[0].name;
#define DRIVER_PT(name, version)                                                                             \
    *(void **)&cudart_driver[0].name = look_up(get, #name, version, legacy);                                 \
    *(void **)&cudart_driver[1].name = look_up(get, #name, version, per_thread);
#include "tools/simgpu/cudart/driver.def"
#undef DRIVER
#undef DRIVER_PT
}

static void load(void)
{
    PFN_cuGetProcAddress_v12000 get = NULL;
    load_result = (CUresult)cudaErrorInsufficientDriver;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library)
        *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
    if (!get)
        return;
    look_up_all(get);
    if (DRV(cuDriverGetVersion)(&driver_version) != CUDA_SUCCESS || driver_version < CUDART_VERSION_13_0)
        return;
    load_result = CUDA_SUCCESS;
}

CUresult cudart_load(void)
{
    pthread_once(&once, load);
    /* A repeated cuInit is cheap, and fails in a forked child. */
    return load_result ? load_result : DRV(cuInit)(0);
}

int cudart_driver_version(void)
{
    pthread_once(&once, load);
    return driver_version;
}
