/* sim_nccl_call: collective calls, run as host functions on the program's streams. */
#ifndef SIMGPU_NCCL_CALL_H
#define SIMGPU_NCCL_CALL_H

#include "tools/simgpu/nccl/sim_nccl_comm.h"

struct sim_nccl_op {
    struct sim_nccl_op *next;
    ncclComm_t comm;
    struct sim_nccl_call call;
    const void *from;
    void *to;
    cudaStream_t stream;
    uint64_t number;
    bool captured;
};

/* Puts a call on its stream. Takes ownership of it, even when it fails. */
ncclResult_t sim_nccl_call_launch(struct sim_nccl_op *op);

/* Frees the calls in captured graphs, which must not run any more. */
void sim_nccl_call_free_captured(struct sim_nccl_op *op);

#endif
