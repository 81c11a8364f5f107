/* sim_abi: cuda.h with every version of every entry point visible.
 *
 * The header's #define renames (cuMemAlloc -> cuMemAlloc_v2) are for callers; a driver has to define the
 * exported names themselves. Include this and never cuda.h directly.
 */
#ifndef SIMGPU_ABI_H
#define SIMGPU_ABI_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>

/* Returns from the calling function if the call fails, with the call's error. */
#define SIM_TRY(call)                                                                                        \
    do {                                                                                                     \
        const CUresult tried_ = (call);                                                                      \
        if (tried_ != CUDA_SUCCESS)                                                                          \
            return tried_;                                                                                   \
    } while (0)

#endif
