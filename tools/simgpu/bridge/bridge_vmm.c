/* bridge_vmm: entry points for virtual memory management. Only checks arguments; see engine/sim_vmm.h. */
#include "tools/simgpu/engine/sim_vmm.h"

#include "tools/simgpu/bridge/bridge_call.h"

#include "tools/simgpu/engine/sim_dmabuf.h"

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr address,
                             unsigned long long flags)
{
    return CALL(cuMemAddressReserve, sim_vmm_reserve(out, size, alignment, address, flags));
}

SINGLE(cuMemAddressFree, sim_vmm_unreserve(address, size), CUdeviceptr address, size_t size)

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *props,
                     unsigned long long flags)
{
    return CALL(cuMemCreate, flags ? CUDA_ERROR_INVALID_VALUE : sim_vmm_create(out, size, props));
}

SINGLE(cuMemRelease, sim_vmm_release(handle), CUmemGenericAllocationHandle handle)

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    return CALL(cuMemMap, flags ? CUDA_ERROR_INVALID_VALUE : sim_vmm_map(address, size, offset, handle));
}

SINGLE(cuMemUnmap, sim_vmm_unmap(address, size), CUdeviceptr address, size_t size)

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t count)
{
    return CALL(cuMemSetAccess, sim_vmm_set_access(address, size, list, count));
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    return CALL(cuMemGetAccess, sim_vmm_get_access(flags, location, address));
}

static CUresult export_handle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                              unsigned long long flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : sim_vmm_export(out, handle, type);
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    return CALL(cuMemExportToShareableHandle, export_handle(out, handle, type, flags));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    return CALL(cuMemImportFromShareableHandle, sim_vmm_import(out, os_handle, type));
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *props,
                                       CUmemAllocationGranularity_flags option)
{
    (void)option; /* minimum and recommended granularity are the same on an H200 */
    return CALL(cuMemGetAllocationGranularity, sim_vmm_granularity(out, props));
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle)
{
    return CALL(cuMemGetAllocationPropertiesFromHandle, sim_vmm_handle_props(out, handle));
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    return CALL(cuMemRetainAllocationHandle, sim_vmm_retain(out, (CUdeviceptr)(uintptr_t)address));
}

CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr address, size_t size, CUmemRangeHandleType type,
                                       unsigned long long flags)
{
    (void)flags; /* the route of a device to the memory: no difference in simgpu */
    return CALL(cuMemGetHandleForAddressRange, sim_dmabuf_export(out, address, size, type));
}
