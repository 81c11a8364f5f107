/* Suballocation of one large block by best fit, as frameworks that take the card at start do it. It only
 * deals in offsets and keeps its records out of band: the memory itself is on the device and is never touched
 * here. No lock: one arena belongs to one training loop. */
#ifndef HARNESS_ARENA_H
#define HARNESS_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* Blocks start at multiples of this, as cudaMalloc's do in practice. */
enum { ARENA_ALIGN = 512 };

struct arena_block;

struct arena {
    size_t size;
    size_t taken; /* bytes of the blocks handed out, rounded up */
    struct arena_block *first;
};

/* False if the host has no memory for the records. */
bool arena_open(struct arena *arena, size_t size);
void arena_close(struct arena *arena);

/* An offset of bytes free bytes, or false if no free range is large enough. */
bool arena_take(struct arena *arena, size_t bytes, size_t *offset);

/* Gives back what arena_take returned; false, and nothing changed, if no block that is taken starts there. */
bool arena_give(struct arena *arena, size_t offset);

size_t arena_largest_free(const struct arena *arena);

/* Walks everything: blocks lie side by side, cover the arena, no two free ones touch, the sum is right. */
bool arena_check(const struct arena *arena);

#endif
