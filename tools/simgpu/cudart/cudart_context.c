/* cudart_context: the device and context of a thread. The primary context of a device is retained at its
 * first use and kept until cudaDeviceReset or the end of the process, as in the real runtime.
 *
 * Owns retain_lock, which guards primary[] and is held across cuDevicePrimaryCtxRetain only.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

#include <pthread.h>
#include <stdatomic.h>

static pthread_mutex_t retain_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[CUDART_MAX_DEVICES];
/* Counts calls of cudaDeviceReset: a thread that was bound before the last one must bind again. */
static atomic_uint reset_count;

static __thread struct {
    int device;         /* set by cudaSetDevice; 0 at first */
    CUcontext bound;    /* the context that we made current */
    unsigned bound_for; /* reset_count at that time */
} thread;

CUresult cudart_device_handle(int device, CUdevice *out)
{
    int count = 0;
    CUresult result = DRV(cuDeviceGetCount)(&count);
    if (result)
        return result;
    if (count == 0)
        return CUDA_ERROR_NO_DEVICE;
    if (device < 0 || device >= count || device >= CUDART_MAX_DEVICES)
        return CUDA_ERROR_INVALID_DEVICE;
    return DRV(cuDeviceGet)(out, device);
}

CUresult cudart_primary(int device, CUcontext *out)
{
    CUdevice handle;
    CUresult result = cudart_device_handle(device, &handle);
    if (result)
        return result;
    pthread_mutex_lock(&retain_lock);
    if (!primary[device])
        result = DRV(cuDevicePrimaryCtxRetain)(&primary[device], handle);
    *out = primary[device];
    pthread_mutex_unlock(&retain_lock);
    return result;
}

static CUresult bind(int device)
{
    CUcontext context = NULL;
    unsigned resets = atomic_load(&reset_count);
    CUresult result = cudart_primary(device, &context);
    if (!result)
        result = DRV(cuCtxSetCurrent)(context);
    if (!result) {
        thread.bound = context;
        thread.bound_for = resets;
    }
    return result;
}

/* Is this a context that we made current and that a reset has destroyed since? */
static bool is_stale(CUcontext context)
{
    return context == thread.bound && thread.bound_for != atomic_load(&reset_count);
}

CUresult cudart_enter(void)
{
    CUcontext current = NULL;
    CUresult result = cudart_load();
    if (!result)
        result = DRV(cuCtxGetCurrent)(&current);
    if (result || (current && !is_stale(current)))
        return result;
    return bind(thread.device);
}

CUresult cudart_device(int *device)
{
    CUcontext current = NULL;
    CUdevice handle;
    CUresult result = cudart_load();
    if (!result)
        result = DRV(cuCtxGetCurrent)(&current);
    if (result)
        return result;
    /* A context that the program itself made current has precedence. */
    if (current && current != thread.bound && !DRV(cuCtxGetDevice)(&handle))
        *device = handle;
    else
        *device = thread.device;
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    if (!count)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_WITH_DRIVER(DRV(cuDeviceGetCount)(count));
    if (error == cudaErrorNoDevice)
        *count = 0;
    return !error && *count == 0 ? cudart_end(cudaErrorNoDevice) : error;
}

cudaError_t cudaGetDevice(int *device)
{
    return cudart_end(device ? (int)cudart_device(device) : cudaErrorInvalidValue);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = CUDART_WITH_DRIVER(bind(device));
    if (!error)
        thread.device = device;
    return error;
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
    CUdevice handle;
    CUcontext context;
    CUresult result = cudart_load() ?: cudart_device_handle(device, &handle);
    if (!result && (flags & cudaInitDeviceFlagsAreValid))
        result = DRV(cuDevicePrimaryCtxSetFlags)(handle, device_flags);
    if (!result)
        result = cudart_primary(device, &context);
    return cudart_end(result);
}

cudaError_t cudaSetValidDevices(int *devices, int count)
{
    CUdevice handle;
    CUresult result = cudart_load();
    if (!devices && count)
        return cudart_end(cudaErrorInvalidValue);
    for (int i = 0; i < count && !result; i++)
        result = cudart_device_handle(devices[i], &handle);
    return cudart_end(result);
}

cudaError_t cudaDeviceSynchronize(void)
{
    return CUDART_IN_CONTEXT(DRV(cuCtxSynchronize)());
}

cudaError_t cudaDeviceReset(void)
{
    int device;
    CUdevice handle;
    CUresult result = cudart_device(&device) ?: cudart_device_handle(device, &handle);
    if (result)
        return cudart_end(result);
    pthread_mutex_lock(&retain_lock);
    primary[device] = NULL; /* the next use retains it again */
    atomic_fetch_add(&reset_count, 1);
    pthread_mutex_unlock(&retain_lock);
    return cudart_end(DRV(cuDevicePrimaryCtxReset)(handle));
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
    int device, active;
    CUdevice handle;
    if (!flags)
        return cudart_end(cudaErrorInvalidValue);
    CUresult result = cudart_device(&device) ?: cudart_device_handle(device, &handle);
    return cudart_end(result ?: DRV(cuDevicePrimaryCtxGetState)(handle, flags, &active));
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    int device;
    CUdevice handle;
    if (flags & ~(unsigned)cudaDeviceMask)
        return cudart_end(cudaErrorInvalidValue);
    CUresult result = cudart_device(&device) ?: cudart_device_handle(device, &handle);
    return cudart_end(result ?: DRV(cuDevicePrimaryCtxSetFlags)(handle, flags));
}
