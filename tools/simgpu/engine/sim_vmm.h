/* sim_vmm: virtual memory management: address reservations, memory by handle, mappings, access rights.
 *
 * As measured on the driver: a handle is mapped and unmapped as a whole, it may be mapped twice, and its
 * memory is freed when it is neither held nor mapped. Nothing here waits for running work or needs a context.
 * Guarded by the engine's lock.
 */
#ifndef SIMGPU_VMM_H
#define SIMGPU_VMM_H

#include "tools/simgpu/engine/sim_block.h"

struct sim_reservation {
    struct sim_range range;
    unsigned int mappings;
};

/* Returns the reservation that contains an address, or NULL. Lock held. */
struct sim_reservation *sim_vmm_reservation(uint64_t address);
/* Properties of a mapped block: those of its handle, whether it is GPUDirect RDMA capable, and its memory.
 * Lock held. */
const CUmemAllocationProp *sim_vmm_props(struct sim_block *block);
bool sim_vmm_reaches_bus(struct sim_block *block);
struct sim_phys *sim_vmm_memory(struct sim_block *block);

/* The driver's calls; they take the lock. */
CUresult sim_vmm_granularity(size_t *out, const CUmemAllocationProp *props);
CUresult sim_vmm_reserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint,
                         unsigned long long flags);
CUresult sim_vmm_unreserve(CUdeviceptr address, size_t size);
CUresult sim_vmm_create(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *props);
CUresult sim_vmm_release(CUmemGenericAllocationHandle handle);
CUresult sim_vmm_retain(CUmemGenericAllocationHandle *out, CUdeviceptr address);
CUresult sim_vmm_handle_props(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle);
CUresult sim_vmm_map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle);
CUresult sim_vmm_unmap(CUdeviceptr address, size_t size);
CUresult sim_vmm_set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t count);
CUresult sim_vmm_get_access(unsigned long long *out, const CUmemLocation *where, CUdeviceptr address);
CUresult sim_vmm_export(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type);
CUresult sim_vmm_import(CUmemGenericAllocationHandle *out, void *os_handle, CUmemAllocationHandleType type);

#endif
