/* sim_phys: the memory of the simulated cards: ranges of memory files, charged to their card.
 *
 * Ordinary memory is a range of one file of the process; ranges are never used twice, so that fresh memory
 * reads as zero. Memory that may be exported has a file of its own. Guarded by the engine's lock.
 */
#ifndef SIMGPU_PHYS_H
#define SIMGPU_PHYS_H

#include "tools/simgpu/engine/sim_abi.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PHYS_GRANULE (UINT64_C(2) << 20) /* the driver's granularity on an H200 */
#define PHYS_HOST    (-1)                /* used as a device: host memory, charged to no card */

struct sim_phys {
    CUdevice device; /* whose card is charged, or PHYS_HOST */
    bool foreign;    /* another process's memory: not ours to charge or clear */
    bool own_file;
    bool paid; /* its charge belongs to another account: do not uncharge */
    int fd;
    off_t offset;
    uint64_t size;
    unsigned int refs;
};

/* Allocates memory and charges the card; size is rounded up to the granule. Makes room if need be. Returns
 * CUDA_ERROR_OUT_OF_MEMORY if the card has not that much free. */
CUresult sim_phys_create(CUdevice device, uint64_t size, bool exportable, struct sim_phys **out);
/* The same without making room, for memory that is not exportable. */
CUresult sim_phys_try(CUdevice device, uint64_t size, struct sim_phys **out);
/* The first, where the card has already been charged for `paid` of the bytes. */
CUresult sim_phys_create_paid(CUdevice device, uint64_t size, uint64_t paid, struct sim_phys **out);
/* Makes a sim_phys of memory that another process has exported. Takes ownership of the file descriptor. */
CUresult sim_phys_adopt(CUdevice device, int fd, off_t offset, uint64_t size, struct sim_phys **out);
/* Sets what sim_phys_make_room() calls: gives memory of a device that is only kept for later back to the
 * card. */
void sim_phys_set_keeper(void (*give_back)(CUdevice device));
void sim_phys_make_room(CUdevice device);
void sim_phys_hold(struct sim_phys *phys);
/* Drops a reference; the last one frees the memory and uncharges the card. */
void sim_phys_drop(struct sim_phys *phys);
/* The same, but the card stays charged. */
void sim_phys_drop_paid(struct sim_phys *phys);

/* Stores a mark for a place in the process's file (never in an exportable one). It tells another process that
 * opens the file whether the block it was told about is still there. */
bool sim_phys_mark(const struct sim_phys *phys, uint64_t inside, uint64_t mark);
uint64_t sim_phys_read_mark(int fd, off_t offset);

uint64_t sim_phys_round(uint64_t size); /* up to the granule; 0 on overflow */

#endif
