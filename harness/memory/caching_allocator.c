/* The caching allocator. A segment is a list of blocks in address order. Free blocks are also in a list
 * ordered by size, one per stream and pool; the first that is large enough is the best fit. A training step
 * has a few hundred blocks at most, so walking the list is fast enough, and simpler than a tree. */
#include "harness/memory/caching_allocator.h"

#include <stdbool.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)

enum { ROUND = 512 };
static const size_t small_limit = 1 * MIB;   /* the largest request of the small pool */
static const size_t small_segment = 2 * MIB; /* its segments */
static const size_t large_limit = 10 * MIB;  /* smaller requests share a segment, others get their own */
static const size_t large_segment = 20 * MIB;
static const size_t large_round = 2 * MIB;

struct list;

struct block {
    struct block *before, *after;   /* neighbours in the segment */
    struct block *smaller, *larger; /* in the free list */
    struct list *list;
    char *data;
    size_t bytes;
    bool free;
};

/* The free blocks of one stream in one pool. */
struct list {
    struct list *next;
    cudaStream_t stream;
    bool small;
    struct block *first; /* the smallest */
};

struct caching_allocator {
    struct caching_allocator_source source;
    struct list *lists;
    size_t live;
    bool pinned;
};

struct caching_allocator *caching_allocator_open(struct caching_allocator_source source)
{
    struct caching_allocator *cache = calloc(1, sizeof(*cache));

    if (cache)
        cache->source = source;
    return cache;
}

static struct list *find_list(struct caching_allocator *cache, cudaStream_t stream, bool small)
{
    struct list *list = cache->lists;

    while (list && (list->stream != stream || list->small != small))
        list = list->next;
    if (!list && (list = calloc(1, sizeof(*list)))) {
        *list = (struct list){.next = cache->lists, .stream = stream, .small = small};
        cache->lists = list;
    }
    return list;
}

static void list_add(struct block *block)
{
    struct block *before = NULL;
    struct block *at = block->list->first;

    while (at && at->bytes < block->bytes) {
        before = at;
        at = at->larger;
    }
    block->smaller = before;
    block->larger = at;
    if (at)
        at->smaller = block;
    if (before)
        before->larger = block;
    else
        block->list->first = block;
    block->free = true;
}

static void list_remove(struct block *block)
{
    if (block->smaller)
        block->smaller->larger = block->larger;
    else
        block->list->first = block->larger;
    if (block->larger)
        block->larger->smaller = block->smaller;
    block->free = false;
}

static bool whole_segment(const struct block *block)
{
    return !block->before && !block->after;
}

/* Gives every free segment of the list back to the device. */
static cudaError_t empty_list(struct caching_allocator *cache, struct list *list)
{
    cudaError_t error = cudaSuccess;
    struct block *next;

    for (struct block *block = list->first; block; block = next) {
        next = block->larger;
        if (!whole_segment(block))
            continue;
        list_remove(block);
        if (!error)
            error = cache->source.give(cache->source.owner, block->data, block->bytes);
        free(block);
    }
    return error;
}

static cudaError_t empty_all(struct caching_allocator *cache)
{
    cudaError_t error = cudaSuccess;

    for (struct list *list = cache->lists; list; list = list->next) {
        cudaError_t failed = empty_list(cache, list);

        error = error ? error : failed;
    }
    return error;
}

cudaError_t caching_allocator_close(struct caching_allocator *cache)
{
    cudaError_t error = empty_all(cache);
    struct list *list = cache->lists;

    while (list) {
        struct list *next = list->next;

        free(list);
        list = next;
    }
    free(cache);
    return error;
}

static size_t segment_size(size_t bytes)
{
    if (bytes <= small_limit)
        return small_segment;
    if (bytes < large_limit)
        return large_segment;
    return (bytes + large_round - 1) / large_round * large_round;
}

/* Takes a new segment. *out is its only block, free and not in a list. */
static cudaError_t new_segment(struct caching_allocator *cache, struct list *list, size_t bytes,
                               struct block **out)
{
    struct block *block = calloc(1, sizeof(*block));
    void *data = NULL;
    cudaError_t error;

    if (!block)
        return cudaErrorMemoryAllocation;
    bytes = segment_size(bytes);
    error = cache->source.take(cache->source.owner, &data, bytes);
    if (error == cudaErrorMemoryAllocation && !cache->pinned) {
        error = empty_all(cache);
        if (!error)
            error = cache->source.take(cache->source.owner, &data, bytes);
    }
    if (error) {
        free(block);
        return error;
    }
    *block = (struct block){.list = list, .data = data, .bytes = bytes};
    *out = block;
    return cudaSuccess;
}

/* Splits the block after `bytes` and makes the rest a free block, unless the rest is too small. */
static void split(struct block *block, size_t bytes)
{
    size_t rest = block->bytes - bytes;
    struct block *tail;

    if (block->list->small ? rest < ROUND : rest <= small_limit)
        return;
    tail = calloc(1, sizeof(*tail));
    if (!tail)
        return;
    *tail = (struct block){.before = block,
                           .after = block->after,
                           .list = block->list,
                           .data = block->data + bytes,
                           .bytes = rest};
    if (tail->after)
        tail->after->before = tail;
    block->after = tail;
    block->bytes = bytes;
    list_add(tail);
}

cudaError_t caching_allocator_take(struct caching_allocator *cache, cudaStream_t stream, size_t bytes,
                                   void **data, void **block)
{
    size_t rounded = (bytes + ROUND - 1) / ROUND * ROUND;
    struct list *list = find_list(cache, stream, rounded <= small_limit);
    struct block *found = list ? list->first : NULL;
    cudaError_t error = cudaSuccess;

    if (!list || rounded < bytes)
        return cudaErrorMemoryAllocation;
    while (found && found->bytes < rounded)
        found = found->larger;
    if (found)
        list_remove(found);
    else
        error = new_segment(cache, list, rounded, &found);
    if (error)
        return error;
    split(found, rounded);
    cache->live += found->bytes;
    *data = found->data;
    *block = found;
    return cudaSuccess;
}

/* Merges the free block `after` into the one before it. */
static void merge(struct block *block, struct block *after)
{
    block->bytes += after->bytes;
    block->after = after->after;
    if (block->after)
        block->after->before = block;
    free(after);
}

void caching_allocator_give(struct caching_allocator *cache, void *given)
{
    struct block *block = given;
    struct block *before = block->before;
    struct block *after = block->after;

    cache->live -= block->bytes;
    if (after && after->free) {
        list_remove(after);
        merge(block, after);
    }
    if (before && before->free) {
        list_remove(before);
        merge(before, block);
        block = before;
    }
    list_add(block);
}

void caching_allocator_pin(struct caching_allocator *cache, bool pinned)
{
    cache->pinned = pinned;
}

cudaError_t caching_allocator_trim(struct caching_allocator *cache)
{
    return cache->pinned ? cudaSuccess : empty_all(cache);
}

size_t caching_allocator_live(const struct caching_allocator *cache)
{
    return cache->live;
}
