/* sim_green: green contexts: a part of a card's multiprocessors, with streams of its own, inside a primary
 * context.
 *
 * Only streams, and what waits for them, tell a green context from its primary one (measured on an H200):
 * memory, events and modules belong to the primary context, which a green one retains. Multiprocessors are
 * counted and nothing more: a kernel here has no place. Guarded by the engine's lock.
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
CUresult sim_green_context(CUcontext *out, CUgreenCtx green); /* what can be made current */
CUresult sim_green_id(CUgreenCtx green, unsigned long long *out);
CUresult sim_green_stream_create(CUstream *out, CUgreenCtx green, unsigned int flags, int priority);

#endif
