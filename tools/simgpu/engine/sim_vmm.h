/* vmm: virtual memory management: address reservations, memory by handle, mappings, access.
 *
 * The measured manners: a handle is mapped whole, a part cannot be unmapped, one handle may be mapped twice,
 * memory lives until it is neither held nor mapped; nothing here waits for running work and nothing needs a
 * context. Guarded by the engine's lock.
 */
#ifndef SIMGPU_VMM_H
#define SIMGPU_VMM_H

#include "tools/simgpu/engine/sim_block.h"

struct reservation {
    struct range range;
    unsigned int mappings;
};

struct reservation *vmm_reservation(uint64_t address);     /* that contains it, or NULL; lock held */
const CUmemAllocationProp *vmm_props(struct block *block); /* of a mapped block; lock held */
bool vmm_reaches_bus(struct block *block);    /* of a mapped block: is it GPUDirect RDMA capable? lock held */
struct phys *vmm_memory(struct block *block); /* of a mapped block; lock held */
CUmemAccess_flags vmm_access(const struct block *block, CUdevice device);

CUresult vmm_granularity(size_t *out, const CUmemAllocationProp *props);
CUresult vmm_reserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint,
                     unsigned long long flags);
CUresult vmm_unreserve(CUdeviceptr address, size_t size);
CUresult vmm_create(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *props);
CUresult vmm_release(CUmemGenericAllocationHandle handle);
CUresult vmm_retain(CUmemGenericAllocationHandle *out, CUdeviceptr address);
CUresult vmm_handle_props(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle);
CUresult vmm_map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle);
CUresult vmm_unmap(CUdeviceptr address, size_t size);
CUresult vmm_set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t count);
CUresult vmm_get_access(unsigned long long *out, const CUmemLocation *where, CUdeviceptr address);
CUresult vmm_export(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type);
CUresult vmm_import(CUmemGenericAllocationHandle *out, void *os_handle, CUmemAllocationHandleType type);

#endif
