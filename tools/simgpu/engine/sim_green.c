/* sim_green: green contexts. See sim_green.h. */
#include "tools/simgpu/engine/sim_green.h"

#include "tools/simgpu/engine/sim_context_life.h"
#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_stream_calls.h"

#include <stdlib.h>
#include <string.h>

/* Values of an H200, compute capability 9.0. */
#define MULTIPROCESSORS 132
#define LEAST_PART      8
#define LEAST_ALONE     2 /* smallest part if multiprocessors need not be scheduled together */
#define RESOURCE_MARK   UINT32_C(0x6d756753)

/* What simgpu stores in the padding of a resource, as the driver does. */
struct note {
    uint32_t mark;
    int32_t device;
    uint64_t split; /* id of the split that made it; 0: the whole device, which may be split */
};

_Static_assert(sizeof(struct note) <= sizeof(((CUdevResource *)0)->_internal_padding), "the note has room");

struct CUdevResourceDesc_st {
    struct sim_link link; /* never freed: the driver has no call for that */
    CUdevResource whole;
};

struct CUgreenCtx_st {
    struct CUctx_st *context;
    CUdevResource resource;
};

static struct sim_link descriptions = {&descriptions, &descriptions};
static uint64_t last_split;

/* ---- resources ---- */

static CUdevResource make_resource(CUdevice device, unsigned int count, uint64_t split)
{
    const struct note note = {RESOURCE_MARK, device, split};
    CUdevResource resource;

    memset(&resource, 0, sizeof(resource));
    resource.type = CU_DEV_RESOURCE_TYPE_SM;
    resource.sm.smCount = count;
    resource.sm.minSmPartitionSize = LEAST_PART;
    resource.sm.smCoscheduledAlignment = LEAST_PART;
    memcpy(resource._internal_padding, &note, sizeof(note));
    return resource;
}

