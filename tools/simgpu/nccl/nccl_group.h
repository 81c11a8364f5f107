/* nccl_group: what a thread collects between ncclGroupStart and ncclGroupEnd. A thread's own, no lock. */
#ifndef SIMGPU_NCCL_GROUP_H
#define SIMGPU_NCCL_GROUP_H

#include "tools/simgpu/nccl/nccl_call.h"

/* Inside of a group: keeps the call, or the new communicator, for the group's end. Outside: does it now. */
ncclResult_t nccl_group_call(struct nccl_op *op);
ncclResult_t nccl_group_meet(ncclComm_t comm);

/* Notes a call that failed: the group's end then returns its code and starts nothing. Returns the code. */
ncclResult_t nccl_group_failed(ncclResult_t result);

#endif
