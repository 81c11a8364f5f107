/* gpucap.h: what a program that knows of gpucap may ask it.
 *
 * Every name is declared weak: without the library it is NULL, so check before the call:
 *     if (gpucap_trim)
 *         gpucap_trim(0, 1 << 30, NULL);
 * Devices are numbered as the program sees them. Functions return 0, or -1 if there is nothing to answer (no
 * such device, neither a pool on it yet nor a limit).
 */
#ifndef GPUCAP_H
#define GPUCAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUCAP_WEAK __attribute__((weak))

/* Bytes, unless the name says otherwise. Figures of several contexts are added up, the peaks of each as well,
 * but for largest_free; what a context has done is forgotten when it ends. New members are added at the end
 * only. */
struct gpucap_stats {
    uint64_t live; /* what the program has allocated through the pools of the device; with guard=on in whole
                      pages */
    uint64_t live_count; /* in so many blocks */
    uint64_t cached;     /* held and free */
    uint64_t pending;    /* freed, and waiting for the device's work to end, or held by others (IPC) */
    uint64_t physical;   /* taken from the driver: live, cached and pending */
    uint64_t peak_live;
    uint64_t peak_physical;
    uint64_t largest_free; /* the largest request that needs no driver call */
    uint64_t fragmented;   /* free, and of no use for the largest request that would otherwise fit */
    uint64_t limit;        /* UINT64_MAX: none */
    uint64_t used;     /* by this process on the card, by the driver's own figure, and what it has of managed
                          memory; 0 without a limit */
    uint64_t hits;     /* allocations served from what was held */
    uint64_t stitches; /* allocations for which free chunks were put together */
    uint64_t stitched_chunks;
    uint64_t grows;        /* allocations for which new memory was taken */
    uint64_t waits;        /* allocations that waited for the device's work */
    uint64_t trims;        /* times that memory was given back */
    uint64_t driver_calls; /* that made, mapped, unmapped or gave back memory */
    uint64_t room_ns;      /* time that allocations spent growing, stitching and waiting */
    uint64_t wait_ns;      /* of this, waiting for the device's work */
    uint64_t
        joins; /* times that all later work was put behind all earlier, on the device, so as not to wait */
};

/* "0.1.0": the version of the library that is loaded. */
GPUCAP_WEAK const char *gpucap_version(void);

/* Writes at most `size` bytes of the figures of a device. */
GPUCAP_WEAK int gpucap_stats(int device, struct gpucap_stats *stats, size_t size);

/* Gives idle memory back to the driver, at least `bytes` if there is that much; *given says how much (may be
 * NULL). */
GPUCAP_WEAK int gpucap_trim(int device, uint64_t bytes, uint64_t *given);

/* Changes the limit of a device that has one, also above what the user asked for, but to at least a byte and
 * never above the card or the administrator's limit. What is in use stays, what is idle above a lower limit
 * goes back to the driver. */
GPUCAP_WEAK int gpucap_set_limit(int device, uint64_t bytes);

/* Names what the calling thread allocates from now on; NULL ends it. Long names are cut. -1: too many. */
GPUCAP_WEAK int gpucap_tag(const char *name);

/* What lives under a name, and the most that ever did. */
GPUCAP_WEAK int gpucap_tag_stats(const char *name, uint64_t *live, uint64_t *peak);

#ifdef __cplusplus
}
#endif

#endif
