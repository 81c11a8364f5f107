/* sim_capture: streams that record their work in a graph instead of running it. See sim_capture.h. */
#include "tools/simgpu/engine/sim_capture.h"

#include "tools/simgpu/engine/sim_graph_memory.h"
#include "tools/simgpu/engine/sim_stream.h"

#include <stdlib.h>

struct sim_capture {
    struct sim_link link; /* in captures */
    uint64_t id;
    CUstreamCaptureMode mode;
    uint64_t thread; /* the thread that began it */
    struct CUstream_st *origin;
    struct CUgraph_st *graph;
    bool into_users_graph; /* cuStreamBeginCaptureToGraph: the graph is not ours to delete */
    bool invalid;
    unsigned int streams;
};

static struct sim_link captures = {&captures, &captures};
static uint64_t last_id;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static struct sim_capture *of_link(struct sim_link *link)
{
    return LIST_ITEM(link, struct sim_capture, link);
}

static struct sim_capture *find(uint64_t id)
{
    struct sim_link *at;

    for (at = captures.next; at != &captures; at = at->next)
        if (of_link(at)->id == id)
            return of_link(at);
    return NULL;
}

/* ---- what a capture forbids ---- */

/* Does this capture forbid unsafe calls of this thread? That depends on the thread's mode
 * (cuThreadExchangeStreamCaptureMode). */
static bool forbids_unsafe(const struct sim_capture *capture)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->thread == sim_stream_thread())
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static void invalidate(struct CUstream_st *stream)
{
    if (stream->capture)
        stream->capture->invalid = true;
}

