/* cudart_fill: the cudaMemset family. Compiled twice (cudart_runtime.h). No lock.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

cudaError_t cudaMemset(void *p, int value, size_t size)
{
    return CUDART_IN_CONTEXT(size ? DRV(cuMemsetD8)(cudart_address(p), (unsigned char)value, size)
                                  : CUDA_SUCCESS);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(
        size ? DRV(cuMemsetD8Async)(cudart_address(p), (unsigned char)value, size, stream) : CUDA_SUCCESS);
}

static CUresult fill_rows(void *p, size_t pitch, int value, size_t width, size_t height, bool async,
                          cudaStream_t stream)
{
    if (!width || !height)
        return CUDA_SUCCESS;
    if (async)
        return DRV(cuMemsetD2D8Async)(cudart_address(p), pitch, (unsigned char)value, width, height, stream);
    return DRV(cuMemsetD2D8)(cudart_address(p), pitch, (unsigned char)value, width, height);
}

cudaError_t cudaMemset2D(void *p, size_t pitch, int value, size_t width, size_t height)
{
    return CUDART_IN_CONTEXT(fill_rows(p, pitch, value, width, height, false, NULL));
}

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(fill_rows(p, pitch, value, width, height, true, stream));
}

/* A slice has ysize rows, of which extent.height are filled. */
static CUresult fill_slices(struct cudaPitchedPtr p, int value, struct cudaExtent extent, bool async,
                            cudaStream_t stream)
{
    CUresult result = CUDA_SUCCESS;
    if (extent.height > p.ysize && extent.depth > 1)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t z = 0; z < extent.depth && !result; z++)
        result = fill_rows((char *)p.ptr + z * p.pitch * p.ysize, p.pitch, value, extent.width, extent.height,
                           async, stream);
    return result;
}

cudaError_t cudaMemset3D(struct cudaPitchedPtr p, int value, struct cudaExtent extent)
{
    return CUDART_IN_CONTEXT(fill_slices(p, value, extent, false, NULL));
}

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr p, int value, struct cudaExtent extent,
                              cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(fill_slices(p, value, extent, true, stream));
}
