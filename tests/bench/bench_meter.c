/* bench_meter: memory in use on the card, measured from another process. See bench_meter.h. */
#include "bench_meter.h"

#include <dlfcn.h>
#include <limits.h>

#include "bench_cuda.h"
#include "interpose/driver/nvml_types.h"

static int (*memory_info)(void *device, struct nvml_memory *memory);
static void *card;

void meter_open(const struct bench_place *place)
{
    char path[PATH_MAX];

    bench_library(place, "libnvidia-ml.so.1", path, sizeof(path));
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        bench_fail("%s", dlerror());
    int (*start)(void) = dlsym(library, "nvmlInit_v2");
    int (*find)(unsigned, void **) = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    memory_info = dlsym(library, "nvmlDeviceGetMemoryInfo");
    if (!start || !find || !memory_info || start() || find(0, &card))
        bench_fail("NVML does not start");
}

uint64_t meter_used(void)
{
    struct nvml_memory memory = {0};

    if (memory_info(card, &memory))
        bench_fail("NVML does not answer");
    return memory.used;
}
