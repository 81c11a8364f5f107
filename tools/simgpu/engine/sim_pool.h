/* sim_pool: stream-ordered memory: cuMemAllocAsync and the pools that it takes from.
 *
 * A pool takes memory from the card in steps of 32 MiB, or less where the card has no more. What is freed in
 * a stream can be taken again in that stream at once, elsewhere when the stream has come that far. Memory
 * above the release threshold goes back to the card at a synchronization with the stream that freed it
 * (measured, H200: not at one with another stream). Guarded by the engine's lock.
 */
#ifndef SIMGPU_POOL_H
#define SIMGPU_POOL_H

#include "tools/simgpu/engine/sim_block.h"

/* With the lock held. */
void sim_pool_give(struct sim_block *block); /* a pooled block, withdrawn, its work done */
/* At a synchronization with a stream (its id), or with all (0). */
void sim_pool_settle_all(uint64_t stream);

/* The driver's calls. */
CUresult sim_pool_create(CUmemoryPool *out, const CUmemPoolProps *props);
CUresult sim_pool_destroy(CUmemoryPool pool);
CUresult sim_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult sim_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult sim_pool_trim(CUmemoryPool pool, size_t keep);
CUresult sim_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count);
CUresult sim_pool_get_access(CUmemAccess_flags *out, CUmemoryPool pool, const CUmemLocation *where);
CUresult sim_pool_default(CUmemoryPool *out, CUdevice ordinal);
CUresult sim_pool_current(CUmemoryPool *out, CUdevice ordinal);
CUresult sim_pool_set_current(CUdevice ordinal, CUmemoryPool pool);
CUresult sim_pool_alloc(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream);
CUresult sim_pool_alloc_default(CUdeviceptr *out, size_t size,
                                CUstream stream); /* from the device's current pool */
CUresult sim_pool_free(CUdeviceptr address, CUstream stream);

#endif
