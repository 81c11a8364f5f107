/* sim_nccl_shared: the memory that the ranks of one communicator share, in one process or in several.
 *
 * It is a file in /dev/shm whose name is in the unique id. Each rank has a state in it (the stage it has
 * reached) and two slots for data, used alternately. Before a rank writes stage N, it waits until all others
 * have reached stage N - 1. They have then read stage N - 2, whose slot it overwrites. Lock-free: only the
 * rank itself writes its state.
 */
#ifndef SIMGPU_SIM_NCCL_H
#define SIMGPU_SIM_NCCL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/simgpu/nccl/sim_nccl_abi.h"

enum { SIM_NCCL_RANKS = 64, SIM_NCCL_SLOT = 256 * 1024, SIM_NCCL_CARD = 16 };

/* The arguments of a collective call, which must be the same on all ranks. */
struct sim_nccl_call {
    int32_t kind, type, op, root;
    uint64_t count;
};

struct sim_nccl_rank_state {
    _Atomic uint32_t taken;
    unsigned char card[SIM_NCCL_CARD]; /* UUID of the rank's card */
    _Atomic uint64_t stage;
    struct sim_nccl_call call[2]; /* of the last two stages, as with the slots */
};

struct sim_nccl_shared {
    uint64_t magic;
    _Atomic uint32_t size;    /* number of ranks; 0 until the first has joined */
    _Atomic uint32_t joined;  /* ranks that have joined */
    _Atomic uint32_t changes; /* counts every change that a rank may wait for; a futex */
    struct sim_nccl_rank_state rank[SIM_NCCL_RANKS];
};

/* Makes the file and its id. Also removes files that killed processes left. */
ncclResult_t sim_nccl_shared_create(ncclUniqueId *id);

/* Maps the file as a rank and allocates its slots. The last rank to join removes the file's name. */
ncclResult_t sim_nccl_shared_enter(const ncclUniqueId *id, int size, int rank, const unsigned char *card,
                                   struct sim_nccl_shared **out);
void sim_nccl_shared_leave(struct sim_nccl_shared *shared);

/* Waits until all ranks have joined. Returns false if *stop becomes true first. */
bool sim_nccl_shared_wait_joined(struct sim_nccl_shared *shared, const atomic_bool *stop);

/* Publishes this rank's data of a stage; waits until all ranks have done so (false: *stop became true). */
void sim_nccl_shared_publish(struct sim_nccl_shared *shared, int rank, uint64_t stage);
bool sim_nccl_shared_wait_stage(struct sim_nccl_shared *shared, uint64_t stage, const atomic_bool *stop);

/* Makes all waiting ranks check their *stop. */
void sim_nccl_shared_wake(struct sim_nccl_shared *shared);

/* Returns the slot of a rank for a stage. */
char *sim_nccl_shared_slot(struct sim_nccl_shared *shared, int rank, uint64_t stage);

#endif
