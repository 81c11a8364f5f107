/* Hooks on mappings of the program's own. Natively a block of cuMemAlloc is no mapping, and these calls
 * refuse it: pooled memory is mapped, and must not be unmapped under the program. Owns no lock. */
#include "interpose/hook/hooks.h"
#include "interpose/hook/pointer.h"
#include "interpose/route.h"

/* Returns the address to ask the driver about: one that it does not know in place of pooled memory. */
static CUdeviceptr mapped_by_program(CUdeviceptr address)
{
    struct pointer_block block;

    return pointer_look(address, &block) == POINTER_FOREIGN ? address : POINTER_NOWHERE;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    const CUresult result = driver.cuMemMap(mapped_by_program(address), bytes, offset, handle, flags);

    if (result == CUDA_SUCCESS)
        route_mapped(address, handle);
    return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    const CUresult result = driver.cuMemUnmap(mapped_by_program(address), bytes);

    if (result == CUDA_SUCCESS)
        route_unmapped(address, bytes);
    return result;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *list, size_t count)
{
    return ROUTE_TRY_SELDOM(driver.cuMemSetAccess(mapped_by_program(address), bytes, list, count));
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    return driver.cuMemAddressFree(mapped_by_program(address), bytes);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    /* Natively a block has no such handle; that of a chunk would expose other blocks. */
    const CUdeviceptr asked = mapped_by_program((uintptr_t)address);
    const CUresult result = driver.cuMemRetainAllocationHandle(handle, (void *)(uintptr_t)asked);

    if (result == CUDA_SUCCESS)
        route_retained(*handle);
    return result;
}

/* Natively a block cannot be bound either: its chunks would be reached after it is freed. */
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr address,
                             size_t bytes, unsigned long long flags)
{
    return driver.cuMulticastBindAddr(object, offset, mapped_by_program(address), bytes, flags);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice card, size_t offset,
                                CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    return driver.cuMulticastBindAddr_v2(object, card, offset, mapped_by_program(address), bytes, flags);
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice card, cuuint64_t offset,
                                   void *address, cuuint64_t bytes, unsigned long long flags)
{
    return driver.cuLogicalEndpointBindAddr(
        endpoint, card, offset, (void *)(uintptr_t)mapped_by_program((uintptr_t)address), bytes, flags);
}
