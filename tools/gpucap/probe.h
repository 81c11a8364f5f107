/* probe: asks the CUDA driver and NVML about themselves and the devices, for `gpucap doctor`.
 *
 * Creates no context, which would take half a gigabyte of each card; free memory comes from NVML. Functions
 * that a library lacks are reported as missing. Owns no lock. */
#ifndef GPUCAP_PROBE_H
#define GPUCAP_PROBE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define PROBE_LIBRARY     "libcuda.so.1"
#define PROBE_DEVICES_MAX 64

struct probe_device {
    char name[96];
    char uuid[64]; /* GPU-xxxxxxxx-xxxx-... */
    uint64_t total;
    uint64_t free;
    bool free_known;
    bool vmm; /* virtual memory management; without it only the cap works */
};

struct probe {
    bool found;          /* the library could be loaded */
    char error[256];     /* why not, or the driver's answer */
    char path[PATH_MAX]; /* the file that was loaded */
    char release[96];    /* "580.159.03", from NVML; empty when unknown */
    int cuda_version;    /* 13000: the newest CUDA version of this driver */
    bool usable;         /* cuInit succeeded */
    int device_count;
    struct probe_device devices[PROBE_DEVICES_MAX];
};

/* Loads the driver from the folder, or as any program would if that is NULL, and asks it. */
void probe_driver(struct probe *probe, const char *folder);

#endif
