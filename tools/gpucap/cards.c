/* cards: see cards.h. */
#include "tools/gpucap/cards.h"

#include "interpose/driver/nvml_types.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"

struct cards {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *version, unsigned size);
    int (*device_by_uuid)(const char *uuid, nvml_device *device);
    int (*index)(nvml_device device, unsigned *index);
    int (*name)(nvml_device device, char *name, unsigned size);
    int (*memory)(nvml_device device, struct nvml_memory *memory);
    /* NULL in an old driver */
    int (*count)(unsigned *count);
    int (*device_by_index)(unsigned index, nvml_device *device);
    int (*uuid)(nvml_device device, char *uuid, unsigned size);
    int (*processes)(nvml_device device, unsigned *count, struct nvml_process *list);
};

void *cards_load(const char *folder, const char *name)
{
    char path[PATH_MAX];
    if (!folder)
        return dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof(path))
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

const char *cards_resolve(void *library, const struct cards_lookup *lookups, size_t count)
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

struct cards *cards_open(const char *folder)
{
    struct cards *cards = calloc(1, sizeof(*cards));
    void *library = cards_load(folder, NVML_LIBRARY);

    if (!cards || !library) {
        free(cards);
        return NULL;
    }
    const struct cards_lookup lookups[] = {
        {"nvmlInit_v2", "nvmlInit", &cards->init},
        {"nvmlShutdown", NULL, &cards->shutdown},
        {"nvmlSystemGetDriverVersion", NULL, &cards->driver_version},
        {"nvmlDeviceGetHandleByUUID", NULL, &cards->device_by_uuid},
        {"nvmlDeviceGetIndex", NULL, &cards->index},
        {"nvmlDeviceGetName", NULL, &cards->name},
        {"nvmlDeviceGetMemoryInfo", NULL, &cards->memory},
    };
    if (cards_resolve(library, lookups, sizeof(lookups) / sizeof(lookups[0])) || cards->init() != 0) {
        free(cards);
        return NULL;
    }
    const struct cards_lookup lists[] = {
        {"nvmlDeviceGetCount_v2", NULL, &cards->count},
        {"nvmlDeviceGetHandleByIndex_v2", NULL, &cards->device_by_index},
        {"nvmlDeviceGetUUID", NULL, &cards->uuid},
        /* drivers before 510 have the same layout under the older name */
        {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
         &cards->processes},
    };
    (void)cards_resolve(library, lists, sizeof(lists) / sizeof(lists[0]));
    return cards;
}

void cards_close(struct cards *cards)
{
    if (cards)
        cards->shutdown();
    free(cards);
}

/* Finds a card, or the MIG slice of that number: the driver, and so a ledger, calls it "GPU-..." too. */
static bool find(const struct cards *cards, const char *uuid, nvml_device *device)
{
    char slice[NVML_UUID_TEXT];

    return cards->device_by_uuid(uuid, device) == NVML_OK ||
           (!strncmp(uuid, "GPU-", 4) &&
            snprintf(slice, sizeof(slice), "MIG-%s", uuid + 4) < (int)sizeof(slice) &&
            cards->device_by_uuid(slice, device) == NVML_OK);
}

void cards_read(const struct cards *cards, const char *uuid, struct cards_facts *facts)
{
    nvml_device device;
    struct nvml_memory memory;
    unsigned index;

    *facts = (struct cards_facts){.number = -1};
    if (!cards || !find(cards, uuid, &device) || cards->memory(device, &memory) != 0)
        return;
    facts->known = true;
    facts->total = memory.total;
    facts->free = memory.free;
    if (cards->index(device, &index) == 0)
        facts->number = (int)index;
    if (cards->name(device, facts->name, sizeof(facts->name)) != 0)
        facts->name[0] = '\0';
}

void cards_each(const struct cards *cards, void (*visit)(const char *uuid, void *argument), void *argument)
{
    char uuid[NVML_UUID_TEXT];
    nvml_device device;
    unsigned count;

    if (!cards->count || !cards->device_by_index || !cards->uuid || cards->count(&count) != NVML_OK)
        return;
    for (unsigned i = 0; i < count; i++) {
        if (cards->device_by_index(i, &device) == NVML_OK &&
            cards->uuid(device, uuid, sizeof(uuid)) == NVML_OK)
            visit(uuid, argument);
    }
}

int cards_processes(const struct cards *cards, const char *uuid, struct cards_process *list, int room)
{
    struct nvml_process *found = calloc((size_t)room, sizeof(*found));
    unsigned count = (unsigned)room;
    nvml_device device;
    int listed = -1;

    if (found && cards->processes && find(cards, uuid, &device) &&
        cards->processes(device, &count, found) == NVML_OK && count <= (unsigned)room)
        listed = (int)count;
    for (int i = 0; i < listed; i++)
        list[i] = (struct cards_process){(pid_t)found[i].pid,
                                         found[i].used == NVML_NOT_AVAILABLE ? UINT64_MAX : found[i].used};
    free(found);
    return listed;
}

void cards_release(const struct cards *cards, char *release, size_t size)
{
    if (cards->driver_version(release, (unsigned)size) != 0)
        release[0] = '\0';
}
