/* sim_green: green contexts: a part of a card's multiprocessors, with streams of its own, inside a primary
 * context.
 *
 * A green context differs from its primary one only in its streams and in what waits for them (measured,
 * H200): memory, events and modules belong to the primary context, which a green one retains. simgpu counts
 * multiprocessors, but does not run kernels on particular ones. Guarded by the engine's lock.
 */
#ifndef SIMGPU_GREEN_H
#define SIMGPU_GREEN_H

#include "tools/simgpu/engine/sim_context.h"

/* The driver's calls; they take the lock. */
CUresult sim_green_device_resource(CUdevResource *out, CUdevice ordinal, CUdevResourceType type);
CUresult sim_green_context_resource(CUdevResource *out, CUcontext context, CUdevResourceType type);
CUresult sim_green_resource(CUdevResource *out, CUgreenCtx green, CUdevResourceType type);
CUresult sim_green_split(CUdevResource *out, unsigned int *groups, const CUdevResource *input,
                         CUdevResource *remaining, unsigned int flags, unsigned int least);
CUresult sim_green_describe(CUdevResourceDesc *out, const CUdevResource *resources, unsigned int count);

CUresult sim_green_create(CUgreenCtx *out, CUdevResourceDesc description, CUdevice ordinal,
                          unsigned int flags);
CUresult sim_green_destroy(CUgreenCtx green);
CUresult sim_green_context(CUcontext *out,
                           CUgreenCtx green); /* cuCtxFromGreenCtx: the context that can be made current */
CUresult sim_green_id(CUgreenCtx green, unsigned long long *out);
CUresult sim_green_stream_create(CUstream *out, CUgreenCtx green, unsigned int flags, int priority);

#endif
