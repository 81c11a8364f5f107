/* ipc_exports: the table of this process's exported blocks. Owns ipc_export_lock, which also guards the
 * broker (ipc_broker.h); the caller of every function here holds it. */
#ifndef GPUCAP_IPC_EXPORTS_H
#define GPUCAP_IPC_EXPORTS_H

#include "interpose/pool/pool.h"

/* An exported block. It is pinned as long as it is in the table. */
struct ipc_exported {
    uint64_t id; /* as in its ticket */
    struct pool *pool;
    uint64_t address, block_id, bytes, offset;
    struct vmm_chunk *chunks;
    uint64_t count;
    CUuuid card;
    bool freed; /* by the program */
    int ending; /* calls under way that may end its context: no driver calls for it meanwhile */
    struct ipc_exported *next; /* of the same hash */
};

extern struct lock ipc_export_lock;

/* Returns the export with this id, or NULL. */
struct ipc_exported *ipc_exports_find(uint64_t id);
/* The same by the block's address. */
struct ipc_exported *ipc_exports_find_block(const struct pool *pool, uint64_t address);
/* Returns true if the program has not freed the block. */
bool ipc_exports_is_live(const struct ipc_exported *exported);
/* Gives an export its id and enters it. Returns 0 or -ENOSPC. */
int ipc_exports_add(struct ipc_exported *exported);
/* Takes an export out and frees it. */
void ipc_exports_remove(struct ipc_exported *exported);
/* Visits all exports, newest first. `visit` may remove the one it visits. */
void ipc_exports_each(void (*visit)(struct ipc_exported *exported, void *argument), void *argument);
/* Forgets all exports, in the child of a fork. */
void ipc_exports_after_fork(void);

#endif
