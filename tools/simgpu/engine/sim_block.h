/* block: every piece of memory that a program knows by its address.
 *
 * One table for all kinds, so that any address is answered the same way everywhere (free, copy, attributes,
 * IPC). Guarded by the engine's lock.
 */
#ifndef SIMGPU_BLOCK_H
#define SIMGPU_BLOCK_H

#include "tools/simgpu/engine/sim_context.h"
#include "tools/simgpu/engine/sim_phys.h"
#include "tools/simgpu/engine/sim_ranges.h"

enum block_kind {
    BLOCK_DEVICE,     /* cuMemAlloc, cuMemAllocPitch */
    BLOCK_MANAGED,    /* cuMemAllocManaged */
    BLOCK_POOLED,     /* cuMemAllocAsync */
    BLOCK_HOST,       /* cuMemHostAlloc, cuMemAllocHost */
    BLOCK_REGISTERED, /* cuMemHostRegister: the program's own memory */
    BLOCK_IMPORTED,   /* cuIpcOpenMemHandle */
    BLOCK_MAPPED,     /* cuMemMap */
    BLOCK_GLOBAL      /* a variable of a module */
};

struct block {
    struct range range; /* exactly what was asked for */
    enum block_kind kind;
    struct CUctx_st *context; /* NULL for BLOCK_MAPPED */
    CUdevice device;
    uint64_t id; /* BUFFER_ID: never used twice */
    unsigned int flags;
    bool sync_memops;
    uint64_t extent;   /* address space taken, where it is more than range.size */
    struct phys *phys; /* NULL for a block inside a slab, a pool's chunk or the program's own memory */
    struct slab *slab; /* small blocks of cuMemAlloc */
    struct CUmemPoolHandle_st *pool; /* BLOCK_POOLED: that it is from; NULL: a graph's */
    struct graph_memory *graph;      /* BLOCK_POOLED: a graph allocates it, and no pool has it */
    bool exported;                   /* a legacy IPC handle was given out (ipc.h) */
    unsigned int opens;              /* BLOCK_IMPORTED: how often it was opened */
    uint64_t origin;                 /* BLOCK_IMPORTED: its id in the process that exported it */
    pid_t origin_pid;
    struct handle *handle; /* BLOCK_MAPPED */
    uint64_t access;       /* BLOCK_MAPPED: what each device may do (vmm.c); .flags is all of it together */
    unsigned int host_access;
    struct link link; /* in the context's list (or the pool's) */
};

struct block *block_new(enum block_kind kind, struct CUctx_st *context,
                        CUdevice device); /* NULL: no memory */
bool block_publish(struct block *block);  /* range is set: from now on it is found; false: no memory */
void block_withdraw(struct block *block);
void block_delete(struct block *block); /* withdrawn before */

struct block *block_find(uint64_t address);           /* the one that contains it */
struct block *block_next(uint64_t address);           /* the first that starts there or later */
bool block_overlaps(uint64_t address, uint64_t size); /* with any block */
bool block_covers(uint64_t address, uint64_t size);   /* is all of it in blocks that may be touched? */

#endif
