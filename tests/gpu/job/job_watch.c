/* job_watch: the memory that a job uses, by NVML and by the ledger. See job_watch.h. */
#include "job_watch.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "interpose/account/ledger.h"
#include "interpose/driver/nvml_types.h"

#define MOST_PROCESSES 256

static struct {
    int (*memory)(void *, struct nvml_memory *);
    int (*processes)(void *, unsigned *, struct nvml_process *);
    void *device;
    unsigned known[MOST_PROCESSES], known_count;
    uint64_t before; /* used on the card */
} nvml;

static uint64_t card_used(void)
{
    struct nvml_memory memory;

    return nvml.memory(nvml.device, &memory) ? 0 : memory.used;
}

static unsigned list(struct nvml_process *out)
{
    unsigned count = MOST_PROCESSES;

    return nvml.processes(nvml.device, &count, out) ? 0 : count;
}

bool job_watch_start(void)
{
    struct nvml_process processes[MOST_PROCESSES];
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(void), (*by_index)(unsigned, void **);

    if (!lib)
        return false;
    *(void **)&init = dlsym(lib, "nvmlInit_v2");
    *(void **)&by_index = dlsym(lib, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml.memory = dlsym(lib, "nvmlDeviceGetMemoryInfo");
    *(void **)&nvml.processes = dlsym(lib, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!init || !by_index || !nvml.memory || !nvml.processes || init() || by_index(0, &nvml.device))
        return false;
    nvml.known_count = list(processes);
    for (unsigned i = 0; i < nvml.known_count; i++)
        nvml.known[i] = processes[i].pid;
    nvml.before = card_used();
    return true;
}

static bool is_known(unsigned pid)
{
    for (unsigned i = 0; i < nvml.known_count; i++) {
        if (nvml.known[i] == pid)
            return true;
    }
    return false;
}

static uint64_t growth(void)
{
    const uint64_t used = card_used();

    return used > nvml.before ? used - nvml.before : 0;
}

static void sample_nvml(struct job_watch *watch)
{
    struct nvml_process processes[MOST_PROCESSES];
    uint64_t sum = 0;
    const uint64_t first = growth();
    const unsigned count = list(processes);
    const uint64_t second = growth(), card = first > second ? first : second;
    bool named = false;

    for (unsigned i = 0; i < count; i++) {
        if (processes[i].used == NVML_NOT_AVAILABLE || is_known(processes[i].pid))
            continue;
        sum += processes[i].used;
        named = true;
    }
    watch->by_process = watch->by_process || named;
    /* Memory that moves from one process to another while NVML counts them is counted twice. At no instant do
     * the processes have more than the card has grown by. */
    if (!named || sum > card)
        sum = card;
    watch->nvml_peak = sum > watch->nvml_peak ? sum : watch->nvml_peak;
    watch->card_peak = card > watch->card_peak ? card : watch->card_peak;
}

static struct {
    struct ledger *ledger;
    const char *folder;
} file;

static void open_ledger(const char *uuid, void *argument)
{
    char why[LEDGER_WHY];

    (void)argument;
    if (!file.ledger && ledger_open_existing(&file.ledger, file.folder, uuid, why))
        file.ledger = NULL;
}

static void sample_ledger(struct job_watch *watch, const char *folder)
{
    struct ledger_entry entry;
    uint64_t leased = 0, used = 0;

    file.folder = folder;
    if (!file.ledger)
        ledger_each_card(folder, open_ledger, NULL);
    for (int i = 0; file.ledger && i < LEDGER_SLOTS; i++) {
        if (ledger_read(file.ledger, i, &entry)) {
            leased = entry.job_used > leased ? entry.job_used : leased;
            used += entry.used;
        }
    }
    watch->ledger_peak = leased > watch->ledger_peak ? leased : watch->ledger_peak;
    watch->used_peak = used > watch->used_peak ? used : watch->used_peak;
}

void job_watch_sample(struct job_watch *watch, const char *folder)
{
    sample_nvml(watch);
    sample_ledger(watch, folder);
    watch->samples++;
}
