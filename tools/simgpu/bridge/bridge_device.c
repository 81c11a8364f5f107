/* bridge_device: entry points for the driver and its devices. Only checks arguments; see engine/sim_device.h.
 */
#include "tools/simgpu/bridge/bridge_call.h"

#include "tools/simgpu/engine/sim_context_life.h"
#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_state.h"

#include <stdio.h>
#include <string.h>

#define DEVICE_NAME "simgpu"
#define BUS_ID_SIZE 16

CUresult cuInit(unsigned int flags)
{
    return CALL_ANYTIME(cuInit, sim_call_script_is_bad() ? CUDA_ERROR_INVALID_VALUE : sim_state_init(flags));
}

static CUresult driver_version(int *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    return CALL_ANYTIME(cuDriverGetVersion, driver_version(version));
}

/* See entries.def. */
CUresult cuSimgpuUnlisted(void)
{
    return CALL(cuSimgpuUnlisted, CUDA_SUCCESS);
}

static CUresult get(CUdevice *out, int ordinal)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    return CALL(cuDeviceGet, get(device, ordinal));
}

static CUresult count(int *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = sim_device_count();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *out)
{
    return CALL(cuDeviceGetCount, count(out));
}

static CUresult name_of(char *name, int length, CUdevice device)
{
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "%s", DEVICE_NAME);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    return CALL(cuDeviceGetName, name_of(name, length, device));
}

/* cuDeviceGetUuid (v1) does not know MIG instances: it returns the UUID of the whole GPU. */
static CUresult uuid_of(CUuuid *uuid, CUdevice device, bool instance)
{
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, instance ? sim_device_info(device)->uuid : sim_device_info(device)->gpu_uuid,
           sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return CALL(cuDeviceGetUuid, uuid_of(uuid, device, false));
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    return CALL(cuDeviceGetUuid_v2, uuid_of(uuid, device, true));
}

static CUresult total(size_t *bytes, CUdevice device)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sim_device_info(device)->capacity;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    return CALL(cuDeviceTotalMem_v2, total(bytes, device));
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    return CALL(cuDeviceGetAttribute, sim_device_attribute(value, attribute, device));
}

static CUresult capability(int *major, int *minor, CUdevice device)
{
    CUresult result = sim_device_attribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);

    return result ? result
                  : sim_device_attribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    return CALL(cuDeviceComputeCapability, capability(major, minor, device));
}

static CUresult bus_id(char *text, int length, CUdevice device)
{
    if (!text || length < BUS_ID_SIZE - 3)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_device_bus_id(device, text, (size_t)length);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    return CALL(cuDeviceGetPCIBusId, bus_id(text, length, device));
}

static CUresult by_bus_id(CUdevice *out, const char *text)
{
    char known[BUS_ID_SIZE];
    CUdevice i;

    if (!out || !text)
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < sim_device_count(); i++) {
        sim_device_bus_id(i, known, sizeof(known));
        if (strcasecmp(known, text) == 0) {
            *out = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    return CALL(cuDeviceGetByPCIBusId, by_bus_id(device, text));
}

static CUresult can_access(int *out, CUdevice device, CUdevice peer)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(device) || !sim_device_get(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = device != peer;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *out, CUdevice device, CUdevice peer)
{
    return CALL(cuDeviceCanAccessPeer, can_access(out, device, peer));
}

static CUresult p2p(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
    if (!value || from == to)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(from) || !sim_device_get(to))
        return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
    return CALL(cuDeviceGetP2PAttribute, p2p(value, attribute, from, to));
}

static CUresult export_table(const void **table)
{
    if (table)
        *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)id; /* simgpu has none of the driver's private tables */
    return CALL_ANYTIME(cuGetExportTable, export_table(table));
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    return CALL(cuDevicePrimaryCtxRetain, sim_primary_retain(out, device));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return CALL(cuDevicePrimaryCtxRelease, sim_primary_release(device));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return CALL(cuDevicePrimaryCtxRelease_v2, sim_primary_release(device));
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return CALL(cuDevicePrimaryCtxReset, sim_primary_reset(device));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return CALL(cuDevicePrimaryCtxReset_v2, sim_primary_reset(device));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    return CALL(cuDevicePrimaryCtxGetState, sim_primary_state(device, flags, active));
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    return CALL(cuDevicePrimaryCtxSetFlags, sim_primary_set_flags(device, flags));
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    return CALL(cuDevicePrimaryCtxSetFlags_v2, sim_primary_set_flags(device, flags));
}
