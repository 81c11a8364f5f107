/* sim_batch: cuStreamBatchMemOp: several writes of and waits for values in memory, done in order, as one
 * piece of work. */
#ifndef SIMGPU_BATCH_H
#define SIMGPU_BATCH_H

#include "tools/simgpu/engine/sim_work.h"

/* Checks the list and makes the work from it. Takes the engine's lock. */
CUresult sim_batch_work(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags,
                        struct sim_work **out);
/* Makes the work and submits it to a stream. Takes the engine's lock. */
CUresult sim_batch_put(CUstream stream, const CUstreamBatchMemOpParams *list, unsigned int count,
                       unsigned int flags);

#endif
