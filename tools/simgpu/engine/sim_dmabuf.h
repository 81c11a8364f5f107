/* sim_dmabuf: memory that is exported to other devices by a file descriptor.
 *
 * The descriptor only keeps the memory allocated until its last copy is closed, even if the program has freed
 * the memory (measured, H200); for memory of a pool that is the whole chunk. It is the writing end of a pipe:
 * simgpu keeps the reading end and sees at its next call whether all writers are closed. Guarded by the
 * engine's lock.
 */
#ifndef SIMGPU_DMABUF_H
#define SIMGPU_DMABUF_H

#include "tools/simgpu/engine/sim_abi.h"

#include <stddef.h>

/* Writes the descriptor of a range of whole host pages to *out. Takes the lock. */
CUresult sim_dmabuf_export(void *out, CUdeviceptr address, size_t size, CUmemRangeHandleType type);

/* Frees the memory whose descriptors are all closed. Called at the beginning of every driver call; takes the
 * lock only if there are descriptors. */
void sim_dmabuf_sweep(void);

#endif
