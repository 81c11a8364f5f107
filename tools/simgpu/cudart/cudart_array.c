/* cudart_array: CUDA arrays. An array of the runtime is one of the driver; only the description of an element
 * differs. No lock. */
#include "tools/simgpu/cudart/cudart_runtime.h"

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                   enum cudaChannelFormatKind kind)
{
    return (struct cudaChannelFormatDesc){.x = x, .y = y, .z = z, .w = w, .f = kind};
}

/* The driver has a count of channels of one size; the runtime has the bits of each channel. */
static CUresult format_of(const struct cudaChannelFormatDesc *desc, CUarray_format *format,
                          unsigned *channels)
{
    static const struct {
        enum cudaChannelFormatKind kind;
        int bits;
        CUarray_format format;
    } known[] = {
        {cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8},
        {cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16},
        {cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32},
        {cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8},
        {cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16},
        {cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32},
        {cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF},
        {cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT},
    };
    const int bits[] = {desc->x, desc->y, desc->z, desc->w};
    for (*channels = 0; *channels < 4 && bits[*channels]; ++*channels) {
        if (bits[*channels] != desc->x)
            return (CUresult)cudaErrorInvalidChannelDescriptor;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (known[i].kind == desc->f && known[i].bits == desc->x) {
            *format = known[i].format;
            return CUDA_SUCCESS;
        }
    }
    return (CUresult)cudaErrorInvalidChannelDescriptor;
}

static void describe(struct cudaChannelFormatDesc *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    int bits = 32;
    enum cudaChannelFormatKind kind = cudaChannelFormatKindFloat;
    if (d->Format <= CU_AD_FORMAT_UNSIGNED_INT32)
        kind = cudaChannelFormatKindUnsigned;
    else if (d->Format <= CU_AD_FORMAT_SIGNED_INT32)
        kind = cudaChannelFormatKindSigned;
    if (d->Format == CU_AD_FORMAT_UNSIGNED_INT8 || d->Format == CU_AD_FORMAT_SIGNED_INT8)
        bits = 8;
    else if (d->Format == CU_AD_FORMAT_UNSIGNED_INT16 || d->Format == CU_AD_FORMAT_SIGNED_INT16 ||
             d->Format == CU_AD_FORMAT_HALF)
        bits = 16;
    *out = cudaCreateChannelDesc(bits, d->NumChannels > 1 ? bits : 0, d->NumChannels > 2 ? bits : 0,
                                 d->NumChannels > 3 ? bits : 0, kind);
}

static CUresult create(cudaArray_t *array, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent,
                       unsigned int flags)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags};
    CUresult result = format_of(desc, &d.Format, &d.NumChannels);
    return result ?: DRV(cuArray3DCreate)((CUarray *)array, &d);
}

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc,
                              struct cudaExtent extent, unsigned int flags)
{
    if (!array || !desc)
        return cudart_end(cudaErrorInvalidValue);
    return CUDART_IN_CONTEXT(create(array, desc, extent, flags));
}

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc, size_t width,
                            size_t height, unsigned int flags)
{
    return cudaMalloc3DArray(array, desc, (struct cudaExtent){.width = width, .height = height}, flags);
}

cudaError_t cudaFreeArray(cudaArray_t array)
{
    return CUDART_IN_CONTEXT(array ? DRV(cuArrayDestroy)((CUarray)array) : CUDA_SUCCESS);
}

cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *desc, struct cudaExtent *extent,
                             unsigned int *flags, cudaArray_t array)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {0};
    cudaError_t error = CUDART_IN_CONTEXT(DRV(cuArray3DGetDescriptor)(&d, (CUarray)array));
    if (error)
        return error;
    if (desc)
        describe(desc, &d);
    if (extent)
        *extent = (struct cudaExtent){.width = d.Width, .height = d.Height, .depth = d.Depth};
    if (flags)
        *flags = d.Flags;
    return cudaSuccess;
}

cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *desc, cudaArray_const_t array)
{
    if (!desc)
        return cudart_end(cudaErrorInvalidValue);
    return cudaArrayGetInfo(desc, NULL, NULL, (cudaArray_t)array);
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *array, const struct cudaChannelFormatDesc *desc,
                                     struct cudaExtent extent, unsigned int levels, unsigned int flags)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags};
    if (!array || !desc)
        return cudart_end(cudaErrorInvalidValue);
    return CUDART_IN_CONTEXT(format_of(desc, &d.Format, &d.NumChannels)
                                 ?: DRV(cuMipmappedArrayCreate)((CUmipmappedArray *)array, &d, levels));
}

cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t *level, cudaMipmappedArray_const_t array,
                                       unsigned int index)
{
    return CUDART_IN_CONTEXT(DRV(cuMipmappedArrayGetLevel)((CUarray *)level, (CUmipmappedArray)array, index));
}

cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array)
{
    return CUDART_IN_CONTEXT(array ? DRV(cuMipmappedArrayDestroy)((CUmipmappedArray)array) : CUDA_SUCCESS);
}
