/* ipc: memory of one process in another one: legacy handles and file descriptors.
 *
 * A legacy handle says which process, which file of it, and where; the other one opens /proc/PID/fd/N.
 * Guarded by the engine's lock.
 */
#ifndef SIMGPU_IPC_H
#define SIMGPU_IPC_H

#include "tools/simgpu/engine/sim_block.h"

void ipc_end_block(struct block *block); /* an imported one; withdrawn; lock held */
void ipc_retire(struct block *block); /* an exported one goes: its handle must not open any more; lock held */

CUresult ipc_get_handle(CUipcMemHandle *out, CUdeviceptr address);
CUresult ipc_open_handle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags);
CUresult ipc_close_handle(CUdeviceptr address);

#endif
