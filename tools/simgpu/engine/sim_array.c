/* sim_array: CUDA arrays and mipmapped arrays. See sim_array.h. */
#include "tools/simgpu/engine/sim_array.h"

#include "tools/simgpu/engine/sim_alloc.h"
#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_stream.h"

#include <stdlib.h>

struct CUmipmappedArray_st {
    struct sim_link link; /* in context->arrays, among CUarrays: the object's kind tells which it is */
    struct sim_block *memory;
    unsigned int count;
    struct CUarray_st *levels;
};

static unsigned int format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

static size_t at_least_one(size_t value)
{
    return value ? value : 1;
}

/* Sets the array's shape from its description. Returns its size in bytes, or 0 for an invalid description. */
static uint64_t shape(struct CUarray_st *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    uint64_t element = (uint64_t)format_bytes(desc->Format) * desc->NumChannels, bytes;

    if (element == 0 || desc->Width == 0 || (desc->NumChannels & (desc->NumChannels - 1)) ||
        desc->NumChannels > 4)
        return 0;
    array->desc = *desc;
    array->rows = at_least_one(desc->Height);
    if (__builtin_mul_overflow(element, desc->Width, &array->pitch) ||
        __builtin_mul_overflow(array->pitch, array->rows, &bytes) ||
        __builtin_mul_overflow(bytes, at_least_one(desc->Depth), &bytes))
        return 0;
    return bytes;
}

static CUresult take_memory(struct CUctx_st *context, uint64_t bytes, struct sim_block **out)
{
    struct sim_block *block = sim_block_new(BLOCK_DEVICE, context, context->device);
    CUresult result;

    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_alloc_take(block, bytes);
    if (result != CUDA_SUCCESS)
        sim_block_delete(block);
    else
        *out = block;
    return result;
}

