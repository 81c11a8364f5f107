/* The table is short (a few blocks per pipeline), so a linear search is enough. */
#include "harness/memory/pinned_chunks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>

enum { FIRST_CAPACITY = 16 };

void pinned_chunks_open(struct pinned_chunks *chunks, size_t limit)
{
    memset(chunks, 0, sizeof(*chunks));
    pthread_mutex_init(&chunks->lock, NULL);
    chunks->limit = limit;
}

void pinned_chunks_close(struct pinned_chunks *chunks)
{
    for (size_t i = 0; i < chunks->count; i++)
        cudaFreeHost(chunks->chunk[i].block);
    free(chunks->chunk);
    pthread_mutex_destroy(&chunks->lock);
}

/* Charges the bytes to the limit before they are requested from the runtime. */
static bool reserve(struct pinned_chunks *chunks, size_t bytes)
{
    bool fits;

    pthread_mutex_lock(&chunks->lock);
    fits = bytes <= chunks->limit && chunks->held <= chunks->limit - bytes;
    if (fits)
        chunks->held += bytes;
    pthread_mutex_unlock(&chunks->lock);
    return fits;
}

static void unreserve(struct pinned_chunks *chunks, size_t bytes)
{
    pthread_mutex_lock(&chunks->lock);
    chunks->held -= bytes;
    pthread_mutex_unlock(&chunks->lock);
}

static bool insert(struct pinned_chunks *chunks, const struct pinned_chunk *chunk)
{
    bool done = true;

    pthread_mutex_lock(&chunks->lock);
    if (chunks->count == chunks->capacity) {
        size_t capacity = chunks->capacity ? 2 * chunks->capacity : FIRST_CAPACITY;
        struct pinned_chunk *larger = realloc(chunks->chunk, capacity * sizeof(*larger));

        done = larger != NULL;
        if (done) {
            chunks->chunk = larger;
            chunks->capacity = capacity;
        }
    }
    if (done)
        chunks->chunk[chunks->count++] = *chunk;
    pthread_mutex_unlock(&chunks->lock);
    return done;
}

void *pinned_chunks_add(struct pinned_chunks *chunks, size_t bytes, size_t alignment, bool direct)
{
    struct pinned_chunk chunk = {.bytes = bytes, .direct = direct};
    uintptr_t at;

    /* The runtime cuts small blocks out of large ones, aligned to 512 bytes (H200, CUDA 13): room for more.
     */
    if (__builtin_add_overflow(bytes, alignment, &chunk.held) || !reserve(chunks, chunk.held))
        return NULL;
    if (cudaHostAlloc(&chunk.block, chunk.held, cudaHostAllocPortable)) {
        cudaGetLastError(); /* clears the error, so that the next call does not report it */
        unreserve(chunks, chunk.held);
        return NULL;
    }
    at = ((uintptr_t)chunk.block + alignment - 1) / alignment * alignment;
    chunk.base = (char *)chunk.block + (at - (uintptr_t)chunk.block);
    if (!insert(chunks, &chunk)) {
        cudaFreeHost(chunk.block);
        unreserve(chunks, chunk.held);
        return NULL;
    }
    return chunk.base;
}

bool pinned_chunks_remove(struct pinned_chunks *chunks, void *base, size_t bytes)
{
    struct pinned_chunk found = {0};

    pthread_mutex_lock(&chunks->lock);
    for (size_t i = 0; i < chunks->count && !found.block; i++) {
        const struct pinned_chunk *chunk = &chunks->chunk[i];

        if (chunk->base == base && (bytes ? chunk->bytes == bytes : chunk->direct)) {
            found = *chunk;
            chunks->chunk[i] = chunks->chunk[--chunks->count];
            chunks->held -= found.held;
        }
    }
    pthread_mutex_unlock(&chunks->lock);
    if (found.block)
        cudaFreeHost(found.block);
    return found.block != NULL;
}

static bool contains(const struct pinned_chunk *chunk, const void *address)
{
    return (const char *)address >= chunk->base && (const char *)address < chunk->base + chunk->bytes;
}

bool pinned_chunks_same(struct pinned_chunks *chunks, const void *a, const void *b)
{
    bool same = false;

    pthread_mutex_lock(&chunks->lock);
    for (size_t i = 0; i < chunks->count && !same; i++)
        same = contains(&chunks->chunk[i], a) && contains(&chunks->chunk[i], b);
    pthread_mutex_unlock(&chunks->lock);
    return same;
}

size_t pinned_chunks_held(struct pinned_chunks *chunks)
{
    size_t held;

    pthread_mutex_lock(&chunks->lock);
    held = chunks->held;
    pthread_mutex_unlock(&chunks->lock);
    return held;
}
