/* cudart_runtime: what the files of the simulated CUDA runtime share: the driver's entry points, the calling
 * thread's context and error, and the form of every entry point.
 *
 * It finds the driver as the real runtime does: one dlopen("libcuda.so.1"), one dlsym("cuGetProcAddress_v2"),
 * everything else through that function. A file whose functions take a stream is compiled twice, the second
 * time with CUDA_API_PER_THREAD_DEFAULT_STREAM: cuda_runtime_api.h then gives its functions their _ptsz and
 * _ptds names, and DRV() selects the driver's forms for per-thread default streams.
 */
#ifndef SIMGPU_CUDART_RUNTIME_H
#define SIMGPU_CUDART_RUNTIME_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#define CUDART_VERSION_13_0 13000
#define CUDART_MAX_DEVICES  64

struct cudart_driver {
#define DRIVER(name, version)    PFN_##name##_v##version name;
#define DRIVER_PT(name, version) PFN_##name##_v##version name;
#include "tools/simgpu/cudart/driver.def"
#undef DRIVER
#undef DRIVER_PT
};

/* [0] is for the legacy default stream, [1] for per-thread ones. An entry point that the driver lacks returns
 * cudaErrorCallRequiresNewerDriver. Written once, by cudart_load(). */
extern struct cudart_driver cudart_driver[2];

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define DRV(name) (cudart_driver[1].name)
#else
#define DRV(name) (cudart_driver[0].name)
#endif

/* Loads and initializes the driver, once. Returns CUDA_SUCCESS, cudaErrorInsufficientDriver, or the error of
 * cuInit. */
CUresult cudart_load(void);
/* Returns the driver's version, or 0 without a driver. */
int cudart_driver_version(void);

/* Ensures that the calling thread has a context: its current one, else its device's primary one. */
CUresult cudart_enter(void);
/* Finds the primary context of a device, which it retains once. Needs cudart_load(). */
CUresult cudart_primary(int device, CUcontext *out);
/* Finds the device that the calling thread uses, without making a context. */
CUresult cudart_device(int *device);
/* Finds the driver's handle of a device, or returns cudaErrorInvalidDevice. Needs cudart_load(). */
CUresult cudart_device_handle(int device, CUdevice *out);

/* Every entry point ends with this: stores an error for cudaGetLastError() of this thread and returns the
 * code. The driver and the runtime use the same numbers. */
cudaError_t cudart_end(int result);

/* The body of an entry point that needs a context, or only the driver. The call is evaluated only if there is
 * one. */
#define CUDART_IN_CONTEXT(call)  cudart_end((int)cudart_enter() ?: (int)(call))
#define CUDART_WITH_DRIVER(call) cudart_end((int)cudart_load() ?: (int)(call))

static inline CUdeviceptr cudart_address(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

static inline void *cudart_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

#endif