/* Finds the context for an array of so many bytes; 0: its description was invalid. Lock held. */
static CUresult find_context(uint64_t bytes, struct CUctx_st **out)
{
    SIM_TRY(sim_context_current(out));
    return bytes ? sim_capture_check_unsafe() : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_array_create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    struct CUarray_st *array;
    struct CUctx_st *context;
    CUresult result;
    uint64_t bytes;

    if (!out || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    array = calloc(1, sizeof(*array));
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bytes = shape(array, desc);
    SIM_LOCKED();
    result = find_context(bytes, &context);
    if (result == CUDA_SUCCESS)
        result = take_memory(context, bytes, &array->memory);
    if (result == CUDA_SUCCESS && !sim_object_add(array, OBJECT_ARRAY)) {
        sim_alloc_give_back(array->memory);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        array->start = array->memory->range.start;
        sim_list_append(&context->arrays, &array->link);
        *out = array;
    } else {
        free(array);
    }
    return result;
}

static void free_array(struct CUarray_st *array)
{
    sim_object_remove(array);
    sim_list_remove(&array->link);
    sim_alloc_give_back(array->memory);
    free(array);
}

CUresult sim_array_destroy(CUarray array)
{
    SIM_LOCKED();
    if (!sim_object_is(array, OBJECT_ARRAY))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED; /* the driver's answer for a destroyed array (measured) */
    if (!array->memory)
        return CUDA_SUCCESS; /* a level of a mipmapped array: it is destroyed with that array (measured) */
    sim_stream_wait_context(array->memory->context);
    if (sim_object_is(array, OBJECT_ARRAY)) /* no other thread has destroyed it while we waited */
        free_array(array);
    return CUDA_SUCCESS;
}

CUresult sim_array_descriptor(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray array)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!sim_object_is(array, OBJECT_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = array->desc;
    return CUDA_SUCCESS;
}

/* ---- mipmapped arrays ---- */

static void free_mipmap(struct CUmipmappedArray_st *mipmap)
{
    unsigned int i;

    for (i = 0; i < mipmap->count; i++)
        sim_object_remove(&mipmap->levels[i]);
    sim_object_remove(mipmap);
    sim_list_remove(&mipmap->link);
    if (mipmap->memory)
        sim_alloc_give_back(mipmap->memory);
    free(mipmap->levels);
    free(mipmap);
}

static size_t halved(size_t size, unsigned int level)
{
    return size ? at_least_one(size >> level) : 0;
}

/* Sets the shapes of all levels, which lie one after the other. Returns the bytes of all, or 0 on error. */
static uint64_t shape_levels(struct CUmipmappedArray_st *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    uint64_t total = 0, bytes;
    unsigned int i;

    for (i = 0; i < mipmap->count; i++) {
        CUDA_ARRAY3D_DESCRIPTOR level = *desc;

        level.Width = halved(desc->Width, i);
        level.Height = halved(desc->Height, i);
        level.Depth = halved(desc->Depth, i);
        bytes = shape(&mipmap->levels[i], &level);
        mipmap->levels[i].start = total; /* an offset until the memory is allocated, then its address */
        if (bytes == 0 || __builtin_add_overflow(total, bytes, &total))
            return 0;
    }
    return total;
}

static CUresult fill_mipmap(struct CUmipmappedArray_st *mipmap, struct CUctx_st *context, uint64_t bytes)
{
    unsigned int i;

    SIM_TRY(take_memory(context, bytes, &mipmap->memory));
    if (!sim_object_add(mipmap, OBJECT_MIPMAP))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (i = 0; i < mipmap->count; i++) {
        mipmap->levels[i].start += mipmap->memory->range.start;
        if (!sim_object_add(&mipmap->levels[i], OBJECT_ARRAY))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult sim_mipmap_create(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels)
{
    struct CUmipmappedArray_st *mipmap;
    struct CUctx_st *context;
    CUresult result;
    uint64_t bytes;

    if (!out || !desc || levels == 0 || levels > 32)
        return CUDA_ERROR_INVALID_VALUE;
    mipmap = calloc(1, sizeof(*mipmap));
    if (mipmap)
        mipmap->levels = calloc(levels, sizeof(*mipmap->levels));
    if (!mipmap || !mipmap->levels) {
        free(mipmap);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mipmap->count = levels;
    sim_list_init(&mipmap->link);
    bytes = shape_levels(mipmap, desc);
    SIM_LOCKED();
    result = find_context(bytes, &context);
    if (result == CUDA_SUCCESS)
        result = fill_mipmap(mipmap, context, bytes);
    if (result == CUDA_SUCCESS) {
        sim_list_append(&context->arrays, &mipmap->link);
        *out = mipmap;
    } else {
        free_mipmap(mipmap);
    }
    return result;
}

CUresult sim_mipmap_level(CUarray *out, CUmipmappedArray mipmap, unsigned int level)
{
    SIM_LOCKED();
    if (!sim_object_is(mipmap, OBJECT_MIPMAP))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || level >= mipmap->count)
        return CUDA_ERROR_INVALID_VALUE;
    *out = &mipmap->levels[level];
    return CUDA_SUCCESS;
}

CUresult sim_mipmap_destroy(CUmipmappedArray mipmap)
{
    SIM_LOCKED();
    if (!sim_object_is(mipmap, OBJECT_MIPMAP))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_stream_wait_context(mipmap->memory->context);
    if (sim_object_is(mipmap, OBJECT_MIPMAP))
        free_mipmap(mipmap);
    return CUDA_SUCCESS;
}

void sim_array_end_context(struct CUctx_st *context)
{
    while (!sim_list_empty(&context->arrays)) {
        struct sim_link *first = context->arrays.next;

        if (sim_object_is(LIST_ITEM(first, struct CUmipmappedArray_st, link), OBJECT_MIPMAP))
            free_mipmap(LIST_ITEM(first, struct CUmipmappedArray_st, link));
        else
            free_array(LIST_ITEM(first, struct CUarray_st, link));
    }
}
