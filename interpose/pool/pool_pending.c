/* pool_pending: see pool_pending.h. */
#include "interpose/pool/pool_pending.h"

#include "interpose/base/clock.h"
#include "interpose/pool/cache.h"

/* After this many frees or bytes the pool closes the epoch and reclaims older ones, which costs about 1.5 us
 * (H200). Doing so only when nothing fits keeps neighbouring free ranges apart: three times the driver calls
 * on gpt_varlen with two streams. */
#define CLOSE_FREES 32
#define CLOSE_BYTES (UINT64_C(256) << 20)
/* JOIN_PART: when more than this part of what is held is pending, a join is worthwhile for a block that has
 * no good fit. FIT_PART: a good fit leaves over at most this part of the block. Fewer joins cost more moves
 * than they save (engine_replay; a join costs about 5 us on an H200). */
#define JOIN_PART 128
#define FIT_PART  8

bool pool_reclaim(struct pool *pool)
{
    bool any = false;

    while (pool->pending && pool->pending->epoch <= fence_usable(&pool->fence)) {
        struct range *range = pool->pending;
        const uint64_t epoch = range->epoch;

        pool->pending = range->newer;
        if (!pool->pending)
            pool->pending_last = NULL;
        pool->pending_bytes -= range->bytes;
        range->pending = false;
        ranges_give(&pool->ranges, range, fence_done(&pool->fence, epoch) ? 0 : epoch);
        any = true;
    }
    return any;
}

void pool_put_off(struct pool *pool, struct range *range, uint64_t epoch)
{
    range->epoch = epoch;
    range->newer = NULL;
    range->pending = true;
    *(pool->pending_last ? &pool->pending_last->newer : &pool->pending) = range;
    pool->pending_last = range;
    pool->pending_bytes += range->bytes;
    pool->unclosed_bytes += range->bytes;
    if (++pool->unclosed < CLOSE_FREES && pool->unclosed_bytes < CLOSE_BYTES)
        return;
    pool->unclosed = pool->unclosed_bytes = 0;
    fence_poll(&pool->fence);
    pool_reclaim(pool);
}

bool pool_join(struct pool *pool)
{
    if (!fence_join(&pool->fence))
        return false;
    pool->joins++;
    return pool_reclaim(pool);
}

static bool much_pending(const struct pool *pool)
{
    return pool->pending_bytes > pool->vmm.physical / JOIN_PART;
}

void pool_prefer_fit(struct pool *pool, uint64_t size)
{
    if (!much_pending(pool))
        return;
    const uint64_t best = ranges_best(&pool->ranges, ranges_zone_for(&pool->ranges, size), size);
    if (best && best - size <= size / FIT_PART)
        return;
    fence_poll(&pool->fence);
    pool_reclaim(pool);
    if (much_pending(pool))
        pool_join(pool);
}

int pool_wait_for_work(struct pool *pool, bool *more)
{
    lock_release(&pool->lock);
    const int rc = fence_wait_oldest(&pool->fence, more);
    lock_take(&pool->lock);
    cache_empty(pool, 0);
    pool_reclaim(pool);
    return rc;
}

int pool_wait_counted(struct pool *pool, struct pool_effort *effort, bool *more)
{
    const uint64_t began = clock_ns();

    pool->waits += !effort->waited;
    effort->waited = true;
    const int rc = pool_wait_for_work(pool, more);
    const uint64_t waited = clock_ns() - began;
    pool->wait_ns += waited;
    effort->wait_ns += waited;
    return rc;
}
