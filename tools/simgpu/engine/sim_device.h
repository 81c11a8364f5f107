/* sim_device: the devices of this process: the cards that CUDA_VISIBLE_DEVICES selects, in its order.
 *
 * The list does not change after cuInit, so that reading it needs no lock. The index is the device ordinal;
 * .card is the index in sim_card.h.
 */
#ifndef SIMGPU_DEVICE_H
#define SIMGPU_DEVICE_H

#include "tools/simgpu/engine/sim_abi.h"
#include "tools/simgpu/engine/sim_card.h"

#include <stdbool.h>
#include <stdint.h>

#define DRIVER_VERSION 13000

/* Bytes that the graphs of a card hold (sim_graph_memory.h). */
struct sim_graph_pool {
    uint64_t used; /* mapped for nodes */
    uint64_t idle; /* reserved for no node */
    uint64_t used_high, reserved_high;
};

struct sim_device {
    int card;
    struct CUctx_st *primary;             /* made on first use, then kept; guarded by the engine's lock */
    unsigned int primary_flags;           /* same lock */
    struct CUmemPoolHandle_st *pool;      /* the default pool; same lock */
    struct CUmemPoolHandle_st *pool_used; /* the pool that cuMemAllocAsync allocates from; same lock */
    struct sim_graph_pool graphs;         /* same lock */
};

bool sim_device_enumerate(void); /* makes the list; false: no device is visible */
int sim_device_count(void);
struct sim_device *sim_device_get(CUdevice ordinal); /* NULL: no such device */
CUdevice sim_device_by_card(int card);               /* -1: this process does not see it */
const struct sim_card_info *sim_device_info(CUdevice ordinal);

void sim_device_bus_id(CUdevice ordinal, char *text, size_t size);
CUresult sim_device_attribute(int *value, CUdevice_attribute attribute, CUdevice ordinal);

#endif
