/* pool_chunk: the memory of a pool. See pool_chunk.h. */
#include "pool_chunk.h"

#include "va.h"

#include <stdlib.h>
#include <sys/mman.h>

struct extent {
    struct link link;
    uint64_t start, size;
};

struct pending {
    struct link link;
    struct chunk *chunk;
    uint64_t start, size;
    uint64_t stream; /* its id: the stream itself may be gone */
    struct ops after;
};

uint64_t chunk_round(uint64_t size)
{
    return (size + POOL_ALIGNMENT - 1) & ~(POOL_ALIGNMENT - 1);
}

static struct extent *extent_of(struct link *link)
{
    return LIST_ITEM(link, struct extent, link);
}

static bool add_extent(struct link *before, uint64_t start, uint64_t size)
{
    struct extent *extent = malloc(sizeof(*extent));

    if (!extent)
        return false;
    extent->start = start;
    extent->size = size;
    list_append(before,
                &extent->link); /* "append to the list whose head is the next item" is "insert before it" */
    return true;
}

bool chunk_give(struct chunk *chunk, uint64_t start, uint64_t size)
{
    struct link *next = chunk->free.next;
    struct extent *low;

    while (next != &chunk->free && extent_of(next)->start < start)
        next = next->next;
    low = next->prev != &chunk->free ? extent_of(next->prev) : NULL;
    if (low && low->start + low->size == start)
        low->size += size;
    else if (add_extent(next, start, size))
        low = extent_of(next->prev);
    else
        return false;
    if (next != &chunk->free && low->start + low->size == extent_of(next)->start) {
        low->size += extent_of(next)->size;
        list_remove(next);
        free(extent_of(next));
    }
    return true;
}

static void cut(struct extent *extent, uint64_t size)
{
    extent->start += size;
    extent->size -= size;
    if (extent->size == 0) {
        list_remove(&extent->link);
        free(extent);
    }
}

static bool take_free(struct CUmemPoolHandle_st *pool, uint64_t size, struct chunk **chunk, uint64_t *start)
{
    struct extent *best = NULL;
    struct link *c, *e;

    for (c = pool->chunks.next; c != &pool->chunks; c = c->next) {
        struct chunk *in = LIST_ITEM(c, struct chunk, link);

        for (e = in->free.next; e != &in->free; e = e->next)
            if (extent_of(e)->size >= size && (!best || extent_of(e)->size < best->size)) {
                best = extent_of(e);
                *chunk = in;
            }
    }
    if (!best)
        return false;
    *start = best->start;
    cut(best, size);
    return true;
}

static void free_pending(struct pending *pending)
{
    list_remove(&pending->link);
    ops_clear(&pending->after);
    free(pending);
}

/* What this stream freed itself comes before what it does next: no wait is needed. */
static bool take_own(struct CUmemPoolHandle_st *pool, const struct CUstream_st *stream, uint64_t size,
                     struct chunk **chunk, uint64_t *start)
{
    struct link *at;

    for (at = pool->pending.next; at != &pool->pending; at = at->next) {
        struct pending *pending = LIST_ITEM(at, struct pending, link);

        if (pending->stream != stream->id || pending->size < size)
            continue;
        *chunk = pending->chunk;
        *start = pending->start;
        pending->start += size;
        pending->size -= size;
        if (pending->size == 0)
            free_pending(pending);
        return true;
    }
    return false;
}

static CUresult grow(struct CUmemPoolHandle_st *pool, uint64_t size)
{
    struct chunk *chunk = calloc(1, sizeof(*chunk));
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    size = (size + POOL_STEP - 1) & ~(POOL_STEP - 1);
    if (!chunk || (pool->max_size && pool->reserved + size > pool->max_size))
        goto fail;
    result = phys_create(pool->device, size, false, &chunk->phys);
    if (result != CUDA_SUCCESS)
        goto fail;
    result = CUDA_ERROR_OUT_OF_MEMORY;
    chunk->pool = pool;
    list_init(&chunk->free);
    chunk->start = va_reserve(size, 0, 0);
    if (!chunk->start)
        goto fail_phys;
    if (!va_back(chunk->start, chunk->phys, PROT_READ | PROT_WRITE) ||
        !add_extent(&chunk->free, chunk->start, size))
        goto fail_address;
    list_append(&pool->chunks, &chunk->link);
    pool->reserved += size;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return CUDA_SUCCESS;
fail_address:
    va_release(chunk->start, size);
fail_phys:
    phys_drop(chunk->phys);
fail:
    free(chunk);
    return result;
}

CUresult chunk_take(struct CUmemPoolHandle_st *pool, const struct CUstream_st *stream, uint64_t size,
                    struct chunk **chunk, uint64_t *start)
{
    CUresult result;

    chunk_settle(pool);
    if (take_free(pool, size, chunk, start) || take_own(pool, stream, size, chunk, start))
        return CUDA_SUCCESS;
    result = grow(pool, size);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        chunk_trim(pool, 0);
        result = grow(pool, size);
    }
    if (result == CUDA_SUCCESS && !take_free(pool, size, chunk, start))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

bool chunk_give_later(struct chunk *chunk, uint64_t start, uint64_t size, const struct CUstream_st *stream,
                      struct ops *after)
{
    struct pending *pending = malloc(sizeof(*pending));

    if (!pending)
        return false;
    *pending =
        (struct pending){.chunk = chunk, .start = start, .size = size, .stream = stream->id, .after = *after};
    list_append(&chunk->pool->pending, &pending->link);
    return true;
}

void chunk_settle(struct CUmemPoolHandle_st *pool)
{
    struct link *at, *next;

    for (at = pool->pending.next; at != &pool->pending; at = next) {
        struct pending *pending = LIST_ITEM(at, struct pending, link);

        next = at->next;
        if (ops_done(&pending->after) && chunk_give(pending->chunk, pending->start, pending->size))
            free_pending(pending);
    }
}

static bool wholly_free(const struct chunk *chunk)
{
    return !list_empty(&chunk->free) && extent_of(chunk->free.next)->size == chunk->phys->size;
}

void chunk_trim(struct CUmemPoolHandle_st *pool, uint64_t keep)
{
    struct link *at, *next;

    for (at = pool->chunks.next; at != &pool->chunks && pool->reserved > keep; at = next) {
        struct chunk *chunk = LIST_ITEM(at, struct chunk, link);

        next = at->next;
        if (!wholly_free(chunk) || pool->reserved - chunk->phys->size < keep)
            continue;
        pool->reserved -= chunk->phys->size;
        list_remove(&chunk->link);
        free(extent_of(chunk->free.next));
        va_release(chunk->start, chunk->phys->size);
        phys_drop(chunk->phys);
        free(chunk);
    }
}
