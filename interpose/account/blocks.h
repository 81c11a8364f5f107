/* blocks: the table of counted blocks by address or handle, so that a free gives back exactly what was
 * charged.
 *
 * Owns one lock, held only inside these functions. Its memory comes from mmap, not from the host program's
 * malloc.
 */
#ifndef GPUCAP_BLOCKS_H
#define GPUCAP_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds are separate name spaces, because an address and a handle can have the same value. Linear, managed
 * and async blocks share one. */
enum blocks_kind {
    BLOCKS_LINEAR = 1, /* 0 is an empty place of the table */
    BLOCKS_MANAGED,
    BLOCKS_ASYNC,
    BLOCKS_HANDLE,
    BLOCKS_ARRAY,
    BLOCKS_MIPMAP,
};

struct block {
    uint64_t key;           /* address or handle */
    enum blocks_kind space; /* the table's own: the kind whose name space it is in */
    enum blocks_kind kind;
    uint64_t bytes;
    void *context; /* the block ends with it; NULL: it outlives contexts */
    int device;
    unsigned holds; /* BLOCKS_HANDLE: releases that do not end it (cuMemRetainAllocationHandle) */
};

/* Reserves a place, so that blocks_add cannot fail. Returns 0 or -ENOMEM. Each success is used up by one
 * blocks_add or blocks_cancel. */
int blocks_reserve(void);
void blocks_cancel(void);
void blocks_add(const struct block *block);

/* Removes a block and copies it to *out. Returns false if there is none. Its place stays reserved, so that it
 * can be put back: one blocks_add or blocks_cancel must follow. */
bool blocks_take(enum blocks_kind kind, uint64_t key, struct block *out);

/* Adds to the holds of a handle. Returns false if it is not in the table. */
bool blocks_hold(uint64_t handle);

/* Removes one block of the context and copies it to *out; reserves nothing. Returns false if none is left. */
bool blocks_take_of_context(const void *context, struct block *out);

/* Takes no lock: a free that the program ordered behind an allocation sees it. */
uint64_t blocks_count(void);

/* Calls `visit` for each block, with the lock held. */
void blocks_each(void (*visit)(const struct block *block, void *argument), void *argument);

/* Verifies the table, for tests. Returns NULL, or what is wrong. */
const char *blocks_check(void);

void blocks_clear(void); /* tests */

#endif
