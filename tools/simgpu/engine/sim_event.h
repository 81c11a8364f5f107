/* sim_event: a point in one or more streams that others can wait for and read the time of.
 *
 * An event holds the ops that were unfinished when it was recorded; it needs no work of its own in the
 * stream. Guarded by the engine's lock.
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
    uint64_t stream; /* that it was recorded in, by id; 0: in all of a context, or in its legacy stream */
    struct sim_ops ops;
    struct sim_shared_event *shared; /* CU_EVENT_INTERPROCESS: sim_event_share.h; then .ops is not used */
    int slot;                        /* of our own arena, or -1 */
    struct sim_captured captured;    /* the capture that it was last recorded in, if any */
};

void sim_event_end_context(struct CUctx_st *context);
void sim_event_drop_barrier(struct CUctx_st *context); /* of cuCtxWaitEvent; lock held */

CUresult sim_event_create(CUevent *out, unsigned int flags);
CUresult sim_event_destroy(CUevent event);
CUresult sim_event_record(CUevent event, CUstream stream);
/* Of all streams of a context, those of its green contexts among them; of a green one only of its own. */
CUresult sim_event_record_context(CUcontext context, CUevent event);
CUresult sim_event_wait_context(CUcontext context, CUevent event);
CUresult sim_event_wait(CUstream stream, CUevent event);
CUresult sim_event_query(CUevent event);
CUresult sim_event_synchronize(CUevent event);
CUresult sim_event_export(CUipcEventHandle *out, CUevent event);
CUresult sim_event_open(CUevent *out, CUipcEventHandle handle);
CUresult sim_event_elapsed(float *milliseconds, CUevent from, CUevent to);

#endif
