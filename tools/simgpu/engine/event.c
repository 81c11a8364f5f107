/* event: a point in one or more streams. See event.h. */
#include "event.h"

#include "capture.h"
#include "lock.h"
#include "object.h"
#include "pool.h"

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
    object_remove(event);
    list_remove(&event->link);
    event_forget(event);
    free(event);
}

void event_end_context(struct CUctx_st *context)
{
    while (!list_empty(&context->events))
        free_event(LIST_ITEM(context->events.next, struct CUevent_st, link));
}

CUresult event_create(CUevent *out, unsigned int flags)
{
    struct CUctx_st *context;
    struct CUevent_st *event;
    CUresult result;

    if (!out || (flags & ~(unsigned int)KNOWN_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    lock_take();
    result = context_current(&context);
    if (result == CUDA_SUCCESS) {
        event = calloc(1, sizeof(*event));
        if (event && object_add(event, OBJECT_EVENT)) {
            event->context = context;
            event->flags = flags;
            list_append(&context->events, &event->link);
            *out = event;
        } else {
            free(event);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
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
    if (!stream_pending(stream, &pending))
        return CUDA_ERROR_OUT_OF_MEMORY;
    event_forget(event);
    event->ops = pending;
    event->recorded = true;
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
    if (!context_is_valid(context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (!object_is(event, OBJECT_EVENT) || event->context != context)
        result = CUDA_ERROR_INVALID_HANDLE;
    else
        result = capture_check_context(context);
    if (result == CUDA_SUCCESS) {
        if (stream_pending_context(context, &pending)) {
            event_forget(event);
            event->ops = pending;
            event->recorded = true;
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

CUresult event_wait_context(CUcontext context, CUevent event)
{
    CUresult result = CUDA_SUCCESS;
    struct link *at;

    lock_take();
    if (!context_is_valid(context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (!object_is(event, OBJECT_EVENT))
        result = CUDA_ERROR_INVALID_HANDLE;
    else
        result = capture_check_context(context);
    if (result == CUDA_SUCCESS)
        for (at = context->streams.next; result == CUDA_SUCCESS && at != &context->streams; at = at->next) {
            struct CUstream_st *stream = LIST_ITEM(at, struct CUstream_st, link);

            if (!stream->destroyed)
                result = make_wait(stream, event);
        }
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
        result = CUDA_ERROR_CAPTURED_EVENT;
    else
        result = ops_done(&event->ops) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    lock_drop();
    return result;
}

CUresult event_synchronize(CUevent event)
{
    CUresult result = CUDA_SUCCESS;
    struct ops waited;

    lock_take();
    if (!object_is(event, OBJECT_EVENT))
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (event->capture)
        result = CUDA_ERROR_CAPTURED_EVENT;
    else if (!ops_copy(&waited, &event->ops)) /* another thread may record or destroy the event meanwhile */
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        ops_wait(&waited);
        ops_clear(&waited);
        pool_settle_all();
    }
    lock_drop();
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
        return CUDA_ERROR_INVALID_VALUE;
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
