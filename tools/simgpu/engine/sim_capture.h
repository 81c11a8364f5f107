/* sim_capture: streams that write down their work in a graph instead of running it.
 *
 * Keeps the driver's rules about what a capture forbids, and that a forbidden call also destroys the capture
 * (measured: 900 from the call, 901 from the end). Guarded by the engine's lock.
 */
#ifndef SIMGPU_CAPTURE_H
#define SIMGPU_CAPTURE_H

#include "tools/simgpu/engine/sim_context.h"
#include "tools/simgpu/engine/sim_graph.h"

struct CUstream_st;

/* A point in a capture, as an event keeps it. */
struct sim_captured {
    uint64_t capture; /* its id; 0: none */
    struct sim_nodes nodes;
};

/* All with the lock held. */
CUresult sim_capture_check_unsafe(void); /* before cuMemAlloc and its like */
/* Before what concerns every stream of a context. */
CUresult sim_capture_check_context(struct CUctx_st *context);
CUresult sim_capture_check_stream(struct CUstream_st *stream); /* before a synchronization with it */
/* A question about an event that was captured ends the capture. */
CUresult sim_capture_check_event(const struct sim_captured *event);
CUresult sim_capture_check_implicit(struct CUstream_st *stream); /* before work in the legacy stream */
CUresult sim_capture_add(struct CUstream_st *stream, struct sim_work *work); /* takes over work */
/* cuMemAllocAsync and cuMemFreeAsync: nodes of the graph's own memory. */
CUresult sim_capture_add_alloc(struct CUstream_st *stream, CUdevice device, size_t size,
                               CUdeviceptr *address);
CUresult sim_capture_add_free(struct CUstream_st *stream, CUdeviceptr address);
CUresult sim_capture_record(struct CUstream_st *stream, struct sim_captured *event);
CUresult sim_capture_wait(struct CUstream_st *stream,
                          const struct sim_captured *event); /* of an event that was captured */
void sim_capture_invalidate(struct CUstream_st *stream);
void sim_capture_forget_stream(struct CUstream_st *stream);
void sim_capture_forget_green(const struct CUctx_st *context); /* its streams capture no more */

/* Begins a capture in a stream, into a graph of the program or (NULL) a new one, behind `after`. */
CUresult sim_capture_start(struct CUstream_st *stream, CUstreamCaptureMode mode, CUgraph into,
                           const struct sim_nodes *after);
CUresult sim_capture_finish(struct CUstream_st *stream, CUgraph *out);
/* *id and *graph (each may be NULL) are left alone where there is no capture. */
CUstreamCaptureStatus sim_capture_look(const struct CUstream_st *stream, cuuint64_t *id, CUgraph *graph);

CUresult sim_capture_exchange_mode(CUstreamCaptureMode *mode); /* the driver's call; needs no lock */

#endif
