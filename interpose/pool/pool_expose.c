/* pool_expose: see pool_expose.h. */
#include "interpose/pool/pool_expose.h"

#include <errno.h>

#include "interpose/base/pages.h"
#include "interpose/pool/pool_chunks.h"
#include "interpose/pool/pool_dead.h"

#define FIRST_CAPACITY 256

/* Makes room for `count` more. Returns 0 or -ENOMEM. */
static int prepare(struct pool *pool, uint64_t count)
{
    struct pool_exposed *list = pages_grow(pool->exposed, &pool->exposed_capacity, pool->exposed_count,
                                           pool->exposed_count + count, sizeof(*list), FIRST_CAPACITY);

    if (!list)
        return -ENOMEM;
    pool->exposed = list;
    return 0;
}

void pool_expose_free(struct pool *pool, struct range *range, uint64_t epoch)
{
    pool->pinned_bytes += range->bytes;
    atomic_store_explicit(&range->mark.asked, 0, memory_order_relaxed);
    if (prepare(pool, 1))
        return; /* no host memory to record it: it stays out of use until the pool is closed */
    pool->exposed[pool->exposed_count++] = (struct pool_exposed){range->start, range->bytes, epoch};
    fence_poll(&pool->fence);
    pool_expose_sweep(pool);
}

/* Returns true if all of [start, start + bytes) is free. */
static bool is_free(const struct pool *pool, uint64_t start, uint64_t bytes)
{
    const struct range *range = ranges_at(&pool->ranges, start);

    return range->state == RANGE_FREE && start + bytes <= range->start + range->bytes;
}

/* Takes part of a freed block out of use again and records it. */
static void keep(struct pool *pool, uint64_t start, uint64_t end)
{
    ranges_take_at(&pool->ranges, start, end - start);
    pool->pinned_bytes += end - start;
    pool->exposed[pool->exposed_count++] = (struct pool_exposed){start, end - start, 0};
}

/* Releases the chunks under a part that was made free; keeps what cannot be released. */
static void give_back(struct pool *pool, const struct pool_exposed *part)
{
    const uint64_t reached = fence_reached(&pool->fence), end = part->start + part->bytes;
    uint64_t chunk, bytes;

    for (uint64_t at = part->start; at < end; at = chunk + bytes) {
        if (!vmm_chunk_at(&pool->vmm, at, &chunk, &bytes)) { /* released with an earlier part */
            chunk = at & ~(RANGES_PAGE - 1);
            bytes = RANGES_PAGE;
            continue;
        }
        if (is_free(pool, chunk, bytes) && pool_unmap_dead_of(pool, chunk, reached) &&
            pool_give_back(pool, chunk) == 0)
            continue;
        keep(pool, at, end < chunk + bytes ? end : chunk + bytes);
    }
}

/* Returns the number of pages that the parts touch: each page may become a part of its own. */
static uint64_t count_pages(const struct pool *pool)
{
    uint64_t pages = 0;

    for (uint64_t i = 0; i < pool->exposed_count; i++)
        pages += pool->exposed[i].bytes / RANGES_PAGE + 2;
    return pages;
}

void pool_expose_sweep(struct pool *pool)
{
    const uint64_t reached = fence_reached(&pool->fence), count = pool->exposed_count;
    const uint64_t pages = count ? count_pages(pool) : 0;
    struct pool_exposed *parts;

    /* New parts are appended behind the old list, which is dropped at the end. */
    if (!count || prepare(pool, pages) || ranges_prepare(&pool->ranges, 8 + 4 * (unsigned)pages))
        return;
    /* Two parts may share a chunk: free them all before looking at any chunk. */
    for (uint64_t i = 0; i < count; i++) {
        const struct pool_exposed *part = &pool->exposed[i];

        if (part->epoch > reached)
            continue;
        pool->pinned_bytes -= part->bytes;
        ranges_give(&pool->ranges, ranges_at(&pool->ranges, part->start), part->epoch);
    }
    for (uint64_t i = 0; i < count; i++) {
        const struct pool_exposed part = pool->exposed[i];

        if (part.epoch > reached)
            pool->exposed[pool->exposed_count++] = part;
        else
            give_back(pool, &part);
    }
    parts = pool->exposed;
    memmove(parts, parts + count, (pool->exposed_count - count) * sizeof(*parts));
    pool->exposed_count -= count;
}

void pool_expose_close(struct pool *pool)
{
    if (pool->exposed)
        munmap(pool->exposed, pool->exposed_capacity * sizeof(*pool->exposed));
}
