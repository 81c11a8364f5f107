/* blocks: what we have counted, by address or handle, so that a free gives back exactly what was taken.
 *
 * Owns one lock, held only inside these functions. Its memory comes from mmap, not from the host program's
 * malloc.
 */
#ifndef GPUCAP_BLOCKS_H
#define GPUCAP_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Name spaces: an address and a handle of the same value are different things. */
enum blocks_kind {
    BLOCKS_NONE, /* an empty place */
    BLOCKS_LINEAR,
    BLOCKS_MANAGED,
    BLOCKS_ASYNC,
    BLOCKS_HANDLE,
    BLOCKS_ARRAY,
    BLOCKS_MIPMAP,
};

struct block {
    uint64_t key; /* address or handle */
    uint64_t bytes;
    void *context; /* whose end is the block's end; NULL: it outlives contexts */
    int device;
    enum blocks_kind kind;
};

/* Makes room for one more, so that blocks_add cannot fail; each success is used up by one blocks_add or
 * blocks_cancel. 0 or -ENOMEM. */
int blocks_reserve(void);
void blocks_cancel(void);
void blocks_add(const struct block *block);

/* Takes a block out: true, and *out is it. Its place stays reserved, so that it can be put back: one
 * blocks_add or blocks_cancel must follow. Linear, managed and async blocks share one space of addresses. */
bool blocks_take(enum blocks_kind kind, uint64_t key, struct block *out);

/* Takes out any block of the context, until there is none: false. Nothing stays reserved. */
bool blocks_take_of_context(const void *context, struct block *out);

uint64_t blocks_count(void);

/* Walks the table and verifies it (tests): 0, or the number of things wrong. */
int blocks_check(void);

void blocks_clear(void); /* tests, and a child after fork */

#endif
