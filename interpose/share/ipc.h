/* ipc: cuIpcGetMemHandle and related calls for pooled blocks, between two processes that both run under the
 * library.
 *
 * The driver cannot export pooled memory by its old handles, so the handle is ours: it names a private socket
 * of the exporting process, through which a wrapped process of the same user gets file descriptors of the
 * chunks behind the block. In a process without the library the driver refuses the handle.
 *
 * An exported block is pinned while it is live and while another process has it open; then its memory returns
 * to the pool. Memory of an opened block is charged to the exporter only. After the first contact an importer
 * needs no answer from the exporter to open its newest blocks, to learn that a block was freed, or to close
 * one: that state is in shared memory (ipc_page.h) and on a board (ipc_board.h).
 *
 * Locks: LOCK_EXPORTS to LOCK_SERVICE (lock.h). None is held while waiting for another process or for work on
 * the device, so fork, which takes them all, waits for neither.
 */
#ifndef GPUCAP_IPC_H
#define GPUCAP_IPC_H

#include "interpose/pool/pool.h"

/* ---- exporter ---- */

/* Makes the handle of a live block, the same one each time. Returns 0; -EINVAL if there is no such block;
 * -ENOTSUP if the card cannot share memory; -ENOSPC if there are too many exports; another -errno. May wait
 * for work (pool_wait_all). */
int ipc_export(struct pool *pool, uint64_t address, CUipcMemHandle *handle);

/* Call with true before a context may end, with false if it did not: no driver calls for its exports. */
void ipc_exports_ending(CUcontext context, bool ending);
/* Removes all exports of a context that has ended. Call before its pool is closed. */
void ipc_exports_end(CUcontext context);

/* Call after a pinned block was freed (pool_freed_pinned). If it is exported, it can no longer be opened; it
 * is unpinned when no process has it open. */
void ipc_freed(struct pool *pool, uint64_t address);

/* ---- importer ---- */

/* Returns true for a handle that ipc_export made, in any process and any version of the library. */
bool ipc_is_ours(const CUipcMemHandle *handle);

/* Opens a handle of ours in the current context; opened again there, it has the same address. Returns 0;
 * -EXDEV: the block belongs to this process; -ENOENT: it is freed; -ENODEV: this process does not see its
 * card; -ETIMEDOUT: the exporter does not answer; -ECANCELED: the context has ended meanwhile;
 * -EPROTONOSUPPORT: the exporter runs another version of the library; another -errno. */
int ipc_open(const CUipcMemHandle *handle, CUcontext context, CUdeviceptr *address);

/* Undoes one ipc_open. Returns 0, or -ENOENT if no block of ours is open at the address. */
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

/* Unmaps blocks that were closed beside a capture, if their work is done. The fence's context is current. */
void ipc_imports_sweep(struct fence *fence);

/* Call with true before a context may end, and with false if it did not. In between no thread waits for work
 * in it; the call with true returns after threads that were waiting have finished. */
void ipc_imports_ending(CUcontext context, bool ending);
/* Unmaps everything that was open in a context that has ended. */
void ipc_imports_end(CUcontext context);

#endif
