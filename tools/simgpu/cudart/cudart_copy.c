/* cudart_copy: the cudaMemcpy family. Each kind goes to the driver call that the real runtime uses for it.
 * Compiled twice (cudart_runtime.h). No lock.
 */
#include "tools/simgpu/cudart/cudart_copy_shape.h"

static CUresult copy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return DRV(cuMemcpyHtoD)(cudart_address(to), from, size);
    case cudaMemcpyDeviceToHost:
        return DRV(cuMemcpyDtoH)(to, cudart_address(from), size);
    case cudaMemcpyDeviceToDevice:
        return DRV(cuMemcpyDtoD)(cudart_address(to), cudart_address(from), size);
    default:
        return DRV(cuMemcpy)(cudart_address(to), cudart_address(from), size);
    }
}

static CUresult copy_async(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t s)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return DRV(cuMemcpyHtoDAsync)(cudart_address(to), from, size, s);
    case cudaMemcpyDeviceToHost:
        return DRV(cuMemcpyDtoHAsync)(to, cudart_address(from), size, s);
    case cudaMemcpyDeviceToDevice:
        return DRV(cuMemcpyDtoDAsync)(cudart_address(to), cudart_address(from), size, s);
    default:
        return DRV(cuMemcpyAsync)(cudart_address(to), cudart_address(from), size, s);
    }
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    return CUDART_IN_CONTEXT(cudart_copy_shape_check(kind)
                                 ?: size ? copy(to, from, size, kind)
                                         : CUDA_SUCCESS);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return CUDART_IN_CONTEXT(cudart_copy_shape_check(kind)
                                 ?: size ? copy_async(to, from, size, kind, stream)
                                         : CUDA_SUCCESS);
}

/* A 2-D copy; synchronous if async is false. */
static CUresult copy_2d(struct cudart_copy_end to, struct cudart_copy_end from, size_t width, size_t height,
                        enum cudaMemcpyKind kind, bool async, cudaStream_t stream)
{
    CUDA_MEMCPY2D shape;
    CUresult result = cudart_copy_shape_2d(&shape, to, from, width, height, kind);
    if (result)
        return result;
    if ((!to.array && width > to.pitch) || (!from.array && width > from.pitch))
        return (CUresult)cudaErrorInvalidPitchValue;
    if (!width || !height)
        return CUDA_SUCCESS;
    return async ? DRV(cuMemcpy2DAsync)(&shape, stream) : DRV(cuMemcpy2DUnaligned)(&shape);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                         size_t height, enum cudaMemcpyKind kind)
{
    struct cudart_copy_end target = {.memory = to, .pitch = to_pitch},
                           source = {.memory = from, .pitch = from_pitch};
    return CUDART_IN_CONTEXT(copy_2d(target, source, width, height, kind, false, NULL));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct cudart_copy_end target = {.memory = to, .pitch = to_pitch},
                           source = {.memory = from, .pitch = from_pitch};
    return CUDART_IN_CONTEXT(copy_2d(target, source, width, height, kind, true, stream));
}

cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch,
                                size_t width, size_t height, enum cudaMemcpyKind kind)
{
    struct cudart_copy_end target = {.array = (CUarray)to, .x = x, .y = y},
                           source = {.memory = from, .pitch = pitch};
    return CUDART_IN_CONTEXT(copy_2d(target, source, width, height, kind, false, NULL));
}

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch,
                                     size_t width, size_t height, enum cudaMemcpyKind kind,
                                     cudaStream_t stream)
{
    struct cudart_copy_end target = {.array = (CUarray)to, .x = x, .y = y},
                           source = {.memory = from, .pitch = pitch};
    return CUDART_IN_CONTEXT(copy_2d(target, source, width, height, kind, true, stream));
}

cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y,
                                  size_t width, size_t height, enum cudaMemcpyKind kind)
{
    struct cudart_copy_end target = {.memory = to, .pitch = pitch},
                           source = {.array = (CUarray)from, .x = x, .y = y};
    return CUDART_IN_CONTEXT(copy_2d(target, source, width, height, kind, false, NULL));
}

cudaError_t cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y,
                                       size_t width, size_t height, enum cudaMemcpyKind kind,
                                       cudaStream_t stream)
{
    struct cudart_copy_end target = {.memory = to, .pitch = pitch},
                           source = {.array = (CUarray)from, .x = x, .y = y};
    return CUDART_IN_CONTEXT(copy_2d(target, source, width, height, kind, true, stream));
}

cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from,
                                     size_t from_x, size_t from_y, size_t width, size_t height,
                                     enum cudaMemcpyKind kind)
{
    struct cudart_copy_end target = {.array = (CUarray)to, .x = to_x, .y = to_y};
    struct cudart_copy_end source = {.array = (CUarray)from, .x = from_x, .y = from_y};
    return CUDART_IN_CONTEXT(copy_2d(target, source, width, height, kind, false, NULL));
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D shape;
    if (!p)
        return cudart_end(cudaErrorInvalidValue);
    return CUDART_IN_CONTEXT(cudart_copy_shape_3d(&shape, p) ?: DRV(cuMemcpy3D)(&shape));
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    CUDA_MEMCPY3D shape;
    if (!p)
        return cudart_end(cudaErrorInvalidValue);
    return CUDART_IN_CONTEXT(cudart_copy_shape_3d(&shape, p) ?: DRV(cuMemcpy3DAsync)(&shape, stream));
}
