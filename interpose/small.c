/* small: see small.h. */
#include "small.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "pool.h"
#include "pool_grow.h"
#include "tags.h"

#define PAGE_UNITS     (RANGES_PAGE / RANGES_UNIT)
#define FIRST_CAPACITY 1024 /* of the ring; a power of two */
#define LOOK_EVERY     32   /* frees that wait, before the older ones are looked at */
#define BATCH          64

static void *map_zeroed(uint64_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* NULL where no extent has ever been, and for what is not a multiple of the unit. */
static struct small_unit *unit_of(const struct pool *pool, uint64_t address)
{
    const uint64_t offset = address - pool->vmm.base;

    if (!pool->small.on || offset >= pool->vmm.span || offset % RANGES_UNIT)
        return NULL;
    struct small_unit *units =
        atomic_load_explicit(&pool->small.pages[offset / RANGES_PAGE], memory_order_acquire);

    return units ? &units[offset % RANGES_PAGE / RANGES_UNIT] : NULL;
}

/* ---- extents ---- */

/* With the pool's lock. */
static int make_units(struct pool *pool, uint64_t start, uint64_t bytes)
{
    for (uint64_t i = (start - pool->vmm.base) / RANGES_PAGE;
         i <= (start + bytes - 1 - pool->vmm.base) / RANGES_PAGE; i++) {
        if (atomic_load_explicit(&pool->small.pages[i], memory_order_relaxed))
            continue;
        struct small_unit *units = map_zeroed(PAGE_UNITS * sizeof *units);
        if (!units)
            return -ENOMEM;
        atomic_store_explicit(&pool->small.pages[i], units, memory_order_release);
    }
    return 0;
}

static uint64_t extent_take(void *owner, uint64_t bytes, uint64_t alignment)
{
    struct pool *pool = owner;

    pthread_mutex_lock(&pool->lock);
    struct range *range = pool_take_extent(pool, bytes, alignment);
    if (range && make_units(pool, range->start, bytes)) {
        ranges_give(&pool->ranges, range, 0);
        range = NULL;
    }
    if (range)
        pool->small.extent_bytes += bytes;
    pthread_mutex_unlock(&pool->lock);
    return range ? range->start : 0;
}

/* What was reused in stream order may still be worked on: the extent's epoch is now's. */
static void extent_give(void *owner, uint64_t address, uint64_t bytes)
{
    struct pool *pool = owner;

    pthread_mutex_lock(&pool->lock);
    struct range *range = ranges_at(&pool->ranges, address);
    if (range && range->state == RANGE_LIVE && range->start == address && range->bytes == bytes) {
        ranges_give(&pool->ranges, range, fence_epoch(&pool->fence));
        pool->small.extent_bytes -= bytes;
    }
    pthread_mutex_unlock(&pool->lock);
}

void small_open(struct pool *pool)
{
    struct small *small = &pool->small;
    const uint64_t bytes = pool->vmm.span / RANGES_PAGE * sizeof *small->pages;

    if (!heap_exists() || !(small->pages = map_zeroed(bytes)))
        return;
    small->source = (struct heap_source){.owner = pool, .take = extent_take, .give = extent_give};
    small->on = heap_open(&small->source, &small->arena) == 0;
}

void small_close(struct pool *pool)
{
    struct small *small = &pool->small;

    for (uint64_t i = 0; small->pages && i < pool->vmm.span / RANGES_PAGE; i++) {
        struct small_unit *units = atomic_load_explicit(&small->pages[i], memory_order_relaxed);

        if (units)
            munmap(units, PAGE_UNITS * sizeof *units);
    }
    if (small->pages)
        munmap((void *)small->pages, pool->vmm.span / RANGES_PAGE * sizeof *small->pages);
    if (small->pending)
        munmap(small->pending, small->pending_capacity * sizeof *small->pending);
}

/* ---- blocks ---- */

static uint64_t rounded(const struct small_unit *unit)
{
    const uint64_t asked = atomic_load_explicit(&unit->asked, memory_order_relaxed);

    return (asked + RANGES_UNIT - 1) & ~(RANGES_UNIT - 1);
}

bool small_take(struct pool *pool, struct cache *cache, uint64_t asked, uint64_t size, uint64_t *address)
{
    const uint64_t block = heap_take(pool->small.arena, cache->tcache, size);

    if (!block)
        return false;
    struct small_unit *unit = unit_of(pool, block);
    const uint64_t word = cache_new_id(pool, cache) << 2 | CACHE_LIVE;
    atomic_store_explicit(&unit->asked, (uint32_t)asked, memory_order_relaxed);
    atomic_store_explicit(&unit->sync_memops, 0, memory_order_relaxed);
    atomic_store_explicit(&unit->tag, tags_current, memory_order_relaxed);
    if (tags_current)
        tags_add(tags_current, size);
    atomic_store_explicit(&unit->word, word, memory_order_release);
    cache_count_small(cache, size);
    *address = block;
    return true;
}

struct small_unit *small_find(struct pool *pool, uint64_t address, uint64_t *word)
{
    struct small_unit *unit = unit_of(pool, address);

    *word = unit ? atomic_load_explicit(&unit->word, memory_order_acquire) : 0;
    return *word & CACHE_LIVE ? unit : NULL;
}

struct small_unit *small_around(struct pool *pool, uint64_t address, uint64_t *start, uint64_t *word)
{
    uint64_t at = address & ~(RANGES_UNIT - 1);

    for (unsigned i = 0; i < HEAP_LARGEST / RANGES_UNIT && at >= pool->vmm.base; i++, at -= RANGES_UNIT) {
        struct small_unit *unit = small_find(pool, at, word);

        if (!unit)
            continue;
        *start = at;
        return address - at < atomic_load_explicit(&unit->asked, memory_order_relaxed) ? unit : NULL;
    }
    return NULL;
}

/* ---- release ---- */

static bool ring_put(struct small *small, uint64_t address, uint64_t epoch)
{
    if (small->pending_count == small->pending_capacity) {
        const uint64_t old = small->pending_capacity, capacity = old ? old * 2 : FIRST_CAPACITY;
        struct small_pending *ring = map_zeroed(capacity * sizeof *ring);

        if (!ring)
            return false;
        for (uint64_t i = 0; i < small->pending_count; i++)
            ring[i] = small->pending[(small->pending_first + i) & (old - 1)];
        if (small->pending)
            munmap(small->pending, old * sizeof *ring);
        small->pending = ring;
        small->pending_first = 0;
        small->pending_capacity = capacity;
    }
    small->pending[(small->pending_first + small->pending_count++) & (small->pending_capacity - 1)] =
        (struct small_pending){address, epoch};
    return true;
}

/* The block is nobody's: back to the heap, now or when its work has ended. A block that cannot be remembered
 * is lost until the pool ends, which is better than handed out too early. */
static void let_go(struct pool *pool, struct cache *cache, uint64_t address, uint64_t bytes, bool done)
{
    const uint64_t epoch = done ? 0 : fence_epoch(&pool->fence);
    bool look = false;

    if (!epoch || fence_one_stream()) {
        heap_give(cache->tcache, address, bytes);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    if (ring_put(&pool->small, address, epoch)) {
        pool->small.pending_bytes += bytes;
        look = pool->small.pending_count % LOOK_EVERY == 0;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!look)
        return;
    fence_poll(&pool->fence);
    small_reclaim(pool, cache, fence_reached(&pool->fence));
}

int small_free(struct pool *pool, struct cache *cache, uint64_t address, bool done)
{
    uint64_t word;
    struct small_unit *unit = small_find(pool, address, &word);

    if (!unit)
        return word ? -EINVAL : -ENOENT;
    const uint64_t bytes = rounded(unit);
    const uint16_t tag = atomic_load_explicit(&unit->tag, memory_order_relaxed);
    const bool pinned = (word & CACHE_STATE) == CACHE_PINNED;
    if (!atomic_compare_exchange_strong(&unit->word, &word, pinned ? CACHE_BUSY : 0))
        return -EINVAL;
    if (tag)
        tags_remove(tag, bytes);
    cache_count_small(cache, 0 - bytes);
    if (pinned) /* others hold its memory: small_unpin sees to it */
        atomic_fetch_add(&pool_pinned_frees, 1);
    else
        let_go(pool, cache, address, bytes, done);
    return 0;
}

void small_reclaim(struct pool *pool, struct cache *cache, uint64_t reached)
{
    struct small *small = &pool->small;
    uint64_t batch[BATCH];
    unsigned count;

    do {
        count = 0;
        pthread_mutex_lock(&pool->lock);
        while (count < BATCH && small->pending_count) {
            const struct small_pending *oldest =
                &small->pending[small->pending_first & (small->pending_capacity - 1)];

            if (oldest->epoch > reached)
                break;
            batch[count++] = oldest->address;
            small->pending_bytes -= rounded(unit_of(pool, oldest->address));
            small->pending_first++;
            small->pending_count--;
        }
        pthread_mutex_unlock(&pool->lock);
        for (unsigned i = 0; i < count; i++)
            heap_give(cache->tcache, batch[i], rounded(unit_of(pool, batch[i])));
    } while (count == BATCH);
}

bool small_settle(struct pool *pool, struct cache *cache)
{
    const uint64_t before = atomic_load(&pool->small.extent_bytes);

    if (atomic_load(&pool->small.pending_count))
        fence_wait(&pool->fence, FENCE_NOW);
    small_reclaim(pool, cache, fence_reached(&pool->fence));
    heap_tcache_flush(cache->tcache);
    return atomic_load(&pool->small.extent_bytes) < before;
}

/* ---- pins ---- */

int small_pin(struct pool *pool, uint64_t address)
{
    uint64_t word;
    struct small_unit *unit = small_find(pool, address, &word);

    if (!unit)
        return word ? -EINVAL : -ENOENT;
    if (unit->pins == UINT8_MAX || !atomic_compare_exchange_strong(&unit->word, &word, word | CACHE_PINNED))
        return -EINVAL;
    unit->pins++;
    return 0;
}

int small_unpin(struct pool *pool, uint64_t address)
{
    struct small_unit *unit = unit_of(pool, address);

    if (!unit || !unit->pins)
        return -ENOENT;
    if (--unit->pins)
        return 0;
    uint64_t word = atomic_load(&unit->word);
    if (word == CACHE_BUSY)
        return 1;
    atomic_compare_exchange_strong(&unit->word, &word, (word & ~(uint64_t)CACHE_STATE) | CACHE_LIVE);
    return 0;
}

void small_free_pinned(struct pool *pool, struct cache *cache, uint64_t address)
{
    struct small_unit *unit = unit_of(pool, address);
    const uint64_t bytes = rounded(unit);

    atomic_store(&unit->word, 0);
    let_go(pool, cache, address, bytes, false);
}
