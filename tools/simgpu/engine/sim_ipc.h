/* sim_ipc: memory of one process in another one: legacy handles and file descriptors.
 *
 * A legacy handle says which process, which file of it, and where; the other one opens /proc/PID/fd/N.
 * Guarded by the engine's lock.
 */
#ifndef SIMGPU_IPC_H
#define SIMGPU_IPC_H

#include "tools/simgpu/engine/sim_block.h"

void sim_ipc_end_block(struct sim_block *block); /* an imported one; withdrawn; lock held */
/* An exported one goes: its handle must not open any more; lock held. */
void sim_ipc_retire(struct sim_block *block);

CUresult sim_ipc_get_handle(CUipcMemHandle *out, CUdeviceptr address);
CUresult sim_ipc_open_handle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags);
CUresult sim_ipc_close_handle(CUdeviceptr address);

#endif
