/* nvml: see nvml.h. Owns open_lock, held while the library is loaded. */
#include "nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "resolve.h"

struct nvml_table nvml;

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool opened;

static bool fill(void *library)
{
    nvml.init = (nvml_return(*)(void))resolve_real(library, "nvmlInit_v2");
    nvml.count = (nvml_return(*)(unsigned *))resolve_real(library, "nvmlDeviceGetCount_v2");
    nvml.handle_by_index =
        (nvml_return(*)(unsigned, nvml_device *))resolve_real(library, "nvmlDeviceGetHandleByIndex_v2");
    nvml.handle_by_uuid =
        (nvml_return(*)(const char *, nvml_device *))resolve_real(library, "nvmlDeviceGetHandleByUUID");
    nvml.uuid = (nvml_return(*)(nvml_device, char *, unsigned))resolve_real(library, "nvmlDeviceGetUUID");
    nvml.index = (nvml_return(*)(nvml_device, unsigned *))resolve_real(library, "nvmlDeviceGetIndex");
    void *processes = resolve_real(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!processes) /* drivers before 510 have the same layout under this name */
        processes = resolve_real(library, "nvmlDeviceGetComputeRunningProcesses_v2");
    nvml.processes = (nvml_return(*)(nvml_device, unsigned *, struct nvml_process *))processes;
    nvml.memory =
        (nvml_return(*)(nvml_device, struct nvml_memory *))resolve_real(library, "nvmlDeviceGetMemoryInfo");
    nvml.memory_v2 = (nvml_return(*)(nvml_device, struct nvml_memory_v2 *))resolve_real(
        library, "nvmlDeviceGetMemoryInfo_v2");
    return nvml.init && nvml.handle_by_uuid && nvml.uuid && nvml.processes && nvml.memory;
}

bool nvml_open(void)
{
    if (atomic_load_explicit(&opened, memory_order_acquire))
        return true;
    pthread_mutex_lock(&open_lock);
    if (!atomic_load_explicit(&opened, memory_order_relaxed)) {
        void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);

        if (library && fill(library))
            atomic_store_explicit(&opened, true, memory_order_release);
    }
    pthread_mutex_unlock(&open_lock);
    return atomic_load_explicit(&opened, memory_order_acquire);
}
