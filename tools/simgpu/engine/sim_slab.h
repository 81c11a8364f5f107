/* sim_slab: slabs: 2 MiB shared by small blocks, in units of 512 bytes, first fit. Guarded by the engine's
 * lock. */
#ifndef SIMGPU_SLAB_H
#define SIMGPU_SLAB_H

#include "tools/simgpu/engine/sim_block.h"

#define SLAB_LIMIT (UINT64_C(1) << 20) /* larger blocks get granules of their own */

/* Allocates a block: sets its range and slab. */
CUresult sim_slab_take(struct sim_block *block, uint64_t size);
/* Zeroes and frees a block. An empty slab goes back to the card. */
void sim_slab_give(struct sim_block *block);
/* Returns the memory of the slab; *start is the address where it is mapped. */
const struct sim_phys *sim_slab_memory(const struct sim_slab *slab, uint64_t *start);

#endif
