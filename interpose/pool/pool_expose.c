/* pool_expose: see pool_expose.h. */
#include "interpose/pool/pool_expose.h"

#include "interpose/pool/pool_chunks.h"
#include "interpose/pool/pool_dead.h"

/* ---- the list ---- */

static void add(struct pool *pool, struct range *range, uint64_t epoch)
{
    range->epoch = epoch;
    range->prev = NULL;
    range->next = pool->exposed;
    if (range->next)
        range->next->prev = range;
    pool->exposed = range;
    pool->pinned_bytes += range->bytes;
}

static void drop(struct pool *pool, struct range *range)
{
    *(range->prev ? &range->prev->next : &pool->exposed) = range->next;
    if (range->next)
        range->next->prev = range->prev;
    pool->pinned_bytes -= range->bytes;
}

/* Takes part of a freed block out of use again. */
static void keep(struct pool *pool, uint64_t start, uint64_t end, uint64_t epoch)
{
    struct range *range = ranges_take_at(&pool->ranges, start, end - start);

    atomic_store_explicit(&range->mark.exposed, true, memory_order_relaxed);
    add(pool, range, epoch);
}

/* ---- chunks ---- */

/* Returns true for a freed block, or part of one, that others may still reach. */
static bool is_listed(const struct range *range)
{
    return range->state == RANGE_LIVE && !range->mark.pins && !mark_word(&range->mark) &&
           atomic_load_explicit(&range->mark.exposed, memory_order_relaxed);
}

/* Returns true if nothing in [start, end) is in use, and the work of all that was there is done. */
static bool is_unused(const struct pool *pool, uint64_t start, uint64_t end, uint64_t reached)
{
    const struct range *range = ranges_at(&pool->ranges, start);

    while (range && range->start < end) {
        if (range->epoch > reached || (range->state != RANGE_FREE && !is_listed(range)))
            return false;
        range = range->upper;
    }
    return true;
}

/* Makes what is listed in [start, end) free. The parts of it that lie outside stay listed. */
static void make_free(struct pool *pool, uint64_t start, uint64_t end)
{
    struct range *range = ranges_at(&pool->ranges, start), *upper;

    for (; range && range->start < end; range = upper) {
        const uint64_t from = range->start, to = from + range->bytes, epoch = range->epoch;

        upper = range->upper;
        if (range->state == RANGE_FREE)
            continue;
        if (upper && upper->state == RANGE_FREE)
            upper = upper->upper; /* the one between joins the range */
        drop(pool, range);
        ranges_give(&pool->ranges, range, epoch);
        if (from < start)
            keep(pool, from, start, epoch);
        if (to > end)
            keep(pool, end, to, epoch);
    }
}

/* Releases a chunk in which nothing is in use. Returns false if something is, or the driver refuses. */
static bool release(struct pool *pool, uint64_t start, uint64_t bytes, uint64_t reached)
{
    struct vmm_chunk chunk;

    if (!is_unused(pool, start, start + bytes, reached) || ranges_prepare(&pool->ranges, 8) ||
        !pool_unmap_dead_of(pool, start, reached) || vmm_unmap(&pool->vmm, start, &chunk))
        return false;
    make_free(pool, start, start + bytes);
    ranges_unmap(&pool->ranges, start, bytes);
    pool_release_chunk(pool, &chunk);
    return true;
}

/* Releases the chunks under [start, end) in which nothing is in use. Returns true if there were any. */
static bool release_under(struct pool *pool, uint64_t start, uint64_t end, uint64_t reached)
{
    uint64_t chunk, bytes;
    bool any = false;

    for (uint64_t at = start; at < end && vmm_chunk_at(&pool->vmm, at, &chunk, &bytes); at = chunk + bytes)
        any |= release(pool, chunk, bytes, reached);
    return any;
}

void pool_expose_free(struct pool *pool, struct range *range, uint64_t epoch)
{
    const uint64_t start = range->start, end = start + range->bytes;

    add(pool, range, epoch);
    fence_poll(&pool->fence);
    const uint64_t reached = fence_reached(&pool->fence);
    if (epoch <= reached)
        release_under(pool, start, end, reached);
}

void pool_expose_sweep(struct pool *pool)
{
    const uint64_t reached = fence_reached(&pool->fence);
    struct range *next;

    for (struct range *range = pool->exposed; range; range = next) {
        next = range->next;
        if (range->epoch <= reached &&
            release_under(pool, range->start, range->start + range->bytes, reached))
            next = pool->exposed; /* others may have gone with it */
    }
}
