/* fleet_meter: device memory of each process, from NVML. See fleet_meter.h. */
#include "harness/fleet/fleet_meter.h"

#include <dlfcn.h>
#include <stddef.h>

#include "harness/fleet/fleet_place.h"
#include "interpose/driver/nvml_types.h"

#define LIBRARY       "libnvidia-ml.so.1"
#define PROCESSES_MAX 256
#define DEVICES_MAX   16

static struct {
    void *library;
    int (*start)(void);
    int (*stop)(void);
    int (*count)(unsigned *count);
    int (*by_index)(unsigned index, void **device);
    int (*memory)(void *device, struct nvml_memory *memory);
    int (*processes)(void *device, unsigned *count, struct nvml_process *processes);
    void *device[DEVICES_MAX];
    unsigned devices;
} nvml;

static struct nvml_process seen[DEVICES_MAX * PROCESSES_MAX];
static unsigned seen_count;

static bool find_entries(void)
{
    nvml.start = dlsym(nvml.library, "nvmlInit_v2");
    nvml.stop = dlsym(nvml.library, "nvmlShutdown");
    nvml.count = dlsym(nvml.library, "nvmlDeviceGetCount_v2");
    nvml.by_index = dlsym(nvml.library, "nvmlDeviceGetHandleByIndex_v2");
    nvml.memory = dlsym(nvml.library, "nvmlDeviceGetMemoryInfo");
    nvml.processes = dlsym(nvml.library, "nvmlDeviceGetComputeRunningProcesses_v3");
    return nvml.start && nvml.stop && nvml.count && nvml.by_index && nvml.memory && nvml.processes;
}

static bool find_devices(void)
{
    if (nvml.count(&nvml.devices))
        nvml.devices = 0;
    if (nvml.devices > DEVICES_MAX)
        nvml.devices = DEVICES_MAX;
    for (unsigned i = 0; i < nvml.devices; i++) {
        if (nvml.by_index(i, &nvml.device[i]))
            nvml.devices = i;
    }
    return nvml.devices > 0;
}

bool fleet_meter_open(void)
{
    char path[PATH_MAX];
    const bool simulated = fleet_place_simulated();

    fleet_meter_close();
    if (simulated && !fleet_beside("sim/" LIBRARY, path))
        return false;
    nvml.library = dlopen(simulated ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!nvml.library)
        return false;
    if (find_entries() && nvml.start() == 0) {
        if (find_devices())
            return true;
        nvml.stop();
    }
    dlclose(nvml.library);
    nvml.library = NULL;
    return false;
}

void fleet_meter_close(void)
{
    if (!nvml.library)
        return;
    nvml.stop();
    dlclose(nvml.library); /* the simulated one reads its card from the environment when it is loaded */
    nvml.library = NULL;
    nvml.devices = 0;
    seen_count = 0;
}

void fleet_meter_look(void)
{
    seen_count = 0;
    for (unsigned i = 0; i < nvml.devices; i++) {
        unsigned count = PROCESSES_MAX;

        if (nvml.processes(nvml.device[i], &count, seen + seen_count) == 0)
            seen_count += count;
    }
}

uint64_t fleet_meter_of(pid_t pid)
{
    uint64_t used = 0;

    for (unsigned i = 0; i < seen_count; i++) {
        if (pid > 0 && seen[i].pid == (unsigned)pid && seen[i].used != NVML_NOT_AVAILABLE)
            used += seen[i].used;
    }
    return used;
}

static struct nvml_memory first_card(void)
{
    struct nvml_memory memory = {0};

    if (nvml.devices == 0 || nvml.memory(nvml.device[0], &memory))
        return (struct nvml_memory){0};
    return memory;
}

uint64_t fleet_meter_used(void)
{
    return first_card().used;
}

uint64_t fleet_meter_total(void)
{
    return first_card().total;
}
