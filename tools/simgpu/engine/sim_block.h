/* sim_block: every piece of memory that a program knows by its address.
 *
 * One table holds blocks of all kinds, so that free, copy, attribute and IPC calls look an address up in the
 * same place. Guarded by the engine's lock.
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
    struct sim_range range; /* the size is exactly what the program asked for */
    enum sim_block_kind kind;
    struct CUctx_st *context; /* NULL: it outlives contexts, as BLOCK_MAPPED and pooled memory do */
    CUdevice device;
    uint64_t id; /* CU_POINTER_ATTRIBUTE_BUFFER_ID: never reused */
    unsigned int flags;
    bool sync_memops;
    uint64_t extent;       /* address space taken, if it is more than range.size */
    struct sim_phys *phys; /* NULL for a block inside a slab, a pool's chunk or the program's own memory */
    struct sim_slab *slab; /* small blocks of cuMemAlloc */
    struct CUmemPoolHandle_st *pool; /* BLOCK_POOLED: the pool it comes from; NULL for memory of a graph */
    struct sim_graph_memory *graph;  /* BLOCK_POOLED: set instead of .pool if a graph allocates it */
    bool exported;                   /* the program has a legacy IPC handle of it (sim_ipc.h) */
    unsigned int opens;              /* BLOCK_IMPORTED: times it was opened */
    uint64_t origin;                 /* BLOCK_IMPORTED: its id in the process that exported it */
    pid_t origin_pid;
    struct sim_handle *handle; /* BLOCK_MAPPED */
    uint64_t access; /* BLOCK_MAPPED: access rights of each device (sim_vmm.c); .flags is their union */
    unsigned int host_access;
    struct sim_link link; /* in the context's list of blocks */
};

/* Returns a new block without a range, or NULL if the host is out of memory. */
struct sim_block *sim_block_new(enum sim_block_kind kind, struct CUctx_st *context, CUdevice device);
/* Enters a block whose range is set into the table, so that lookups find it. Returns false if the host is out
 * of memory. */
bool sim_block_publish(struct sim_block *block);
/* Takes it out of the table again. */
void sim_block_withdraw(struct sim_block *block);
/* Frees the structure of a withdrawn block. */
void sim_block_delete(struct sim_block *block);

struct sim_block *sim_block_find(uint64_t address);       /* the block that contains it, or NULL */
struct sim_block *sim_block_next(uint64_t address);       /* the first block that starts there or later */
bool sim_block_overlaps(uint64_t address, uint64_t size); /* does the range overlap any block? */
bool sim_block_covers(uint64_t address, uint64_t size);   /* is every byte in a block with access? */

#endif
