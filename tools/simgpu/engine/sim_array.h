/* sim_array: CUDA arrays and mipmapped arrays: memory of the card that is only reached by copies.
 *
 * An array is stored as its rows, one after the other, without padding. Guarded by the engine's lock.
 */
#ifndef SIMGPU_ARRAY_H
#define SIMGPU_ARRAY_H

#include "tools/simgpu/engine/sim_block.h"

struct CUarray_st {
    struct sim_link link; /* in context->arrays; unused for a level of a mipmapped array */
    CUDA_ARRAY3D_DESCRIPTOR desc;
    struct sim_block *memory; /* never published, since the program has no address for it; NULL for a level */
    uint64_t start;
    uint64_t pitch; /* bytes of a row */
    uint64_t rows;  /* in one slice */
};

/* Frees all arrays of a context. The caller holds the lock. */
void sim_array_end_context(struct CUctx_st *context);

/* The driver's calls; they take the lock. */

CUresult sim_array_create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc);
CUresult sim_array_destroy(CUarray array);
CUresult sim_array_descriptor(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray array);
CUresult sim_mipmap_create(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels);
CUresult sim_mipmap_level(CUarray *out, CUmipmappedArray mipmap, unsigned int level);
CUresult sim_mipmap_destroy(CUmipmappedArray mipmap);

#endif
