/* sim_capture_calls: the driver's entry points for stream capture. They take the engine's lock. */
#ifndef SIMGPU_CAPTURE_CALLS_H
#define SIMGPU_CAPTURE_CALLS_H

#include "tools/simgpu/engine/sim_abi.h"

#include <stddef.h>

CUresult sim_capture_begin(CUstream stream, CUstreamCaptureMode mode, CUgraph into, const CUgraphNode *after,
                           size_t count);
CUresult sim_capture_end(CUstream stream, CUgraph *out);
CUresult sim_capture_status(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                            const CUgraphNode **after, size_t *count);
CUresult sim_capture_update(CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags);

#endif
