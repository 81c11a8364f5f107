/* ipc: cuIpcGetMemHandle and its kin for pooled blocks, between two processes that both run under the
 * library.
 *
 * The driver cannot export pooled memory under its old handles, so the handle is ours: it names a private
 * socket of the exporting process, where a wrapped process of the same user gets file descriptors of the
 * chunks behind the block. The driver itself refuses such a handle, which is what an unwrapped process sees.
 *
 * An exported block is pinned as long as it lives and as long as somebody has it open; after that its memory
 * goes back to the pool. What is opened belongs to the exporter and is not counted here. The exporting side
 * (ipc_export.c) owns export_lock, and a thread that starts with the first handle and never survives fork or
 * exit; the opening side (ipc_import.c) owns open_lock (held while another process answers, seconds at most)
 * and table_lock. They rank before the locks of pools.
 */
#ifndef GPUCAP_IPC_H
#define GPUCAP_IPC_H

#include "pool.h"

/* ---- the process that owns the block ---- */

/* Makes the handle of a live block, the same one each time. 0; -EINVAL if it is none; -ENOTSUP if the card
 * cannot share memory; another -errno. */
int ipc_export(struct pool *pool, uint64_t address, CUipcMemHandle *handle);

/* True if this very process has made the handle. */
bool ipc_is_own(const CUipcMemHandle *handle);

/* A context is about to end, or has not ended after all: meanwhile nobody else is given its blocks. */
void ipc_exports_ending(CUcontext context, bool ending);
/* Likewise: meanwhile nobody waits for work in it, and who did has done so when this returns. */
void ipc_imports_ending(CUcontext context, bool ending);
/* A context has ended, and its pool is about to: none of its blocks is exported any more. */
void ipc_exports_end(CUcontext context);

/* Blocks that were exported may have been freed (pool_pinned_frees): lets go of those that nobody has open.
 */
void ipc_sweep(void);

/* ---- the process that opens it ---- */

/* True for a handle that ipc_export made, in whatever process. */
bool ipc_is_ours(const CUipcMemHandle *handle);

/* Opens a handle of ours in the calling thread's context. Opened again there, it is at the same address. 0;
 * -EXDEV: the block is this very process's; -ENOENT: gone; -ENODEV: on a card that this process does not see;
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

/* Lets go of what was closed beside a capture in the context of this fence, which is current, if its work is
 * done. */
void ipc_imports_sweep(struct fence *fence);

enum ipc_place ipc_find(uint64_t address, struct ipc_block *block);

/* A context has ended: nothing is open in it any more. */
void ipc_imports_end(CUcontext context);

#endif
