/* prog_driver: the driver as the test programs reach it: by direct symbols, dlsym or cuGetProcAddress.
 *
 * Each way is one that real programs take, and the cap must hold on all of them. Owns no lock.
 */
#ifndef TESTS_INTEGRATION_PROG_DRIVER_H
#define TESTS_INTEGRATION_PROG_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL /* every ABI under its own name */
#include <cudaTypedefs.h>
#include <stdbool.h>

/* DRIVER(name for cuGetProcAddress, exported symbol, version, type) */
#define DRIVER_TABLE(DRIVER)                                                                                 \
    DRIVER(cuInit, cuInit, 2000, PFN_cuInit_v2000)                                                           \
    DRIVER(cuDeviceGetCount, cuDeviceGetCount, 2000, PFN_cuDeviceGetCount_v2000)                             \
    DRIVER(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, PFN_cuDeviceTotalMem_v3020)                          \
    DRIVER(cuCtxCreate, cuCtxCreate_v2, 3020, PFN_cuCtxCreate_v3020)                                         \
    DRIVER(cuCtxDestroy, cuCtxDestroy_v2, 4000, PFN_cuCtxDestroy_v4000)                                      \
    DRIVER(cuCtxGetCurrent, cuCtxGetCurrent, 4000, PFN_cuCtxGetCurrent_v4000)                                \
    DRIVER(cuCtxSetCurrent, cuCtxSetCurrent, 4000, PFN_cuCtxSetCurrent_v4000)                                \
    DRIVER(cuCtxSynchronize, cuCtxSynchronize, 2000, PFN_cuCtxSynchronize_v2000)                             \
    DRIVER(cuCtxSetLimit, cuCtxSetLimit, 3010, PFN_cuCtxSetLimit_v3010)                                      \
    DRIVER(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, PFN_cuDevicePrimaryCtxRetain_v7000)     \
    DRIVER(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000,                                   \
           PFN_cuDevicePrimaryCtxRelease_v11000)                                                             \
    DRIVER(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, PFN_cuDevicePrimaryCtxReset_v11000)   \
    DRIVER(cuMemGetInfo, cuMemGetInfo_v2, 3020, PFN_cuMemGetInfo_v3020)                                      \
    DRIVER(cuMemAlloc, cuMemAlloc_v2, 3020, PFN_cuMemAlloc_v3020)                                            \
    DRIVER(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, PFN_cuMemAllocPitch_v3020)                             \
    DRIVER(cuMemAllocManaged, cuMemAllocManaged, 6000, PFN_cuMemAllocManaged_v6000)                          \
    DRIVER(cuMemFree, cuMemFree_v2, 3020, PFN_cuMemFree_v3020)                                               \
    DRIVER(cuMemAllocAsync, cuMemAllocAsync, 11020, PFN_cuMemAllocAsync_v11020)                              \
    DRIVER(cuMemFreeAsync, cuMemFreeAsync, 11020, PFN_cuMemFreeAsync_v11020)                                 \
    DRIVER(cuMemCreate, cuMemCreate, 10020, PFN_cuMemCreate_v10020)                                          \
    DRIVER(cuMemRelease, cuMemRelease, 10020, PFN_cuMemRelease_v10020)                                       \
    DRIVER(cuArrayCreate, cuArrayCreate_v2, 3020, PFN_cuArrayCreate_v3020)                                   \
    DRIVER(cuArray3DCreate, cuArray3DCreate_v2, 3020, PFN_cuArray3DCreate_v3020)                             \
    DRIVER(cuArrayDestroy, cuArrayDestroy, 2000, PFN_cuArrayDestroy_v2000)                                   \
    DRIVER(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, PFN_cuMipmappedArrayCreate_v5000)           \
    DRIVER(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, PFN_cuMipmappedArrayDestroy_v5000)        \
    DRIVER(cuStreamCreate, cuStreamCreate, 2000, PFN_cuStreamCreate_v2000)                                   \
    DRIVER(cuStreamDestroy, cuStreamDestroy_v2, 4000, PFN_cuStreamDestroy_v4000)                             \
    DRIVER(cuStreamSynchronize, cuStreamSynchronize, 2000, PFN_cuStreamSynchronize_v2000)                    \
    DRIVER(cuLaunchHostFunc, cuLaunchHostFunc, 10000, PFN_cuLaunchHostFunc_v10000)

struct prog_driver {
#define FIELD(name, symbol, version, type) type name;
    DRIVER_TABLE(FIELD)
#undef FIELD
};
extern struct prog_driver cu;

/* "dlsym", "default" (RTLD_DEFAULT), "proc" (cuGetProcAddress_v2), "proc1" (the first cuGetProcAddress),
 * "ptsz" (per-thread streams), or "direct" in a program that is linked with the driver. False, and a line on
 * stderr, if something is missing. */
bool prog_driver_open(const char *way);

/* The simulated driver's own functions (simgpu.h); 0 where there is none. */
unsigned long prog_driver_leaks(void);
int prog_driver_fault(const char *script);

#endif
