/* ipc: cuIpcGetMemHandle and its kin for pooled blocks, between two processes that both run under the
 * library.
 *
 * The driver cannot export pooled memory under its old handles, so the handle is ours: it names a private
 * socket of the exporting process, through which a wrapped process of the same user gets file descriptors of
 * the chunks behind the block. The driver itself refuses such a handle, which is what an unwrapped process
 * sees.
 *
 * An exported block is pinned as long as it lives and as long as another process has it open; after that its
 * memory goes back to the pool. What is opened belongs to the exporter and is not counted here. After the
 * first contact an importer needs no answer of the exporter to open its newest blocks, to learn that a block
 * has been freed, or to close one: all that is in shared memory (ipc_page.h) and on a board (ipc_board.h).
 *
 * Locks: LOCK_EXPORTS to LOCK_SERVICE (lock.h). None is held while another process or work on the device is
 * waited for, so that fork, which takes them all, waits for neither.
 */
#ifndef GPUCAP_IPC_H
#define GPUCAP_IPC_H

#include "interpose/pool/pool.h"

/* ---- the process that owns the block ---- */

/* Makes the handle of a live block, the same one each time. 0; -EINVAL if it is none; -ENOTSUP if the card
 * cannot share memory; -ENOSPC: too many exports; another -errno. */
int ipc_export(struct pool *pool, uint64_t address, CUipcMemHandle *handle);

/* True if this very process has made the handle. */
bool ipc_is_own(const CUipcMemHandle *handle);

/* A context is about to end, or has not ended after all: meanwhile the driver is not asked about its exported
 * blocks. */
void ipc_exports_ending(CUcontext context, bool ending);
/* A context has ended, and its pool is about to: none of its blocks is exported any more. */
void ipc_exports_end(CUcontext context);

/* A pinned block has been freed (pool_freed_pinned): if it was exported it cannot be opened any more, and its
 * memory is the pool's again when no other process has it open. */
void ipc_freed(struct pool *pool, uint64_t address);

/* ---- the process that opens it ---- */

/* True for a handle that ipc_export made, in whatever process and version of the library. */
bool ipc_is_ours(const CUipcMemHandle *handle);

/* Opens a handle of ours in the calling thread's context. Opened again there, it is at the same address. 0;
 * -EXDEV: the block is this very process's; -ENOENT: freed; -ENODEV: on a card that this process does not
 * see; -ETIMEDOUT: the exporter does not answer; -EPROTONOSUPPORT: it runs another version of the library;
 * another -errno. */
int ipc_open(const CUipcMemHandle *handle, CUcontext context, CUdeviceptr *address);

/* Closes what ipc_open has opened once. -ENOENT if there is nothing of ours at the address. */
int ipc_close(CUdeviceptr address);

struct ipc_block {
    uint64_t start, bytes, id;
    CUcontext context;
    CUdevice ordinal; /* of the card that the memory is on */
};

enum ipc_place {
    IPC_NOT_OURS,
    IPC_BESIDE, /* in the address space of an opened block, but not in the block */
    IPC_BLOCK
};

enum ipc_place ipc_find(uint64_t address, struct ipc_block *block);

/* Unmaps what was closed beside a capture in the context of this fence, which is current, if its work is
 * done. */
void ipc_imports_sweep(struct fence *fence);

/* A context is about to end, or has not ended after all: meanwhile no thread waits for work in it, and those
 * that did have done so when this returns. */
void ipc_imports_ending(CUcontext context, bool ending);
/* A context has ended: nothing is open in it any more. */
void ipc_imports_end(CUcontext context);

void ipc_imports_before_fork(void);
void ipc_imports_after_fork(bool in_child);

#endif
