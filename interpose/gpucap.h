/* gpucap.h: functions that a program can call when it runs under gpucap.
 *
 * Every name is declared weak: without the library it is NULL, so check before the call:
 *     if (gpucap_trim)
 *         gpucap_trim(0, 1 << 30, NULL);
 * There is nothing to link. Compile position-independent code (-fPIE or -fPIC, the default of most systems):
 * in other code the linker makes the names NULL for good. Devices are numbered as the program sees them.
 * Functions return 0, or -1 if there is nothing to answer: no such device, or a device without a limit and
 * without a pool so far.
 */
#ifndef GPUCAP_H
#define GPUCAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUCAP_WEAK __attribute__((weak))

/* In bytes, unless the name says otherwise. Each figure is the sum over the contexts of the device, peaks
 * included; only largest_free is the largest of them. A context's figures go away when it ends. New members
 * are added at the end only. */
struct gpucap_stats {
    uint64_t live;       /* allocated by the program through the pools; with guard=on in whole pages */
    uint64_t live_count; /* number of live blocks */
    uint64_t cached;     /* idle: held by the pools and free */
    uint64_t pending;    /* freed, but its work is not done or another process has it open (IPC) */
    uint64_t physical;   /* taken from the driver: live, cached and pending together */
    uint64_t peak_live;
    uint64_t peak_physical;
    uint64_t largest_free; /* the largest request that needs no driver call */
    uint64_t fragmented;   /* free, but cannot serve the largest request that the free bytes would fit */
    uint64_t limit;        /* UINT64_MAX: no limit */
    uint64_t used;     /* by this process as the driver counts it, plus managed memory; 0 without a limit */
    uint64_t hits;     /* allocations served from memory that the pool held */
    uint64_t stitches; /* allocations for which free chunks were stitched */
    uint64_t stitched_chunks;
    uint64_t grows;        /* allocations for which the pool grew */
    uint64_t waits;        /* allocations that waited for the device's work */
    uint64_t trims;        /* times that a pool gave memory back to the driver */
    uint64_t driver_calls; /* driver calls that create, map, unmap or release memory */
    uint64_t room_ns;      /* time that allocations spent growing, stitching and waiting */
    uint64_t wait_ns;      /* the part of room_ns spent waiting for the device's work */
    uint64_t joins; /* times that a context's later work was put behind its earlier work on the device */
};

/* Returns the version of the loaded library, such as "0.1.0". */
GPUCAP_WEAK const char *gpucap_version(void);

/* Writes the figures of a device, at most `size` bytes of them. */
GPUCAP_WEAK int gpucap_stats(int device, struct gpucap_stats *stats, size_t size);

/* Gives idle memory back to the driver: at least `bytes` if there is that much. Writes how much to *given,
 * which may be NULL. */
GPUCAP_WEAK int gpucap_trim(int device, uint64_t bytes, uint64_t *given);

/* Changes the limit of a device that has one. It may exceed what the user asked for, but not the card or the
 * administrator's limit, and is at least one byte. Memory in use stays; idle memory above a lower limit goes
 * back to the driver. */
GPUCAP_WEAK int gpucap_set_limit(int device, uint64_t bytes);

/* Tags what the calling thread allocates from now on with `name`; NULL ends that. Long names are cut. Returns
 * -1 if there are too many names. */
GPUCAP_WEAK int gpucap_tag(const char *name);

/* Writes the live bytes under a tag, and their peak. */
GPUCAP_WEAK int gpucap_tag_stats(const char *name, uint64_t *live, uint64_t *peak);

/* Memory of one owner, kind and tag on a device. New members are added at the end only. */
struct gpucap_owner {
    char owner[64]; /* the library that asked for it, such as "cuDNN" or "NCCL"; "program"; "driver" for what
                       contexts hold for themselves and for what idles in the driver's stream-ordered pools;
                       "gpucap" for what idles in its pools */
    char kind[16];  /* malloc, async, handle, array, graph, managed, imported, context or idle */
    char tag[32];   /* "": none */
    uint64_t bytes, blocks;
    uint64_t peak; /* of bytes since the recording began; 0 if it is not known */
};

/* Writes who holds the memory of a device while a recording runs (option record). `size` is sizeof(*list).
 * *count is how many entries the list has room for, and becomes how many there are. Returns -1 if nothing is
 * recorded. Takes about a millisecond. */
GPUCAP_WEAK int gpucap_owners(int device, struct gpucap_owner *list, size_t size, size_t *count);

#ifdef __cplusplus
}
#endif

#endif
