/* sim_slab: 2 MiB shared by small blocks. See sim_slab.h. */
#include "tools/simgpu/engine/sim_slab.h"

#include "tools/simgpu/engine/sim_va.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UNIT  UINT64_C(512)
#define UNITS (PHYS_GRANULE / UNIT)

struct sim_slab {
    struct sim_link link; /* in context->slabs */
    struct sim_phys *phys;
    uint64_t start;
    unsigned int free_units;
    bool taken[UNITS];
};

static unsigned int units_of(uint64_t size)
{
    return (unsigned int)((size + UNIT - 1) / UNIT);
}

/* Returns the start of the first run of that many free units, or UNITS. */
static unsigned int find_run(const struct sim_slab *slab, unsigned int wanted)
{
    unsigned int i, run = 0;

    if (slab->free_units < wanted)
        return UNITS;
    for (i = 0; i < UNITS; i++) {
        run = slab->taken[i] ? 0 : run + 1;
        if (run == wanted)
            return i + 1 - wanted;
    }
    return UNITS;
}

static CUresult new_slab(struct CUctx_st *context, struct sim_slab **out)
{
    struct sim_slab *slab = calloc(1, sizeof(*slab));
    CUresult result;

    if (!slab)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_phys_create(context->device, PHYS_GRANULE, false, &slab->phys);
    if (result != CUDA_SUCCESS) {
        free(slab);
        return result;
    }
    slab->start = sim_va_reserve(PHYS_GRANULE, 0, 0);
    if (!slab->start || !sim_va_back(slab->start, slab->phys, PROT_READ | PROT_WRITE)) {
        if (slab->start)
            sim_va_release(slab->start, PHYS_GRANULE);
        sim_phys_drop(slab->phys);
        free(slab);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    slab->free_units = UNITS;
    sim_list_append(&context->slabs, &slab->link);
    *out = slab;
    return CUDA_SUCCESS;
}

static void place(struct sim_block *block, struct sim_slab *slab, unsigned int first, uint64_t size)
{
    unsigned int wanted = units_of(size);

    memset(&slab->taken[first], true, wanted);
    slab->free_units -= wanted;
    block->slab = slab;
    block->range.start = slab->start + first * UNIT;
    block->range.size = size;
    block->extent = wanted * UNIT;
}

CUresult sim_slab_take(struct sim_block *block, uint64_t size)
{
    struct sim_link *slabs = &block->context->slabs, *at;
    struct sim_slab *slab;
    CUresult result;

    for (at = slabs->next; at != slabs; at = at->next) {
        unsigned int first;

        slab = LIST_ITEM(at, struct sim_slab, link);
        first = find_run(slab, units_of(size));
        if (first < UNITS) {
            place(block, slab, first, size);
            return CUDA_SUCCESS;
        }
    }
    result = new_slab(block->context, &slab);
    if (result == CUDA_SUCCESS)
        place(block, slab, 0, size);
    return result;
}

void sim_slab_give(struct sim_block *block)
{
    struct sim_slab *slab = block->slab;
    unsigned int first = (unsigned int)((block->range.start - slab->start) / UNIT);
    unsigned int count = units_of(block->range.size);

    memset(&slab->taken[first], false, count);
    slab->free_units += count;
    if (slab->free_units < UNITS) {
        memset((void *)(uintptr_t)block->range.start, 0, block->extent); /* fresh blocks read as zero */
        return;
    }
    sim_list_remove(&slab->link);
    sim_va_release(slab->start, PHYS_GRANULE);
    sim_phys_drop(slab->phys);
    free(slab);
}

const struct sim_phys *sim_slab_memory(const struct sim_slab *slab, uint64_t *start)
{
    *start = slab->start;
    return slab->phys;
}
