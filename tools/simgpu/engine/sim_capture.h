/* sim_capture: stream capture: streams that record their work in a graph instead of running it.
 *
 * Follows the driver's rules about what a capture forbids. A forbidden call also invalidates the capture
 * (measured: the call returns 900, ending the capture returns 901). Guarded by the engine's lock.
 */
#ifndef SIMGPU_CAPTURE_H
#define SIMGPU_CAPTURE_H

#include "tools/simgpu/engine/sim_context.h"
#include "tools/simgpu/engine/sim_graph.h"

struct CUstream_st;

/* A point in a capture: what an event that was recorded in it stands for. */
struct sim_captured {
    uint64_t capture; /* id of the capture; 0: none */
    struct sim_nodes nodes;
};

/* The caller holds the lock in all functions below except sim_capture_exchange_mode(). The check functions
 * return CUDA_SUCCESS, or the error of the forbidden call after invalidating the capture. */

/* Call before cuMemAlloc and other calls that are unsafe during a capture. */
CUresult sim_capture_check_unsafe(void);
/* Call before an operation on all streams of a context. */
CUresult sim_capture_check_context(struct CUctx_st *context);
/* Call before a synchronization with this stream. */
CUresult sim_capture_check_stream(struct CUstream_st *stream);
/* Call before a query of an event, which is forbidden if it was recorded in a capture. */
CUresult sim_capture_check_event(const struct sim_captured *event);
/* Call before work in the legacy stream, which would wait for capturing streams. */
CUresult sim_capture_check_implicit(struct CUstream_st *stream);

/* Adds work to the graph that the stream captures. Takes ownership of the work. */
CUresult sim_capture_add(struct CUstream_st *stream, struct sim_work *work);
/* cuMemAllocAsync and cuMemFreeAsync in a capture: nodes with memory of the graph. */
CUresult sim_capture_add_alloc(struct CUstream_st *stream, CUdevice device, size_t size,
                               CUdeviceptr *address);
CUresult sim_capture_add_free(struct CUstream_st *stream, CUdeviceptr address);
CUresult sim_capture_record(struct CUstream_st *stream, struct sim_captured *event);
/* Makes a stream wait for an event that was recorded in a capture: the stream joins that capture. */
CUresult sim_capture_wait(struct CUstream_st *stream, const struct sim_captured *event);
/* Ends the part that a stream, or every stream of a green context, has in a capture. */
void sim_capture_forget_stream(struct CUstream_st *stream);
void sim_capture_forget_green(const struct CUctx_st *context);

/* Begins a capture in a stream, into a graph of the program or, for NULL, into a new one. The first node
 * depends on `after`. */
CUresult sim_capture_start(struct CUstream_st *stream, CUstreamCaptureMode mode, CUgraph into,
                           const struct sim_nodes *after);
CUresult sim_capture_finish(struct CUstream_st *stream, CUgraph *out);
/* Returns the stream's capture status. Sets *id and *graph (each may be NULL) only if there is a capture. */
CUstreamCaptureStatus sim_capture_look(const struct CUstream_st *stream, cuuint64_t *id, CUgraph *graph);

/* cuThreadExchangeStreamCaptureMode. Needs no lock. */
CUresult sim_capture_exchange_mode(CUstreamCaptureMode *mode);

#endif
