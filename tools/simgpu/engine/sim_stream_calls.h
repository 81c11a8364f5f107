/* sim_stream_calls: what the driver's entry points ask of streams. They take the engine's lock. */
#ifndef SIMGPU_STREAM_CALLS_H
#define SIMGPU_STREAM_CALLS_H

#include "tools/simgpu/engine/sim_work.h"

#define STREAM_GREATEST_PRIORITY (-5) /* an H200's range: 0 is the least */

CUresult sim_stream_create_in(CUstream *out, struct CUctx_st *context, unsigned int flags,
                              int priority); /* lock held */
CUresult sim_stream_create(CUstream *out, unsigned int flags, int priority);
CUresult sim_stream_destroy(CUstream stream);
CUresult sim_stream_synchronize(CUstream stream);
CUresult sim_stream_query(CUstream stream);
CUresult sim_stream_check(CUstream stream); /* is it one? */
CUresult sim_stream_get_priority(CUstream stream, int *out);
CUresult sim_stream_get_flags(CUstream stream, unsigned int *out);
CUresult sim_stream_get_id(CUstream stream, unsigned long long *out);
CUresult sim_stream_get_contexts(CUstream handle, CUcontext *out, CUgreenCtx *green); /* the primary one, and
                                                                                     NULL or the green one */
CUresult sim_stream_get_context(CUstream stream, CUcontext *out);
CUresult sim_stream_get_device(CUstream stream, CUdevice *out);
CUresult sim_stream_put(CUstream stream, struct sim_work *work); /* takes over the work; NULL: no memory */
CUresult sim_stream_put_value(CUstream stream, enum sim_work_kind kind, const struct sim_work_value *value);

#endif
