/* What the two passes of the layer norm share: how a warp goes over a row. */
#ifndef KERNELS_LAYERNORM_CUH
#define KERNELS_LAYERNORM_CUH

#include "types.cuh"

static const int LAYERNORM_WARPS = 8; /* of a block, a row each */
static const int LAYERNORM_THREADS = LAYERNORM_WARPS * CUDA_WARP;
static const int LAYERNORM_STEP = CUDA_WARP * CUDA_GROUP; /* columns that a warp reads at once */

#endif
