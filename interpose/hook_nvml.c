/* The hooks on NVML's memory queries: a program that asks NVML instead of CUDA sees the same limit. */
#include "hooks.h"
#include "nvml.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "device.h"
#include "library.h"
#include "pools.h"

EXPORT nvml_return nvmlDeviceGetMemoryInfo(nvml_device card, struct nvml_memory *memory);
EXPORT nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device card, struct nvml_memory_v2 *memory);

static const struct {
    const char *name;
    void *hook;
} rows[] = {
    {"nvmlDeviceGetMemoryInfo", (void *)nvmlDeviceGetMemoryInfo},
    {"nvmlDeviceGetMemoryInfo_v2", (void *)nvmlDeviceGetMemoryInfo_v2},
};

void *nvml_hook_named(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strcmp(rows[i].name, name))
            return rows[i].hook;
    }
    return NULL;
}

void *nvml_hook(const char *name, void *address)
{
    void *hook = nvml_open() ? nvml_hook_named(name) : NULL;

    /* Only in front of the library that we ask ourselves. */
    if (hook == (void *)nvmlDeviceGetMemoryInfo && address == (void *)nvml.memory)
        return hook;
    if (hook == (void *)nvmlDeviceGetMemoryInfo_v2 && address == (void *)nvml.memory_v2)
        return hook;
    return address;
}

/* Whether the entry of CUDA_VISIBLE_DEVICES names the card. */
static bool names_card(const char *entry, size_t length, unsigned index, const char *uuid)
{
    char *end;

    if (length >= 4 && !strncasecmp(entry, "GPU-", 4))
        return !strncasecmp(entry, uuid, length);
    unsigned long number = strtoul(entry, &end, 10);
    return end == entry + length && number == index;
}

/* The number that CUDA gives the card in this process, before CUDA has been started. */
static int expected_ordinal(nvml_device card, const char *uuid)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    unsigned index;

    if (!nvml.index || nvml.index(card, &index) != NVML_OK)
        return RULES_NO_ORDINAL;
    if (!visible)
        return (int)index;
    for (int ordinal = 0; *visible; ordinal++) {
        size_t length = strcspn(visible, ",");

        if (length && names_card(visible, length, index, uuid))
            return ordinal;
        visible += length + (visible[length] == ',');
    }
    return RULES_NO_ORDINAL;
}

/* The view of a limited card: false if it is not limited. */
static bool limited_view(nvml_device card, uint64_t card_total, uint64_t *limit, uint64_t *used)
{
    char uuid[NVML_UUID_TEXT];
    struct measure_card self = {.uuid = uuid};

    if (library_mode() != LIBRARY_ON || nvml.uuid(card, uuid, sizeof uuid) != NVML_OK)
        return false;
    int ordinal = device_ordinal_of(uuid);
    if (ordinal == RULES_NO_ORDINAL) {
        ordinal = expected_ordinal(card, uuid);
        *limit = options_limit(library_options(), ordinal, uuid, card_total);
    } else { /* the program may have changed it */
        const struct device *device = device_get(ordinal);

        *limit = device ? atomic_load(&device->limit) : RULES_UNLIMITED;
    }
    if (*limit == RULES_UNLIMITED)
        return false;
    if (measure_used(&self, used))
        *used = 0;
    /* What our pools keep idle can be had, so it is free. */
    const uint64_t idle = ordinal == RULES_NO_ORDINAL ? 0 : pools_reclaimable(ordinal);
    *used -= idle < *used ? idle : *used;
    return true;
}

nvml_return nvmlDeviceGetMemoryInfo(nvml_device card, struct nvml_memory *memory)
{
    uint64_t limit, used;

    if (!nvml_open())
        return NVML_UNINITIALIZED;
    nvml_return result = nvml.memory(card, memory);
    if (result != NVML_OK || !limited_view(card, memory->total, &limit, &used))
        return result;
    memory->total = limit;
    memory->used = used < limit ? used : limit;
    if (memory->free > limit - memory->used)
        memory->free = limit - memory->used;
    return result;
}

nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device card, struct nvml_memory_v2 *memory)
{
    uint64_t limit, used;

    if (!nvml_open() || !nvml.memory_v2)
        return NVML_UNINITIALIZED;
    nvml_return result = nvml.memory_v2(card, memory);
    if (result != NVML_OK || !limited_view(card, memory->total, &limit, &used))
        return result;
    memory->total = limit;
    memory->reserved = 0;
    memory->used = used < limit ? used : limit;
    if (memory->free > limit - memory->used)
        memory->free = limit - memory->used;
    return result;
}
