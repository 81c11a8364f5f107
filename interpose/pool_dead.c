/* pool_dead: see pool_dead.h. */
#include "pool_dead.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "capture.h"

#define FIRST_CAPACITY 1024
#define SWEEP_CHUNKS   32 /* half a millisecond of the driver (measured, H200): so long may others wait */

int pool_dead_prepare(struct pool *pool, uint64_t count)
{
    uint64_t capacity = pool->dead_capacity ? pool->dead_capacity : FIRST_CAPACITY;

    if (pool->dead_count + count <= pool->dead_capacity)
        return 0;
    while (capacity < pool->dead_count + count)
        capacity *= 2;
    struct pool_dead *dead =
        mmap(NULL, capacity * sizeof *dead, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (dead == MAP_FAILED)
        return -ENOMEM;
    if (pool->dead) {
        memcpy(dead, pool->dead, pool->dead_count * sizeof *dead);
        munmap(pool->dead, pool->dead_capacity * sizeof *dead);
    }
    pool->dead = dead;
    pool->dead_capacity = capacity;
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

static void give_stuck(struct pool *pool, const struct pool_dead *dead)
{
    const struct vmm_chunk chunk = {.handle = dead->handle, .bytes = dead->bytes};

    vmm_release(&pool->vmm, &chunk);
    pool->stuck_bytes -= chunk.bytes;
    pool->budget.give(pool->budget.owner, chunk.bytes);
    atomic_fetch_add(&pool_given_back, 1);
}

uint64_t pool_bury(struct pool *pool, uint64_t reached, uint64_t most)
{
    uint64_t kept = 0, left = 0;

    for (uint64_t i = 0; i < pool->dead_count; i++) {
        const struct pool_dead dead = pool->dead[i];
        const bool done = dead.epoch <= reached;

        if (done && most && vmm_unmap_left(&pool->vmm, dead.start, dead.bytes) == 0) {
            ranges_bury(&pool->ranges, dead.start);
            if (dead.only)
                give_stuck(pool, &dead);
            most--;
            continue;
        }
        left += done;
        pool->dead[kept++] = dead;
    }
    pool->dead_count = kept;
    return left;
}

bool pool_left_behind(const struct pool *pool, uint64_t start)
{
    const CUmemGenericAllocationHandle handle = vmm_chunk_from(&pool->vmm, start).handle;

    for (uint64_t i = 0; i < pool->dead_count; i++) {
        if (pool->dead[i].handle == handle)
            return true;
    }
    return false;
}

void pool_sweep(struct pool *pool)
{
    uint64_t left, before = UINT64_MAX;

    do {
        pthread_mutex_lock(&pool->lock);
        if (pool->dead_count)
            fence_poll(&pool->fence);
        left = capture_any() ? 0 : pool_bury(pool, fence_reached(&pool->fence), SWEEP_CHUNKS);
        pthread_mutex_unlock(&pool->lock);
        if (left >= before)
            break; /* the driver refuses */
        before = left;
    } while (left);
}

void pool_dead_close(struct pool *pool)
{
    pool_bury(pool, UINT64_MAX, UINT64_MAX);
    if (pool->dead)
        munmap(pool->dead, pool->dead_capacity * sizeof *pool->dead);
}
