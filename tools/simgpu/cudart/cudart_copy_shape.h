/* cudart_copy_shape: translates the runtime's descriptions of a copy into the driver's. Pure, except that it
 * asks the driver for the element size of an array. Used by both compilations of cudart_copy.c and by
 * cudart_graph.c.
 */
#ifndef SIMGPU_CUDART_COPY_SHAPE_H
#define SIMGPU_CUDART_COPY_SHAPE_H

#include "tools/simgpu/cudart/cudart_runtime.h"

/* Source or destination of a 2-D copy: an array, or memory with a pitch. */
struct cudart_copy_end {
    CUarray array;      /* or NULL */
    const void *memory; /* if array is NULL */
    size_t pitch;
    size_t x, y; /* offset in bytes and rows, for an array */
};

/* Returns cudaErrorInvalidMemcpyDirection for an unknown kind. */
CUresult cudart_copy_shape_check(enum cudaMemcpyKind kind);
CUresult cudart_copy_shape_2d(CUDA_MEMCPY2D *out, struct cudart_copy_end to, struct cudart_copy_end from,
                              size_t width, size_t height, enum cudaMemcpyKind kind);
CUresult cudart_copy_shape_3d(CUDA_MEMCPY3D *out, const struct cudaMemcpy3DParms *p);

#endif
