/* nvml_types: the types and codes of NVML's stable interface that are used here, declared because nvml.h is
 * not part of every CUDA Toolkit. Declarations only. Also for programs that load NVML themselves: the fleet,
 * tests and benchmarks. */
#ifndef GPUCAP_NVML_TYPES_H
#define GPUCAP_NVML_TYPES_H

typedef struct nvmlDevice_st *nvml_device;
typedef int nvml_return;

#define NVML_OK                0
#define NVML_UNINITIALIZED     1
#define NVML_NOT_SUPPORTED     3
#define NVML_INSUFFICIENT_SIZE 7
#define NVML_NOT_AVAILABLE     (~0ULL) /* in place of a number of bytes */
#define NVML_UUID_TEXT         96

/* nvmlProcessInfo_t of the _v2 and _v3 calls. */
struct nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

/* nvmlMemory_t. */
struct nvml_memory {
    unsigned long long total, free, used;
};

/* nvmlMemory_v2_t. */
struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

#endif
