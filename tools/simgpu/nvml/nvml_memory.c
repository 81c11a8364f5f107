/* nvml_memory: what is used on a card and by which process, as the shared cards know it. No lock.
 * The three versions of the process list differ only in the layout of an element, so that one function fills
 * them all.
 */
#include "nvml_session.h"
#include "card.h"

#include <string.h>

#define PROCESSES_MAX 1024 /* slots that the cards have */
#define NO_INSTANCE   0xFFFFFFFFu

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    int card;
    nvmlReturn_t result = nvml_session_card(device, &card);
    if (result != NVML_SUCCESS)
        return result;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    memory->total = card_info(card)->capacity;
    memory->used = card_used(card);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    int card;
    nvmlReturn_t result = nvml_session_card(device, &card);
    if (result != NVML_SUCCESS)
        return result;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result != NVML_SUCCESS)
        return result;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return NVML_SUCCESS;
}

/* size is that of the caller's element; an element begins with the fields of _v1 in every version. */
static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned int *count, void *infos, size_t size)
{
    struct card_process found[PROCESSES_MAX];
    int card;
    nvmlReturn_t result = nvml_session_card(device, &card);
    if (result != NVML_SUCCESS)
        return result;
    if (!count || (*count > 0 && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *count;
    *count = (unsigned)card_processes(card, found, PROCESSES_MAX);
    if (room < *count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count && i < PROCESSES_MAX; i++) {
        nvmlProcessInfo_v2_t info = {.pid = (unsigned)found[i].pid,
                                     .usedGpuMemory = found[i].bytes,
                                     .gpuInstanceId = NO_INSTANCE,
                                     .computeInstanceId = NO_INSTANCE};
        memcpy((char *)infos + i * size, &info, size);
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t list_nothing(nvmlDevice_t device, unsigned int *count)
{
    int card;
    nvmlReturn_t result = nvml_session_card(device, &card);
    if (result != NVML_SUCCESS)
        return result;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *infos)
{
    return list_processes(device, count, infos, sizeof *infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *infos)
{
    return list_processes(device, count, infos, sizeof *infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos)
{
    return list_processes(device, count, infos, sizeof *infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                   nvmlProcessInfo_v1_t *infos)
{
    (void)infos;
    return list_nothing(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_v2_t *infos)
{
    (void)infos;
    return list_nothing(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *infos)
{
    (void)infos;
    return list_nothing(device, count);
}
