/* sim_nccl_comm: a communicator of one rank: its shared memory, its queued calls, and its end.
 *
 * Calls run on the program's streams, one at a time, in the order in which they were made, which their
 * numbers give. A call in a captured graph has no number and runs when the graph reaches it.
 */
#ifndef SIMGPU_NCCL_COMM_H
#define SIMGPU_NCCL_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tools/simgpu/nccl/sim_nccl_shared.h"

struct sim_nccl_op;

struct ncclComm {
    struct ncclComm *next;        /* in the list of the program's communicators; guarded by the list's lock */
    struct ncclComm *next_joined; /* in the list of the group that it was made in */
    struct sim_nccl_shared *shared;
    int rank, size, device;
    atomic_bool aborted;
    _Atomic int async_error;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    unsigned refs; /* one for the program's handle, one for each queued call */
    uint64_t issued, served;
    bool running;
    bool finalized;
    struct sim_nccl_op *captured; /* calls that graphs hold */
    /* owned by the running call */
    uint64_t stage;
};

/* Waits for all ranks. Fails if two of them use the same card. Destroys the communicator on failure. */
ncclResult_t sim_nccl_comm_meet(ncclComm_t comm);

/* Returns ncclInvalidArgument if the handle is not a communicator of this program. */
ncclResult_t sim_nccl_comm_check(ncclComm_t comm, const char *caller);

/* Gives up a reference: the program's handle has one, and each queued call. */
void sim_nccl_comm_drop(ncclComm_t comm);

#endif
