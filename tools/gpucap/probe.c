/* probe: see probe.h. Everything is looked up by name at run time, so that the command line runs, and can
 * say what is missing, on a machine without a driver.
 */
#include "tools/gpucap/probe.h"

#include "tools/gpucap/cards.h"

#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#define UUID_BYTES 16

struct cuda_calls {
    CUresult (*init)(unsigned flags);
    CUresult (*version)(int *version);
    CUresult (*device_count)(int *count);
    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*device_name)(char *name, int size, CUdevice device);
    CUresult (*device_uuid)(CUuuid *uuid, CUdevice device);
    CUresult (*device_total)(size_t *bytes, CUdevice device);
    CUresult (*device_attribute)(int *value, CUdevice_attribute attribute, CUdevice device);
    CUresult (*error_name)(CUresult error, const char **name);
};

static const char *resolve_cuda(void *library, struct cuda_calls *cuda)
{
    const struct cards_lookup lookups[] = {
        {"cuInit", NULL, &cuda->init},
        {"cuDriverGetVersion", NULL, &cuda->version},
        {"cuDeviceGetCount", NULL, &cuda->device_count},
        {"cuDeviceGet", NULL, &cuda->device_get},
        {"cuDeviceGetName", NULL, &cuda->device_name},
        {"cuDeviceGetUuid_v2", "cuDeviceGetUuid", &cuda->device_uuid},
        {"cuDeviceTotalMem_v2", NULL, &cuda->device_total},
        {"cuDeviceGetAttribute", NULL, &cuda->device_attribute},
        {"cuGetErrorName", NULL, &cuda->error_name},
    };
    return cards_resolve(library, lookups, sizeof(lookups) / sizeof(lookups[0]));
}

static void format_uuid(const CUuuid *uuid, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "GPU-");
    for (int i = 0; i < UUID_BYTES; i++) {
        const bool dash = i == 4 || i == 6 || i == 8 || i == 10; /* as every tool of the vendor prints it */
        used += (size_t)snprintf(text + used, size - used, "%s%02x", dash ? "-" : "",
                                 (unsigned)(unsigned char)uuid->bytes[i]);
    }
}

static CUresult probe_device(const struct cuda_calls *cuda, int ordinal, struct probe_device *device)
{
    CUdevice handle;
    CUuuid uuid;
    size_t total;
    int vmm = 0;
    CUresult error = cuda->device_get(&handle, ordinal);
    if (!error)
        error = cuda->device_name(device->name, sizeof(device->name), handle);
    if (!error)
        error = cuda->device_uuid(&uuid, handle);
    if (!error)
        error = cuda->device_total(&total, handle);
    if (error)
        return error;
    if (cuda->device_attribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, handle))
        vmm = 0;
    format_uuid(&uuid, device->uuid, sizeof(device->uuid));
    device->total = total;
    device->vmm = vmm != 0;
    return CUDA_SUCCESS;
}

static void say_error(struct probe *probe, const struct cuda_calls *cuda, const char *call, CUresult error)
{
    const char *name = NULL;
    if (cuda->error_name(error, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    snprintf(probe->error, sizeof(probe->error), "%s answered %d (%s)", call, (int)error, name);
}

static void probe_devices(struct probe *probe, const struct cuda_calls *cuda)
{
    CUresult error = cuda->init(0);
    if (error) {
        say_error(probe, cuda, "cuInit", error);
        return;
    }
    probe->usable = true;
    int count = 0;
    error = cuda->device_count(&count);
    for (int i = 0; !error && i < count && i < PROBE_DEVICES_MAX; i++) {
        error = probe_device(cuda, i, &probe->devices[i]);
        if (!error)
            probe->device_count = i + 1;
    }
    if (error)
        say_error(probe, cuda, "asking for the devices", error);
}

void probe_driver(struct probe *probe, const char *folder)
{
    struct cuda_calls cuda;
    struct link_map *map;
    *probe = (struct probe){0};
    void *library = cards_load(folder, PROBE_LIBRARY);
    if (!library) {
        const char *why = dlerror();
        snprintf(probe->error, sizeof(probe->error), "%s", why ? why : "cannot be loaded");
        return;
    }
    probe->found = true;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
        snprintf(probe->path, sizeof(probe->path), "%s", map->l_name);
    const char *missing = resolve_cuda(library, &cuda);
    if (missing) {
        snprintf(probe->error, sizeof(probe->error), "it does not export %s", missing);
        return;
    }
    if (cuda.version(&probe->cuda_version) != CUDA_SUCCESS)
        probe->cuda_version = 0;
    probe_devices(probe, &cuda);
    struct cards *cards = cards_open(folder);
    if (!cards)
        return;
    cards_release(cards, probe->release, sizeof(probe->release));
    for (int i = 0; i < probe->device_count; i++) {
        struct cards_facts facts;
        cards_read(cards, probe->devices[i].uuid, &facts);
        probe->devices[i].free = facts.free;
        probe->devices[i].free_known = facts.known;
    }
    cards_close(cards);
}
