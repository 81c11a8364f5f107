/* sim_stream_work: submits work to streams and runs it. Each stream has a worker thread, so that streams of a
 * program with a race really race. The engine's lock is not held while work runs.
 */
#ifndef SIMGPU_STREAM_WORK_H
#define SIMGPU_STREAM_WORK_H

#include "tools/simgpu/engine/sim_stream.h"
#include "tools/simgpu/engine/sim_work.h"

/* Lock held, except for sim_stream_on_worker(). */

/* Finds the stream of a handle: NULL, LEGACY, PER_THREAD or a stream of the program. */
CUresult sim_stream_find(CUstream handle, struct CUstream_st **out);
/* Makes a stream, in a green context too. Returns NULL if the host is out of memory. */
struct CUstream_st *sim_stream_new(struct CUctx_st *context, unsigned int flags, int priority);
/* Destroys a stream, or all streams of a context. */
void sim_stream_end(struct CUstream_st *stream);
void sim_stream_end_context(struct CUctx_st *context);

/* Adds work to the queue, or to the graph that the stream captures. Takes ownership of the work, even when it
 * fails. With wait, drops the lock and returns when the work is done.
 *
 * A kernel launched with programmatic stream serialization begins as soon as the previous kernel has begun.
 * That is the earliest that the driver allows: as if every kernel called griddepcontrol.launch_dependents
 * first. */
CUresult sim_stream_submit(struct CUstream_st *stream, struct sim_work *work, bool wait);
/* Makes later work of the stream wait for ops. Takes ownership of the ops. */
CUresult sim_stream_submit_after(struct CUstream_st *stream, struct sim_ops *after);

/* Is this thread running work of a stream? Then it must not call the driver. Needs no lock. */
bool sim_stream_on_worker(void);

#endif
