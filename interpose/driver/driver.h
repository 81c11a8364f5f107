/* driver: the real CUDA driver, as a table of its entry points. Everything that calls the driver goes through
 * the table, so that a test can put its own functions there.
 *
 * Never loads the driver into a program that does not use it: binds when the program first looks up an entry
 * point or calls one of our hooks. Owns no lock.
 */
#ifndef GPUCAP_DRIVER_H
#define GPUCAP_DRIVER_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL /* cuda.h then declares every ABI under its own name */
#endif
#include <cudaTypedefs.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/driver/newer.h"

struct driver_table {
#define HOOK(symbol, type) type symbol;
#include "interpose/driver/hooks.def"
};

extern atomic_bool driver_bound;
extern struct driver_table driver_entries; /* valid once bound */

/* Binds to the driver if that has not happened, and returns the table. Without a driver every entry of it
 * returns CUDA_ERROR_NOT_INITIALIZED. */
struct driver_table *driver_bind_now(void);

static inline struct driver_table *driver_get(void)
{
    return __builtin_expect(atomic_load_explicit(&driver_bound, memory_order_acquire), 1) ? &driver_entries
                                                                                          : driver_bind_now();
}
#define driver (*driver_get())

/* Bytes that no card has: the driver refuses such a request with "out of memory" at once (measured), unless
 * something else is wrong: no context, an ended context, a capture, a sticky error. */
#define NEVER_FITS ((size_t)1 << 50)

/* Asks for such a request. Returns CUDA_SUCCESS if only its size is wrong, else the driver's error. In a
 * capture that forbids memory calls the driver invalidates the capture, as for any request. */
static inline CUresult driver_may_allocate(void)
{
    CUdeviceptr address;
    const CUresult result = driver.cuMemAlloc_v2(&address, NEVER_FITS);

    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

/* Writes the current context's card. Returns 0, -ENXIO: no context, -ENODEV: the driver cannot say. */
static inline int driver_current_card(CUdevice *ordinal)
{
    CUcontext context = NULL;
    const CUresult result = driver.cuCtxGetDevice(ordinal);

    if (result == CUDA_SUCCESS)
        return 0;
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED || driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS ||
        !context)
        return -ENXIO;
    /* Asked again: a failure may pass. */
    return driver.cuCtxGetDevice(ordinal) == CUDA_SUCCESS ? 0 : -ENODEV;
}

/* Relaxes the thread's capture mode for a call that might otherwise end a capture of any thread. Returns the
 * mode before, for driver_restore. If the driver has no such modes, they stay as they are. */
static inline CUstreamCaptureMode driver_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    driver.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

static inline void driver_restore(CUstreamCaptureMode mode)
{
    driver.cuThreadExchangeStreamCaptureMode(&mode);
}

/* Returns an attribute of the memory that the driver holds for graphs on a card; 0 if it does not say. */
static inline uint64_t driver_graph_memory(CUdevice ordinal, CUgraphMem_attribute which)
{
    const CUstreamCaptureMode mode = driver_relax();
    cuuint64_t bytes = 0;
    const bool answered = driver.cuDeviceGetGraphMemAttribute(ordinal, which, &bytes) == CUDA_SUCCESS;

    driver_restore(mode);
    return answered ? bytes : 0;
}

/* Binds to the libcuda that defines `symbol`, an address that a look-up of the program returned. Returns
 * false if it does not lie in a driver. */
bool driver_bind(const void *symbol);

/* Returns true if the address lies in the library that we are bound to, or in another driver. */
bool driver_owns(const void *address);

/* Call in a child after fork: another thread of the parent may have been binding. */
void driver_after_fork(void);

#endif
