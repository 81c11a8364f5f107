/* sim_alloc: cuMemAlloc and its kin: memory of a context, on its card.
 *
 * The measured manners of the driver: blocks of more than 1 MiB get 2 MiB granules of their own, smaller ones
 * share a 2 MiB slab at 512 bytes; a slab with nothing in it is given back; a free waits for all work of the
 * context.
 */
#ifndef SIMGPU_ALLOC_H
#define SIMGPU_ALLOC_H

#include "tools/simgpu/engine/sim_block.h"

CUresult sim_alloc_device(CUdeviceptr *out, size_t size);
CUresult sim_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element);
CUresult sim_alloc_managed(CUdeviceptr *out, size_t size, unsigned int flags);
CUresult sim_alloc_free(CUdeviceptr address);
CUresult sim_alloc_info(size_t *free_bytes, size_t *total_bytes);
CUresult sim_alloc_range(CUdeviceptr *base, size_t *size, CUdeviceptr address);

CUresult sim_alloc_take(struct sim_block *block,
                        uint64_t size); /* memory for a block that is not published; lock held */
/* With the lock held: makes a block of fresh memory and publishes it. */
CUresult sim_alloc_block(struct CUctx_st *context, enum sim_block_kind kind, uint64_t size,
                         struct sim_block **out);
void sim_alloc_give_back(struct sim_block *block); /* withdrawn; its work is done; lock held */
/* Frees what it still owns; its work is done; lock held. */
void sim_alloc_end_context(struct CUctx_st *context);

#endif
