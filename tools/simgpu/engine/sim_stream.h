/* sim_stream: streams and their pending work; sim_stream_work.h submits work to them.
 *
 * The legacy stream waits for all blocking streams and they wait for it, by ops (sim_ops.h). Guarded by the
 * engine's lock, which is not held while work runs.
 */
#ifndef SIMGPU_STREAM_H
#define SIMGPU_STREAM_H

#include "tools/simgpu/engine/sim_context.h"
#include "tools/simgpu/engine/sim_nodes.h"
#include "tools/simgpu/engine/sim_ops.h"
#include "tools/simgpu/engine/sim_work.h"

#include <pthread.h>

struct CUstream_st {
    struct sim_link link;     /* in context->streams */
    struct CUctx_st *context; /* the primary context, if it was made in a green one */
    struct CUctx_st *green;   /* the green context that it was made in, or NULL */
    unsigned int flags;
    int priority;
    uint64_t id;
    uint64_t owner; /* the thread whose per-thread default stream it is, or 0 */
    bool legacy;
    bool destroyed; /* is deleted when its work is done */
    bool has_worker;
    pthread_cond_t ready; /* there is work */
    /* A second stream for kernels that may start before the previous one has ended; NULL until needed. */
    struct CUstream_st *beside;
    struct sim_link queue;
    struct sim_op *tail;         /* the last op submitted; may be done */
    struct sim_capture *capture; /* NULL: not capturing */
    struct sim_nodes frontier;   /* while capturing: what the next node depends on */
};

/* Lock held, except for the last two. */

/* Does an operation on all streams of a context include this one? Streams of green contexts belong to their
 * primary context, too (measured). */
bool sim_stream_is_of(const struct CUstream_st *stream, const struct CUctx_st *context);
/* Collects the ops that an event recorded now in this stream, or in a context, waits for. Returns false if
 * the host is out of memory. */
bool sim_stream_pending(struct CUstream_st *stream, struct sim_ops *out);
bool sim_stream_pending_context(struct CUctx_st *context, struct sim_ops *out);
void sim_stream_wait_context(struct CUctx_st *context);

uint64_t sim_stream_thread(void); /* a number for this thread, never 0 */
uint64_t sim_stream_now_ns(void);

#endif
