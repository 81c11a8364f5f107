/* sim_event: events: a point in one or more streams to wait for or to take the time of.
 *
 * An event holds the ops that were unfinished when it was recorded; it puts no work into the stream. Guarded
 * by the engine's lock.
 */
#ifndef SIMGPU_EVENT_H
#define SIMGPU_EVENT_H

#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_stream.h"

struct CUevent_st {
    struct sim_link link; /* in context->events */
    struct CUctx_st *context;
    unsigned int flags;
    bool recorded;
    uint64_t record_ns;
    uint64_t stream; /* id of the stream it was recorded in; 0: all of a context, or its legacy stream */
    struct sim_ops ops;
    struct sim_shared_event *shared; /* CU_EVENT_INTERPROCESS: sim_event_share.h; then .ops is not used */
    int slot;                        /* in this process's file of shared events, or -1 */
    struct sim_captured captured;    /* the capture that it was last recorded in, if any */
};

/* Destroys the events of a context; ends the wait of cuCtxWaitEvent for new streams. Lock held. */
void sim_event_end_context(struct CUctx_st *context);
void sim_event_drop_barrier(struct CUctx_st *context);

/* The driver's calls; they take the lock. */

CUresult sim_event_create(CUevent *out, unsigned int flags);
CUresult sim_event_destroy(CUevent event);
CUresult sim_event_record(CUevent event, CUstream stream);
/* For all streams of a context, including those of its green contexts; of a green context, only its own. */
CUresult sim_event_record_context(CUcontext context, CUevent event);
CUresult sim_event_wait_context(CUcontext context, CUevent event);
CUresult sim_event_wait(CUstream stream, CUevent event);
CUresult sim_event_query(CUevent event);
CUresult sim_event_synchronize(CUevent event);
CUresult sim_event_export(CUipcEventHandle *out, CUevent event);
CUresult sim_event_open(CUevent *out, CUipcEventHandle handle);
CUresult sim_event_elapsed(float *milliseconds, CUevent from, CUevent to);

#endif
