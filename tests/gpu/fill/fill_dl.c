/* fill_dl: fill.h through dlopen("libcuda.so.1") and dlsym(): nothing of CUDA is linked. Owns no lock. */
#include "fill.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define NAMES(X)                                                                                             \
    X(cuInit, 2000, "cuInit")                                                                                \
    X(cuDeviceGet, 2000, "cuDeviceGet")                                                                      \
    X(cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain")                                            \
    X(cuCtxSetCurrent, 4000, "cuCtxSetCurrent")                                                              \
    X(cuCtxSynchronize, 2000, "cuCtxSynchronize")                                                            \
    X(cuMemGetInfo, 3020, "cuMemGetInfo_v2")                                                                 \
    X(cuMemAlloc, 3020, "cuMemAlloc_v2")                                                                     \
    X(cuMemFree, 3020, "cuMemFree_v2")                                                                       \
    X(cuMemsetD32, 3020, "cuMemsetD32_v2")                                                                   \
    X(cuMemcpyDtoH, 3020, "cuMemcpyDtoH_v2")                                                                 \
    X(cuStreamCreate, 2000, "cuStreamCreate")                                                                \
    X(cuStreamDestroy, 4000, "cuStreamDestroy_v2")                                                           \
    X(cuStreamSynchronize, 2000, "cuStreamSynchronize")                                                      \
    X(cuStreamBeginCapture, 10010, "cuStreamBeginCapture_v2")                                                \
    X(cuStreamEndCapture, 10000, "cuStreamEndCapture")                                                       \
    X(cuMemAllocAsync, 11020, "cuMemAllocAsync")                                                             \
    X(cuMemFreeAsync, 11020, "cuMemFreeAsync")                                                               \
    X(cuMemsetD8Async, 3020, "cuMemsetD8Async")                                                              \
    X(cuMemcpyDtoDAsync, 3020, "cuMemcpyDtoDAsync_v2")                                                       \
    X(cuGraphInstantiateWithFlags, 11040, "cuGraphInstantiateWithFlags")                                     \
    X(cuGraphLaunch, 10000, "cuGraphLaunch")                                                                 \
    X(cuGraphDestroy, 10000, "cuGraphDestroy")                                                               \
    X(cuGraphExecDestroy, 10000, "cuGraphExecDestroy")

static struct {
#define X(base, version, symbol) PFN_##base##_v##version base;
    NAMES(X)
#undef X
} driver;

#define CU(name) driver.name
#include "fill_driver.h"

int main(int argc, char **argv)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        return FILL_NO_DRIVER;
    }
#define X(base, version, symbol)                                                                             \
    driver.base = (PFN_##base##_v##version)dlsym(library, symbol);                                           \
    if (!driver.base) {                                                                                      \
        fprintf(stderr, "the driver has no %s\n", symbol);                                                   \
        return 1;                                                                                            \
    }
    NAMES(X)
#undef X
    const struct fill_api api = {"driver by dlsym", driver_start,    driver_info, driver_alloc,
                                 driver_release,    driver_set,      driver_read, driver_graph_make,
                                 driver_graph_run,  driver_graph_end};
    return fill_main(argc, argv, &api);
}
