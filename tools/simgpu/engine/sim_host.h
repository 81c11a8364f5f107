/* sim_host: page-locked memory of the host: allocated by the driver, or the program's own, registered.
 *
 * Host memory takes nothing of a card. Guarded by the engine's lock.
 */
#ifndef SIMGPU_HOST_H
#define SIMGPU_HOST_H

#include "tools/simgpu/engine/sim_block.h"

void sim_host_end_block(struct sim_block *block); /* withdrawn; lock held */

CUresult sim_host_alloc(void **out, size_t size, unsigned int flags);
CUresult sim_host_free(void *address);
CUresult sim_host_register(void *address, size_t size, unsigned int flags);
CUresult sim_host_unregister(void *address);
CUresult sim_host_device_pointer(CUdeviceptr *out, void *address, unsigned int flags);
CUresult sim_host_flags(unsigned int *out, void *address);

#endif
