/* The blocks of cudaHostAlloc that pinned.c holds: a table, and a limit on their sum. Owns one lock, never
 * held across a call into the runtime. */
#ifndef HARNESS_PINNED_CHUNKS_H
#define HARNESS_PINNED_CHUNKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct pinned_chunk {
    char *base; /* aligned as requested */
    size_t bytes;
    void *block; /* as returned by cudaHostAlloc */
    size_t held; /* size of `block` */
    bool direct; /* a single allocation, not an extent of the arena */
};

struct pinned_chunks {
    pthread_mutex_t lock;
    struct pinned_chunk *chunk;
    size_t count, capacity;
    size_t held;
    size_t limit;
};

void pinned_chunks_open(struct pinned_chunks *chunks, size_t limit);
void pinned_chunks_close(struct pinned_chunks *chunks);

/* Allocates a chunk. Returns NULL at the limit, or when the runtime has no memory. */
void *pinned_chunks_add(struct pinned_chunks *chunks, size_t bytes, size_t alignment, bool direct);

/* Frees the chunk [base, base + bytes); `bytes` of 0 frees a direct chunk of any size. Returns false if
 * there is no such chunk. */
bool pinned_chunks_remove(struct pinned_chunks *chunks, void *base, size_t bytes);

/* Returns true if both addresses are in the same chunk. */
bool pinned_chunks_same(struct pinned_chunks *chunks, const void *a, const void *b);

size_t pinned_chunks_held(struct pinned_chunks *chunks);

#endif
