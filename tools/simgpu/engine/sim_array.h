/* array: CUDA arrays and mipmapped arrays: memory of the card that is only reached by copies.
 *
 * Here an array is its rows, one after the other, without padding. Guarded by the engine's lock.
 */
#ifndef SIMGPU_ARRAY_H
#define SIMGPU_ARRAY_H

#include "tools/simgpu/engine/sim_block.h"

struct CUarray_st {
    struct link link; /* in context->arrays; unused for a level of a mipmapped array */
    CUDA_ARRAY3D_DESCRIPTOR desc;
    struct block *memory; /* never published: it has no address for the program; NULL for a level */
    uint64_t start;
    uint64_t pitch; /* bytes of a row */
    uint64_t rows;  /* of one slice */
};

void array_end_context(struct CUctx_st *context); /* lock held */

CUresult array_create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc);
CUresult array_destroy(CUarray array);
CUresult array_descriptor(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray array);
CUresult mipmap_create(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels);
CUresult mipmap_level(CUarray *out, CUmipmappedArray mipmap, unsigned int level);
CUresult mipmap_destroy(CUmipmappedArray mipmap);

#endif
