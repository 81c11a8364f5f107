/* sim_alloc: memory for the blocks of a context, on its card.
 *
 * Allocates as the driver was measured to: a block of more than 1 MiB gets 2 MiB granules of its own; smaller
 * blocks share a 2 MiB slab, aligned to 512 bytes, and an empty slab goes back to the card. The caller holds
 * the engine's lock.
 */
#ifndef SIMGPU_ALLOC_H
#define SIMGPU_ALLOC_H

#include "tools/simgpu/engine/sim_block.h"

/* Allocates memory for a block that is not published yet. */
CUresult sim_alloc_take(struct sim_block *block, uint64_t size);
/* Makes a block with fresh memory and publishes it. */
CUresult sim_alloc_block(struct CUctx_st *context, enum sim_block_kind kind, uint64_t size,
                         struct sim_block **out);
/* Frees the memory of a withdrawn block. No work that uses it may still be running. */
void sim_alloc_give_back(struct sim_block *block);

#endif
