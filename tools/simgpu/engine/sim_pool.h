/* sim_pool: stream-ordered memory: cuMemAllocAsync and its pools.
 *
 * A pool grows by chunks of 32 MiB (sim_pool_chunk.h). The stream that freed memory can allocate
 * it again at once, other streams when the first one has reached the free. Memory above the release threshold
 * goes back to the card when the program synchronizes with the stream that freed it (measured, H200;
 * synchronizing with another stream does not release it). Pools and their blocks outlive contexts (measured).
 * Guarded by the engine's lock.
 */
#ifndef SIMGPU_POOL_H
#define SIMGPU_POOL_H

#include "tools/simgpu/engine/sim_block.h"

/* Frees a withdrawn block of a pool at once. Lock held. */
void sim_pool_give(struct sim_block *block);
/* Call after a synchronization with a stream (its id) or with all (0): releases memory above the thresholds.
 * Lock held. */
void sim_pool_settle_all(uint64_t stream);

/* The driver's calls; they take the lock. */
CUresult sim_pool_create(CUmemoryPool *out, const CUmemPoolProps *props);
CUresult sim_pool_destroy(CUmemoryPool pool);
CUresult sim_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult sim_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult sim_pool_trim(CUmemoryPool pool, size_t keep);
CUresult sim_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count);
CUresult sim_pool_get_access(CUmemAccess_flags *out, CUmemoryPool pool, const CUmemLocation *where);
/* The one pool of host memory. */
CUresult sim_pool_host(CUmemoryPool *out);
CUresult sim_pool_default(CUmemoryPool *out, CUdevice ordinal);
CUresult sim_pool_current(CUmemoryPool *out, CUdevice ordinal);
CUresult sim_pool_set_current(CUdevice ordinal, CUmemoryPool pool);
CUresult sim_pool_alloc(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream);
/* Allocates from the device's current pool. */
CUresult sim_pool_alloc_default(CUdeviceptr *out, size_t size, CUstream stream);
CUresult sim_pool_free(CUdeviceptr address, CUstream stream);

#endif
