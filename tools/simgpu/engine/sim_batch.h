/* sim_batch: several writes and waits of values in memory, one after the other, as one piece of work. */
#ifndef SIMGPU_BATCH_H
#define SIMGPU_BATCH_H

#include "tools/simgpu/engine/sim_work.h"

/* Checks the list and makes the work. Takes the engine's lock. */
CUresult sim_batch_work(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags,
                        struct sim_work **out);
/* The same, put into a stream. */
CUresult sim_batch_put(CUstream stream, const CUstreamBatchMemOpParams *list, unsigned int count,
                       unsigned int flags);

#endif
