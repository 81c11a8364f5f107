/* block: every piece of memory that a program knows by its address. See block.h. */
#include "tools/simgpu/engine/sim_block.h"

#include "tools/simgpu/engine/sim_object.h"

#include <stdlib.h>

static struct ranges table;
static uint64_t last_id;

static struct block *of_range(struct range *range)
{
    return range ? LIST_ITEM(range, struct block, range) : NULL;
}

struct block *block_new(enum block_kind kind, struct CUctx_st *context, CUdevice device)
{
    struct block *block = calloc(1, sizeof(*block));

    if (!block)
        return NULL;
    block->kind = kind;
    block->context = context;
    block->device = device;
    block->id = ++last_id;
    list_init(&block->link);
    return block;
}

bool block_publish(struct block *block)
{
    if (!object_add(block, block->kind == BLOCK_MAPPED ? OBJECT_MAPPING : OBJECT_BLOCK))
        return false;
    ranges_insert(&table, &block->range);
    if (block->context)
        list_append(&block->context->blocks, &block->link);
    return true;
}

void block_withdraw(struct block *block)
{
    ranges_remove(&table, &block->range);
    list_remove(&block->link);
    object_remove(block);
}

void block_delete(struct block *block)
{
    free(block);
}

struct block *block_find(uint64_t address)
{
    return of_range(ranges_find(&table, address));
}

struct block *block_next(uint64_t address)
{
    return of_range(ranges_next(&table, address));
}

bool block_overlaps(uint64_t address, uint64_t size)
{
    struct block *next = block_next(address);

    return block_find(address) || (next && next->range.start - address < size);
}

bool block_covers(uint64_t address, uint64_t size)
{
    uint64_t inside;

    for (;;) { /* memory stitched from several mappings is one range to a copy */
        struct block *block = block_find(address);

        if (!block || (block->kind == BLOCK_MAPPED && !block->flags))
            return false;
        inside = block->range.size - (address - block->range.start);
        if (inside >= size)
            return true;
        address += inside;
        size -= inside;
    }
}
