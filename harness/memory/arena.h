/* Suballocates one large block by best fit, as frameworks do that take the whole card at start. Works on
 * offsets and keeps its records in host memory: the block itself is device memory and is never touched.
 * Owns no lock; the caller serializes calls (supply.h). */
#ifndef HARNESS_ARENA_H
#define HARNESS_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* Blocks start at multiples of this. cudaMalloc aligns to 512 bytes too. */
enum { ARENA_ALIGN = 512 };

struct arena_block;

struct arena {
    size_t size;
    size_t taken; /* bytes of all taken blocks, each rounded up to ARENA_ALIGN */
    struct arena_block *first;
};

/* Makes the whole arena one free block. Returns false if the host has no memory for the records. */
bool arena_open(struct arena *arena, size_t size);
void arena_close(struct arena *arena);

/* Takes a block and sets *offset. Returns false if no free block is large enough. */
bool arena_take(struct arena *arena, size_t bytes, size_t *offset);

/* Frees the block at `offset`. Returns false and changes nothing if no taken block starts there. */
bool arena_give(struct arena *arena, size_t offset);

/* Returns the size of the largest free block. */
size_t arena_largest_free(const struct arena *arena);

/* Checks the structure, for tests: blocks are adjacent and cover the arena, no two free blocks are
 * adjacent, `taken` is their sum. Returns NULL, or what is wrong. */
const char *arena_check(const struct arena *arena);

#endif
