/* sim_stream_calls: the driver's entry points for streams. They take the engine's lock unless a comment says
 * otherwise. */
#ifndef SIMGPU_STREAM_CALLS_H
#define SIMGPU_STREAM_CALLS_H

#include "tools/simgpu/engine/sim_work.h"

#define STREAM_GREATEST_PRIORITY (-5) /* on an H200, where 0 is the least */

/* Creates a stream in a given context. Lock held. */
CUresult sim_stream_create_in(CUstream *out, struct CUctx_st *context, unsigned int flags, int priority);
CUresult sim_stream_create(CUstream *out, unsigned int flags, int priority);
CUresult sim_stream_destroy(CUstream stream);
CUresult sim_stream_synchronize(CUstream stream);
CUresult sim_stream_query(CUstream stream);
CUresult sim_stream_check(CUstream stream); /* is the handle valid? */
CUresult sim_stream_get_priority(CUstream stream, int *out);
CUresult sim_stream_get_flags(CUstream stream, unsigned int *out);
CUresult sim_stream_get_id(CUstream stream, unsigned long long *out);
/* *out is the primary context; *green is the green context or NULL. */
CUresult sim_stream_get_contexts(CUstream handle, CUcontext *out, CUgreenCtx *green);
CUresult sim_stream_get_context(CUstream stream, CUcontext *out);
CUresult sim_stream_get_device(CUstream stream, CUdevice *out);
/* Submits work. Takes ownership of it; NULL returns OUT_OF_MEMORY. */
CUresult sim_stream_put(CUstream stream, struct sim_work *work);
CUresult sim_stream_put_value(CUstream stream, enum sim_work_kind kind, const struct sim_work_value *value);

#endif
