/* sim_block: every piece of memory that a program knows by its address. See sim_block.h. */
#include "tools/simgpu/engine/sim_block.h"

#include "tools/simgpu/engine/sim_object.h"

#include <stdlib.h>

static struct sim_ranges table;
static uint64_t last_id;

static struct sim_block *of_range(struct sim_range *range)
{
    return range ? LIST_ITEM(range, struct sim_block, range) : NULL;
}

struct sim_block *sim_block_new(enum sim_block_kind kind, struct CUctx_st *context, CUdevice device)
{
    struct sim_block *block = calloc(1, sizeof(*block));

    if (!block)
        return NULL;
    block->kind = kind;
    block->context = context;
    block->device = device;
    block->id = ++last_id;
    sim_list_init(&block->link);
    return block;
}

bool sim_block_publish(struct sim_block *block)
{
    if (!sim_object_add(block, block->kind == BLOCK_MAPPED ? OBJECT_MAPPING : OBJECT_BLOCK))
        return false;
    sim_ranges_insert(&table, &block->range);
    if (block->context)
        sim_list_append(&block->context->blocks, &block->link);
    return true;
}

void sim_block_withdraw(struct sim_block *block)
{
    sim_ranges_remove(&table, &block->range);
    sim_list_remove(&block->link);
    sim_object_remove(block);
}

void sim_block_delete(struct sim_block *block)
{
    free(block);
}

struct sim_block *sim_block_find(uint64_t address)
{
    return of_range(sim_ranges_find(&table, address));
}

struct sim_block *sim_block_next(uint64_t address)
{
    return of_range(sim_ranges_next(&table, address));
}

bool sim_block_overlaps(uint64_t address, uint64_t size)
{
    struct sim_block *next = sim_block_next(address);

    return sim_block_find(address) || (next && next->range.start - address < size);
}

bool sim_block_covers(uint64_t address, uint64_t size)
{
    uint64_t inside;

    for (;;) { /* a copy may cross mappings that lie side by side */
        struct sim_block *block = sim_block_find(address);

        if (!block || (block->kind == BLOCK_MAPPED && !block->flags))
            return false;
        inside = block->range.size - (address - block->range.start);
        if (inside >= size)
            return true;
        address += inside;
        size -= inside;
    }
}
