/* The arena: a list of blocks in address order. A training step has a few dozen live blocks, so walking the
 * list is fast enough, and simpler than an index. Adjacent free blocks are merged at once. */
#include "harness/memory/arena.h"

#include <stdlib.h>

struct arena_block {
    struct arena_block *previous;
    struct arena_block *next;
    size_t offset;
    size_t bytes;
    bool free;
};

bool arena_open(struct arena *arena, size_t size)
{
    *arena = (struct arena){.size = size, .first = malloc(sizeof(*arena->first))};
    if (!arena->first)
        return false;
    *arena->first = (struct arena_block){.bytes = size, .free = true};
    return true;
}

void arena_close(struct arena *arena)
{
    struct arena_block *block = arena->first;

    while (block) {
        struct arena_block *next = block->next;

        free(block);
        block = next;
    }
    *arena = (struct arena){0};
}

static struct arena_block *best_fit(const struct arena *arena, size_t bytes)
{
    struct arena_block *best = NULL;

    for (struct arena_block *block = arena->first; block; block = block->next) {
        if (block->free && block->bytes >= bytes && (!best || block->bytes < best->bytes))
            best = block;
    }
    return best;
}

/* Shortens the block to `bytes` and makes the rest a free block after it. */
static bool split(struct arena_block *block, size_t bytes)
{
    struct arena_block *rest;

    if (block->bytes == bytes)
        return true;
    rest = malloc(sizeof(*rest));
    if (!rest)
        return false;
    *rest = (struct arena_block){
        .previous = block,
        .next = block->next,
        .offset = block->offset + bytes,
        .bytes = block->bytes - bytes,
        .free = true,
    };
    if (rest->next)
        rest->next->previous = rest;
    block->next = rest;
    block->bytes = bytes;
    return true;
}

static void merge_with_next(struct arena_block *block)
{
    struct arena_block *next = block->next;

    if (!next || !block->free || !next->free)
        return;
    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next)
        block->next->previous = block;
    free(next);
}

bool arena_take(struct arena *arena, size_t bytes, size_t *offset)
{
    struct arena_block *block;

    if (bytes == 0 || bytes > arena->size)
        return false;
    bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    block = best_fit(arena, bytes);
    if (!block || !split(block, bytes))
        return false;
    block->free = false;
    arena->taken += bytes;
    *offset = block->offset;
    return true;
}

bool arena_give(struct arena *arena, size_t offset)
{
    struct arena_block *block = arena->first;

    while (block && block->offset != offset)
        block = block->next;
    if (!block || block->free)
        return false;
    block->free = true;
    arena->taken -= block->bytes;
    merge_with_next(block);
    if (block->previous)
        merge_with_next(block->previous);
    return true;
}

size_t arena_largest_free(const struct arena *arena)
{
    size_t largest = 0;

    for (const struct arena_block *block = arena->first; block; block = block->next) {
        if (block->free && block->bytes > largest)
            largest = block->bytes;
    }
    return largest;
}

const char *arena_check(const struct arena *arena)
{
    const struct arena_block *previous = NULL;
    size_t end = 0;
    size_t taken = 0;

    for (const struct arena_block *block = arena->first; block; block = block->next) {
        if (block->previous != previous || block->offset != end || block->bytes == 0)
            return "blocks are not adjacent";
        if (previous && previous->free && block->free)
            return "two free blocks are adjacent";
        end += block->bytes;
        taken += block->free ? 0 : block->bytes;
        previous = block;
    }
    if (end != arena->size)
        return "the blocks do not cover the arena";
    return taken != arena->taken ? "the sum of taken blocks is wrong" : NULL;
}
