/* sim_stream: streams and their pending work. See sim_stream.h. */
#include "tools/simgpu/engine/sim_stream.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static _Thread_local uint64_t thread_number;
static _Atomic uint64_t last_thread;

uint64_t sim_stream_thread(void)
{
    if (thread_number == 0)
        thread_number = atomic_fetch_add(&last_thread, 1) + 1;
    return thread_number;
}

uint64_t sim_stream_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- pending work ---- */

bool sim_stream_is_of(const struct CUstream_st *stream, const struct CUctx_st *context)
{
    return context->base ? stream->green == context : stream->context == context;
}

/* Collects the unfinished tails of the streams that `wanted` accepts. */
static bool collect(struct CUctx_st *context, struct sim_ops *out,
                    bool (*wanted)(const struct CUstream_st *, const void *), const void *asking)
{
    struct sim_link *at;
    unsigned int streams = 0;

    context = sim_context_base(context);
    *out = (struct sim_ops){NULL, 0};
    for (at = context->streams.next; at != &context->streams; at = at->next)
        streams++;
    out->items = malloc((streams + 1) * sizeof(struct sim_op *));
    if (!out->items)
        return false;
    for (at = context->streams.next; at != &context->streams; at = at->next) {
        struct CUstream_st *stream = LIST_ITEM(at, struct CUstream_st, link);

        if (!stream->tail || stream->tail->done || !wanted(stream, asking))
            continue;
        stream->tail->refs++;
        out->items[out->count++] = stream->tail;
    }
    return true;
}

static bool is_of(const struct CUstream_st *stream, const void *context)
{
    return sim_stream_is_of(stream, context);
}

/* Must new work of a stream wait for this one? True for its own earlier work and by the rules of the legacy
 * stream, of which each green context has its own. */
static bool precedes(const struct CUstream_st *stream, const void *data)
{
    const struct CUstream_st *asking = data;

    if (stream == asking)
        return true;
    if (stream->green != asking->green)
        return false;
    if ((stream->flags | asking->flags) & CU_STREAM_NON_BLOCKING)
        return false;
    return stream->legacy || asking->legacy;
}

bool sim_stream_pending(struct CUstream_st *stream, struct sim_ops *out)
{
    return collect(stream->context, out, precedes, stream);
}

bool sim_stream_pending_context(struct CUctx_st *context, struct sim_ops *out)
{
    return collect(context, out, is_of, context);
}

void sim_stream_wait_context(struct CUctx_st *context)
{
    struct sim_ops pending;

    if (!sim_stream_pending_context(context, &pending))
        return;
    sim_ops_wait(&pending);
    sim_ops_clear(&pending);
}
