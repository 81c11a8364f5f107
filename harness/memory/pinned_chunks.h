/* The blocks of cudaHostAlloc that a pinned arena holds: a table with a limit. One lock, which is not held
 * while the runtime is called. */
#ifndef HARNESS_PINNED_CHUNKS_H
#define HARNESS_PINNED_CHUNKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct pinned_chunk {
    char *base; /* aligned as it was asked for */
    size_t bytes;
    void *block; /* what cudaHostAlloc gave */
    size_t held; /* and its size */
    bool direct; /* a block of its own, not an extent of the arena */
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

/* NULL at the limit, or when the runtime has none. */
void *pinned_chunks_add(struct pinned_chunks *chunks, size_t bytes, size_t alignment, bool direct);

/* False if [base, base + bytes) is not one whole chunk; bytes 0: a direct one of any size. */
bool pinned_chunks_remove(struct pinned_chunks *chunks, void *base, size_t bytes);

/* Whether both addresses lie in the same chunk. */
bool pinned_chunks_same(struct pinned_chunks *chunks, const void *a, const void *b);

size_t pinned_chunks_held(struct pinned_chunks *chunks);

#endif
