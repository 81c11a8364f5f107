/* nvml: the part of NVIDIA's management library that we use. It is loaded, never linked: a machine may lack
 * it.
 *
 * nvml_open and the table are for our own queries; hook_nvml.c answers the program's queries with the limit.
 * The declarations are our own, because nvml.h is not part of every CUDA Toolkit. Owns one lock, held while
 * the table is copied and never while the library is loaded.
 */
#ifndef GPUCAP_NVML_H
#define GPUCAP_NVML_H

#include "interpose/driver/nvml_types.h"

#include <stdbool.h>

struct nvml_table {
    nvml_return (*init)(void);
    nvml_return (*count)(unsigned *count);
    nvml_return (*handle_by_index)(unsigned index, nvml_device *device);
    nvml_return (*handle_by_uuid)(const char *uuid, nvml_device *device);
    nvml_return (*uuid)(nvml_device device, char *text, unsigned size);
    nvml_return (*index)(nvml_device device, unsigned *index);
    nvml_return (*processes)(nvml_device device, unsigned *count, struct nvml_process *list);
    nvml_return (*memory)(nvml_device device, struct nvml_memory *memory);
    nvml_return (*memory_v2)(nvml_device device, struct nvml_memory_v2 *memory);
};
extern struct nvml_table nvml;

/* Loads the library and fills the table, without calling nvmlInit. Returns false if the library is missing,
 * lacks what we need, or was not loaded before nvml_end. */
bool nvml_open(void);

/* For exit handlers: stops new threads from loading the library, and waits for those that are loading it, 3 s
 * at most. If exit ran destructors while a thread is in dlopen, the library's dependencies would be gone and
 * the dynamic loader would run their constructors a second time. */
void nvml_end(void);

#endif
