/* sim_context_life: creates, destroys and configures contexts: primary ones and those of cuCtxCreate.
 * Includes every other part of the engine that keeps objects in a context, since it frees them with the
 * context. Guarded by the engine's lock.
 */
#ifndef SIMGPU_CONTEXT_LIFE_H
#define SIMGPU_CONTEXT_LIFE_H

#include "tools/simgpu/engine/sim_context.h"

/* Makes the context of a green context (for sim_green.c). Returns NULL if the host is out of memory. Lock
 * held. */
struct CUctx_st *sim_context_new_green(struct CUctx_st *primary, struct CUgreenCtx_st *green);
/* Ends it, unless that has happened. Lock held. */
void sim_context_end_green(struct CUctx_st *context);

/* The driver's calls; they take the lock. */
CUresult sim_context_create(CUcontext *out, unsigned int flags, CUdevice ordinal);
CUresult sim_context_destroy(CUcontext context);
CUresult sim_context_attach(CUcontext *out, unsigned int flags);
CUresult sim_context_detach(CUcontext context);
CUresult sim_context_device(CUdevice *out, CUcontext context); /* NULL: the current context */
CUresult sim_context_id(CUcontext context, unsigned long long *out);
CUresult sim_context_get_flags(unsigned int *out);
CUresult sim_context_set_flags(unsigned int flags);
CUresult sim_context_get_limit(size_t *out, CUlimit limit);
CUresult sim_context_set_limit(CUlimit limit, size_t value);
CUresult sim_context_get_cache_config(CUfunc_cache *out);
CUresult sim_context_set_cache_config(CUfunc_cache config);
CUresult sim_context_api_version(CUcontext context, unsigned int *out);
CUresult sim_context_synchronize(CUcontext context); /* NULL: the current context */
CUresult sim_context_enable_peer(CUcontext peer);
CUresult sim_context_disable_peer(CUcontext peer);

CUresult sim_primary_retain(CUcontext *out, CUdevice ordinal);
CUresult sim_primary_release(CUdevice ordinal);
CUresult sim_primary_reset(CUdevice ordinal);
CUresult sim_primary_state(CUdevice ordinal, unsigned int *flags, int *active);
CUresult sim_primary_set_flags(CUdevice ordinal, unsigned int flags);

#endif
