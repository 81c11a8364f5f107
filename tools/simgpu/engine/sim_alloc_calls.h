/* sim_alloc_calls: cuMemAlloc, its variants, cuMemFree and cuMemGetInfo. A free waits for all work of the
 * context (measured). The functions take the engine's lock.
 */
#ifndef SIMGPU_ALLOC_CALLS_H
#define SIMGPU_ALLOC_CALLS_H

#include "tools/simgpu/engine/sim_abi.h"

CUresult sim_alloc_device(CUdeviceptr *out, size_t size);
CUresult sim_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element);
CUresult sim_alloc_managed(CUdeviceptr *out, size_t size, unsigned int flags);
CUresult sim_alloc_free(CUdeviceptr address);
CUresult sim_alloc_info(size_t *free_bytes, size_t *total_bytes);
CUresult sim_alloc_range(CUdeviceptr *base, size_t *size, CUdeviceptr address);

/* Frees the memory that a context still owns. Its work is done; the caller holds the lock. */
void sim_alloc_end_context(struct CUctx_st *context);

#endif
