/* sim_nccl_group: the calls that a thread makes between ncclGroupStart and ncclGroupEnd. Thread-local, no
 * lock.
 */
#ifndef SIMGPU_NCCL_GROUP_H
#define SIMGPU_NCCL_GROUP_H

#include "tools/simgpu/nccl/sim_nccl_call.h"

/* In a group: keep the call, or the new communicator, until the group ends. Otherwise: do it now. */
ncclResult_t sim_nccl_group_call(struct sim_nccl_op *op);
ncclResult_t sim_nccl_group_meet(ncclComm_t comm);

/* Notes a failed call, so that the end of the group returns its code and starts nothing. Returns the code. */
ncclResult_t sim_nccl_group_failed(ncclResult_t result);

#endif
