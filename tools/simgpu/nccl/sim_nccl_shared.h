/* nccl_shared: the memory that the ranks of one communicator share, in one process or in several.
 *
 * It is a file in /dev/shm whose name is in the unique id. Each rank has a state in it (the stage it has
 * reached) and two slots for data, used alternately. Before a rank writes stage N, it waits until all others
 * have reached stage N - 1. They have then read stage N - 2, whose slot it overwrites. Lock-free: only the
 * rank itself writes its state.
 */
#ifndef SIMGPU_NCCL_SHARED_H
#define SIMGPU_NCCL_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/simgpu/nccl/sim_nccl_abi.h"

enum { NCCL_SHARED_RANKS = 64, NCCL_SHARED_SLOT = 256 * 1024, NCCL_SHARED_CARD = 16 };

/* The arguments of a collective call, which must be the same on all ranks. */
struct nccl_call {
    int32_t kind, type, op, root;
    uint64_t count;
};

struct nccl_rank_state {
    _Atomic uint32_t taken;
    unsigned char card[NCCL_SHARED_CARD]; /* UUID of the rank's card */
    _Atomic uint64_t stage;
    struct nccl_call call[2]; /* of the last two stages, as with the slots */
};

struct nccl_shared {
    uint64_t magic;
    _Atomic uint32_t size;    /* number of ranks; 0 until the first has joined */
    _Atomic uint32_t joined;  /* ranks that have joined */
    _Atomic uint32_t changes; /* counts every change that a rank may wait for; a futex */
    struct nccl_rank_state rank[NCCL_SHARED_RANKS];
};

/* Makes the file and its id. Also removes files that killed processes left. */
ncclResult_t nccl_shared_create(ncclUniqueId *id);

/* Maps the file as a rank and allocates its slots. The last rank to join removes the file's name. */
ncclResult_t nccl_shared_enter(const ncclUniqueId *id, int size, int rank, const unsigned char *card,
                               struct nccl_shared **out);
void nccl_shared_leave(struct nccl_shared *shared);

/* Waits until all ranks have joined. Returns false if *stop becomes true first. */
bool nccl_shared_wait_joined(struct nccl_shared *shared, const atomic_bool *stop);

/* Publishes this rank's data of a stage; waits until all ranks have done so (false: *stop became true). */
void nccl_shared_publish(struct nccl_shared *shared, int rank, uint64_t stage);
bool nccl_shared_wait_stage(struct nccl_shared *shared, uint64_t stage, const atomic_bool *stop);

/* Makes all waiting ranks check their *stop. */
void nccl_shared_wake(struct nccl_shared *shared);

/* Returns the slot of a rank for a stage. */
char *nccl_shared_slot(struct nccl_shared *shared, int rank, uint64_t stage);

#endif
