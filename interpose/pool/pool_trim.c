/* pool_trim: see pool_trim.h. */
#include "interpose/pool/pool_trim.h"

#include <errno.h>

#include "interpose/pool/pool_chunks.h"
#include "interpose/pool/pool_dead.h"
#include "interpose/pool/pool_expose.h"
#include "interpose/pool/pool_figures.h"
#include "interpose/pool/pool_pending.h"
#include "interpose/pool/small.h"

#define TRIM_CHUNKS 32 /* 1 ms in the driver (measured, H200): how long an allocation may wait for a trim */

/* Releases about `bytes`, in at most TRIM_CHUNKS chunks. Returns how much. */
static uint64_t trim_some(struct pool *pool, uint64_t bytes)
{
    const uint64_t reached = fence_reached(&pool->fence);
    uint64_t given = 0;
    int chunks = 0;
    struct range *next;

    lock_assert_held(&pool->lock);
    for (struct range *f = pool->ranges.oldest; f && given < bytes; f = next) {
        uint64_t below = f->start + f->bytes, start, size;
        const uint64_t floor = f->start;

        next = f->newer;
        if (f->epoch > reached)
            continue;
        while (given < bytes && pool_next_chunk(pool, floor, &below, &start, &size)) {
            if (!pool_unmap_dead_of(pool, start, reached))
                continue;
            if (chunks++ == TRIM_CHUNKS || pool_give_back(pool, start))
                return given;
            given += size;
        }
    }
    return given;
}

uint64_t pool_trim_some(struct pool *pool, uint64_t bytes)
{
    fence_poll(&pool->fence);
    cache_empty(pool, 0);
    pool_reclaim(pool);
    pool_release_left(pool);
    pool_expose_sweep(pool);
    pool_unmap_dead(pool, fence_reached(&pool->fence));
    return trim_some(pool, bytes);
}

uint64_t pool_trim(struct pool *pool, uint64_t bytes)
{
    uint64_t given = 0, some;

    small_trim(pool);
    do {
        lock_take(&pool->lock);
        some = pool_trim_some(pool, bytes - given);
        given += some;
        pool->trims += some && given == some;
        lock_release(&pool->lock);
    } while (some && given < bytes);
    return given;
}

static bool any_waits(const struct pool *pool)
{
    return pool->pending || pool->small.pending_bytes || pool->exposed;
}

void pool_poll(struct pool *pool)
{
    lock_take(&pool->lock);
    const bool waits = any_waits(pool);
    if (waits) {
        fence_poll(&pool->fence);
        pool_reclaim(pool);
    }
    lock_release(&pool->lock);
    if (waits)
        small_reclaim(pool, NULL);
}

int pool_wait(struct pool *pool, bool *more)
{
    lock_take(&pool->lock);
    const bool any = any_waits(pool) || pool_whole_bytes(pool, 1);
    const int rc = any ? pool_wait_for_work(pool, more) : -ENOENT;
    lock_release(&pool->lock);
    return rc;
}

uint64_t pool_idle_bytes(struct pool *pool)
{
    pool_poll(pool);
    const uint64_t small = small_flush_idle(pool); /* was idle, but not counted as free */
    lock_take(&pool->lock);
    pool_expose_sweep(pool);
    cache_empty(pool, 0); /* what is still free at the next call is idle */
    const uint64_t free_now = pool->ranges.free_bytes, least = pool->least_free + small;
    const uint64_t idle = least < free_now ? least : free_now;
    pool->least_free = free_now;
    pool->recent_peak = pool->period_peak;
    pool->period_peak = pool_programs_bytes(pool);
    lock_release(&pool->lock);
    return idle;
}

static bool is_freed(const struct range *range)
{
    return range && (range->state == RANGE_FREE || range->pending);
}

static uint64_t whole_between(const struct pool *pool, uint64_t floor, uint64_t end)
{
    uint64_t start, bytes, total = 0;

    while (pool_next_chunk(pool, floor, &end, &start, &bytes))
        total += bytes;
    return total;
}

/* Returns the bytes of chunks that will be whole and free once the work of pending blocks is done. */
static uint64_t whole_later(const struct pool *pool)
{
    uint64_t total = 0;

    for (const struct range *pending = pool->pending; pending; pending = pending->newer) {
        const struct range *first = pending;

        while (is_freed(first->lower) && !first->lower->pending)
            first = first->lower;
        if (is_freed(first->lower)) /* the pending block below it counts for both */
            continue;
        uint64_t end = first->start, already = 0;
        for (const struct range *r = first; is_freed(r); r = r->upper) {
            end = r->start + r->bytes;
            already += r->pending ? 0 : whole_between(pool, r->start, end);
        }
        total += whole_between(pool, first->start, end) - already;
    }
    return total;
}

uint64_t pool_reclaimable(struct pool *pool)
{
    pool_poll(pool);
    cache_flush_all(pool);
    lock_take(&pool->lock);
    cache_empty(pool, 0);
    const uint64_t bytes = pool_whole_bytes(pool, UINT64_MAX) + whole_later(pool);
    lock_release(&pool->lock);
    return bytes;
}
