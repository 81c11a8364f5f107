/* stream: queues of work, each with a worker thread of its own, so that a race between streams is a race.
 *
 * An op is one piece of work in a queue; whoever wants to know when it is done holds it (an event, a later op
 * of another stream, a host thread). The legacy stream waits for all blocking streams and they for it, by
 * such ops. Guarded by the engine's lock, which is not held while work runs.
 */
#ifndef SIMGPU_STREAM_H
#define SIMGPU_STREAM_H

#include "tools/simgpu/engine/sim_context.h"
#include "tools/simgpu/engine/sim_graph.h"
#include "tools/simgpu/engine/sim_work.h"

#include <pthread.h>

struct op {
    struct link link;
    unsigned int refs;
    bool is_kernel, begun, done;
    uint64_t done_ns;
    struct op *beside; /* must have begun first; NULL: none */
    struct op **after; /* must be done first */
    unsigned int after_count;
    struct work *work;
};

struct ops { /* a set of ops held */
    struct op **items;
    unsigned int count;
};

struct CUstream_st {
    struct link link;         /* in context->streams */
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
    struct CUstream_st
        *beside; /* runs the kernels that need not wait for the one before; NULL: none so far */
    struct link queue;
    struct op *tail;         /* the last op ever put in; may be done */
    struct capture *capture; /* NULL: runs what it is given */
    struct nodes frontier;   /* while capturing: what the next node depends on */
};

/* All below: lock held, unless said otherwise. */
CUresult stream_find(CUstream handle,
                     struct CUstream_st **out); /* NULL, LEGACY, PER_THREAD or a stream of the program */
struct CUstream_st *stream_new(struct CUctx_st *context, unsigned int flags,
                               int priority); /* also of a green context */
/* Is what concerns every stream of a context about this one? Streams of green contexts are also their primary
 * context's (measured). */
bool stream_is_of(const struct CUstream_st *stream, const struct CUctx_st *context);
void stream_end(struct CUstream_st *stream);
void stream_end_context(struct CUctx_st *context); /* ends all of them */

/* Puts work into the queue, or into the graph that the stream captures. Takes over the work, also when it
 * fails. wait: do not return before it is done (the lock is dropped meanwhile).
 *
 * A kernel that was launched with programmatic stream serialization right behind another begins when that one
 * has begun: as early as the driver could if every kernel called griddepcontrol.launch_dependents at once. */
CUresult stream_submit(struct CUstream_st *stream, struct work *work, bool wait);
CUresult stream_submit_after(struct CUstream_st *stream, struct ops *after); /* takes over the ops */
/* What an event recorded now in this stream stands for. False: no memory. */
bool stream_pending(struct CUstream_st *stream, struct ops *out);
bool stream_pending_context(struct CUctx_st *context, struct ops *out);
void stream_wait_context(struct CUctx_st *context);

bool ops_done(const struct ops *ops);
void ops_wait(const struct ops *ops);
void ops_clear(struct ops *ops);
bool ops_copy(struct ops *out, const struct ops *ops);
bool ops_join(struct ops *into, const struct ops *more); /* drops those that are done; false: no memory */

bool stream_on_worker(
    void); /* this thread runs work: no call into the driver is allowed here; needs no lock */
uint64_t stream_thread(void); /* a number for this thread, never 0; needs no lock */
uint64_t stream_now_ns(void);

#endif
