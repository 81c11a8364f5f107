/* context: contexts, primary and made, and which one is current to a thread. See context.h. */
#include "tools/simgpu/engine/sim_context.h"

#include "tools/simgpu/engine/sim_alloc.h"
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

#include <stdio.h>
#include <stdlib.h>

#define STACK_DEPTH 64 /* contexts pushed by one thread; the driver has no such limit, programs use two */
#define API_VERSION 3020

static struct link all = {&all, &all};
static uint64_t last_id;
static _Thread_local struct CUctx_st *stack[STACK_DEPTH];
static _Thread_local unsigned int depth;

/* What an H200 answers before anyone sets a limit. */
static const size_t default_limits[CU_LIMIT_MAX] = {
    [CU_LIMIT_STACK_SIZE] = LOCAL_FIRST,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 7340032,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

struct link *context_all(void)
{
    return &all;
}

struct CUctx_st *context_base(struct CUctx_st *context)
{
    return context->base ? context->base : context;
}

CUresult context_current_itself(struct CUctx_st **out)
{
    if (depth == 0 || !stack[depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = stack[depth - 1];
    return (*out)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult context_current(struct CUctx_st **out)
{
    CUresult result = context_current_itself(out);

    if (result != CUDA_ERROR_INVALID_CONTEXT)
        *out = context_base(*out);
    return result;
}

bool context_is_valid(CUcontext context)
{
    return object_is(context, OBJECT_CONTEXT) && context->alive;
}

/* A real driver may crash where a context comes into use while it is being destroyed: here it always ends the
 * program. With the lock. */
void context_must_stay(CUcontext context)
{
    for (struct link *at = all.next; at != &all; at = at->next) {
        const struct CUctx_st *known = LIST_ITEM(at, struct CUctx_st, all);

        if (known == context && known->ending) {
            fputs("simgpu: a context is used while it is being destroyed\n", stderr);
            abort();
        }
    }
}

/* NULL stands for the current one. A green one stays one. */
static CUresult resolve(CUcontext context, struct CUctx_st **out)
{
    if (!context)
        return context_current_itself(out);
    *out = context;
    return context_is_valid(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* ---- life ---- */

static struct CUctx_st *new_context(CUdevice ordinal)
{
    struct CUctx_st *context = calloc(1, sizeof(*context));

    if (!context)
        return NULL;
    context->device = ordinal;
    list_init(&context->streams);
    list_init(&context->blocks);
    list_init(&context->slabs);
    list_init(&context->arrays);
    list_init(&context->modules);
    list_init(&context->events);
    list_append(&all, &context->all);
    return context;
}

/* Charges the card and makes what every context has. */
static CUresult begin(struct CUctx_st *context, unsigned int flags)
{
    int card = device_get(context->device)->card;
    int i;

    if (card_charge(card, device_info(context->device)->context_bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->legacy = stream_new(context, CU_STREAM_DEFAULT, 0);
    if (!context->legacy) {
        card_uncharge(card, device_info(context->device)->context_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
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

struct CUctx_st *context_new_green(struct CUctx_st *primary, struct CUgreenCtx_st *green)
{
    struct CUctx_st *context = new_context(primary->device);

    if (!context)
        return NULL;
    context->base = primary;
    context->green = green;
    context->legacy = stream_new(context, CU_STREAM_DEFAULT, 0);
    if (!context->legacy || !object_add(context, OBJECT_CONTEXT)) {
        if (context->legacy)
            stream_end(context->legacy);
        list_remove(&context->all);
        free(context);
        return NULL;
    }
    context->legacy->legacy = true;
    context->id = ++last_id;
    context->alive = true;
    return context;
}

void context_end_green(struct CUctx_st *context)
{
    if (!context->alive)
        return;
    context->alive = false;
    context->green = NULL;
    object_remove(context);
    capture_forget_green(context);
    event_drop_barrier(context);
    if (context->legacy)
        stream_end(context->legacy);
    context->legacy = NULL;
}

/* With their primary context. */
static void end_greens(struct CUctx_st *primary)
{
    struct link *at;

    for (at = all.next; at != &all; at = at->next) {
        struct CUctx_st *context = LIST_ITEM(at, struct CUctx_st, all);

        if (context->base == primary)
            context_end_green(context);
    }
}

/* ---- the end of a context ---- */

/* Waits for its work and gives back all that it owns; memory by handle (cuMemCreate) belongs to no context.
 */
static void end(struct CUctx_st *context)
{
    context->alive = false;
    context->ending = true;
    stream_wait_context(context);
    end_greens(context);
    kernel_end_context(context);
    array_end_context(context);
    event_end_context(context);
    stream_end_context(context);
    alloc_end_context(context);
    local_end_context(context);
    card_uncharge(device_get(context->device)->card, device_info(context->device)->context_bytes);
    context->ending = false;
    lock_wake();
}

CUresult context_create(CUcontext *out, unsigned int flags, CUdevice ordinal)
{
    struct CUctx_st *context;
    CUresult result;

    if (!out || (flags & ~(unsigned int)CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_get(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    lock_take();
    context = depth < STACK_DEPTH ? new_context(ordinal) : NULL;
    result =
        context && object_add(context, OBJECT_CONTEXT) ? begin(context, flags) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        stack[depth++] = context;
        *out = context;
    } else if (context) {
        object_remove(context);
        list_remove(&context->all);
        free(context);
    }
    lock_drop();
    return result;
}

/* With the lock. */
static void end_made(struct CUctx_st *context)
{
    object_remove(context);
    end(context);
    if (depth > 0 && stack[depth - 1] == context)
        depth--;
}

CUresult context_destroy(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;

    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    if (!context_is_valid(context) || context->primary || context->base) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else {
        end_made(context);
    }
    lock_drop();
    return result;
}

CUresult context_attach(CUcontext *out, unsigned int flags)
{
    struct CUctx_st *context;
    CUresult result;

    if (!out || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = context_current(&context);
    if (result == CUDA_SUCCESS) {
        context->attached += !context->primary;
        *out = context;
    }
    lock_drop();
    return result;
}

/* Only of the current one; the primary one it leaves as it is (measured). */
CUresult context_detach(CUcontext context)
{
    struct CUctx_st *current;
    CUresult result;

    lock_take();
    result = context_current(&current);
    if (result == CUDA_SUCCESS && current != context)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && !context->primary && context->attached-- == 0)
        end_made(context);
    lock_drop();
    return result;
}

/* ---- current ---- */

CUresult context_push(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;

    lock_take();
    context_must_stay(context);
    if (!object_is(context, OBJECT_CONTEXT))
        result = context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    else if (depth == STACK_DEPTH)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        stack[depth++] = context;
    lock_drop();
    return result;
}

CUresult context_pop(CUcontext *out)
{
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (out)
        *out = stack[depth];
    return CUDA_SUCCESS;
}

CUresult context_set(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;

    if (!context) {
        if (depth > 0)
            depth--;
        return CUDA_SUCCESS;
    }
    lock_take();
    if (object_is(context, OBJECT_CONTEXT))
        stack[depth > 0 ? depth - 1 : depth++] = context;
    else
        result = CUDA_ERROR_INVALID_CONTEXT;
    lock_drop();
    return result;
}

CUresult context_get(CUcontext *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = depth > 0 ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

/* ---- questions and settings ---- */

CUresult context_device(CUdevice *out, CUcontext context)
{
    struct CUctx_st *found;
    CUresult result;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = resolve(context, &found);
    if (result == CUDA_SUCCESS)
        *out = found->device;
    lock_drop();
    return result;
}

CUresult context_id(CUcontext context, unsigned long long *out)
{
    struct CUctx_st *found;
    CUresult result;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = resolve(context, &found);
    if (result == CUDA_SUCCESS)
        *out = found->id;
    lock_drop();
    return result;
}

CUresult context_api_version(CUcontext context, unsigned int *out)
{
    struct CUctx_st *found;
    CUresult result;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = resolve(context, &found);
    lock_drop();
    *out = API_VERSION;
    return result;
}

CUresult context_check_current(void)
{
    struct CUctx_st *context;
    CUresult result;

    lock_take();
    result = context_current(&context);
    lock_drop();
    return result;
}

CUresult context_get_flags(unsigned int *out)
{
    struct CUctx_st *context;
    CUresult result;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = context_current(&context);
    if (result == CUDA_SUCCESS)
        *out = context->flags;
    lock_drop();
    return result;
}

CUresult context_set_flags(unsigned int flags)
{
    struct CUctx_st *context;
    CUresult result;

    if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = context_current(&context);
    if (result == CUDA_SUCCESS)
        context->flags = flags;
    lock_drop();
    return result;
}

CUresult context_get_limit(size_t *out, CUlimit limit)
{
    struct CUctx_st *context;
    CUresult result;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned int)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = context_current(&context);
    if (result == CUDA_SUCCESS)
        *out = context->limits[limit];
    lock_drop();
    return result;
}

CUresult context_set_limit(CUlimit limit, size_t value)
{
    struct CUctx_st *context;
    CUresult result;

    if ((unsigned int)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = context_current(&context);
    if (result == CUDA_SUCCESS && limit == CU_LIMIT_STACK_SIZE)
        result = local_grow(context, value);
    if (result == CUDA_SUCCESS)
        context->limits[limit] = value;
    lock_drop();
    return result;
}

CUresult context_get_cache_config(CUfunc_cache *out)
{
    struct CUctx_st *context;
    CUresult result;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = context_current(&context);
    if (result == CUDA_SUCCESS)
        *out = context->cache_config;
    lock_drop();
    return result;
}

CUresult context_set_cache_config(CUfunc_cache config)
{
    struct CUctx_st *context;
    CUresult result;

    lock_take();
    result = context_current(&context);
    if (result == CUDA_SUCCESS)
        context->cache_config = config;
    lock_drop();
    return result;
}

CUresult context_synchronize(CUcontext context)
{
    struct CUctx_st *found;
    CUresult result;

    lock_take();
    result = resolve(context, &found);
    if (result == CUDA_SUCCESS)
        result = capture_check_context(found);
    if (result == CUDA_SUCCESS) {
        stream_wait_context(found);
        pool_settle_all(0);
    }
    lock_drop();
    return result;
}

static CUresult change_peer(CUcontext peer, bool enable)
{
    struct CUctx_st *context;
    CUresult result;

    lock_take();
    result = context_current(&context);
    if (result == CUDA_SUCCESS && !context_is_valid(peer))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && peer->device == context->device)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS && context->peers[peer->device] == enable)
        result = enable ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    if (result == CUDA_SUCCESS)
        context->peers[peer->device] = enable;
    lock_drop();
    return result;
}

CUresult context_enable_peer(CUcontext peer)
{
    return change_peer(peer, true);
}

CUresult context_disable_peer(CUcontext peer)
{
    return change_peer(peer, false);
}

/* ---- primary ---- */

static CUresult make_primary(struct device *device, CUdevice ordinal)
{
    struct CUctx_st *context = new_context(ordinal);

    if (!context || !object_add(context, OBJECT_CONTEXT))
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->primary = true;
    device->primary = context;
    return CUDA_SUCCESS;
}

CUresult primary_retain(CUcontext *out, CUdevice ordinal)
{
    struct device *device = device_get(ordinal);
    CUresult result = CUDA_SUCCESS;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    lock_take();
    if (!device->primary)
        result = make_primary(device, ordinal);
    while (result == CUDA_SUCCESS && device->primary->ending)
        lock_wait();
    if (result == CUDA_SUCCESS && !device->primary->alive)
        result = begin(device->primary, device->primary_flags);
    if (result == CUDA_SUCCESS) {
        device->primary->retained++;
        *out = device->primary;
    }
    lock_drop();
    return result;
}

CUresult primary_release(CUdevice ordinal)
{
    struct device *device = device_get(ordinal);
    CUresult result = CUDA_SUCCESS;

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    lock_take();
    if (!device->primary || device->primary->retained == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--device->primary->retained == 0 && device->primary->alive)
        end(device->primary);
    lock_drop();
    return result;
}

CUresult primary_reset(CUdevice ordinal)
{
    struct device *device = device_get(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    lock_take();
    if (device->primary && device->primary->alive)
        end(device->primary);
    lock_drop();
    return CUDA_SUCCESS;
}

CUresult primary_state(CUdevice ordinal, unsigned int *flags, int *active)
{
    struct device *device = device_get(ordinal);

    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    lock_take();
    *active = device->primary && device->primary->alive;
    *flags = *active ? device->primary->flags : device->primary_flags;
    lock_drop();
    return CUDA_SUCCESS;
}

CUresult primary_set_flags(CUdevice ordinal, unsigned int flags)
{
    struct device *device = device_get(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    device->primary_flags = flags;
    if (device->primary && device->primary->alive)
        device->primary->flags = flags;
    lock_drop();
    return CUDA_SUCCESS;
}
