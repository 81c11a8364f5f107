/* Shared by the two passes of the layer norm: the number of warps in a block, and the columns that a warp
 * reads at a time. */
#ifndef KERNELS_LAYERNORM_CUH
#define KERNELS_LAYERNORM_CUH

#include "kernels/types.cuh"

static const int LAYERNORM_WARPS = 8; /* per block; each takes a row */
static const int LAYERNORM_THREADS = LAYERNORM_WARPS * CUDA_WARP;
static const int LAYERNORM_STEP = CUDA_WARP * CUDA_GROUP; /* columns that a warp reads at once */

#endif
