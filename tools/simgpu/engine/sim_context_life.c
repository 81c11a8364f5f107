/* sim_context_life: creates, destroys and configures contexts. See sim_context_life.h. */
#include "tools/simgpu/engine/sim_context_life.h"

#include "tools/simgpu/engine/sim_alloc_calls.h"
#include "tools/simgpu/engine/sim_array.h"
#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_event.h"
#include "tools/simgpu/engine/sim_kernel.h"
#include "tools/simgpu/engine/sim_local.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_pool.h"
#include "tools/simgpu/engine/sim_stream.h"
#include "tools/simgpu/engine/sim_stream_work.h"

#include <stdlib.h>

#define API_VERSION 3020

static uint64_t last_id;

/* The limits of a fresh context on an H200 (measured). */
static const size_t default_limits[CU_LIMIT_MAX] = {
    [CU_LIMIT_STACK_SIZE] = LOCAL_FIRST,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 7340032,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

/* Finds a context by its handle; NULL is the current one, which may be green. Lock held. */
static CUresult resolve(CUcontext context, struct CUctx_st **out)
{
    if (!context)
        return sim_context_current_itself(out);
    *out = context;
    return sim_context_is_valid(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* ---- creating ---- */

static struct CUctx_st *new_context(CUdevice ordinal)
{
    struct CUctx_st *context = calloc(1, sizeof(*context));

    if (!context)
        return NULL;
    context->device = ordinal;
    sim_list_init(&context->streams);
    sim_list_init(&context->blocks);
    sim_list_init(&context->slabs);
    sim_list_init(&context->arrays);
    sim_list_init(&context->modules);
    sim_list_init(&context->events);
    sim_list_append(sim_context_all(), &context->all);
    return context;
}

/* Charges the card for a context and gives it its initial state. */
static CUresult begin(struct CUctx_st *context, unsigned int flags)
{
    int card = sim_device_get(context->device)->card;
    int i;

    if (sim_card_charge(card, sim_device_info(context->device)->context_bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->legacy = sim_stream_new(context, CU_STREAM_DEFAULT, 0);
    if (!context->legacy) {
        sim_card_uncharge(card, sim_device_info(context->device)->context_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_card_enter(card);
    context->legacy->legacy = true;
    context->id = ++last_id;
    context->flags = flags;
    for (i = 0; i < CU_LIMIT_MAX; i++)
        context->limits[i] = default_limits[i];
    for (i = 0; i < CONTEXT_PEERS; i++)
        context->peers[i] = false;
    context->local_bytes = LOCAL_FIRST;
    context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    context->alive = true;
    return CUDA_SUCCESS;
}

/* ---- green contexts ---- */

struct CUctx_st *sim_context_new_green(struct CUctx_st *primary, struct CUgreenCtx_st *green)
{
    struct CUctx_st *context = new_context(primary->device);

    if (!context)
        return NULL;
    context->base = primary;
    context->green = green;
    context->legacy = sim_stream_new(context, CU_STREAM_DEFAULT, 0);
    if (!context->legacy || !sim_object_add(context, OBJECT_CONTEXT)) {
        if (context->legacy)
            sim_stream_end(context->legacy);
        sim_list_remove(&context->all);
        free(context);
        return NULL;
    }
    context->legacy->legacy = true;
    context->id = ++last_id;
    context->alive = true;
    return context;
}

void sim_context_end_green(struct CUctx_st *context)
{
    if (!context->alive)
        return;
    context->alive = false;
    context->green = NULL;
    sim_object_remove(context);
    sim_capture_forget_green(context);
    sim_event_drop_barrier(context);
    if (context->legacy)
        sim_stream_end(context->legacy);
    context->legacy = NULL;
}

/* Ends the green contexts of a primary context. */
static void end_greens(struct CUctx_st *primary)
{
    struct sim_link *at;

    for (at = sim_context_all()->next; at != sim_context_all(); at = at->next) {
        struct CUctx_st *context = LIST_ITEM(at, struct CUctx_st, all);

        if (context->base == primary)
            sim_context_end_green(context);
    }
}

/* ---- destroying ---- */

/* Waits for the context's work and frees all that it owns. Memory of cuMemCreate belongs to no context and
 * stays. */
static void end(struct CUctx_st *context)
{
    context->alive = false;
    context->ending = true;
    sim_stream_wait_context(context);
    end_greens(context);
    sim_kernel_end_context(context);
    sim_array_end_context(context);
    sim_event_end_context(context);
    sim_stream_end_context(context);
    sim_alloc_end_context(context);
    sim_local_end_context(context);
    sim_card_uncharge(sim_device_get(context->device)->card, sim_device_info(context->device)->context_bytes);
    sim_card_leave(sim_device_get(context->device)->card);
    context->ending = false;
    sim_lock_wake();
}

CUresult sim_context_create(CUcontext *out, unsigned int flags, CUdevice ordinal)
{
    struct CUctx_st *context;
    CUresult result;

    if (!out || (flags & ~(unsigned int)CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_LOCKED();
    context = sim_context_has_room() ? new_context(ordinal) : NULL;
    result =
        context && sim_object_add(context, OBJECT_CONTEXT) ? begin(context, flags) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        sim_context_enter(context);
        *out = context;
    } else if (context) {
        sim_object_remove(context);
        sim_list_remove(&context->all);
        free(context);
    }
    return result;
}

/* Ends a context of cuCtxCreate. Lock held. */
static void end_made(struct CUctx_st *context)
{
    sim_object_remove(context);
    end(context);
    sim_context_leave(context);
}

CUresult sim_context_destroy(CUcontext context)
{
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!sim_context_is_valid(context) || context->primary || context->base)
        return CUDA_ERROR_INVALID_CONTEXT;
    end_made(context);
    return CUDA_SUCCESS;
}

CUresult sim_context_attach(CUcontext *out, unsigned int flags)
{
    struct CUctx_st *context;

    if (!out || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    context->attached += !context->primary;
    *out = context;
    return CUDA_SUCCESS;
}

/* Works only on the current context, and does nothing to a primary one (measured). */
CUresult sim_context_detach(CUcontext context)
{
    struct CUctx_st *current;

    SIM_LOCKED();
    SIM_TRY(sim_context_current(&current));
    if (current != context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->primary && context->attached-- == 0)
        end_made(context);
    return CUDA_SUCCESS;
}

/* ---- attributes ---- */

CUresult sim_context_device(CUdevice *out, CUcontext context)
{
    struct CUctx_st *found;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(resolve(context, &found));
    *out = found->device;
    return CUDA_SUCCESS;
}

CUresult sim_context_id(CUcontext context, unsigned long long *out)
{
    struct CUctx_st *found;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(resolve(context, &found));
    *out = found->id;
    return CUDA_SUCCESS;
}

CUresult sim_context_api_version(CUcontext context, unsigned int *out)
{
    struct CUctx_st *found;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = API_VERSION;
    SIM_LOCKED();
    return resolve(context, &found);
}

CUresult sim_context_get_flags(unsigned int *out)
{
    struct CUctx_st *context;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    *out = context->flags;
    return CUDA_SUCCESS;
}

CUresult sim_context_get_limit(size_t *out, CUlimit limit)
{
    struct CUctx_st *context;

    if (!out || (unsigned int)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    *out = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult sim_context_get_cache_config(CUfunc_cache *out)
{
    struct CUctx_st *context;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    *out = context->cache_config;
    return CUDA_SUCCESS;
}

CUresult sim_context_set_flags(unsigned int flags)
{
    struct CUctx_st *context;

    if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult sim_context_set_limit(CUlimit limit, size_t value)
{
    struct CUctx_st *context;

    if ((unsigned int)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    if (limit == CU_LIMIT_STACK_SIZE)
        SIM_TRY(sim_local_grow(context, value));
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult sim_context_set_cache_config(CUfunc_cache config)
{
    struct CUctx_st *context;

    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    context->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult sim_context_synchronize(CUcontext context)
{
    struct CUctx_st *found;

    SIM_LOCKED();
    SIM_TRY(resolve(context, &found));
    SIM_TRY(sim_capture_check_context(found));
    sim_stream_wait_context(found);
    sim_pool_settle_all(0);
    return CUDA_SUCCESS;
}

static CUresult change_peer(CUcontext peer, bool enable)
{
    struct CUctx_st *context;

    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    if (!sim_context_is_valid(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == context->device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (context->peers[peer->device] == enable)
        return enable ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers[peer->device] = enable;
    return CUDA_SUCCESS;
}

CUresult sim_context_enable_peer(CUcontext peer)
{
    return change_peer(peer, true);
}

CUresult sim_context_disable_peer(CUcontext peer)
{
    return change_peer(peer, false);
}

/* ---- primary contexts ---- */

static CUresult make_primary(struct sim_device *device, CUdevice ordinal)
{
    struct CUctx_st *context = new_context(ordinal);

    if (!context || !sim_object_add(context, OBJECT_CONTEXT))
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->primary = true;
    device->primary = context;
    return CUDA_SUCCESS;
}

CUresult sim_primary_retain(CUcontext *out, CUdevice ordinal)
{
    struct sim_device *device = sim_device_get(ordinal);

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_LOCKED();
    if (!device->primary)
        SIM_TRY(make_primary(device, ordinal));
    while (device->primary->ending)
        sim_lock_wait();
    if (!device->primary->alive)
        SIM_TRY(begin(device->primary, device->primary_flags));
    device->primary->retained++;
    *out = device->primary;
    return CUDA_SUCCESS;
}

CUresult sim_primary_release(CUdevice ordinal)
{
    struct sim_device *device = sim_device_get(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_LOCKED();
    if (!device->primary || device->primary->retained == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--device->primary->retained == 0 && device->primary->alive)
        end(device->primary);
    return CUDA_SUCCESS;
}

CUresult sim_primary_reset(CUdevice ordinal)
{
    struct sim_device *device = sim_device_get(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_LOCKED();
    if (device->primary && device->primary->alive)
        end(device->primary);
    return CUDA_SUCCESS;
}

CUresult sim_primary_state(CUdevice ordinal, unsigned int *flags, int *active)
{
    struct sim_device *device = sim_device_get(ordinal);

    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_LOCKED();
    *active = device->primary && device->primary->alive;
    *flags = *active ? device->primary->flags : device->primary_flags;
    return CUDA_SUCCESS;
}

CUresult sim_primary_set_flags(CUdevice ordinal, unsigned int flags)
{
    struct sim_device *device = sim_device_get(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    device->primary_flags = flags;
    if (device->primary && device->primary->alive)
        device->primary->flags = flags;
    return CUDA_SUCCESS;
}
