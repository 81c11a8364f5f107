/* event: a point in one or more streams. See event.h. */
#include "tools/simgpu/engine/sim_event.h"

#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_event_share.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_pool.h"

#include <stdlib.h>

#define KNOWN_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

void event_forget(struct CUevent_st *event)
{
    ops_clear(&event->ops);
    nodes_clear(&event->nodes);
    event->capture = 0;
}

static void free_event(struct CUevent_st *event)
{
    if (event->shared)
        share_drop(event->slot);
    object_remove(event);
    list_remove(&event->link);
    event_forget(event);
    free(event);
}

/* Lock held. */
static CUresult make_event(CUevent *out, unsigned int flags, struct shared_event *shared)
{
    struct CUctx_st *context;
    struct CUevent_st *event;
    CUresult result = context_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    event = calloc(1, sizeof(*event));
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->slot = -1;
    event->shared = shared;
    if ((flags & CU_EVENT_INTERPROCESS) && !shared)
        event->shared = share_new(&event->slot);
    if (((flags & CU_EVENT_INTERPROCESS) && !event->shared) || !object_add(event, OBJECT_EVENT)) {
        if (event->shared)
            share_drop(event->slot);
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->context = context;
    event->flags = flags;
    list_append(&context->events, &event->link);
    *out = event;
    return CUDA_SUCCESS;
}

CUresult event_adopt(CUevent *out, struct shared_event *shared)
{
    CUresult result;

    lock_take();
    result = make_event(out, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, shared);
    lock_drop();
    return result;
}

CUresult event_create(CUevent *out, unsigned int flags)
{
    CUresult result;

    if (!out || (flags & ~(unsigned int)KNOWN_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = make_event(out, flags, NULL);
    lock_drop();
    return result;
}

CUresult event_destroy(CUevent event)
{
    CUresult result = CUDA_SUCCESS;

    lock_take();
    if (object_is(event, OBJECT_EVENT))
        free_event(event);
    else
        result = CUDA_ERROR_INVALID_HANDLE;
    lock_drop();
    return result;
}

/* Another process cannot see our ops: the stream itself raises the count that both see. */
static CUresult record_shared(struct CUevent_st *event, struct CUstream_st *stream)
{
    struct work *work = work_new(WORK_RAISE);

    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->value.address = share_done_address(event->shared);
    work->value.value = share_record(event->shared);
    work->value.wide = true;
    event->recorded = true;
    return stream_submit(stream, work, false);
}

static CUresult wait_shared(struct CUevent_st *event, struct CUstream_st *stream)
{
    struct work *work = work_new(WORK_AWAIT);

    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->value = (struct work_value){.address = share_done_address(event->shared),
                                      .value = share_recorded(event->shared),
                                      .flags = CU_STREAM_WAIT_VALUE_GEQ,
                                      .wide = true};
    return stream_submit(stream, work, false);
}

static CUresult record(struct CUevent_st *event, struct CUstream_st *stream)
{
    CUresult result;
    struct ops pending;

    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture)
        return capture_record(stream, event);
    result = capture_check_implicit(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (event->shared)
        return record_shared(event, stream);
    if (!stream_pending(stream, &pending))
        return CUDA_ERROR_OUT_OF_MEMORY;
    event_forget(event);
    event->ops = pending;
    event->recorded = true;
    event->stream = stream->legacy ? 0 : stream->id;
    event->record_ns = stream_now_ns();
    return CUDA_SUCCESS;
}

CUresult event_record(CUevent event, CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result;

    lock_take();
    result = object_is(event, OBJECT_EVENT) ? stream_find(handle, &stream) : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = record(event, stream);
    lock_drop();
    return result;
}

CUresult event_record_context(CUcontext context, CUevent event)
{
    struct ops pending;
    CUresult result = CUDA_SUCCESS;

    lock_take();
    context_must_stay(context);
    if (!context_is_valid(context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (!object_is(event, OBJECT_EVENT) || event->context != context_base(context))
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (event->shared)
        result = CUDA_ERROR_NOT_SUPPORTED;
    else
        result = capture_check_context(context);
    if (result == CUDA_SUCCESS) {
        if (stream_pending_context(context, &pending)) {
            event_forget(event);
            event->ops = pending;
            event->recorded = true;
            event->stream = 0;
            event->record_ns = stream_now_ns();
        } else {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    lock_drop();
    return result;
}

static CUresult make_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    struct ops after;

    if (stream->capture || event->capture)
        return capture_wait(stream, event);
    if (event->shared)
        return wait_shared(event, stream);
    if (!ops_copy(&after, &event->ops))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return stream_submit_after(stream, &after);
}

CUresult event_wait(CUstream handle, CUevent event)
{
    struct CUstream_st *stream;
    CUresult result;

    lock_take();
    result = object_is(event, OBJECT_EVENT) ? stream_find(handle, &stream) : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = make_wait(stream, event);
    lock_drop();
    return result;
}

/* Streams that are made later wait as well (seen on an H200). */
static CUresult add_barrier(struct CUctx_st *context, const struct CUevent_st *event)
{
    if (!context->barrier && !(context->barrier = calloc(1, sizeof(*context->barrier))))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return ops_join(context->barrier, &event->ops) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void event_drop_barrier(struct CUctx_st *context)
{
    if (context->barrier)
        ops_clear(context->barrier);
    free(context->barrier);
    context->barrier = NULL;
}

void event_end_context(struct CUctx_st *context)
{
    event_drop_barrier(context);
    while (!list_empty(&context->events))
        free_event(LIST_ITEM(context->events.next, struct CUevent_st, link));
}

/* Lock held. */
static CUresult keep_back(struct CUctx_st *context, struct CUevent_st *event)
{
    struct link *streams = &context_base(context)->streams, *at;
    CUresult result = add_barrier(context, event);

    for (at = streams->next; result == CUDA_SUCCESS && at != streams; at = at->next) {
        struct CUstream_st *stream = LIST_ITEM(at, struct CUstream_st, link);

        if (!stream->destroyed && stream_is_of(stream, context))
            result = make_wait(stream, event);
    }
    return result;
}

CUresult event_wait_context(CUcontext context, CUevent event)
{
    CUresult result = CUDA_SUCCESS;

    lock_take();
    if (!context_is_valid(context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (!object_is(event, OBJECT_EVENT))
        result = CUDA_ERROR_INVALID_HANDLE;
    else
        result = capture_check_context(context);
    if (result == CUDA_SUCCESS)
        result = keep_back(context, event);
    lock_drop();
    return result;
}

CUresult event_query(CUevent event)
{
    CUresult result;

    lock_take();
    if (!object_is(event, OBJECT_EVENT))
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (event->capture)
        result = capture_check_event(event);
    else if ((result = capture_check_unsafe()) != CUDA_SUCCESS)
        ; /* a question about any event ends a capture */
    else if (event->shared)
        result = share_is_done(event->shared) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    else
        result = ops_done(&event->ops) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    lock_drop();
    return result;
}

CUresult event_synchronize(CUevent event)
{
    CUresult result = CUDA_SUCCESS;
    struct shared_event *shared = NULL;
    uint64_t stream;
    struct ops waited;

    lock_take();
    if (!object_is(event, OBJECT_EVENT))
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (event->capture)
        result = capture_check_event(event);
    else if ((result = capture_check_unsafe()) != CUDA_SUCCESS)
        ;                                     /* and so does waiting for one (seen on an H200) */
    else if (!ops_copy(&waited, &event->ops)) /* another thread may record or destroy the event meanwhile */
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        shared = event->shared;
        stream = event->stream;
        ops_wait(&waited);
        ops_clear(&waited);
        pool_settle_all(stream);
    }
    lock_drop();
    if (shared)
        share_wait(shared);
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

CUresult event_elapsed(float *milliseconds, CUevent from, CUevent to)
{
    CUresult result = CUDA_SUCCESS;

    if (!milliseconds)
        return CUDA_ERROR_INVALID_HANDLE; /* this, not INVALID_VALUE (measured) */
    lock_take();
    if (!object_is(from, OBJECT_EVENT) || !object_is(to, OBJECT_EVENT) || !from->recorded || !to->recorded ||
        ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING))
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (!ops_done(&from->ops) || !ops_done(&to->ops))
        result = CUDA_ERROR_NOT_READY;
    else
        *milliseconds = (float)((double)((int64_t)time_of(to) - (int64_t)time_of(from)) / 1e6);
    lock_drop();
    return result;
}
