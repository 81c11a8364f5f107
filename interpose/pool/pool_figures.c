/* pool_figures: see pool_figures.h. */
#include "interpose/pool/pool_figures.h"

#include "interpose/base/sums.h"
#include "interpose/pool/cache.h"
#include "interpose/pool/pool_chunks.h"

/* Returns what is live if caches hold `cached` bytes. */
static uint64_t live_beside(const struct pool *pool, uint64_t cached)
{
    const uint64_t live = pool->ranges.live_bytes - pool->small.extent_bytes - pool->pending_bytes - cached;

    /* Threads' figures are read one after the other: a block that moves between threads meanwhile may be
     * counted twice or not at all. */
    return (int64_t)live < 0 ? 0 : live < pool->vmm.physical ? live : pool->vmm.physical;
}

/* The same without freed memory that is pinned or exposed. */
static uint64_t programs_bytes(const struct pool *pool, uint64_t cached)
{
    return sums_minus(live_beside(pool, cached), pool->pinned_bytes);
}

uint64_t pool_live_bytes(const struct pool *pool)
{
    return live_beside(pool, cache_figures(pool).bytes);
}

uint64_t pool_programs_bytes(const struct pool *pool)
{
    return programs_bytes(pool, cache_figures(pool).bytes);
}

void pool_note_peak(struct pool *pool)
{
    const uint64_t live = programs_bytes(pool, cache_figures(pool).least);

    if (live > pool->peak_live)
        pool->peak_live = live;
    if (live > pool->period_peak)
        pool->period_peak = live;
    if (live > pool->recent_peak)
        pool->recent_peak = live;
}

/* With the lock. */
static struct pool_stats figures(struct pool *pool)
{
    struct pool_stats s;
    const struct vmm *vmm = &pool->vmm;
    pool_note_peak(pool);
    cache_empty(pool, 0);
    const struct cache_figures cached = cache_figures(pool); /* other threads may have cached blocks again */
    const uint64_t count = pool->table.count - cached.count; /* see live_beside */
    const uint64_t live = programs_bytes(pool, cached.bytes);
    const uint64_t pinned = atomic_load(&pool->small.pinned_bytes); /* < 0 if an unpin was counted first */
    const uint64_t pending = pool->pending_bytes + pool->small.pending_bytes + pool->pinned_bytes +
                             ((int64_t)pinned < 0 ? 0 : pinned);
    s = (struct pool_stats){
        .live = live,
        .live_count = (int64_t)count < 0 ? 0 : count,
        .cached = sums_minus(sums_minus(vmm->physical, live), pending),
        .pending = pending,
        .physical = vmm->physical,
        .peak_live = pool->peak_live,
        .peak_physical = pool->peak_physical,
        .largest = ranges_largest(&pool->ranges),
        .hits = pool->hits + cached.hits - pool->small.grown,
        .stitches = pool->stitches,
        .stitched_chunks = pool->stitched,
        .grows = pool->grows,
        .waits = pool->waits,
        .joins = pool->joins,
        .trims = pool->trims,
        .driver_calls = vmm->calls,
        .room_ns = pool->room_ns,
        .wait_ns = pool->wait_ns,
    };
    /* Whole free chunks can be stitched; free parts of chunks with live blocks cannot. */
    uint64_t usable = pool_whole_bytes(pool, UINT64_MAX);
    if (s.largest > usable)
        usable = s.largest;
    s.stranded = sums_minus(s.cached, usable);
    return s;
}

struct pool_stats pool_stats(struct pool *pool)
{
    cache_flush_small(pool);
    lock_take(&pool->lock);
    const struct pool_stats s = figures(pool);
    lock_release(&pool->lock);
    return s;
}

bool pool_stats_at_exit(struct pool *pool, struct pool_stats *stats)
{
    if (!lock_take_at_exit(&pool->lock))
        return false;
    *stats = figures(pool);
    lock_release(&pool->lock);
    return true;
}

bool pool_mostly_free(struct pool *pool, uint32_t permille)
{
    lock_take(&pool->lock);
    const uint64_t free_now = pool->vmm.physical - pool_live_bytes(pool);
    const bool mostly = free_now > pool->vmm.physical / 1000 * permille;
    lock_release(&pool->lock);
    return mostly;
}
