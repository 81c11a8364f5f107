/* pool_guard: see pool_guard.h. */
#include "interpose/pool/pool_guard.h"

#include <errno.h>

#include "interpose/base/clock.h"
#include "interpose/pool/pool_chunks.h"
#include "interpose/pool/pool_dead.h"
#include "interpose/pool/pool_grow.h"
#include "interpose/pool/pool_trim.h"

void pool_guard(struct pool *pool)
{
    pool->guard = true;
    pool->guard_next = pool->vmm.base;
    pool->small.on = false;
}

/* Returns the first place from `from` on for `bytes` with an unmapped page on each side, or 0. */
static uint64_t find_place(const struct pool *pool, uint64_t from, uint64_t bytes)
{
    for (const struct range *r = ranges_at(&pool->ranges, from); r; r = r->upper) {
        const uint64_t start = r->start > from ? r->start : from;

        if (r->state == RANGE_HOLE && r->start + r->bytes - start >= bytes + 2 * RANGES_PAGE)
            return start + RANGES_PAGE;
    }
    return 0;
}

/* Maps a new chunk at a place. Returns 0 or -errno. */
static int map_chunk(struct pool *pool, uint64_t place, uint64_t bytes)
{
    struct vmm_chunk chunk;
    uint64_t stuck;

    if (ranges_prepare(&pool->ranges, 8) || pool_dead_prepare(pool, 1))
        return -ENOMEM;
    int rc = pool_create_chunk(pool, bytes, &chunk);
    if (rc)
        return rc;
    rc = vmm_map(&pool->vmm, place, &chunk, 1, &stuck);
    if (rc == 0)
        ranges_map(&pool->ranges, place, bytes, 0);
    else if (stuck)
        pool_stuck(pool, place, &chunk, true);
    else
        pool_release_chunk(pool, &chunk);
    return rc;
}

static int attempt(struct pool *pool, uint64_t size, uint64_t pages, struct range **out)
{
    while (pool_trim_some(pool, UINT64_MAX)) /* releases freed blocks first */
        ;
    uint64_t place = find_place(pool, pool->guard_next, pages);
    if (!place)
        place = find_place(pool, pool->vmm.base, pages);
    if (!place)
        return -ENOMEM;
    const int rc = map_chunk(pool, place, pages);
    if (rc)
        return rc;
    if (pages > size)
        ranges_take_at(&pool->ranges, place, pages - size);
    *out = ranges_take_at(&pool->ranges, place + pages - size, size);
    pool->guard_next = place + pages;
    pool->grows++;
    return 0;
}

/* Returns true if freed memory has unfinished work and could be enough. */
static bool worth_waiting(struct pool *pool, uint64_t pages)
{
    const uint64_t reached = fence_reached(&pool->fence);
    bool any = pool->pending != NULL;

    for (const struct range *f = pool->ranges.oldest; f && !any; f = f->newer)
        any = f->epoch > reached;
    return any && pool_may_fit(pool, pages);
}

int pool_guard_take(struct pool *pool, uint64_t size, struct range **out, struct pool_effort *effort)
{
    const uint64_t pages = (size + RANGES_PAGE - 1) & ~(RANGES_PAGE - 1), began = clock_ns();
    bool more;
    int rc;

    lock_assert_held(&pool->lock);
    do
        rc = attempt(pool, size, pages, out);
    while (rc == -ENOMEM && worth_waiting(pool, pages) && pool_wait_counted(pool, effort, &more) == 0);
    effort->made = rc == 0;
    pool->room_ns += clock_ns() - began;
    return rc ? -ENOMEM : 0;
}

void pool_guard_give_rest(struct pool *pool, const struct range *block)
{
    /* The page below the chunk is unmapped, so a live range below the block is the rest. */
    if (pool->guard && block->lower && block->lower->state == RANGE_LIVE)
        ranges_give(&pool->ranges, block->lower, 0);
}
