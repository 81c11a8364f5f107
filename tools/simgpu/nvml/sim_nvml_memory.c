/* sim_nvml_memory: memory used on a card and by each process, from engine/sim_card.h. No lock. The three
 * versions of the process list differ only in the layout of an element, so that one function fills them all.
 */
#include "tools/simgpu/nvml/sim_nvml_session.h"
#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/nvml/sim_nvml_view.h"

#include <string.h>
#include <unistd.h>

#define PROCESSES_MAX 1024 /* CARD_SLOTS */
#define NO_INSTANCE   0xFFFFFFFFu
#define NOT_AVAILABLE 0xFFFFFFFFFFFFFFFFull /* NVML_VALUE_NOT_AVAILABLE */

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    int card;
    SIM_NVML_TRY(sim_nvml_session_card(device, &card));
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    memory->total = sim_card_info(card)->capacity;
    memory->used = sim_card_used(card);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    int card;
    SIM_NVML_TRY(sim_nvml_session_card(device, &card));
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    SIM_NVML_TRY(nvmlDeviceGetMemoryInfo(device, &plain));
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return NVML_SUCCESS;
}

static nvmlProcessInfo_v2_t describe(const struct sim_card_process *process, int card,
                                     const struct sim_nvml_view *view)
{
    const unsigned int instance = sim_card_info(card)->mig ? 0 : NO_INSTANCE;
    return (nvmlProcessInfo_v2_t){.pid = (unsigned)process->pid + view->pids,
                                  .usedGpuMemory = view->no_bytes ? NOT_AVAILABLE : process->bytes,
                                  .gpuInstanceId = instance,
                                  .computeInstanceId = instance};
}

/* Adds newcomers number `from` to `to`, each with the bytes in `info`. Returns the new count. */
static unsigned int add_newcomers(nvmlProcessInfo_v2_t *out, unsigned int count, nvmlProcessInfo_v2_t info,
                                  unsigned int from, unsigned int to)
{
    for (; from < to && count < PROCESSES_MAX; from++) {
        info.pid = SIM_NVML_VIEW_NEWCOMER + from;
        out[count++] = info;
    }
    return count;
}

/* Collects the list, at most PROCESSES_MAX entries. Newcomers come before and after the process itself. */
static unsigned int collect(int card, const struct sim_nvml_view *view, nvmlProcessInfo_v2_t *out)
{
    struct sim_card_process found[PROCESSES_MAX];
    unsigned int count = 0;
    int processes = sim_card_processes(card, found, PROCESSES_MAX);
    for (int i = 0; i < processes && count < PROCESSES_MAX; i++) {
        const unsigned int newcomers = found[i].pid == getpid() ? view->newcomers : 0;
        nvmlProcessInfo_v2_t info = describe(&found[i], card, view);
        count = add_newcomers(out, count, info, 0, (newcomers + 1) / 2);
        if (count < PROCESSES_MAX)
            out[count++] = info;
        count = add_newcomers(out, count, info, (newcomers + 1) / 2, newcomers);
    }
    return count;
}

/* size is the size of the caller's element, which begins with the fields of _v1 in every version. */
static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned int *count, void *infos, size_t size)
{
    nvmlProcessInfo_v2_t shown[PROCESSES_MAX];
    const struct sim_nvml_view view = sim_nvml_view_now();
    int card;
    SIM_NVML_TRY(sim_nvml_session_card(device, &card));
    if (view.no_list)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!count || (*count > 0 && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *count;
    *count = collect(card, &view, shown);
    if (room < *count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++)
        memcpy((char *)infos + i * size, &shown[i], size);
    return NVML_SUCCESS;
}

static nvmlReturn_t list_nothing(nvmlDevice_t device, unsigned int *count)
{
    int card;
    SIM_NVML_TRY(sim_nvml_session_card(device, &card));
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *infos)
{
    return list_processes(device, count, infos, sizeof(*infos));
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *infos)
{
    return list_processes(device, count, infos, sizeof(*infos));
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos)
{
    return list_processes(device, count, infos, sizeof(*infos));
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