/* Checks that simgpu made the resource and reads its note. */
static CUresult read_note(const CUdevResource *resource, struct note *note)
{
    memcpy(note, resource->_internal_padding, sizeof(*note));
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    return note->mark == RESOURCE_MARK && sim_device_get(note->device) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_wanted(const CUdevResource *out, CUdevResourceType type)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

CUresult sim_green_device_resource(CUdevResource *out, CUdevice ordinal, CUdevResourceType type)
{
    SIM_TRY(check_wanted(out, type));
    if (!sim_device_get(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = make_resource(ordinal, MULTIPROCESSORS, 0);
    return CUDA_SUCCESS;
}

CUresult sim_green_context_resource(CUdevResource *out, CUcontext context, CUdevResourceType type)
{
    SIM_TRY(check_wanted(out, type));
    SIM_LOCKED();
    if (!sim_context_is_valid(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = context->green ? context->green->resource : make_resource(context->device, MULTIPROCESSORS, 0);
    return CUDA_SUCCESS;
}

static bool is_green(CUgreenCtx green)
{
    return sim_object_is(green, OBJECT_GREEN);
}

CUresult sim_green_resource(CUdevResource *out, CUgreenCtx green, CUdevResourceType type)
{
    SIM_TRY(check_wanted(out, type));
    SIM_LOCKED();
    if (!is_green(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = green->resource;
    return CUDA_SUCCESS;
}

/* Returns the number of multiprocessors in each part of a split. */
static unsigned int part_size(unsigned int least, unsigned int flags)
{
    const unsigned int unit =
        flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING ? LEAST_ALONE : LEAST_PART;

    return least < unit ? unit : (least + unit - 1) / unit * unit;
}

CUresult sim_green_split(CUdevResource *out, unsigned int *groups, const CUdevResource *input,
                         CUdevResource *remaining, unsigned int flags, unsigned int least)
{
    unsigned int size, possible, i;
    struct note note;
    uint64_t split;

    if (!groups || !input)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(read_note(input, &note));
    if (note.split)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (least > input->sm.smCount)
        return CUDA_ERROR_INVALID_VALUE;
    size = part_size(least, flags);
    possible = input->sm.smCount / size;
    if (!out || *groups > possible)
        *groups = possible;
    if (!out)
        return CUDA_SUCCESS;
    sim_lock_take();
    split = ++last_split;
    sim_lock_drop();
    for (i = 0; i < *groups; i++)
        out[i] = make_resource(note.device, size, split);
    if (remaining) {
        const unsigned int rest = input->sm.smCount - *groups * size;

        *remaining = make_resource(note.device, rest, split);
        if (rest == 0)
            remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
    }
    return CUDA_SUCCESS;
}

CUresult sim_green_describe(CUdevResourceDesc *out, const CUdevResource *resources, unsigned int count)
{
    struct CUdevResourceDesc_st *description;
    unsigned int sum = 0, i;
    struct note first, note;

    if (!out || !resources || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < count; i++) {
        SIM_TRY(read_note(&resources[i], &note));
        first = i == 0 ? note : first;
        if (note.device != first.device || note.split != first.split || (i > 0 && !note.split))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        sum += resources[i].sm.smCount;
    }
    description = calloc(1, sizeof(*description));
    if (!description)
        return CUDA_ERROR_OUT_OF_MEMORY;
    description->whole = make_resource(first.device, sum, 0);
    sim_lock_take();
    sim_list_append(&descriptions, &description->link);
    sim_lock_drop();
    *out = description;
    return CUDA_SUCCESS;
}

static bool is_description(CUdevResourceDesc wanted)
{
    struct sim_link *at;

    for (at = descriptions.next; at != &descriptions; at = at->next)
        if (LIST_ITEM(at, struct CUdevResourceDesc_st, link) == wanted)
            return true;
    return false;
}

/* ---- creating and destroying ---- */

/* Makes a green context. The caller holds the lock and has retained the primary context for it. */
static CUresult make_green(CUgreenCtx *out, const CUdevResource *resource, struct CUctx_st *primary)
{
    struct CUgreenCtx_st *green = calloc(1, sizeof(*green));

    if (!green || !sim_object_add(green, OBJECT_GREEN)) {
        free(green);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    green->resource = *resource;
    green->context = sim_context_new_green(primary, green);
    if (!green->context) {
        sim_object_remove(green);
        free(green);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = green;
    return CUDA_SUCCESS;
}

static CUresult check_create(CUdevResourceDesc description, CUdevice ordinal)
{
    struct note note;

    if (!sim_device_get(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!is_description(description))
        return CUDA_ERROR_INVALID_VALUE;
    read_note(&description->whole, &note);
    return note.device == ordinal ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_green_create(CUgreenCtx *out, CUdevResourceDesc description, CUdevice ordinal,
                          unsigned int flags)
{
    CUcontext primary;
    CUresult result;

    if (!out || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock_take();
    result = check_create(description, ordinal);
    sim_lock_drop();
    if (result == CUDA_SUCCESS)
        result = sim_primary_retain(&primary, ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    sim_lock_take();
    result = make_green(out, &description->whole, primary);
    sim_lock_drop();
    if (result != CUDA_SUCCESS)
        sim_primary_release(ordinal);
    return result;
}

CUresult sim_green_destroy(CUgreenCtx green)
{
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    CUdevice device = -1;

    sim_lock_take();
    if (is_green(green)) {
        device = green->context->device;
        result = green->context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
        sim_context_end_green(green->context);
        sim_object_remove(green);
        free(green);
    }
    sim_lock_drop();
    if (device >= 0)
        sim_primary_release(device);
    return result;
}

/* ---- attributes ---- */

CUresult sim_green_context(CUcontext *out, CUgreenCtx green)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!is_green(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = green->context;
    return CUDA_SUCCESS;
}

CUresult sim_green_id(CUgreenCtx green, unsigned long long *out)
{
    struct CUctx_st *current;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!green && sim_context_current_itself(&current) == CUDA_SUCCESS)
        green = current->green;
    if (!is_green(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = green->context->id;
    return CUDA_SUCCESS;
}

CUresult sim_green_stream_create(CUstream *out, CUgreenCtx green, unsigned int flags, int priority)
{
    if (!out || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!is_green(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    return green->context->alive ? sim_stream_create_in(out, green->context, flags, priority)
                                 : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}
