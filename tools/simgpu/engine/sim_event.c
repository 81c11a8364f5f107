/* sim_event: events. See sim_event.h. */
#include "tools/simgpu/engine/sim_event.h"

#include "tools/simgpu/engine/sim_event_share.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_pool.h"
#include "tools/simgpu/engine/sim_stream_work.h"

#include <stdlib.h>

#define KNOWN_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

/* Resets an event to "not recorded". Lock held. */
static void forget(struct CUevent_st *event)
{
    sim_ops_clear(&event->ops);
    sim_nodes_clear(&event->captured.nodes);
    event->captured.capture = 0;
}

static void free_event(struct CUevent_st *event)
{
    if (event->shared)
        sim_share_drop(event->slot);
    sim_object_remove(event);
    sim_list_remove(&event->link);
    forget(event);
    free(event);
}

/* Creates an event in the current context. Lock held. */
static CUresult make_event(CUevent *out, unsigned int flags, struct sim_shared_event *shared)
{
    struct CUctx_st *context;
    struct CUevent_st *event;

    SIM_TRY(sim_context_current(&context));
    event = calloc(1, sizeof(*event));
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->slot = -1;
    event->shared = shared;
    if ((flags & CU_EVENT_INTERPROCESS) && !shared)
        event->shared = sim_share_new(&event->slot);
    if (((flags & CU_EVENT_INTERPROCESS) && !event->shared) || !sim_object_add(event, OBJECT_EVENT)) {
        if (event->shared)
            sim_share_drop(event->slot);
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->context = context;
    event->flags = flags;
    sim_list_append(&context->events, &event->link);
    *out = event;
    return CUDA_SUCCESS;
}

CUresult sim_event_create(CUevent *out, unsigned int flags)
{
    if (!out || (flags & ~(unsigned int)KNOWN_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    return make_event(out, flags, NULL);
}

CUresult sim_event_destroy(CUevent event)
{
    SIM_LOCKED();
    if (!sim_object_is(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    free_event(event);
    return CUDA_SUCCESS;
}

/* Another process cannot see our ops, so work in the stream raises the count that both processes map. */
static CUresult record_shared(struct CUevent_st *event, struct CUstream_st *stream)
{
    struct sim_work *work = sim_work_new(WORK_RAISE);

    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->value.address = sim_share_done_address(event->shared);
    work->value.value = sim_share_record(event->shared);
    work->value.wide = true;
    event->recorded = true;
    return sim_stream_submit(stream, work, false);
}

static CUresult wait_shared(struct CUevent_st *event, struct CUstream_st *stream)
{
    struct sim_work *work = sim_work_new(WORK_AWAIT);

    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->value = (struct sim_work_value){.address = sim_share_done_address(event->shared),
                                          .value = sim_share_recorded(event->shared),
                                          .flags = CU_STREAM_WAIT_VALUE_GEQ,
                                          .wide = true};
    return sim_stream_submit(stream, work, false);
}

/* Makes the event stand for that work. Takes ownership of the list. */
static void set_recorded(struct CUevent_st *event, const struct sim_ops *pending, uint64_t stream)
{
    forget(event);
    event->ops = *pending;
    event->recorded = true;
    event->stream = stream;
    event->record_ns = sim_stream_now_ns();
}

static CUresult record(struct CUevent_st *event, struct CUstream_st *stream)
{
    struct sim_ops pending;

    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) {
        SIM_TRY(sim_capture_record(stream, &event->captured));
        sim_ops_clear(&event->ops);
        return CUDA_SUCCESS;
    }
    SIM_TRY(sim_capture_check_implicit(stream));
    if (event->shared)
        return record_shared(event, stream);
    if (!sim_stream_pending(stream, &pending))
        return CUDA_ERROR_OUT_OF_MEMORY;
    set_recorded(event, &pending, stream->legacy ? 0 : stream->id);
    return CUDA_SUCCESS;
}

CUresult sim_event_record(CUevent event, CUstream handle)
{
    struct CUstream_st *stream;

    SIM_LOCKED();
    if (!sim_object_is(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_TRY(sim_stream_find(handle, &stream));
    return record(event, stream);
}

CUresult sim_event_record_context(CUcontext context, CUevent event)
{
    struct sim_ops pending;

    SIM_LOCKED();
    sim_context_must_stay(context);
    if (!sim_context_is_valid(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!sim_object_is(event, OBJECT_EVENT) || event->context != sim_context_base(context))
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->shared)
        return CUDA_ERROR_NOT_SUPPORTED;
    SIM_TRY(sim_capture_check_context(context));
    if (!sim_stream_pending_context(context, &pending))
        return CUDA_ERROR_OUT_OF_MEMORY;
    set_recorded(event, &pending, 0);
    return CUDA_SUCCESS;
}

static CUresult make_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    struct sim_ops after;

    if (stream->capture || event->captured.capture)
        return sim_capture_wait(stream, &event->captured);
    if (event->shared)
        return wait_shared(event, stream);
    if (!sim_ops_copy(&after, &event->ops))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return sim_stream_submit_after(stream, &after);
}

CUresult sim_event_wait(CUstream handle, CUevent event)
{
    struct CUstream_st *stream;

    SIM_LOCKED();
    if (!sim_object_is(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_TRY(sim_stream_find(handle, &stream));
    return make_wait(stream, event);
}

/* Makes streams that are created later wait as well (measured, H200). */
static CUresult add_barrier(struct CUctx_st *context, const struct CUevent_st *event)
{
    if (!context->barrier && !(context->barrier = calloc(1, sizeof(*context->barrier))))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return sim_ops_join(context->barrier, &event->ops) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_event_drop_barrier(struct CUctx_st *context)
{
    if (context->barrier)
        sim_ops_clear(context->barrier);
    free(context->barrier);
    context->barrier = NULL;
}

void sim_event_end_context(struct CUctx_st *context)
{
    sim_event_drop_barrier(context);
    while (!sim_list_empty(&context->events))
        free_event(LIST_ITEM(context->events.next, struct CUevent_st, link));
}

/* Makes all streams of a context wait for an event. Lock held. */
static CUresult keep_back(struct CUctx_st *context, struct CUevent_st *event)
{
    struct sim_link *streams = &sim_context_base(context)->streams, *at;
    CUresult result = add_barrier(context, event);

    for (at = streams->next; result == CUDA_SUCCESS && at != streams; at = at->next) {
        struct CUstream_st *stream = LIST_ITEM(at, struct CUstream_st, link);

        if (!stream->destroyed && sim_stream_is_of(stream, context))
            result = make_wait(stream, event);
    }
    return result;
}

CUresult sim_event_wait_context(CUcontext context, CUevent event)
{
    SIM_LOCKED();
    if (!sim_context_is_valid(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!sim_object_is(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_TRY(sim_capture_check_context(context));
    return keep_back(context, event);
}

CUresult sim_event_query(CUevent event)
{
    bool done;

    SIM_LOCKED();
    if (!sim_object_is(event, OBJECT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->captured.capture)
        return sim_capture_check_event(&event->captured);
    SIM_TRY(sim_capture_check_unsafe()); /* a query of any event invalidates a capture */
    done = event->shared ? sim_share_is_done(event->shared) : sim_ops_done(&event->ops);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult sim_event_synchronize(CUevent event)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_shared_event *shared = NULL;
    uint64_t stream;
    struct sim_ops waited;

    sim_lock_take();
    if (!sim_object_is(event, OBJECT_EVENT))
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (event->captured.capture)
        result = sim_capture_check_event(&event->captured);
    else if ((result = sim_capture_check_unsafe()) != CUDA_SUCCESS)
        ; /* so does waiting for one (measured, H200) */
    else if (!sim_ops_copy(&waited,
                           &event->ops)) /* another thread may record or destroy the event meanwhile */
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        shared = event->shared;
        stream = event->stream;
        sim_ops_wait(&waited);
        sim_ops_clear(&waited);
        sim_pool_settle_all(stream);
    }
    sim_lock_drop();
    if (shared)
        sim_share_wait(shared);
    return result;
}

static uint64_t time_of(const struct CUevent_st *event)
{
    uint64_t latest = event->record_ns;
    unsigned int i;

    for (i = 0; i < event->ops.count; i++)
        if (event->ops.items[i]->done_ns > latest)
            latest = event->ops.items[i]->done_ns;
    return latest;
}

CUresult sim_event_elapsed(float *milliseconds, CUevent from, CUevent to)
{
    if (!milliseconds)
        return CUDA_ERROR_INVALID_HANDLE; /* not INVALID_VALUE (measured) */
    SIM_LOCKED();
    if (!sim_object_is(from, OBJECT_EVENT) || !sim_object_is(to, OBJECT_EVENT) || !from->recorded ||
        !to->recorded || ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_ops_done(&from->ops) || !sim_ops_done(&to->ops))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)((int64_t)time_of(to) - (int64_t)time_of(from)) / 1e6);
    return CUDA_SUCCESS;
}

/* ---- events of other processes ---- */

CUresult sim_event_export(CUipcEventHandle *out, CUevent event)
{
    SIM_LOCKED();
    if (!out || !sim_object_is(event, OBJECT_EVENT) || !event->shared || event->slot < 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_share_export(out, event->slot);
    return CUDA_SUCCESS;
}

CUresult sim_event_open(CUevent *out, CUipcEventHandle handle)
{
    struct sim_shared_event *shared;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_share_open(&shared, handle));
    SIM_LOCKED();
    return make_event(out, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, shared);
}
