/* sim_nccl_group: calls between ncclGroupStart and ncclGroupEnd. See sim_nccl_group.h. */
#include "tools/simgpu/nccl/sim_nccl_group.h"

#include <stdlib.h>

#include "tools/simgpu/nccl/sim_nccl_error.h"

static _Thread_local struct {
    int depth;
    ncclResult_t failed;
    struct sim_nccl_op *first, *last; /* calls, in order */
    ncclComm_t joined;                /* new communicators, the newest first */
} group;

ncclResult_t sim_nccl_group_failed(ncclResult_t result)
{
    if (group.depth > 0 && group.failed == ncclSuccess)
        group.failed = result;
    return result;
}

ncclResult_t sim_nccl_group_call(struct sim_nccl_op *op)
{
    op->next = NULL;
    if (group.depth == 0)
        return sim_nccl_call_launch(op);
    if (group.last)
        group.last->next = op;
    else
        group.first = op;
    group.last = op;
    return ncclSuccess;
}

ncclResult_t sim_nccl_group_meet(ncclComm_t comm)
{
    if (group.depth == 0)
        return sim_nccl_comm_meet(comm);
    comm->next_joined = group.joined;
    group.joined = comm;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

static ncclResult_t launch_all(void)
{
    ncclResult_t result = group.failed;

    while (group.joined) {
        ncclComm_t comm = group.joined;

        group.joined = comm->next_joined;
        if (result == ncclSuccess)
            result = sim_nccl_comm_meet(comm);
        else
            ncclCommAbort(comm);
    }
    while (group.first) {
        struct sim_nccl_op *op = group.first;

        group.first = op->next;
        if (result == ncclSuccess)
            result = sim_nccl_call_launch(op);
        else
            free(op);
    }
    return result;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result;

    if (group.depth == 0)
        return sim_nccl_fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
    if (--group.depth > 0)
        return ncclSuccess;
    result = launch_all();
    group.failed = ncclSuccess;
    group.first = group.last = NULL;
    return result;
}
