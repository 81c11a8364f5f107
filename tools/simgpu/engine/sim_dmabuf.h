/* sim_dmabuf: memory that is exported to other devices by a file descriptor.
 *
 * The descriptor stands for the memory and can do nothing else. The memory stays used until the last copy of
 * the descriptor is closed, also when the program has freed it (measured, H200). It is the writing end of a
 * pipe: the driver keeps the other end and sees at its next call that nobody has it any more. Of a pool's
 * memory the whole chunk is kept. Guarded by the engine's lock.
 */
#ifndef SIMGPU_DMABUF_H
#define SIMGPU_DMABUF_H

#include "tools/simgpu/engine/sim_abi.h"

#include <stddef.h>

/* Writes the descriptor of a range of whole host pages to *out. Takes the lock. */
CUresult sim_dmabuf_export(void *out, CUdeviceptr address, size_t size, CUmemRangeHandleType type);

/* Gives back the memory whose descriptors are closed. At the beginning of every driver call; takes the lock
 * only if there are descriptors. */
void sim_dmabuf_sweep(void);

#endif
