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
SINGLE(cuSimgpuUnlisted, CUDA_SUCCESS, void)

static CUresult get(CUdevice *out, int ordinal)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = ordinal;
    return CUDA_SUCCESS;
}

SINGLE(cuDeviceGet, get(device, ordinal), CUdevice *device, int ordinal)

static CUresult count(int *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = sim_device_count();
    return CUDA_SUCCESS;
}

SINGLE(cuDeviceGetCount, count(out), int *out)

static CUresult name_of(char *name, int length, CUdevice device)
{
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "%s", DEVICE_NAME);
    return CUDA_SUCCESS;
}

SINGLE(cuDeviceGetName, name_of(name, length, device), char *name, int length, CUdevice device)

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

SINGLE(cuDeviceGetUuid, uuid_of(uuid, device, false), CUuuid *uuid, CUdevice device)
SINGLE(cuDeviceGetUuid_v2, uuid_of(uuid, device, true), CUuuid *uuid, CUdevice device)

static CUresult total(size_t *bytes, CUdevice device)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sim_device_info(device)->capacity;
    return CUDA_SUCCESS;
}

SINGLE(cuDeviceTotalMem_v2, total(bytes, device), size_t *bytes, CUdevice device)

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

SINGLE(cuDeviceComputeCapability, capability(major, minor, device), int *major, int *minor, CUdevice device)

static CUresult bus_id(char *text, int length, CUdevice device)
{
    if (!text || length < BUS_ID_SIZE - 3)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_device_bus_id(device, text, (size_t)length);
    return CUDA_SUCCESS;
}

SINGLE(cuDeviceGetPCIBusId, bus_id(text, length, device), char *text, int length, CUdevice device)

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

SINGLE(cuDeviceGetByPCIBusId, by_bus_id(device, text), CUdevice *device, const char *text)

static CUresult can_access(int *out, CUdevice device, CUdevice peer)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(device) || !sim_device_get(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = device != peer;
    return CUDA_SUCCESS;
}

SINGLE(cuDeviceCanAccessPeer, can_access(out, device, peer), int *out, CUdevice device, CUdevice peer)

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

SINGLE(cuDevicePrimaryCtxRetain, sim_primary_retain(out, device), CUcontext *out, CUdevice device)
SINGLE(cuDevicePrimaryCtxRelease, sim_primary_release(device), CUdevice device)
SINGLE(cuDevicePrimaryCtxRelease_v2, sim_primary_release(device), CUdevice device)
SINGLE(cuDevicePrimaryCtxReset, sim_primary_reset(device), CUdevice device)
SINGLE(cuDevicePrimaryCtxReset_v2, sim_primary_reset(device), CUdevice device)

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    return CALL(cuDevicePrimaryCtxGetState, sim_primary_state(device, flags, active));
}

SINGLE(cuDevicePrimaryCtxSetFlags, sim_primary_set_flags(device, flags), CUdevice device, unsigned int flags)

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    return CALL(cuDevicePrimaryCtxSetFlags_v2, sim_primary_set_flags(device, flags));
}
