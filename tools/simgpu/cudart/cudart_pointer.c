/* cudart_pointer: cudaPointerGetAttributes. Memory that CUDA does not know is cudaMemoryTypeUnregistered,
 * which is no error. No lock. */
#include "tools/simgpu/cudart/cudart_runtime.h"

#include <string.h>

struct facts {
    unsigned int type;
    int managed;
    int device;
    CUdeviceptr device_address;
    void *host_address;
};

static CUresult ask(struct facts *facts, CUdeviceptr address)
{
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,
    };
    void *data[] = {&facts->type, &facts->managed, &facts->device, &facts->device_address,
                    &facts->host_address};
    return DRV(cuPointerGetAttributes)(sizeof(data) / sizeof(*data), attributes, data, address);
}

static enum cudaMemoryType type_of(const struct facts *facts)
{
    if (facts->managed)
        return cudaMemoryTypeManaged;
    if (facts->type == CU_MEMORYTYPE_HOST)
        return cudaMemoryTypeHost;
    return facts->type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
    struct facts facts = {.device = -1};
    if (!out)
        return cudart_end(cudaErrorInvalidValue);
    cudaError_t error = CUDART_IN_CONTEXT(ask(&facts, cudart_address(p)));
    if (error)
        return error;
    memset(out, 0, sizeof(*out));
    out->type = type_of(&facts);
    if (out->type == cudaMemoryTypeUnregistered) {
        out->device = cudaInvalidDeviceId;
        out->hostPointer = (void *)(uintptr_t)p;
        return cudaSuccess;
    }
    out->device = facts.device;
    out->devicePointer = cudart_pointer(facts.device_address);
    out->hostPointer = facts.host_address;
    return cudaSuccess;
}
