/* sim_dmabuf: memory that is exported to other devices. See sim_dmabuf.h. */
#include "tools/simgpu/engine/sim_dmabuf.h"

#include "tools/simgpu/engine/sim_graph_memory.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_pool_chunk.h"
#include "tools/simgpu/engine/sim_slab.h"
#include "tools/simgpu/engine/sim_vmm.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct export
{
    struct export *next;
    int end; /* reading end of the pipe: hangs up when the last descriptor is closed */
    size_t count;
    struct sim_phys *held[]; /* the same one may be held several times */
};

static struct export *exports; /* guarded by the engine's lock */
static _Atomic bool any;

/* ---- the memory of a range ---- */

/* Returns the memory of a block of cuMemAlloc, a pool, a graph or cuMemMap at one of its addresses; NULL if a
 * graph has not allocated it yet. */
static struct sim_phys *memory_of(struct sim_block *block, uint64_t address)
{
    uint64_t start;

    if (block->kind == BLOCK_MAPPED)
        return sim_vmm_memory(block);
    if (block->slab)
        return (struct sim_phys *)(uintptr_t)sim_slab_memory(block->slab, &start);
    if (block->phys)
        return block->phys;
    if (block->graph)
        return block->graph->phys;
    return block->pool ? sim_chunk_memory(block->pool, address) : NULL;
}

/* Returns the memory of cuMemAlloc or of a pool on the granule, of any context (measured), or NULL. */
static struct sim_phys *on_granule(uint64_t granule)
{
    struct sim_block *block = sim_block_find(granule);

    if (!block)
        block = sim_block_next(granule);
    if (!block || block->range.start >= granule + PHYS_GRANULE ||
        (block->kind != BLOCK_DEVICE && block->kind != BLOCK_POOLED))
        return NULL;
    return memory_of(block, block->range.start > granule ? block->range.start : granule);
}

/* Returns the memory of one granule of a range that begins in the block `first`, or NULL. */
static struct sim_phys *behind(const struct sim_block *first, uint64_t granule, uint64_t address)
{
    struct sim_block *block;

    if (!first || first->kind != BLOCK_MAPPED)
        return on_granule(granule);
    block = sim_block_find(granule > address ? granule : address);
    return block && block->kind == BLOCK_MAPPED ? memory_of(block, granule) : NULL;
}

/* Takes a reference on all memory of a range. Returns false if a part of it has no memory. */
static bool hold(struct export *export, uint64_t address, uint64_t size)
{
    const struct sim_block *first = sim_block_find(address);
    uint64_t at;

    if (first && first->kind == BLOCK_MAPPED && !sim_block_covers(address, size))
        return false;
    for (at = address & ~(uint64_t)(PHYS_GRANULE - 1); at < address + size; at += PHYS_GRANULE) {
        struct sim_phys *phys = behind(first, at, address);

        if (!phys)
            return false;
        sim_phys_hold(phys);
        export->held[export->count++] = phys;
    }
    return true;
}

static void drop(struct export *export)
{
    size_t i;

    for (i = 0; i < export->count; i++)
        sim_phys_drop(export->held[i]);
    if (export->end >= 0)
        close(export->end);
    free(export);
}

/* ---- descriptors ---- */

static CUresult publish(struct export *export, int *out)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    export->end = ends[0];
    *out = ends[1];
    export->next = exports;
    exports = export;
    atomic_store(&any, true);
    return CUDA_SUCCESS;
}

CUresult sim_dmabuf_export(void *out, CUdeviceptr address, size_t size, CUmemRangeHandleType type)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct export *export;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    int fd = -1;

    if (!out || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || size == 0 || (address | size) % page ||
        size >= UINT64_MAX - address)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!sim_block_find(address) && !sim_block_next(address))
        return CUDA_ERROR_INVALID_VALUE; /* checked before allocating an entry per granule */
    export = calloc(1, sizeof(*export) + (size / PHYS_GRANULE + 2) * sizeof(struct sim_phys *));
    if (!export)
        return CUDA_ERROR_OUT_OF_MEMORY;
    export->end = -1;
    if (hold(export, address, size))
        result = publish(export, &fd);
    if (result == CUDA_SUCCESS)
        memcpy(out, &fd, sizeof(fd));
    else
        drop(export);
    return result;
}

static bool is_closed(const struct export *export)
{
    struct pollfd end = {.fd = export->end};

    return poll(&end, 1, 0) == 1 && (end.revents & POLLHUP);
}

void sim_dmabuf_sweep(void)
{
    struct export **at = &exports;

    if (!atomic_load(&any))
        return;
    sim_lock_take();
    while (*at) {
        struct export *export = *at;

        if (is_closed(export)) {
            *at = export->next;
            drop(export);
        } else {
            at = &export->next;
        }
    }
    atomic_store(&any, exports != NULL);
    sim_lock_drop();
}
