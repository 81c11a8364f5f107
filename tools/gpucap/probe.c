/* probe: see probe.h. Everything is looked up by name at run time, so that the command line runs, and can
 * say what is missing, on a machine without a driver.
 */
#include "probe.h"

#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"
#define UUID_BYTES   16

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

/* NVML's own header is not part of every toolkit; these few declarations are fixed by its ABI. */
typedef void *nvml_device;
struct nvml_memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

struct nvml_calls {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *version, unsigned size);
    int (*device_by_uuid)(const char *uuid, nvml_device *device);
    int (*memory)(nvml_device device, struct nvml_memory *memory);
};

struct lookup {
    const char *name;
    const char *fallback; /* an older name of the same function; NULL: none */
    void *target;
};

static void *open_library(const char *folder, const char *name)
{
    char path[PATH_MAX];
    if (!folder)
        return dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof(path))
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* Fills every function pointer, or says which name is missing. */
static const char *resolve_all(void *library, const struct lookup *lookups, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, lookups[i].name);
        if (!address && lookups[i].fallback)
            address = dlsym(library, lookups[i].fallback);
        if (!address)
            return lookups[i].name;
        memcpy(lookups[i].target, &address, sizeof(address));
    }
    return NULL;
}

static const char *resolve_cuda(void *library, struct cuda_calls *cuda)
{
    const struct lookup lookups[] = {
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
    return resolve_all(library, lookups, sizeof(lookups) / sizeof(lookups[0]));
}

static bool start_nvml(struct nvml_calls *nvml, const char *folder)
{
    const struct lookup lookups[] = {
        {"nvmlInit_v2", "nvmlInit", &nvml->init},
        {"nvmlShutdown", NULL, &nvml->shutdown},
        {"nvmlSystemGetDriverVersion", NULL, &nvml->driver_version},
        {"nvmlDeviceGetHandleByUUID", NULL, &nvml->device_by_uuid},
        {"nvmlDeviceGetMemoryInfo", NULL, &nvml->memory},
    };
    nvml->library = open_library(folder, NVML_LIBRARY);
    if (!nvml->library)
        return false;
    return !resolve_all(nvml->library, lookups, sizeof(lookups) / sizeof(lookups[0])) && nvml->init() == 0;
}

static void format_uuid(const CUuuid *uuid, char *text, size_t size)
{
    static const int dash_before[] = {4, 6, 8, 10}; /* bytes, as every tool of the vendor prints it */
    size_t used = (size_t)snprintf(text, size, "GPU-");
    int next = 0;
    for (int i = 0; i < UUID_BYTES; i++) {
        bool dash = next < 4 && dash_before[next] == i;
        next += dash;
        used += (size_t)snprintf(text + used, size - used, "%s%02x", dash ? "-" : "",
                                 (unsigned)(unsigned char)uuid->bytes[i]);
    }
}

static void probe_free(const struct nvml_calls *nvml, struct probe_device *device)
{
    nvml_device handle;
    struct nvml_memory memory;
    if (nvml->device_by_uuid(device->uuid, &handle) != 0 || nvml->memory(handle, &memory) != 0)
        return;
    device->free = memory.free;
    device->free_known = true;
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
    struct nvml_calls nvml = {0};
    struct link_map *map;
    *probe = (struct probe){0};
    void *library = open_library(folder, PROBE_LIBRARY);
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
    if (!start_nvml(&nvml, folder))
        return;
    if (nvml.driver_version(probe->release, sizeof(probe->release)) != 0)
        probe->release[0] = 0;
    for (int i = 0; i < probe->device_count; i++)
        probe_free(&nvml, &probe->devices[i]);
    nvml.shutdown();
}
