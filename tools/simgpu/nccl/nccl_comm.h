/* nccl_comm: a communicator as one rank sees it: its seat in the room, the calls that it has queued, and its
 * end.
 *
 * Calls run on the streams that they were given to, one at a time, in the order in which they were made: each
 * has a number. A call in a captured graph has none and runs when the graph comes to it.
 */
#ifndef SIMGPU_NCCL_COMM_H
#define SIMGPU_NCCL_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tools/simgpu/nccl/nccl_room.h"

struct nccl_op;

struct ncclComm {
    struct ncclComm *next;        /* of all that the program has; guarded by the list's lock */
    struct ncclComm *next_joined; /* in the group that it was made in */
    struct nccl_room *room;
    int rank, size, device;
    atomic_bool aborted;
    _Atomic int async_error;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    unsigned refs; /* the program's handle, and each queued call */
    uint64_t issued, served;
    bool running;
    bool finalized;
    struct nccl_op *captured; /* calls that graphs hold */
    /* of the running call */
    uint64_t stage;
};

/* Takes a rank's seat, without waiting for the others: nccl_comm_meet does. */
ncclResult_t nccl_comm_join(ncclComm_t *out, int size, const ncclUniqueId *id, int rank);
/* Waits for all ranks, and refuses a card that two of them use. Ends the communicator when it fails. */
ncclResult_t nccl_comm_meet(ncclComm_t comm);

/* ncclInvalidArgument if the program has no such communicator. */
ncclResult_t nccl_comm_check(ncclComm_t comm, const char *caller);

/* A queued call holds a reference. */
void nccl_comm_keep(ncclComm_t comm);
void nccl_comm_drop(ncclComm_t comm);

#endif
