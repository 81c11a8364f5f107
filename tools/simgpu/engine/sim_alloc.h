/* sim_alloc: memory for the blocks of a context, on its card.
 *
 * The measured manners of the driver: blocks of more than 1 MiB get 2 MiB granules of their own, smaller ones
 * share a 2 MiB slab at 512 bytes; a slab with nothing in it is given back.
 */
#ifndef SIMGPU_ALLOC_H
#define SIMGPU_ALLOC_H

#include "tools/simgpu/engine/sim_block.h"

CUresult sim_alloc_take(struct sim_block *block,
                        uint64_t size); /* memory for a block that is not published; lock held */
/* With the lock held: makes a block of fresh memory and publishes it. */
CUresult sim_alloc_block(struct CUctx_st *context, enum sim_block_kind kind, uint64_t size,
                         struct sim_block **out);
void sim_alloc_give_back(struct sim_block *block); /* withdrawn; its work is done; lock held */

#endif
