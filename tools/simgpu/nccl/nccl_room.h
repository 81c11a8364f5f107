/* nccl_room: the memory that the ranks of one communicator share, in one process or in several: a file in
 * /dev/shm whose name is in the unique id. Each rank has a seat in it: how far it has come, and two slots for
 * data, used in turn.
 *
 * A rank that writes stage N into its slots has waited until all others came to stage N - 1, and so have read
 * stage N - 2, whose slots it uses again. Lock-free: a seat is written by its rank only.
 */
#ifndef SIMGPU_NCCL_ROOM_H
#define SIMGPU_NCCL_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/simgpu/nccl/nccl_abi.h"

enum { NCCL_ROOM_RANKS = 64, NCCL_ROOM_SLOT = 256 * 1024, NCCL_ROOM_CARD = 16 };

/* What a rank was asked for. All ranks must be asked for the same. */
struct nccl_call {
    int32_t kind, type, op, root;
    uint64_t count;
};

struct nccl_seat {
    _Atomic uint32_t taken;
    unsigned char card[NCCL_ROOM_CARD]; /* its UUID */
    _Atomic uint64_t stage;
    struct nccl_call call[2]; /* of the stage, in turn as the slots */
};

struct nccl_room {
    uint64_t magic;
    _Atomic uint32_t size;   /* ranks; 0 until the first has come */
    _Atomic uint32_t joined; /* ranks that have come */
    _Atomic uint32_t news;   /* changes with everything that a rank may wait for; a futex */
    struct nccl_seat seat[NCCL_ROOM_RANKS];
};

/* Makes a room and its id. Also removes rooms that killed processes left. */
ncclResult_t nccl_room_create(ncclUniqueId *id);

/* Takes the seat of a rank and reserves its slots. The last one to come removes the file's name. */
ncclResult_t nccl_room_enter(const ncclUniqueId *id, int size, int rank, const unsigned char *card,
                             struct nccl_room **out);
void nccl_room_leave(struct nccl_room *room);

/* Waits until all ranks have come. Returns false when *stop became true first. */
bool nccl_room_wait_joined(struct nccl_room *room, const atomic_bool *stop);

/* Says that this rank's data of a stage is there; waits until that of all ranks is. */
void nccl_room_publish(struct nccl_room *room, int rank, uint64_t stage);
bool nccl_room_wait_stage(struct nccl_room *room, uint64_t stage, const atomic_bool *stop);

/* Makes all waiting ranks look at their *stop. */
void nccl_room_wake(struct nccl_room *room);

char *nccl_room_slot(struct nccl_room *room, int rank, uint64_t stage);

#endif
