/* bridge_memory: entry points that allocate, free and describe memory of a context. Only checks arguments;
 * see engine/sim_alloc_calls.h, sim_host.h, sim_pointer.h, sim_ipc.h, sim_array.h.
 */
#include "tools/simgpu/bridge/bridge_per_thread.h"

#include "tools/simgpu/engine/sim_alloc_calls.h"
#include "tools/simgpu/engine/sim_array.h"
#include "tools/simgpu/engine/sim_host.h"
#include "tools/simgpu/engine/sim_ipc.h"
#include "tools/simgpu/engine/sim_pointer.h"

SINGLE(cuMemGetInfo_v2, sim_alloc_info(free_bytes, total_bytes), size_t *free_bytes, size_t *total_bytes)
SINGLE(cuMemAlloc_v2, sim_alloc_device(out, size), CUdeviceptr *out, size_t size)

CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    return CALL(cuMemAllocPitch_v2, sim_alloc_pitch(out, pitch, width, height, element));
}

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
    return CALL(cuMemAllocManaged, sim_alloc_managed(out, size, flags));
}

SINGLE(cuMemFree_v2, sim_alloc_free(address), CUdeviceptr address)

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    return CALL(cuMemGetAddressRange_v2, sim_alloc_range(base, size, address));
}

/* ---- host ---- */

SINGLE(cuMemAllocHost_v2, sim_host_alloc(out, size, 0), void **out, size_t size)
SINGLE(cuMemHostAlloc, sim_host_alloc(out, size, flags), void **out, size_t size, unsigned int flags)
SINGLE(cuMemFreeHost, sim_host_free(address), void *address)

CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned int flags)
{
    return CALL(cuMemHostRegister_v2, sim_host_register(address, size, flags));
}

SINGLE(cuMemHostUnregister, sim_host_unregister(address), void *address)

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned int flags)
{
    return CALL(cuMemHostGetDevicePointer_v2, sim_host_device_pointer(out, address, flags));
}

SINGLE(cuMemHostGetFlags, sim_host_flags(out, address), unsigned int *out, void *address)

/* ---- managed memory: hints, which have no effect ---- */

static CUresult check_managed(CUdeviceptr address, size_t size)
{
    CUdeviceptr base;
    size_t whole;
    CUresult result;
    unsigned int managed = 0;

    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_alloc_range(&base, &whole, address);
    if (result == CUDA_ERROR_NOT_FOUND)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    if (sim_pointer_get(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) != CUDA_SUCCESS || !managed ||
        size > whole - (address - base))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device)
{
    (void)advice, (void)device;
    return CALL(cuMemAdvise, check_managed(address, size));
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location)
{
    (void)advice, (void)location;
    return CALL(cuMemAdvise_v2, check_managed(address, size));
}

PAIR(cuMemPrefetchAsync, (CUdeviceptr address, size_t size, CUdevice device, CUstream stream),
     ((void)device, (void)stream, check_managed(address, size)))
PAIR(cuMemPrefetchAsync_v2,
     (CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags, CUstream stream),
     ((void)location, (void)flags, (void)stream, check_managed(address, size)))

/* ---- addresses ---- */

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr address)
{
    return CALL(cuPointerGetAttribute, sim_pointer_get(out, attribute, address));
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **out,
                                CUdeviceptr address)
{
    return CALL(cuPointerGetAttributes, sim_pointer_get_all(count, attributes, out, address));
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    return CALL(cuPointerSetAttribute, sim_pointer_set(value, attribute, address));
}

SINGLE(cuIpcGetMemHandle, sim_ipc_get_handle(out, address), CUipcMemHandle *out, CUdeviceptr address)

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    return CALL(cuIpcOpenMemHandle_v2, sim_ipc_open_handle(out, handle, flags));
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    return CALL(cuIpcOpenMemHandle, sim_ipc_open_handle(out, handle, flags));
}

SINGLE(cuIpcCloseMemHandle, sim_ipc_close_handle(address), CUdeviceptr address)

/* ---- arrays ---- */

static CUresult create_2d(CUarray *out, size_t width, size_t height, CUarray_format format, unsigned channels)
{
    return sim_array_create(out,
                            &(CUDA_ARRAY3D_DESCRIPTOR){
                                .Width = width, .Height = height, .Format = format, .NumChannels = channels});
}

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    return CALL(cuArrayCreate_v2,
                desc ? create_2d(out, desc->Width, desc->Height, desc->Format, desc->NumChannels)
                     : CUDA_ERROR_INVALID_VALUE);
}

/* cuArrayCreate (v1) has 32-bit sizes. */
CUresult cuArrayCreate(CUarray *out, const CUDA_ARRAY_DESCRIPTOR_v1 *desc)
{
    return CALL(cuArrayCreate,
                desc ? create_2d(out, desc->Width, desc->Height, desc->Format, desc->NumChannels)
                     : CUDA_ERROR_INVALID_VALUE);
}

SINGLE(cuArray3DCreate_v2, sim_array_create(out, desc), CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
SINGLE(cuArrayDestroy, sim_array_destroy(array), CUarray array)

static CUresult descriptor_2d(CUDA_ARRAY_DESCRIPTOR *out, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR desc;
    CUresult result = out ? sim_array_descriptor(&desc, array) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        *out = (CUDA_ARRAY_DESCRIPTOR){.Width = desc.Width,
                                       .Height = desc.Height,
                                       .Format = desc.Format,
                                       .NumChannels = desc.NumChannels};
    return result;
}

SINGLE(cuArrayGetDescriptor_v2, descriptor_2d(out, array), CUDA_ARRAY_DESCRIPTOR *out, CUarray array)

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray array)
{
    return CALL(cuArray3DGetDescriptor_v2, sim_array_descriptor(out, array));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                unsigned int levels)
{
    return CALL(cuMipmappedArrayCreate, sim_mipmap_create(out, desc, levels));
}

CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray mipmap, unsigned int level)
{
    return CALL(cuMipmappedArrayGetLevel, sim_mipmap_level(out, mipmap, level));
}

SINGLE(cuMipmappedArrayDestroy, sim_mipmap_destroy(mipmap), CUmipmappedArray mipmap)
