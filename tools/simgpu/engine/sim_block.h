/* sim_block: every piece of memory that a program knows by its address.
 *
 * One table for all kinds, so that any address is answered the same way everywhere (free, copy, attributes,
 * IPC). Guarded by the engine's lock.
 */
#ifndef SIMGPU_BLOCK_H
#define SIMGPU_BLOCK_H

#include "tools/simgpu/engine/sim_context.h"
#include "tools/simgpu/engine/sim_phys.h"
#include "tools/simgpu/engine/sim_ranges.h"

enum sim_block_kind {
    BLOCK_DEVICE,     /* cuMemAlloc, cuMemAllocPitch */
    BLOCK_MANAGED,    /* cuMemAllocManaged */
    BLOCK_POOLED,     /* cuMemAllocAsync */
    BLOCK_HOST,       /* cuMemHostAlloc, cuMemAllocHost */
    BLOCK_REGISTERED, /* cuMemHostRegister: the program's own memory */
    BLOCK_IMPORTED,   /* cuIpcOpenMemHandle */
    BLOCK_MAPPED,     /* cuMemMap */
    BLOCK_GLOBAL      /* a variable of a module */
};

struct sim_block {
    struct sim_range range; /* exactly what was asked for */
    enum sim_block_kind kind;
    struct CUctx_st *context; /* NULL for BLOCK_MAPPED */
    CUdevice device;
    uint64_t id; /* BUFFER_ID: never used twice */
    unsigned int flags;
    bool sync_memops;
    uint64_t extent;       /* address space taken, where it is more than range.size */
    struct sim_phys *phys; /* NULL for a block inside a slab, a pool's chunk or the program's own memory */
    struct sim_slab *slab; /* small blocks of cuMemAlloc */
    struct CUmemPoolHandle_st *pool; /* BLOCK_POOLED: that it is from; NULL: a graph's */
    struct sim_graph_memory *graph;  /* BLOCK_POOLED: a graph allocates it, and no pool has it */
    bool exported;                   /* a legacy IPC handle was given out (sim_ipc.h) */
    unsigned int opens;              /* BLOCK_IMPORTED: how often it was opened */
    uint64_t origin;                 /* BLOCK_IMPORTED: its id in the process that exported it */
    pid_t origin_pid;
    struct sim_handle *handle; /* BLOCK_MAPPED */
    uint64_t access; /* BLOCK_MAPPED: what each device may do (sim_vmm.c); .flags is all of it together */
    unsigned int host_access;
    struct sim_link link; /* in the context's list (or the pool's) */
};

struct sim_block *sim_block_new(enum sim_block_kind kind, struct CUctx_st *context,
                                CUdevice device); /* NULL: no memory */
bool sim_block_publish(struct sim_block *block); /* range is set: from now on it is found; false: no memory */
void sim_block_withdraw(struct sim_block *block);
void sim_block_delete(struct sim_block *block); /* withdrawn before */

struct sim_block *sim_block_find(uint64_t address);       /* the one that contains it */
struct sim_block *sim_block_next(uint64_t address);       /* the first that starts there or later */
bool sim_block_overlaps(uint64_t address, uint64_t size); /* with any block */
bool sim_block_covers(uint64_t address, uint64_t size);   /* is all of it in blocks that may be touched? */

#endif
