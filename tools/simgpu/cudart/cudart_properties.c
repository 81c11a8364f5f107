/* cudart_properties: cudaGetDeviceProperties, made of the driver's attributes (properties.def). A field whose
 * attribute the driver does not know is 0. No lock.
 */
#include "tools/simgpu/cudart/cudart_runtime.h"

#include <string.h>

static void fill_attributes(struct cudaDeviceProp *out, CUdevice device)
{
    int value;
#define FIELD(field, attribute)                                                                              \
    value = 0;                                                                                               \
    if (!DRV(cuDeviceGetAttribute)(&value, attribute, device))                                               \
        out->field = (__typeof__(out->field))value;
#include "tools/simgpu/cudart/properties.def"
#undef FIELD
}

static CUresult fill(struct cudaDeviceProp *out, int device)
{
    CUdevice handle;
    CUuuid uuid;
    CUresult result = cudart_device_handle(device, &handle);
    if (result)
        return result;
    memset(out, 0, sizeof(*out));
    result = DRV(cuDeviceGetName)(out->name, (int)sizeof(out->name), handle);
    if (!result)
        result = DRV(cuDeviceTotalMem)(&out->totalGlobalMem, handle);
    if (!result && !DRV(cuDeviceGetUuid)(&uuid, handle))
        memcpy(out->uuid.bytes, uuid.bytes, sizeof(out->uuid.bytes));
    fill_attributes(out, handle);
    return result;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    return out ? CUDART_WITH_DRIVER(fill(out, device)) : cudart_end(cudaErrorInvalidValue);
}
