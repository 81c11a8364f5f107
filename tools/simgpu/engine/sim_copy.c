/* sim_copy: copies and fills, in stream order. See sim_copy.h. */
#include "tools/simgpu/engine/sim_copy.h"

#include "tools/simgpu/engine/sim_array.h"
#include "tools/simgpu/engine/sim_block.h"
#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_stream.h"
#include "tools/simgpu/engine/sim_stream_work.h"

#include <stdlib.h>

/* One end of a copy: source or destination, with the fields of CUDA_MEMCPY3D. */
struct end {
    CUmemorytype type;
    uint64_t host, device;
    CUarray array;
    size_t x, y, z, pitch, height;
};

static uint64_t span(size_t width, size_t height, size_t depth, size_t pitch, size_t slice)
{
    return (depth - 1) * slice + (height - 1) * pitch + width;
}

static bool is_known(uint64_t address)
{
    return sim_block_find(address) != NULL;
}

static bool must_sync(uint64_t address)
{
    struct sim_block *block = sim_block_find(address);

    return block && block->sync_memops;
}

/* ---- submitting ---- */

/* Where one end of a copy is: decides whether the call waits. */
enum place { PLACE_DEVICE, PLACE_PINNED, PLACE_PAGEABLE };

static enum place place_of(uint64_t address)
{
    struct sim_block *block = sim_block_find(address);

    if (!block)
        return PLACE_PAGEABLE;
    return block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED ? PLACE_PINNED : PLACE_DEVICE;
}

/* Submits a copy; stages its source and waits for it as the driver does for this kind of copy. Takes
 * ownership of the work. Lock held. */
static CUresult submit_copy(struct CUstream_st *stream, struct sim_work *work, enum place to, enum place from,
                            enum sim_copy_wait wait)
{
    bool told =
        must_sync((uint64_t)(uintptr_t)work->copy.from) || must_sync((uint64_t)(uintptr_t)work->copy.to);
    bool on_device = to == PLACE_DEVICE && from == PLACE_DEVICE;
    bool host_waits = to == PLACE_PAGEABLE || (wait == COPY_SYNC && (told || !on_device));

