/* sim_ipc: opens memory of one process in another by legacy IPC handles (cuIpcGetMemHandle).
 *
 * A handle holds a process id, a descriptor number and an offset; the importer opens /proc/PID/fd/N. Guarded
 * by the engine's lock.
 */
#ifndef SIMGPU_IPC_H
#define SIMGPU_IPC_H

#include "tools/simgpu/engine/sim_block.h"

/* Unmaps a withdrawn imported block. Lock held. */
void sim_ipc_end_block(struct sim_block *block);
/* Makes the handle of an exported block invalid, because the block is freed. Lock held. */
void sim_ipc_retire(struct sim_block *block);

/* The driver's calls; they take the lock. */
CUresult sim_ipc_get_handle(CUipcMemHandle *out, CUdeviceptr address);
CUresult sim_ipc_open_handle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags);
CUresult sim_ipc_close_handle(CUdeviceptr address);

#endif