CUresult sim_capture_check_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_link *at;

    for (at = captures.next; at != &captures; at = at->next)
        if (forbids_unsafe(of_link(at))) {
            of_link(at)->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

CUresult sim_capture_check_context(struct CUctx_st *context)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_link *at;

    for (at = captures.next; at != &captures; at = at->next)
        if (sim_stream_is_of(of_link(at)->origin, context)) {
            of_link(at)->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

CUresult sim_capture_check_stream(struct CUstream_st *stream)
{
    if (!stream->capture)
        return sim_capture_check_implicit(stream);
    invalidate(stream);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_capture_check_implicit(struct CUstream_st *stream)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_link *at;

    if (!stream->legacy || sim_list_empty(&captures))
        return CUDA_SUCCESS;
    for (at = stream->context->streams.next; at != &stream->context->streams; at = at->next) {
        struct CUstream_st *other = LIST_ITEM(at, struct CUstream_st, link);

        if (other->capture && other->green == stream->green && !(other->flags & CU_STREAM_NON_BLOCKING)) {
            invalidate(other);
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return result;
}

CUresult sim_capture_check_event(const struct sim_captured *event)
{
    struct sim_capture *capture = find(event->capture);

    if (capture)
        capture->invalid = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

/* ---- recording work ---- */

static CUgraphNodeType type_of(const struct sim_work *work)
{
    switch (work->kind) {
    case WORK_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case WORK_FILL:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case WORK_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case WORK_HOST:
    case WORK_CALLBACK:
        return CU_GRAPH_NODE_TYPE_HOST;
    case WORK_WRITE:
    case WORK_RAISE:
    case WORK_AWAIT:
    case WORK_BATCH:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

static CUresult append(struct CUstream_st *stream, struct CUgraphNode_st *node)
{
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_nodes_clear(&stream->frontier);
    return sim_nodes_add(&stream->frontier, node) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_capture_add(struct CUstream_st *stream, struct sim_work *work)
{
    if (stream->capture->invalid) {
        sim_work_delete(work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    return append(stream, sim_graph_add(stream->capture->graph, type_of(work), work, &stream->frontier));
}

CUresult sim_capture_add_alloc(struct CUstream_st *stream, CUdevice device, size_t size, CUdeviceptr *address)
{
    struct CUgraphNode_st *node;
    CUresult result;

    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    result =
        sim_graph_memory_add(stream->capture->graph, &stream->frontier, stream->context, device, size, &node);
    if (result != CUDA_SUCCESS)
        return result;
    *address = node->memory->block->range.start;
    return append(stream, node);
}

CUresult sim_capture_add_free(struct CUstream_st *stream, CUdeviceptr address)
{
    struct CUgraphNode_st *node;
    CUresult result;

    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    result = sim_graph_memory_add_free(stream->capture->graph, &stream->frontier, address, &node);
    return result == CUDA_SUCCESS ? append(stream, node) : result;
}

CUresult sim_capture_record(struct CUstream_st *stream, struct sim_captured *event)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    sim_nodes_clear(&event->nodes);
    event->capture = stream->capture->id;
    return sim_nodes_add_all(&event->nodes, &stream->frontier) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_capture_wait(struct CUstream_st *stream, const struct sim_captured *event)
{
    struct sim_capture *capture = find(event->capture);

    if (!event->capture || !capture) { /* a captured stream cannot wait for what is outside its capture */
        invalidate(stream);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (stream->capture && stream->capture != capture) {
        invalidate(stream);
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (capture->invalid)
        return stream->capture ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (!stream->capture) {
        stream->capture = capture;
        capture->streams++;
    }
    return sim_nodes_add_all(&stream->frontier, &event->nodes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- begin and end ---- */

static void leave(struct CUstream_st *stream)
{
    stream->capture->streams--;
    stream->capture = NULL;
    sim_nodes_clear(&stream->frontier);
}

static void leave_all(struct sim_capture *capture)
{
    struct sim_link *streams = &capture->origin->context->streams, *at;

    for (at = streams->next; at != streams; at = at->next) {
        struct CUstream_st *stream = LIST_ITEM(at, struct CUstream_st, link);

        if (stream->capture == capture)
            leave(stream);
    }
    sim_list_remove(&capture->link);
    free(capture);
}

void sim_capture_forget_stream(struct CUstream_st *stream)
{
    struct sim_capture *capture = stream->capture;

    if (!capture)
        return;
    capture->invalid = true;
    if (capture->origin != stream) {
        leave(stream);
        return;
    }
    if (!capture->into_users_graph)
        sim_graph_delete(capture->graph);
    leave_all(capture);
}

void sim_capture_forget_green(const struct CUctx_st *context)
{
    struct sim_link *at, *next;

    for (at = captures.next; at != &captures; at = next) {
        next = at->next;
        if (of_link(at)->origin->green == context)
            sim_capture_forget_stream(of_link(at)->origin);
    }
}

CUresult sim_capture_start(struct CUstream_st *stream, CUstreamCaptureMode mode, CUgraph into,
                           const struct sim_nodes *after)
{
    struct sim_capture *capture;

    if (stream->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    capture = calloc(1, sizeof(*capture));
    if (!capture || !sim_nodes_add_all(&stream->frontier, after))
        goto fail;
    capture->graph = into ? into : sim_graph_new();
    if (!capture->graph)
        goto fail;
    capture->into_users_graph = into != NULL;
    capture->id = ++last_id;
    capture->mode = mode;
    capture->thread = sim_stream_thread();
    capture->origin = stream;
    capture->streams = 1;
    stream->capture = capture;
    sim_list_append(&captures, &capture->link);
    return CUDA_SUCCESS;
fail:
    sim_nodes_clear(&stream->frontier);
    free(capture);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Has the origin stream of the capture waited for all that other streams captured? */
static bool joined(struct sim_capture *capture)
{
    struct sim_link *streams = &capture->origin->context->streams, *at;

    for (at = streams->next; at != streams; at = at->next) {
        struct CUstream_st *stream = LIST_ITEM(at, struct CUstream_st, link);

        if (stream->capture == capture &&
            !sim_graph_reaches(capture->graph, &capture->origin->frontier, &stream->frontier))
            return false;
    }
    return true;
}

CUresult sim_capture_finish(struct CUstream_st *stream, CUgraph *out)
{
    struct sim_capture *capture = stream->capture;
    CUresult result = CUDA_SUCCESS;

    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_stream_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (capture->streams > 1 && !joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (result == CUDA_SUCCESS)
        *out = capture->graph;
    else if (!capture->into_users_graph)
        sim_graph_delete(capture->graph);
    leave_all(capture);
    return result;
}

/* ---- status ---- */

CUstreamCaptureStatus sim_capture_look(const struct CUstream_st *stream, cuuint64_t *id, CUgraph *graph)
{
    const struct sim_capture *capture = stream->capture;

    if (!capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    if (id)
        *id = capture->id;
    if (graph)
        *graph = capture->graph;
    return capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult sim_capture_exchange_mode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode old = thread_mode;

    if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
