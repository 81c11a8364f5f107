/* tx_driver: the driver's entry points as the transcript programs call them: looked up at run time, never
 * linked.
 *
 * One list of names, versions and symbols makes the table, so that the same calls can be resolved in the two
 * ways that real programs use: dlsym() of the versioned symbol, or cuGetProcAddress_v2() of the plain name. A
 * name that the driver lacks gets a function that answers DRIVER_ABSENT, so that a transcript goes on and
 * says so. Owns no lock.
 *
 * cuda.h renames many of these names by macro (cuMemAlloc to cuMemAlloc_v2): the members are renamed with
 * them, and both the definition and every use see the same name.
 */
#ifndef TESTS_GPU_TRANSCRIPT_DRIVER_H
#define TESTS_GPU_TRANSCRIPT_DRIVER_H

#include <stdbool.h>
#include <cuda.h>
#include <cudaTypedefs.h>

#define DRIVER_ABSENT ((CUresult)0x7fff)

/* X(plain name, version that brought this ABI, symbol of that ABI) */
#define DRIVER_DEVICES(X)                                                                                    \
    X(cuInit, 2000, "cuInit")                                                                                \
    X(cuDriverGetVersion, 2020, "cuDriverGetVersion")                                                        \
    X(cuDeviceGet, 2000, "cuDeviceGet")                                                                      \
    X(cuDeviceGetCount, 2000, "cuDeviceGetCount")                                                            \
    X(cuDeviceGetName, 2000, "cuDeviceGetName")                                                              \
    X(cuDeviceTotalMem, 3020, "cuDeviceTotalMem_v2")                                                         \
    X(cuDeviceGetUuid, 11040, "cuDeviceGetUuid_v2")                                                          \
    X(cuDeviceGetAttribute, 2000, "cuDeviceGetAttribute")                                                    \
    X(cuDeviceGetPCIBusId, 4010, "cuDeviceGetPCIBusId")                                                      \
    X(cuDeviceGetByPCIBusId, 4010, "cuDeviceGetByPCIBusId")                                                  \
    X(cuDeviceCanAccessPeer, 4000, "cuDeviceCanAccessPeer")                                                  \
    X(cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain")                                            \
    X(cuDevicePrimaryCtxRelease, 11000, "cuDevicePrimaryCtxRelease_v2")                                      \
    X(cuDevicePrimaryCtxReset, 11000, "cuDevicePrimaryCtxReset_v2")                                          \
    X(cuDevicePrimaryCtxGetState, 7000, "cuDevicePrimaryCtxGetState")                                        \
    X(cuCtxCreate, 3020, "cuCtxCreate_v2")                                                                   \
    X(cuCtxDestroy, 4000, "cuCtxDestroy_v2")                                                                 \
    X(cuCtxPushCurrent, 4000, "cuCtxPushCurrent_v2")                                                         \
    X(cuCtxPopCurrent, 4000, "cuCtxPopCurrent_v2")                                                           \
    X(cuCtxSetCurrent, 4000, "cuCtxSetCurrent")                                                              \
    X(cuCtxGetCurrent, 4000, "cuCtxGetCurrent")                                                              \
    X(cuCtxGetDevice, 2000, "cuCtxGetDevice")                                                                \
    X(cuCtxGetFlags, 7000, "cuCtxGetFlags")                                                                  \
    X(cuCtxSynchronize, 2000, "cuCtxSynchronize")                                                            \
    X(cuCtxGetApiVersion, 3020, "cuCtxGetApiVersion")                                                        \
    X(cuCtxGetLimit, 3010, "cuCtxGetLimit")                                                                  \
    X(cuCtxSetLimit, 3010, "cuCtxSetLimit")                                                                  \
    X(cuCtxGetStreamPriorityRange, 5050, "cuCtxGetStreamPriorityRange")                                      \
    X(cuCtxEnablePeerAccess, 4000, "cuCtxEnablePeerAccess")                                                  \
    X(cuCtxRecordEvent, 12050, "cuCtxRecordEvent")                                                           \
    X(cuGetErrorName, 6000, "cuGetErrorName")                                                                \
    X(cuGetErrorString, 6000, "cuGetErrorString")

#define DRIVER_MEMORY(X)                                                                                     \
    X(cuMemAlloc, 3020, "cuMemAlloc_v2")                                                                     \
    X(cuMemFree, 3020, "cuMemFree_v2")                                                                       \
    X(cuMemAllocPitch, 3020, "cuMemAllocPitch_v2")                                                           \
    X(cuMemAllocManaged, 6000, "cuMemAllocManaged")                                                          \
    X(cuMemGetInfo, 3020, "cuMemGetInfo_v2")                                                                 \
    X(cuMemGetAddressRange, 3020, "cuMemGetAddressRange_v2")                                                 \
    X(cuMemAllocHost, 3020, "cuMemAllocHost_v2")                                                             \
    X(cuMemHostAlloc, 2020, "cuMemHostAlloc")                                                                \
    X(cuMemFreeHost, 2000, "cuMemFreeHost")                                                                  \
    X(cuMemHostGetDevicePointer, 3020, "cuMemHostGetDevicePointer_v2")                                       \
    X(cuMemHostGetFlags, 2030, "cuMemHostGetFlags")                                                          \
    X(cuMemHostRegister, 6050, "cuMemHostRegister_v2")                                                       \
    X(cuMemHostUnregister, 4000, "cuMemHostUnregister")                                                      \
    X(cuMemcpy, 4000, "cuMemcpy")                                                                            \
    X(cuMemcpyAsync, 4000, "cuMemcpyAsync")                                                                  \
    X(cuMemcpyHtoD, 3020, "cuMemcpyHtoD_v2")                                                                 \
    X(cuMemcpyDtoH, 3020, "cuMemcpyDtoH_v2")                                                                 \
    X(cuMemcpyDtoD, 3020, "cuMemcpyDtoD_v2")                                                                 \
    X(cuMemcpyHtoDAsync, 3020, "cuMemcpyHtoDAsync_v2")                                                       \
    X(cuMemcpyDtoHAsync, 3020, "cuMemcpyDtoHAsync_v2")                                                       \
    X(cuMemcpyDtoDAsync, 3020, "cuMemcpyDtoDAsync_v2")                                                       \
    X(cuMemcpyPeer, 4000, "cuMemcpyPeer")                                                                    \
    X(cuMemcpy2D, 3020, "cuMemcpy2D_v2")                                                                     \
    X(cuMemsetD8, 3020, "cuMemsetD8_v2")                                                                     \
    X(cuMemsetD16, 3020, "cuMemsetD16_v2")                                                                   \
    X(cuMemsetD32, 3020, "cuMemsetD32_v2")                                                                   \
    X(cuMemsetD2D8, 3020, "cuMemsetD2D8_v2")                                                                 \
    X(cuMemsetD2D32, 3020, "cuMemsetD2D32_v2")                                                               \
    X(cuMemsetD8Async, 3020, "cuMemsetD8Async")                                                              \
    X(cuMemsetD32Async, 3020, "cuMemsetD32Async")                                                            \
    X(cuArrayCreate, 3020, "cuArrayCreate_v2")                                                               \
    X(cuArray3DCreate, 3020, "cuArray3DCreate_v2")                                                           \
    X(cuArrayGetDescriptor, 3020, "cuArrayGetDescriptor_v2")                                                 \
    X(cuArrayDestroy, 2000, "cuArrayDestroy")                                                                \
    X(cuMipmappedArrayCreate, 5000, "cuMipmappedArrayCreate")                                                \
    X(cuMipmappedArrayDestroy, 5000, "cuMipmappedArrayDestroy")                                              \
    X(cuPointerGetAttribute, 4000, "cuPointerGetAttribute")                                                  \
    X(cuPointerGetAttributes, 7000, "cuPointerGetAttributes")                                                \
    X(cuPointerSetAttribute, 6000, "cuPointerSetAttribute")                                                  \
    X(cuIpcGetMemHandle, 4010, "cuIpcGetMemHandle")                                                          \
    X(cuIpcOpenMemHandle, 11000, "cuIpcOpenMemHandle_v2")                                                    \
    X(cuIpcCloseMemHandle, 4010, "cuIpcCloseMemHandle")

#define DRIVER_VMM(X)                                                                                        \
    X(cuMemAddressReserve, 10020, "cuMemAddressReserve")                                                     \
    X(cuMemAddressFree, 10020, "cuMemAddressFree")                                                           \
    X(cuMemCreate, 10020, "cuMemCreate")                                                                     \
    X(cuMemRelease, 10020, "cuMemRelease")                                                                   \
    X(cuMemMap, 10020, "cuMemMap")                                                                           \
    X(cuMemUnmap, 10020, "cuMemUnmap")                                                                       \
    X(cuMemSetAccess, 10020, "cuMemSetAccess")                                                               \
    X(cuMemGetAccess, 10020, "cuMemGetAccess")                                                               \
    X(cuMemGetAllocationGranularity, 10020, "cuMemGetAllocationGranularity")                                 \
    X(cuMemGetAllocationPropertiesFromHandle, 10020, "cuMemGetAllocationPropertiesFromHandle")               \
    X(cuMemRetainAllocationHandle, 11000, "cuMemRetainAllocationHandle")                                     \
    X(cuMemExportToShareableHandle, 10020, "cuMemExportToShareableHandle")                                   \
    X(cuMemImportFromShareableHandle, 10020, "cuMemImportFromShareableHandle")                               \
    X(cuMemAllocAsync, 11020, "cuMemAllocAsync")                                                             \
    X(cuMemFreeAsync, 11020, "cuMemFreeAsync")                                                               \
    X(cuMemAllocFromPoolAsync, 11020, "cuMemAllocFromPoolAsync")                                             \
    X(cuMemPoolCreate, 11020, "cuMemPoolCreate")                                                             \
    X(cuMemPoolDestroy, 11020, "cuMemPoolDestroy")                                                           \
    X(cuMemPoolTrimTo, 11020, "cuMemPoolTrimTo")                                                             \
    X(cuMemPoolSetAttribute, 11020, "cuMemPoolSetAttribute")                                                 \
    X(cuMemPoolGetAttribute, 11020, "cuMemPoolGetAttribute")                                                 \
    X(cuDeviceGetDefaultMemPool, 11020, "cuDeviceGetDefaultMemPool")                                         \
    X(cuDeviceGetMemPool, 11020, "cuDeviceGetMemPool")                                                       \
    X(cuDeviceGetGraphMemAttribute, 11040, "cuDeviceGetGraphMemAttribute")                                   \
    X(cuDeviceGraphMemTrim, 11040, "cuDeviceGraphMemTrim")                                                   \
    X(cuDeviceSetMemPool, 11020, "cuDeviceSetMemPool")

#define DRIVER_WORK(X)                                                                                       \
    X(cuStreamCreate, 2000, "cuStreamCreate")                                                                \
    X(cuStreamCreateWithPriority, 5050, "cuStreamCreateWithPriority")                                        \
    X(cuStreamDestroy, 4000, "cuStreamDestroy_v2")                                                           \
    X(cuStreamSynchronize, 2000, "cuStreamSynchronize")                                                      \
    X(cuStreamQuery, 2000, "cuStreamQuery")                                                                  \
    X(cuStreamWaitEvent, 3020, "cuStreamWaitEvent")                                                          \
    X(cuStreamGetFlags, 5050, "cuStreamGetFlags")                                                            \
    X(cuStreamGetPriority, 5050, "cuStreamGetPriority")                                                      \
    X(cuStreamGetCtx, 9020, "cuStreamGetCtx")                                                                \
    X(cuStreamBeginCapture, 10010, "cuStreamBeginCapture_v2")                                                \
    X(cuStreamEndCapture, 10000, "cuStreamEndCapture")                                                       \
    X(cuStreamIsCapturing, 10000, "cuStreamIsCapturing")                                                     \
    X(cuThreadExchangeStreamCaptureMode, 10010, "cuThreadExchangeStreamCaptureMode")                         \
    X(cuLaunchHostFunc, 10000, "cuLaunchHostFunc")                                                           \
    X(cuEventCreate, 2000, "cuEventCreate")                                                                  \
    X(cuEventDestroy, 4000, "cuEventDestroy_v2")                                                             \
    X(cuEventRecord, 2000, "cuEventRecord")                                                                  \
    X(cuEventQuery, 2000, "cuEventQuery")                                                                    \
    X(cuEventSynchronize, 2000, "cuEventSynchronize")                                                        \
    X(cuEventElapsedTime, 2000, "cuEventElapsedTime")                                                        \
    X(cuGraphInstantiateWithFlags, 11040, "cuGraphInstantiateWithFlags")                                     \
    X(cuGraphLaunch, 10000, "cuGraphLaunch")                                                                 \
    X(cuGraphGetNodes, 10000, "cuGraphGetNodes")                                                             \
    X(cuGraphDestroy, 10000, "cuGraphDestroy")                                                               \
    X(cuGraphExecDestroy, 10000, "cuGraphExecDestroy")                                                       \
    X(cuModuleLoadData, 2000, "cuModuleLoadData")                                                            \
    X(cuModuleUnload, 2000, "cuModuleUnload")                                                                \
    X(cuModuleGetFunction, 2000, "cuModuleGetFunction")                                                      \
    X(cuModuleGetGlobal, 3020, "cuModuleGetGlobal_v2")                                                       \
    X(cuFuncSetAttribute, 9000, "cuFuncSetAttribute")                                                        \
    X(cuFuncSetCacheConfig, 3000, "cuFuncSetCacheConfig")                                                    \
    X(cuFuncGetModule, 11000, "cuFuncGetModule")                                                             \
    X(cuFuncGetName, 12030, "cuFuncGetName")                                                                 \
    X(cuFuncGetParamInfo, 12040, "cuFuncGetParamInfo")                                                       \
    X(cuFuncLoad, 12040, "cuFuncLoad")                                                                       \
    X(cuFuncIsLoaded, 12040, "cuFuncIsLoaded")                                                               \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, "cuOccupancyMaxActiveBlocksPerMultiprocessor")      \
    X(cuLibraryLoadData, 12000, "cuLibraryLoadData")                                                         \
    X(cuLibraryUnload, 12000, "cuLibraryUnload")                                                             \
    X(cuLibraryGetKernel, 12000, "cuLibraryGetKernel")                                                       \
    X(cuLibraryGetKernelCount, 12040, "cuLibraryGetKernelCount")                                             \
    X(cuLibraryEnumerateKernels, 12040, "cuLibraryEnumerateKernels")                                         \
    X(cuKernelGetFunction, 12000, "cuKernelGetFunction")                                                     \
    X(cuKernelGetAttribute, 12000, "cuKernelGetAttribute")                                                   \
    X(cuKernelSetAttribute, 12000, "cuKernelSetAttribute")                                                   \
    X(cuKernelGetName, 12030, "cuKernelGetName")                                                             \
    X(cuKernelGetParamInfo, 12040, "cuKernelGetParamInfo")                                                   \
    X(cuFuncGetAttribute, 2020, "cuFuncGetAttribute")                                                        \
    X(cuLaunchKernel, 4000, "cuLaunchKernel")

#define DRIVER_LIST(X)                                                                                       \
    DRIVER_DEVICES(X)                                                                                        \
    DRIVER_MEMORY(X)                                                                                         \
    DRIVER_VMM(X)                                                                                            \
    DRIVER_WORK(X)

struct driver {
#define X(base, version, symbol) PFN_##base##_v##version base;
    DRIVER_LIST(X)
#undef X
};

extern struct driver drv;

enum driver_lookup { DRIVER_BY_DLSYM, DRIVER_BY_PROCADDR };

/* Opens libcuda.so.1 and fills drv. False with the reason on stderr when there is no driver at all. */
bool driver_open(enum driver_lookup how);
void *driver_symbol(const char *symbol); /* dlsym() on the opened library; NULL when it is not there */
/* cuGetProcAddress_v2() with this version and flags; NULL when it is not there. */
void *driver_procaddr(const char *name, int version, cuuint64_t flags);

#endif
