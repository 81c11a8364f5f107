/* pool_apart: see pool_apart.h. */
#include "interpose/pool/pool_apart.h"

#include "interpose/base/sums.h"
#include "interpose/pool/cache.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pool_chunks.h"
#include "interpose/pool/pool_figures.h"

/* Which freed memory may be moved, and which may also be released. */
struct reach {
    uint64_t movable, done; /* newest epochs */
    uint64_t request;       /* whole pages */
};

static bool is_beside_hole(const struct range *range)
{
    return (range->lower && range->lower->state == RANGE_HOLE) ||
           (range->upper && range->upper->state == RANGE_HOLE);
}

/* Adds a free range. Its whole chunks can be gathered, unless work may still use them, or they are too large
 * and cannot be released either. */
static void add_free(struct pool_apart *apart, const struct pool *pool, const struct range *free,
                     const struct reach *reach)
{
    uint64_t below = free->start + free->bytes, start, bytes, whole = 0;

    apart->of[RECORDING_APART_PIECES]++;
    while (pool_next_chunk(pool, free->start, &below, &start, &bytes)) {
        whole += bytes;
        if (free->epoch > reach->movable)
            apart->of[RECORDING_APART_WORK] += bytes;
        else if (bytes > reach->request && free->epoch > reach->done)
            apart->of[RECORDING_APART_SIZES] += bytes;
        else
            apart->whole += bytes;
    }
    if (free->bytes - whole > apart->edge && is_beside_hole(free))
        apart->edge = free->bytes - whole;
}

static void add_ranges(struct pool_apart *apart, struct pool *pool, uint64_t request)
{
    const struct reach reach = {.movable = streams_in_order() ? UINT64_MAX : fence_usable(&pool->fence),
                                .done = fence_reached(&pool->fence),
                                .request = (request + RANGES_PAGE - 1) / RANGES_PAGE * RANGES_PAGE};

    for (int zone = 0; zone < RANGES_ZONES; zone++) {
        for (int bin = 0; bin < RANGES_BINS; bin++) {
            for (const struct range *free = pool->ranges.bins[zone][bin]; free; free = free->next)
                add_free(apart, pool, free, &reach);
        }
    }
    for (const struct range *pending = pool->pending; pending; pending = pending->newer)
        apart->of[RECORDING_APART_PIECES]++;
}

void pool_apart_add(struct pool_apart *apart, struct pool *pool, uint64_t request)
{
    struct pool_apart own = {.of = {0}};

    cache_flush_small(pool);
    lock_take(&pool->lock);
    cache_empty(pool, 0);
    const uint64_t live = pool_programs_bytes(pool);
    const int64_t small_pinned = (int64_t)atomic_load(&pool->small.pinned_bytes);
    uint64_t stuck = pool->stuck_bytes;
    for (unsigned i = 0; i < pool->vmm.left_count; i++)
        stuck += pool->vmm.left[i].bytes;
    own.of[RECORDING_APART_IDLE] = sums_minus(pool->vmm.physical, live);
    own.of[RECORDING_APART_WORK] = pool->pending_bytes + pool->small.pending_bytes;
    own.of[RECORDING_APART_PINNED] = pool->pinned_bytes + (small_pinned > 0 ? (uint64_t)small_pinned : 0);
    own.of[RECORDING_APART_STUCK] = stuck;
    /* The rest is neither free nor waiting: it is in the heap of small blocks. */
    own.of[RECORDING_APART_SMALL] =
        sums_minus(own.of[RECORDING_APART_IDLE], pool->ranges.free_bytes + own.of[RECORDING_APART_WORK] +
                                                     own.of[RECORDING_APART_PINNED] + stuck);
    add_ranges(&own, pool, request);
    own.largest = ranges_largest(&pool->ranges);
    lock_release(&pool->lock);

    for (int i = 0; i < RECORDING_APART_COUNT; i++)
        apart->of[i] += own.of[i];
    apart->whole += own.whole;
    apart->edge = own.edge > apart->edge ? own.edge : apart->edge;
    apart->largest = own.largest > apart->largest ? own.largest : apart->largest;
}

void pool_apart_end(struct pool_apart *apart)
{
    uint64_t *of = apart->of, rest = of[RECORDING_APART_IDLE];
    const uint64_t joined = apart->whole ? apart->whole + apart->edge : 0;

    if (capture_any()) {
        of[RECORDING_APART_CAPTURE] = of[RECORDING_APART_WORK];
        of[RECORDING_APART_WORK] = 0;
    }
    of[RECORDING_APART_PARTS] = 0;
    for (int i = RECORDING_APART_WORK; i <= RECORDING_APART_STUCK; i++)
        rest = sums_minus(rest, of[i]);
    of[RECORDING_APART_JOINED] = joined > apart->largest ? joined : apart->largest;
    if (of[RECORDING_APART_JOINED] > rest) /* a free range may have chunks that are counted above */
        of[RECORDING_APART_JOINED] = rest;
    of[RECORDING_APART_PARTS] = rest - of[RECORDING_APART_JOINED];
}
