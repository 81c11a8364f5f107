/* nvml: see nvml.h. Owns publish_lock, held only while the table is copied: never while the library is
 * loaded, because a constructor that runs inside dlopen may look one of our names up, and then two threads
 * would wait for each other. */
#include "nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "resolve.h"

struct nvml_table nvml;

static pthread_mutex_t publish_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool opened;

static bool fill(struct nvml_table *table, void *library)
{
    table->init = (nvml_return(*)(void))resolve_real(library, "nvmlInit_v2");
    table->count = (nvml_return(*)(unsigned *))resolve_real(library, "nvmlDeviceGetCount_v2");
    table->handle_by_index =
        (nvml_return(*)(unsigned, nvml_device *))resolve_real(library, "nvmlDeviceGetHandleByIndex_v2");
    table->handle_by_uuid =
        (nvml_return(*)(const char *, nvml_device *))resolve_real(library, "nvmlDeviceGetHandleByUUID");
    table->uuid = (nvml_return(*)(nvml_device, char *, unsigned))resolve_real(library, "nvmlDeviceGetUUID");
    table->index = (nvml_return(*)(nvml_device, unsigned *))resolve_real(library, "nvmlDeviceGetIndex");
    void *processes = resolve_real(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!processes) /* drivers before 510 have the same layout under this name */
        processes = resolve_real(library, "nvmlDeviceGetComputeRunningProcesses_v2");
    table->processes = (nvml_return(*)(nvml_device, unsigned *, struct nvml_process *))processes;
    table->memory =
        (nvml_return(*)(nvml_device, struct nvml_memory *))resolve_real(library, "nvmlDeviceGetMemoryInfo");
    table->memory_v2 = (nvml_return(*)(nvml_device, struct nvml_memory_v2 *))resolve_real(
        library, "nvmlDeviceGetMemoryInfo_v2");
    return table->init && table->handle_by_uuid && table->uuid && table->processes && table->memory;
}

/* Twice at the same time does no harm: both find the same library. */
bool nvml_open(void)
{
    struct nvml_table table;

    if (atomic_load_explicit(&opened, memory_order_acquire))
        return true;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return false;
    if (!fill(&table, library)) {
        dlclose(library);
        return false;
    }
    pthread_mutex_lock(&publish_lock);
    if (!atomic_load_explicit(&opened, memory_order_relaxed)) {
        nvml = table;
        atomic_store_explicit(&opened, true, memory_order_release);
    }
    pthread_mutex_unlock(&publish_lock);
    return true;
}
