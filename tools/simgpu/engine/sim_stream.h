/* sim_stream: what a stream is, and what work it still has. sim_stream_work.h gives it work.
 *
 * The legacy stream waits for all blocking streams and they for it, by ops (sim_ops.h). Guarded by the
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
    struct CUctx_st *context; /* never a green one */
    struct CUctx_st *green;   /* the green one that it was made in, or NULL */
    unsigned int flags;
    int priority;
    uint64_t id;
    uint64_t owner; /* the thread whose per-thread default stream it is, or 0 */
    bool legacy;
    bool destroyed; /* goes away when it has drained */
    bool has_worker;
    pthread_cond_t ready; /* there is work */
    /* Runs the kernels that need not wait for the one before; NULL: none so far. */
    struct CUstream_st *beside;
    struct sim_link queue;
    struct sim_op *tail;         /* the last op ever put in; may be done */
    struct sim_capture *capture; /* NULL: runs what it is given */
    struct sim_nodes frontier;   /* while capturing: what the next node depends on */
};

/* All below: lock held, unless said otherwise. */
/* Is what concerns every stream of a context about this one? Streams of green contexts are also their primary
 * context's (measured). */
bool sim_stream_is_of(const struct CUstream_st *stream, const struct CUctx_st *context);
/* What an event recorded now in this stream stands for. False: no memory. */
bool sim_stream_pending(struct CUstream_st *stream, struct sim_ops *out);
bool sim_stream_pending_context(struct CUctx_st *context, struct sim_ops *out);
void sim_stream_wait_context(struct CUctx_st *context);

uint64_t sim_stream_thread(void); /* a number for this thread, never 0; needs no lock */
uint64_t sim_stream_now_ns(void);

#endif
