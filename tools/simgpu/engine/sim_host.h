/* sim_host: page-locked host memory: allocated by the driver (cuMemHostAlloc), or registered
 * (cuMemHostRegister).
 *
 * It is charged to no card. Guarded by the engine's lock.
 */
#ifndef SIMGPU_HOST_H
#define SIMGPU_HOST_H

#include "tools/simgpu/engine/sim_block.h"

/* Frees or unregisters a withdrawn block. Lock held. */
void sim_host_end_block(struct sim_block *block);

/* The driver's calls; they take the lock. */

CUresult sim_host_alloc(void **out, size_t size, unsigned int flags);
CUresult sim_host_free(void *address);
CUresult sim_host_register(void *address, size_t size, unsigned int flags);
CUresult sim_host_unregister(void *address);
CUresult sim_host_device_pointer(CUdeviceptr *out, void *address, unsigned int flags);
CUresult sim_host_flags(unsigned int *out, void *address);

#endif
