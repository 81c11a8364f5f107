/* Hooks on arrays. The driver chooses their layout, so their size is computed from the description. */
#include "interpose/hook/hooks.h"
#include "interpose/hook/seen.h"
#include "interpose/route.h"

/* Returns the bytes of one channel; the largest size for unknown formats, so that none is counted too low. */
static uint64_t channel_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT_101010_2:
    case CU_AD_FORMAT_NV12:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
        return 2;
    default:
        return 4;
    }
}

/* Block-compressed formats take 8 or 16 bytes for 4 x 4 texels, whatever their channels. */
static bool is_compressed(CUarray_format format)
{
    return format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB;
}

static uint64_t texel_bytes(CUarray_format format, unsigned int channels)
{
    return is_compressed(format) ? 1 : channel_bytes(format) * (channels ? channels : 1);
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b ? b : 1, &product) ? UINT64_MAX : product;
}

static uint64_t array_bytes(size_t width, size_t height, size_t depth, CUarray_format format,
                            unsigned int channels)
{
    return times(times(times(width, height), depth), texel_bytes(format, channels));
}

static uint64_t array3d_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    /* A sparse or deferred array has no memory of its own. */
    if (!d || d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0;
    return array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
    struct route_ticket ticket;
    uint64_t bytes = d ? array_bytes(d->Width, d->Height, 1, d->Format, d->NumChannels) : 0;

    OWNER_CALL();
    CUresult result = route_enter(&ticket, BLOCKS_ARRAY, bytes);

    if (result != CUDA_SUCCESS)
        return result;
    result = ROUTE_TRY(driver.cuArrayCreate_v2(array, d), ROUTE_CURRENT, bytes);
    route_leave(&ticket, result, result == CUDA_SUCCESS ? (uintptr_t)*array : 0);
    return SEEN(result, RECORDING_ARRAY, route_card_of(&ticket), (uintptr_t)*array, bytes, NULL);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    struct route_ticket ticket;

    OWNER_CALL();
    CUresult result = route_enter(&ticket, BLOCKS_ARRAY, array3d_bytes(d));

    if (result != CUDA_SUCCESS)
        return result;
    result = ROUTE_TRY(driver.cuArray3DCreate_v2(array, d), ROUTE_CURRENT, array3d_bytes(d));
    route_leave(&ticket, result, result == CUDA_SUCCESS ? (uintptr_t)*array : 0);
    return SEEN(result, RECORDING_ARRAY, route_card_of(&ticket), (uintptr_t)*array, array3d_bytes(d), NULL);
}

CUresult cuArrayDestroy(CUarray array)
{
    struct route_release release = route_free_begin(BLOCKS_ARRAY, (uintptr_t)array);

    return route_free_end(&release,
                          SEEN_FREE(RECORDING_ARRAY, (uintptr_t)array, NULL, driver.cuArrayDestroy(array)));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d,
                                unsigned int levels)
{
    struct route_ticket ticket;
    /* All smaller levels together take less than the first one. */
    const uint64_t bytes = times(array3d_bytes(d), levels > 1 ? 2 : 1);

    OWNER_CALL();
    CUresult result = route_enter(&ticket, BLOCKS_MIPMAP, bytes);

    if (result != CUDA_SUCCESS)
        return result;
    result = ROUTE_TRY(driver.cuMipmappedArrayCreate(array, d, levels), ROUTE_CURRENT, array3d_bytes(d));
    route_leave(&ticket, result, result == CUDA_SUCCESS ? (uintptr_t)*array : 0);
    return SEEN(result, RECORDING_ARRAY, route_card_of(&ticket), (uintptr_t)*array, bytes, NULL);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    struct route_release release = route_free_begin(BLOCKS_MIPMAP, (uintptr_t)array);

    return route_free_end(
        &release, SEEN_FREE(RECORDING_ARRAY, (uintptr_t)array, NULL, driver.cuMipmappedArrayDestroy(array)));
}
