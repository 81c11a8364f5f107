/* cache: see cache.h. */
#include "cache.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "heap.h"
#include "pool.h"
#include "tags.h"

#define IDS_AT_ONCE 4096
#define SLAB_BYTES  (UINT64_C(64) << 10)

static pthread_mutex_t caches_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cache *spare; /* guarded by caches_lock; linked by others; never given back */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;     /* so that a thread's caches end with it */
static bool have_key;         /* written once */
static atomic_bool forgotten; /* in a forked child */

static _Thread_local struct cache *mine;

static uint64_t get(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void set(_Atomic uint64_t *value, uint64_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

static struct cache *find(const struct pool *pool)
{
    struct cache *cache = mine;

    while (cache && atomic_load_explicit(&cache->pool, memory_order_relaxed) != pool)
        cache = cache->others;
    return cache;
}

/* True: the block was in the state that `from` says and is in the other now. */
static bool change(struct range *range, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong_explicit(&range->word, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* ---- without a lock ---- */

uint64_t cache_new_id(struct pool *pool, struct cache *cache)
{
    if (cache->id == cache->last_id) {
        cache->id = atomic_fetch_add_explicit(&pool->next_id, IDS_AT_ONCE, memory_order_relaxed);
        cache->last_id = cache->id + IDS_AT_ONCE;
    }
    return ++cache->id;
}

/* Fewer bytes are kept. */
static void count_out(struct cache *cache, uint64_t bytes)
{
    const uint64_t left = get(&cache->bytes) - bytes;

    set(&cache->bytes, left);
    set(&cache->count, get(&cache->count) - 1);
    if ((int64_t)(left - get(&cache->least)) < 0)
        set(&cache->least, left);
}

static void count_in(struct cache *cache, uint64_t bytes)
{
    set(&cache->bytes, get(&cache->bytes) + bytes);
    set(&cache->count, get(&cache->count) + 1);
}

void cache_count_small(struct cache *cache, uint64_t bytes)
{
    if ((int64_t)bytes < 0) {
        count_in(cache, 0 - bytes);
        return;
    }
    count_out(cache, bytes);
    set(&cache->hits, get(&cache->hits) + 1);
}

static bool take_slot(struct pool *pool, struct cache *cache, struct cache_slot *slot, uint64_t asked)
{
    struct range *range = atomic_load_explicit(&slot->range, memory_order_relaxed);
    const uint64_t word = get(&slot->word), live = cache_new_id(pool, cache) << 2 | CACHE_LIVE;

    if ((word & CACHE_STATE) != CACHE_CACHED)
        return false;
    if (!change(range, word, live)) {
        slot->bytes = slot->address = 0;
        return false;
    }
    set(&slot->word, live);
    set(&range->asked, asked);
    atomic_store_explicit(&range->sync_memops, false, memory_order_relaxed);
    atomic_store_explicit(&range->tag, tags_current, memory_order_relaxed);
    if (tags_current)
        tags_add(tags_current, slot->bytes);
    count_out(cache, slot->bytes);
    set(&cache->hits, get(&cache->hits) + 1);
    return true;
}

bool cache_take(struct pool *pool, uint64_t asked, uint64_t size, uint64_t *address)
{
    struct cache *cache = find(pool);
    const bool large = size >= RANGES_PAGE;

    if (!cache)
        return false;
    for (unsigned i = large ? CACHE_SMALL : 0, end = large ? CACHE_SMALL + 1 : CACHE_SMALL; i < end; i++) {
        struct cache_slot *slot = &cache->slots[i];

        if (slot->bytes == size && take_slot(pool, cache, slot, asked)) {
            *address = slot->address;
            return true;
        }
    }
    return false;
}

static bool keep_slot(struct pool *pool, struct cache *cache, struct cache_slot *slot, bool done)
{
    struct range *range = atomic_load_explicit(&slot->range, memory_order_relaxed);
    const uint64_t word = get(&slot->word), number = word & ~(uint64_t)CACHE_STATE;

    if ((word & CACHE_STATE) != CACHE_LIVE)
        return false;
    const uint64_t epoch = done ? 0 : fence_epoch(&pool->fence);
    if (epoch && !fence_one_stream())
        return false;
    if (!change(range, word, number | CACHE_BUSY)) {
        slot->bytes = slot->address = 0;
        return false;
    }
    const uint16_t tag = atomic_load_explicit(&range->tag, memory_order_relaxed);
    if (tag)
        tags_remove(tag, slot->bytes);
    range->epoch = epoch;
    count_in(cache, slot->bytes);
    set(&slot->word, number | CACHE_CACHED);
    atomic_store_explicit(&range->word, number | CACHE_CACHED, memory_order_release);
    return true;
}

bool cache_keep(struct pool *pool, uint64_t address, bool done)
{
    struct cache *cache = find(pool);

    for (unsigned i = 0; cache && i <= CACHE_SMALL; i++) {
        if (cache->slots[i].address == address)
            return keep_slot(pool, cache, &cache->slots[i], done);
    }
    return false;
}

/* ---- with the pool's lock ---- */

/* The block in a slot, if it is cached still: it is the caller's now. */
static struct range *take_back(struct cache *cache, struct cache_slot *slot, uint64_t least)
{
    struct range *range = atomic_load_explicit(&slot->range, memory_order_relaxed);
    const uint64_t word = get(&slot->word);

    if (!range || !word || (word & CACHE_STATE) != CACHE_CACHED ||
        atomic_load_explicit(&range->word, memory_order_acquire) != word || range->bytes < least ||
        !change(range, word, 0))
        return NULL;
    set(&cache->taken_bytes, get(&cache->taken_bytes) + range->bytes);
    set(&cache->taken_count, get(&cache->taken_count) + 1);
    return range;
}

struct range *cache_steal(struct pool *pool, uint64_t least)
{
    struct range *range = NULL;

    for (struct cache *cache = pool->caches; cache && !range; cache = cache->next) {
        for (unsigned i = least >= RANGES_PAGE ? CACHE_SMALL : 0; i <= CACHE_SMALL && !range; i++)
            range = take_back(cache, &cache->slots[i], least);
    }
    return range;
}

struct cache_figures cache_figures(const struct pool *pool)
{
    struct cache_figures figures = pool->gone;

    for (struct cache *cache = pool->caches; cache; cache = cache->next) {
        const uint64_t bytes = get(&cache->bytes) - get(&cache->taken_bytes);
        const uint64_t least = get(&cache->least) - get(&cache->taken_bytes);

        figures.bytes += bytes;
        figures.count += get(&cache->count) - get(&cache->taken_count);
        figures.hits += get(&cache->hits);
        figures.least += cache == find(pool) && (int64_t)(least - bytes) < 0 ? least : bytes;
        if (cache == find(pool))
            set(&cache->least, get(&cache->bytes));
    }
    return figures;
}

/* ---- life ---- */

/* With caches_lock. */
static struct cache *new_cache(void)
{
    if (!spare) {
        struct cache *slab =
            mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        for (size_t i = 0; slab != MAP_FAILED && i < SLAB_BYTES / sizeof *slab; i++) {
            slab[i].others = spare;
            spare = &slab[i];
        }
    }
    struct cache *cache = spare;
    if (cache)
        spare = cache->others;
    return cache;
}

/* The thread ends: what it kept is the pool's again. */
static void thread_ends(void *unused)
{
    (void)unused;
    if (atomic_load(&forgotten))
        return;
    pthread_mutex_lock(&caches_lock);
    while (mine) {
        struct cache *cache = mine;
        struct pool *pool = atomic_load(&cache->pool);

        mine = cache->others;
        if (pool) {
            heap_tcache_close(cache->tcache);
            pool_drop_cache(pool, cache);
        }
        memset(cache, 0, sizeof *cache);
        cache->others = spare;
        spare = cache;
    }
    pthread_mutex_unlock(&caches_lock);
}

static void make_key(void)
{
    have_key = pthread_key_create(&key, thread_ends) == 0;
}

/* A cache of this thread for the pool. NULL: there can be none. Not with the pool's lock. */
static struct cache *open_cache(struct pool *pool)
{
    pthread_once(&once, make_key);
    if (!have_key || pthread_setspecific(key, &mine))
        return NULL;
    pthread_mutex_lock(&caches_lock);
    struct cache *cache = mine;
    while (cache && atomic_load(&cache->pool)) /* one of a pool that has ended will do */
        cache = cache->others;
    if (!cache && (cache = new_cache())) {
        cache->others = mine;
        mine = cache;
    }
    if (cache) {
        struct cache *const others = cache->others;

        memset(cache, 0, sizeof *cache);
        cache->others = others;
        cache->tcache = heap_tcache_open();
        atomic_store(&cache->pool, pool);
        pool_add_cache(pool, cache);
    }
    pthread_mutex_unlock(&caches_lock);
    return cache;
}

struct cache *cache_mine(struct pool *pool)
{
    struct cache *cache = find(pool);

    return __builtin_expect(cache != NULL, 1) ? cache : open_cache(pool);
}

void cache_flush_small(const struct pool *pool)
{
    const struct cache *cache = find(pool);

    if (cache)
        heap_tcache_flush(cache->tcache);
}

/* Where a block is kept: an unused slot, or one whose block the program has, or the next in turn. */
static struct cache_slot *choose(struct cache *cache, bool large)
{
    if (large)
        return &cache->slots[CACHE_SMALL];
    for (unsigned i = 0; i < CACHE_SMALL; i++) {
        struct cache_slot *slot = &cache->slots[i];

        if (!slot->bytes || (get(&slot->word) & CACHE_STATE) != CACHE_CACHED)
            return slot;
    }
    return &cache->slots[cache->turn++ % CACHE_SMALL];
}

struct range *cache_put(struct pool *pool, struct range *range, uint64_t epoch)
{
    struct cache *cache = find(pool);

    if (!cache)
        return range;
    struct cache_slot *slot = choose(cache, range->bytes >= RANGES_PAGE);
    struct range *other = slot->bytes ? take_back(cache, slot, 0) : NULL;
    const uint64_t word = cache_new_id(pool, cache) << 2 | CACHE_CACHED;
    range->epoch = epoch;
    slot->address = range->start;
    slot->bytes = range->bytes;
    atomic_store_explicit(&slot->range, range, memory_order_relaxed);
    set(&slot->word, word);
    count_in(cache, range->bytes);
    atomic_store_explicit(&range->word, word, memory_order_release);
    return other;
}

void cache_close(struct pool *pool)
{
    pthread_mutex_lock(&caches_lock);
    for (struct cache *cache = pool->caches; cache; cache = cache->next)
        atomic_store(&cache->pool, NULL);
    pool->caches = NULL;
    pthread_mutex_unlock(&caches_lock);
}

void cache_after_fork(void)
{
    atomic_store(&forgotten, true);
}
