/* cudart_copy_shape: translates the runtime's descriptions of a copy into the driver's. See
 * cudart_copy_shape.h. No lock. */
#include "tools/simgpu/cudart/cudart_copy_shape.h"

CUresult cudart_copy_shape_check(enum cudaMemcpyKind kind)
{
    return (unsigned)kind <= cudaMemcpyDefault ? CUDA_SUCCESS : (CUresult)cudaErrorInvalidMemcpyDirection;
}

static CUmemorytype from_type(enum cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDefault)
        return CU_MEMORYTYPE_UNIFIED;
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost ? CU_MEMORYTYPE_HOST
                                                                          : CU_MEMORYTYPE_DEVICE;
}

static CUmemorytype to_type(enum cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDefault)
        return CU_MEMORYTYPE_UNIFIED;
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost ? CU_MEMORYTYPE_HOST
                                                                          : CU_MEMORYTYPE_DEVICE;
}

/* The 2-D and the 3-D description have the same fields, prefixed by src and dst. */
#define PUT_END(out, side, end, kind_type)                                                                   \
    do {                                                                                                     \
        (out)->side##MemoryType = (end).array ? CU_MEMORYTYPE_ARRAY : (kind_type);                           \
        (out)->side##Array = (end).array;                                                                    \
        (out)->side##Host =                                                                                  \
            (void *)(uintptr_t)((out)->side##MemoryType == CU_MEMORYTYPE_HOST ? (end).memory : NULL);        \
        (out)->side##Device =                                                                                \
            (out)->side##MemoryType == CU_MEMORYTYPE_HOST ? 0 : cudart_address((end).memory);                \
        (out)->side##Pitch = (end).pitch;                                                                    \
        (out)->side##XInBytes = (end).x;                                                                     \
        (out)->side##Y = (end).y;                                                                            \
    } while (0)

CUresult cudart_copy_shape_2d(CUDA_MEMCPY2D *out, struct cudart_copy_end to, struct cudart_copy_end from,
                              size_t width, size_t height, enum cudaMemcpyKind kind)
{
    CUresult result = cudart_copy_shape_check(kind);
    if (result)
        return result;
    *out = (CUDA_MEMCPY2D){.WidthInBytes = width, .Height = height};
    PUT_END(out, src, from, from_type(kind));
    PUT_END(out, dst, to, to_type(kind));
    return CUDA_SUCCESS;
}

static CUresult element_size(CUarray array, size_t *out)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {0};
    CUresult result = DRV(cuArray3DGetDescriptor)(&d, array);
    if (result)
        return result;
    switch (d.Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        *out = d.NumChannels;
        return CUDA_SUCCESS;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        *out = (size_t)d.NumChannels * 2;
        return CUDA_SUCCESS;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        *out = (size_t)d.NumChannels * 4;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cudart_copy_shape_3d(CUDA_MEMCPY3D *out, const struct cudaMemcpy3DParms *p)
{
    size_t from_size = 1, to_size = 1;
    CUresult result = cudart_copy_shape_check(p->kind);
    if (!result && p->srcArray)
        result = element_size((CUarray)p->srcArray, &from_size);
    if (!result && p->dstArray)
        result = element_size((CUarray)p->dstArray, &to_size);
    if (result)
        return result;
    struct cudart_copy_end from = {(CUarray)p->srcArray, p->srcPtr.ptr, p->srcPtr.pitch,
                                   p->srcPos.x * from_size, p->srcPos.y};
    struct cudart_copy_end to = {(CUarray)p->dstArray, p->dstPtr.ptr, p->dstPtr.pitch, p->dstPos.x * to_size,
                                 p->dstPos.y};
    /* If an array takes part, the extent is in elements. */
    *out = (CUDA_MEMCPY3D){.WidthInBytes = p->extent.width * (p->srcArray ? from_size : to_size),
                           .Height = p->extent.height,
                           .Depth = p->extent.depth,
                           .srcZ = p->srcPos.z,
                           .dstZ = p->dstPos.z,
                           .srcHeight = p->srcPtr.ysize,
                           .dstHeight = p->dstPtr.ysize};
    PUT_END(out, src, from, from_type(p->kind));
    PUT_END(out, dst, to, to_type(p->kind));
    return CUDA_SUCCESS;
}
