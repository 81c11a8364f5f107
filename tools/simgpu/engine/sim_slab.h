/* sim_slab: small blocks share 2 MiB at 512 bytes, first fit. Guarded by the engine's lock. */
#ifndef SIMGPU_SLAB_H
#define SIMGPU_SLAB_H

#include "tools/simgpu/engine/sim_block.h"

#define SLAB_LIMIT (UINT64_C(1) << 20) /* larger blocks get granules of their own */

CUresult sim_slab_take(struct sim_block *block, uint64_t size); /* sets range and slab */
void sim_slab_give(struct sim_block *block); /* clears it; the last one out gives the slab back */
const struct sim_phys *sim_slab_memory(const struct sim_slab *slab,
                                       uint64_t *start); /* all of it, and where it is mapped */

#endif
