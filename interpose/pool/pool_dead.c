/* pool_dead: see pool_dead.h. */
#include "interpose/pool/pool_dead.h"

#include <errno.h>

#include "interpose/base/pages.h"
#include "interpose/base/sums.h"
#include "interpose/pool/pool_chunks.h"

#define FIRST_CAPACITY 1024
#define DEAD_MAX       8192 /* above this, allocations unmap some themselves */
#define UNMAP_CHUNKS   32   /* half a millisecond in the driver (H200): how long others may wait */

int pool_dead_prepare(struct pool *pool, uint64_t count)
{
    struct pool_dead *dead = pages_grow(pool->dead, &pool->dead_capacity, pool->dead_count,
                                        pool->dead_count + count, sizeof(*dead), FIRST_CAPACITY);

    if (!dead)
        return -ENOMEM;
    pool->dead = dead;
    return 0;
}

struct vmm_chunk pool_retire(struct pool *pool, uint64_t start, uint64_t epoch)
{
    const struct vmm_chunk chunk = vmm_leave(&pool->vmm, start);

    ranges_retire(&pool->ranges, start, chunk.bytes);
    pool->dead[pool->dead_count++] = (struct pool_dead){start, chunk.bytes, epoch, chunk.handle, false};
    return chunk;
}

void pool_revive(struct pool *pool, const struct vmm_chunk *chunk)
{
    const struct pool_dead *last = &pool->dead[--pool->dead_count];

    vmm_remember(&pool->vmm, last->start, chunk);
    ranges_revive(&pool->ranges, last->start, last->epoch);
}

void pool_stuck(struct pool *pool, uint64_t start, const struct vmm_chunk *chunk, bool only)
{
    ranges_retire(&pool->ranges, start, chunk->bytes);
    pool->dead[pool->dead_count++] = (struct pool_dead){start, chunk->bytes, 0, chunk->handle, only};
    pool->stuck_bytes += only ? chunk->bytes : 0;
}

/* Unmaps one dead place. Returns false if the driver refuses. */
static bool unmap_one(struct pool *pool, const struct pool_dead *dead)
{
    const struct vmm_chunk chunk = {.handle = dead->handle, .bytes = dead->bytes};

    if (vmm_unmap_left(&pool->vmm, dead->start, dead->bytes))
        return false;
    ranges_unmap_dead(&pool->ranges, dead->start);
    if (dead->only) {
        pool->stuck_bytes -= chunk.bytes;
        pool_release_chunk(pool, &chunk);
    }
    return true;
}

/* Unmaps at most `most` dead places that `wanted` selects and whose epoch is at most `reached`. Returns how
 * many. */
static uint64_t unmap_wanted(struct pool *pool, uint64_t reached, uint64_t most,
                             bool (*wanted)(const struct pool_dead *dead, uint64_t handle), uint64_t handle)
{
    uint64_t kept = 0, unmapped = 0;

    for (uint64_t i = 0; i < pool->dead_count; i++) {
        const struct pool_dead dead = pool->dead[i];

        if (unmapped < most && dead.epoch <= reached && wanted(&dead, handle) && unmap_one(pool, &dead))
            unmapped++;
        else
            pool->dead[kept++] = dead;
    }
    pool->dead_count = kept;
    return unmapped;
}

static bool any(const struct pool_dead *dead, uint64_t unused)
{
    (void)dead, (void)unused;
    return true;
}

static bool is_stuck(const struct pool_dead *dead, uint64_t unused)
{
    (void)unused;
    return dead->only;
}

static bool has_handle(const struct pool_dead *dead, uint64_t handle)
{
    return dead->handle == handle;
}

void pool_unmap_dead(struct pool *pool, uint64_t reached)
{
    if (pool->stuck_bytes)
        unmap_wanted(pool, reached, UINT64_MAX, is_stuck, 0);
    if (pool->dead_count > DEAD_MAX)
        unmap_wanted(pool, reached, UNMAP_CHUNKS, any, 0);
}

bool pool_unmap_dead_of(struct pool *pool, uint64_t start, uint64_t reached)
{
    const uint64_t handle = vmm_chunk_from(&pool->vmm, start).handle;
    bool left = false;

    if (pool->dead_count)
        unmap_wanted(pool, reached, UINT64_MAX, has_handle, handle);
    for (uint64_t i = 0; i < pool->dead_count && !left; i++)
        left = pool->dead[i].handle == handle;
    return !left;
}

void pool_sweep(struct pool *pool)
{
    uint64_t unmapped;

    do {
        lock_take(&pool->lock);
        const uint64_t many = sums_minus(pool->dead_count, pool->dead_kept);
        if (many || pool->stuck_bytes)
            fence_poll(&pool->fence);
        const uint64_t reached = fence_reached(&pool->fence);
        pool_release_left(pool);
        pool_unmap_dead(pool, reached);
        unmapped = many ? unmap_wanted(pool, reached, sums_smaller(many, UNMAP_CHUNKS), any, 0) : 0;
        lock_release(&pool->lock);
    } while (unmapped == UNMAP_CHUNKS);
}

void pool_dead_close(struct pool *pool)
{
    unmap_wanted(pool, UINT64_MAX, UINT64_MAX, any, 0);
    if (pool->dead)
        munmap(pool->dead, pool->dead_capacity * sizeof(*pool->dead));
}