    if (stream->capture)
        return sim_stream_submit(stream, work, false);
    if (from == PLACE_PAGEABLE && !host_waits && !sim_work_stage(work)) {
        sim_work_delete(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return sim_stream_submit(stream, work, host_waits);
}

static bool good_side(uint64_t address, enum sim_copy_side side, size_t size)
{
    if (side == SIDE_DEVICE)
        return sim_block_covers(address, size);
    if (side == SIDE_ANY && is_known(address))
        return sim_block_covers(address, size);
    return address != 0;
}

CUresult sim_copy_linear(uint64_t to, enum sim_copy_side to_side, uint64_t from, enum sim_copy_side from_side,
                         size_t size, CUstream handle, enum sim_copy_wait wait)
{
    struct CUstream_st *stream;
    struct sim_work *work;

    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    if (size == 0)
        return CUDA_SUCCESS;
    if (!good_side(to, to_side, size) || !good_side(from, from_side, size))
        return CUDA_ERROR_INVALID_VALUE;
    work = sim_work_new(WORK_COPY);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->copy = (struct sim_work_copy){.from = (const char *)(uintptr_t)from,
                                        .to = (char *)(uintptr_t)to,
                                        .width = size,
                                        .height = 1,
                                        .depth = 1};
    return submit_copy(stream, work, place_of(to), place_of(from), wait);
}

/* ---- 2-D and 3-D ---- */

/* Computes the address, pitch and slice size of one end. Lock held. */
static CUresult resolve(const struct end *end, size_t width, size_t height, size_t depth, uint64_t *start,
                        size_t *pitch, size_t *slice)
{
    size_t rows = end->height ? end->height : height;
    bool known;

    *pitch = end->pitch ? end->pitch : width;
    switch (end->type) {
    case CU_MEMORYTYPE_ARRAY:
        if (!sim_object_is(end->array, OBJECT_ARRAY))
            return CUDA_ERROR_INVALID_HANDLE;
        *start = end->array->start;
        *pitch = end->array->pitch;
        rows = end->array->rows;
        if (end->x + width > *pitch || end->y + height > rows ||
            end->z + depth > (end->array->desc.Depth ? end->array->desc.Depth : 1))
            return CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_MEMORYTYPE_HOST:
        *start = end->host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        *start = end->device;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (*pitch < width || *start == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *slice = *pitch * rows;
    *start += end->z * *slice + end->y * *pitch + end->x;
    known = end->type == CU_MEMORYTYPE_DEVICE || (end->type == CU_MEMORYTYPE_UNIFIED && is_known(*start));
    if (known && !sim_block_covers(*start, span(width, height, depth, *pitch, *slice)))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* Makes the work of a 2-D or 3-D copy. Lock held. */
static CUresult make_work(const struct end *to, const struct end *from, size_t width, size_t height,
                          size_t depth, struct sim_work **out)
{
    struct sim_work_copy copy = {.width = width, .height = height, .depth = depth};
    uint64_t to_start, from_start;

    SIM_TRY(resolve(from, width, height, depth, &from_start, &copy.from_pitch, &copy.from_slice));
    SIM_TRY(resolve(to, width, height, depth, &to_start, &copy.to_pitch, &copy.to_slice));
    copy.from = (const char *)(uintptr_t)from_start;
    copy.to = (char *)(uintptr_t)to_start;
    *out = sim_work_new(WORK_COPY);
    if (!*out)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->copy = copy;
    return CUDA_SUCCESS;
}

/* An array is on the device, although it is in no published block. */
static enum place place_of_end(const struct end *end, const void *start)
{
    return end->type == CU_MEMORYTYPE_ARRAY ? PLACE_DEVICE : place_of((uint64_t)(uintptr_t)start);
}

static CUresult copy_ends(const struct end *to, const struct end *from, size_t width, size_t height,
                          size_t depth, CUstream handle, enum sim_copy_wait wait)
{
    struct CUstream_st *stream;
    struct sim_work *work;

    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    if (width == 0 || height == 0 || depth == 0)
        return CUDA_SUCCESS;
    SIM_TRY(make_work(to, from, width, height, depth, &work));
    return submit_copy(stream, work, place_of_end(to, work->copy.to), place_of_end(from, work->copy.from),
                       wait);
}

CUresult sim_copy_2d(const CUDA_MEMCPY2D *c, CUstream stream, enum sim_copy_wait wait)
{
    struct end from, to;

    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    from = (struct end){.type = c->srcMemoryType,
                        .host = (uint64_t)(uintptr_t)c->srcHost,
                        .device = c->srcDevice,
                        .array = c->srcArray,
                        .x = c->srcXInBytes,
                        .y = c->srcY,
                        .pitch = c->srcPitch};
    to = (struct end){.type = c->dstMemoryType,
                      .host = (uint64_t)(uintptr_t)c->dstHost,
                      .device = c->dstDevice,
                      .array = c->dstArray,
                      .x = c->dstXInBytes,
                      .y = c->dstY,
                      .pitch = c->dstPitch};
    return copy_ends(&to, &from, c->WidthInBytes, c->Height, 1, stream, wait);
}

/* CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER name these fields alike. */
#define END_OF(c, side)                                                                                      \
    ((struct end){.type = (c)->side##MemoryType,                                                             \
                  .host = (uint64_t)(uintptr_t)(c)->side##Host,                                              \
                  .device = (c)->side##Device,                                                               \
                  .array = (c)->side##Array,                                                                 \
                  .x = (c)->side##XInBytes,                                                                  \
                  .y = (c)->side##Y,                                                                         \
                  .z = (c)->side##Z,                                                                         \
                  .pitch = (c)->side##Pitch,                                                                 \
                  .height = (c)->side##Height})

CUresult sim_copy_3d(const CUDA_MEMCPY3D *c, CUstream stream, enum sim_copy_wait wait)
{
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    return copy_ends(&END_OF(c, dst), &END_OF(c, src), c->WidthInBytes, c->Height, c->Depth, stream, wait);
}

CUresult sim_copy_3d_peer(const CUDA_MEMCPY3D_PEER *c, CUstream stream, enum sim_copy_wait wait)
{
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    return copy_ends(&END_OF(c, dst), &END_OF(c, src), c->WidthInBytes, c->Height, c->Depth, stream, wait);
}

CUresult sim_copy_3d_work(const CUDA_MEMCPY3D *c, struct sim_work **out)
{
    if (!c || c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    return make_work(&END_OF(c, dst), &END_OF(c, src), c->WidthInBytes, c->Height, c->Depth, out);
}

/* ---- fills ---- */

static CUresult make_fill(const struct sim_work_fill *fill, struct sim_work **out)
{
    uint64_t to = (uint64_t)(uintptr_t)fill->to;
    size_t width;

    if (__builtin_mul_overflow(fill->width, fill->element, &width) || to % fill->element ||
        (fill->height > 1 && fill->pitch < width) ||
        !sim_block_covers(to, span(width, fill->height, 1, fill->pitch, 0)))
        return CUDA_ERROR_INVALID_VALUE;
    *out = sim_work_new(WORK_FILL);
    if (!*out)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->fill = *fill;
    return CUDA_SUCCESS;
}

CUresult sim_copy_fill(CUdeviceptr to, size_t pitch, unsigned int value, unsigned int element, size_t width,
                       size_t height, CUstream handle, enum sim_copy_wait wait)
{
    struct sim_work_fill fill = {.to = (char *)(uintptr_t)to,
                                 .value = value,
                                 .element = element,
                                 .width = width,
                                 .height = height,
                                 .pitch = pitch};
    struct CUstream_st *stream;
    struct sim_work *work;

    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    SIM_TRY(make_fill(&fill, &work));
    return sim_stream_submit(stream, work, wait == COPY_SYNC && must_sync(to));
}

CUresult sim_copy_fill_work(const CUDA_MEMSET_NODE_PARAMS *p, struct sim_work **out)
{
    struct sim_work_fill fill;

    if (!p || p->width == 0 || p->height == 0 ||
        (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
        return CUDA_ERROR_INVALID_VALUE;
    fill = (struct sim_work_fill){.to = (char *)(uintptr_t)p->dst,
                                  .value = p->value,
                                  .element = p->elementSize,
                                  .width = p->width,
                                  .height = p->height,
                                  .pitch = p->pitch};
    SIM_LOCKED();
    return make_fill(&fill, out);
}
