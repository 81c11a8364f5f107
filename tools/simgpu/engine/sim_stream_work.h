/* sim_stream_work: puts work into streams and runs it, on a worker thread of each, so that a race between
 * streams is a race. The engine's lock is not held while work runs.
 */
#ifndef SIMGPU_STREAM_WORK_H
#define SIMGPU_STREAM_WORK_H

#include "tools/simgpu/engine/sim_stream.h"
#include "tools/simgpu/engine/sim_work.h"

/* All below: lock held, unless said otherwise. */
CUresult sim_stream_find(CUstream handle,
                         struct CUstream_st **out); /* NULL, LEGACY, PER_THREAD or a stream of the program */
struct CUstream_st *sim_stream_new(struct CUctx_st *context, unsigned int flags,
                                   int priority); /* also of a green context */
void sim_stream_end(struct CUstream_st *stream);
void sim_stream_end_context(struct CUctx_st *context); /* ends all of them */

/* Puts work into the queue, or into the graph that the stream captures. Takes over the work, also when it
 * fails. wait: do not return before it is done (the lock is dropped meanwhile).
 *
 * A kernel that was launched with programmatic stream serialization right behind another begins when that one
 * has begun: as early as the driver could if every kernel called griddepcontrol.launch_dependents at once. */
CUresult sim_stream_submit(struct CUstream_st *stream, struct sim_work *work, bool wait);
CUresult sim_stream_submit_after(struct CUstream_st *stream, struct sim_ops *after); /* takes over the ops */

/* This thread runs work: no call into the driver is allowed here; needs no lock. */
bool sim_stream_on_worker(void);

#endif
