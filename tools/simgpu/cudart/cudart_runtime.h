/* cudart_runtime: what the files of the simulated CUDA runtime share: the driver's entry points, the calling
 * thread's state and the shape of every entry point.
 *
 * The driver is reached as the real runtime reaches it: one dlopen("libcuda.so.1"), one
 * dlsym("cuGetProcAddress_v2"), everything else through that pointer. A file whose functions take a stream is
 * compiled twice, the second time with CUDA_API_PER_THREAD_DEFAULT_STREAM: the header then gives its
 * functions their _ptsz and _ptds names, and DRV() the driver's forms for per-thread default streams.
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

/* [0] with the legacy default stream, [1] with per-thread ones. An entry point that the driver lacks answers
 * cudaErrorCallRequiresNewerDriver. Written once, by cudart_load(). */
extern struct cudart_driver cudart_driver[2];

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define DRV(name) (cudart_driver[1].name)
#else
#define DRV(name) (cudart_driver[0].name)
#endif

/* Loads and initializes the driver, once: CUDA_SUCCESS, cudaErrorInsufficientDriver, or what cuInit said. */
CUresult cudart_load(void);
/* The driver's version, or 0 without a driver. */
int cudart_driver_version(void);

/* Makes sure that the calling thread has a context: its current one, or else the primary one of its device.
 */
CUresult cudart_enter(void);
/* The primary context of a device, retained once. Needs cudart_load(). */
CUresult cudart_primary(int device, CUcontext *out);
/* The device that the calling thread uses, without making a context. */
CUresult cudart_device(int *device);
/* The driver's handle of a device, or cudaErrorInvalidDevice. Needs cudart_load(). */
CUresult cudart_device_handle(int device, CUdevice *out);

/* Ends every entry point: keeps an error for cudaGetLastError() of this thread and returns it. The codes of
 * the driver and of the runtime are the same numbers. */
cudaError_t cudart_end(int result);

/* An entry point that works in a context, or that needs the driver alone. The call is evaluated only if it
 * can work. */
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
