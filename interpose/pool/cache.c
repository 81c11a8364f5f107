/* cache: see cache.h. */
#include "interpose/pool/cache.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "interpose/base/pages.h"
#include "interpose/base/process.h"
#include "interpose/pool/pool_table.h"

#define IDS_AT_ONCE 4096
#define SLAB_BYTES  (UINT64_C(64) << 10)

static struct lock caches_lock = LOCK_INITIALIZER(LOCK_CACHES);
static struct cache *spare; /* unused caches, linked by others, never unmapped; guarded by caches_lock */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor ends a thread's caches */
static bool have_key;     /* written once */

static _Thread_local struct cache *mine;
static _Thread_local bool ended; /* the thread is ending and gets no more caches */

static uint64_t get(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void set(_Atomic uint64_t *value, uint64_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

static struct mark *mark_of(const struct cache_slot *slot)
{
    return atomic_load_explicit(&slot->mark, memory_order_relaxed);
}

static void forget_slot(struct cache_slot *slot)
{
    set(&slot->address, 0);
    set(&slot->bytes, 0);
}

static struct cache *find(const struct pool *pool)
{
    struct cache *cache = mine;

    while (cache && atomic_load_explicit(&cache->pool, memory_order_relaxed) != pool)
        cache = cache->others;
    return cache;
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

/* Counts a block that leaves the cache. */
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
    struct mark *mark = mark_of(slot);
    const uint64_t word = get(&slot->word), bytes = get(&slot->bytes);

    if ((word & MARK_STATE) != MARK_CACHED)
        return false;
    const uint64_t live = cache_new_id(pool, cache) << 2 | MARK_LIVE;
    if (!mark_change(mark, word, live)) {
        forget_slot(slot);
        return false;
    }
    set(&slot->word, live);
    cache->latest = (unsigned)(slot - cache->slots);
    cache_mark(mark, asked, bytes);
    count_out(cache, bytes);
    set(&cache->hits, get(&cache->hits) + 1);
    return true;
}

bool cache_take(struct pool *pool, uint64_t asked, uint64_t size, uint64_t *address)
{
    struct cache *cache = find(pool);
    const unsigned from = size >= RANGES_LARGE_FROM   ? CACHE_LARGE
                          : pool_is_small(pool, size) ? 0
                                                      : CACHE_HEAP;
    const unsigned end = from == CACHE_LARGE ? CACHE_SLOTS : from + CACHE_HEAP;

    for (unsigned i = from; cache && i < end; i++) {
        struct cache_slot *slot = &cache->slots[i];

        if (get(&slot->bytes) == size && take_slot(pool, cache, slot, asked)) {
            *address = get(&slot->address);
            return true;
        }
    }
    return false;
}

static bool keep_slot(struct pool *pool, struct cache *cache, struct cache_slot *slot, bool done)
{
    struct range *range = atomic_load_explicit(&slot->range, memory_order_relaxed);
    struct mark *mark = mark_of(slot);
    const uint64_t word = get(&slot->word), number = word & ~(uint64_t)MARK_STATE, bytes = get(&slot->bytes);

    if ((word & MARK_STATE) != MARK_LIVE)
        return false;
    const uint64_t epoch = done ? 0 : fence_epoch(&pool->fence);
    if (epoch && !streams_in_order())
        return false;
    if (!mark_change(mark, word, number | MARK_BUSY)) {
        forget_slot(slot);
        return false;
    }
    const uint16_t tag = atomic_load_explicit(&mark->tag, memory_order_relaxed);
    if (tag)
        tags_remove(tag, bytes);
    if (range)
        range->epoch = epoch;
    count_in(cache, bytes);
    atomic_store_explicit(&slot->word, number | MARK_CACHED, memory_order_release);
    atomic_store_explicit(&mark->word, number | MARK_CACHED, memory_order_release);
    return true;
}

bool cache_knows_live(const struct pool *pool, uint64_t address)
{
    const struct cache *cache = find(pool);
    const struct cache_slot *slot = cache ? &cache->slots[cache->latest] : NULL;

    if (!slot || get(&slot->address) != address)
        return false;
    const uint64_t word = get(&slot->word);
    return (word & MARK_STATE) == MARK_LIVE && get(&mark_of(slot)->word) == word;
}

bool cache_keep(struct pool *pool, uint64_t address, bool done)
{
    struct cache *cache = find(pool);

    if (!cache)
        return false;
    /* The block that was handed out last is often the next to be freed. */
    for (unsigned i = 0, at = cache->latest; i < CACHE_SLOTS; i++, at = at + 1 < CACHE_SLOTS ? at + 1 : 0) {
        /* The pool may have taken the block and handed it out again; then another slot may hold it. */
        if (get(&cache->slots[at].address) == address && keep_slot(pool, cache, &cache->slots[at], done))
            return true;
    }
    return false;
}

/* Puts a block whose word is 0 into a slot. */
static void fill_slot(struct pool *pool, struct cache *cache, struct cache_slot *slot, struct range *range,
                      struct mark *mark, uint64_t address, uint64_t bytes)
{
    const uint64_t word = cache_new_id(pool, cache) << 2 | MARK_CACHED;

    atomic_store_explicit(&slot->mark, mark, memory_order_relaxed);
    set(&slot->address, address);
    set(&slot->bytes, bytes);
    atomic_store_explicit(&slot->range, range, memory_order_relaxed);
    atomic_store_explicit(&slot->word, word, memory_order_release);
    atomic_store_explicit(&mark->word, word, memory_order_release);
}

/* Returns an unused slot among `count`, or one whose block is live, or the next in turn. */
static struct cache_slot *choose(struct cache *cache, unsigned from, unsigned count)
{
    for (unsigned i = from; i < from + count; i++) {
        struct cache_slot *slot = &cache->slots[i];

        if (!get(&slot->bytes) || (get(&slot->word) & MARK_STATE) != MARK_CACHED)
            return slot;
    }
    return &cache->slots[from + cache->turn++ % count];
}

/* Takes the cached block of the heap out of a slot; any thread may call it. Returns its address and *bytes,
 * or 0 if it is not cached. If the mark's word can be changed, the slot's other fields belong to it, because
 * those of another block are written only after this one was taken. A slot's word of 0 means that it is being
 * filled for the first time. */
static uint64_t empty_slot(const struct cache_slot *slot, uint64_t *bytes)
{
    const uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    const uint64_t address = get(&slot->address);

    *bytes = get(&slot->bytes);
    return word && *bytes && (word & MARK_STATE) == MARK_CACHED && mark_change(mark_of(slot), word, 0)
               ? address
               : 0;
}

static void wait_busy(struct cache *cache)
{
    while (atomic_exchange_explicit(&cache->busy, true, memory_order_acquire))
        sched_yield();
}

/* Call around every use of the tcache, which enter_heap returns. Outside, other threads may flush it. */
static unsigned enter_heap(struct cache *cache)
{
    wait_busy(cache);
    if (__builtin_expect(cache->tcache == HEAP_LATER, 0))
        cache->tcache = heap_tcache_open();
    return cache->tcache;
}

static void leave_heap(struct cache *cache)
{
    atomic_store_explicit(&cache->busy, false, memory_order_release);
}

uint64_t cache_heap_take(struct pool *pool, struct cache *cache, uint64_t size)
{
    const unsigned tcache = enter_heap(cache);
    const uint64_t block = heap_take(pool->small.arena, tcache, size);

    leave_heap(cache);
    return block;
}

void cache_heap_give(struct cache *cache, uint64_t address, uint64_t bytes)
{
    if (!cache) {
        heap_give(HEAP_NO_TCACHE, address, bytes);
        return;
    }
    const unsigned tcache = enter_heap(cache);
    heap_give(tcache, address, bytes);
    leave_heap(cache);
}

void cache_put_small(struct pool *pool, struct cache *cache, struct mark *mark, uint64_t address,
                     uint64_t bytes)
{
    struct cache_slot *slot = choose(cache, 0, CACHE_HEAP);
    uint64_t other_bytes;
    const uint64_t other = empty_slot(slot, &other_bytes);

    fill_slot(pool, cache, slot, NULL, mark, address, bytes);
    if (other)
        cache_heap_give(cache, other, other_bytes);
}

/* ---- with the pool's lock ---- */

/* Takes the block in a slot away if it is still cached and has at least `least` bytes. Returns it or NULL. */
static struct range *take_back(struct cache *cache, struct cache_slot *slot, uint64_t least)
{
    struct range *range = atomic_load_explicit(&slot->range, memory_order_relaxed);
    const uint64_t word = get(&slot->word);

    if (!range || !word || (word & MARK_STATE) != MARK_CACHED || mark_word(&range->mark) != word ||
        range->bytes < least || !mark_change(&range->mark, word, 0))
        return NULL;
    set(&cache->taken_bytes, get(&cache->taken_bytes) + range->bytes);
    set(&cache->taken_count, get(&cache->taken_count) + 1);
    return range;
}

/* Turns a block that has no owner any more into free memory. */
static void return_block(struct pool *pool, struct range *range)
{
    pool_table_erase(pool, range);
    ranges_give(&pool->ranges, range, range->epoch);
}

/* Returns blocks of at least `least` bytes in the slots from `from` to `end`. */
static bool return_slots(struct pool *pool, struct cache *cache, unsigned from, unsigned end, uint64_t least)
{
    bool any = false;

    for (unsigned i = from; i < end; i++) {
        struct range *range = take_back(cache, &cache->slots[i], least);

        if (!range)
            continue;
        return_block(pool, range);
        any = true;
    }
    return any;
}

bool cache_empty(struct pool *pool, uint64_t least)
{
    const unsigned from = least >= RANGES_LARGE_FROM ? CACHE_LARGE : CACHE_HEAP;
    bool any = false;

    for (struct cache *cache = pool->caches; cache; cache = cache->next)
        any |= return_slots(pool, cache, from, CACHE_SLOTS, least);
    return any;
}

void cache_return_mid(struct pool *pool)
{
    struct cache *own = find(pool);

    if (own)
        return_slots(pool, own, CACHE_HEAP, CACHE_LARGE, 0);
}

void cache_return_large(struct pool *pool)
{
    struct cache *own = find(pool);

    cache_empty(pool, RANGES_LARGE_FROM);
    if (own)
        forget_slot(&own->slots[CACHE_LARGE]);
}

void cache_put(struct pool *pool, struct range *range, uint64_t epoch)
{
    struct cache *cache = pool->guard ? NULL : find(pool);

    range->epoch = epoch;
    if (!cache) {
        return_block(pool, range);
        return;
    }
    struct cache_slot *slot =
        range->bytes >= RANGES_LARGE_FROM ? &cache->slots[CACHE_LARGE] : choose(cache, CACHE_HEAP, CACHE_MID);
    struct range *other = get(&slot->bytes) ? take_back(cache, slot, 0) : NULL;
    count_in(cache, range->bytes);
    fill_slot(pool, cache, slot, range, &range->mark, range->start, range->bytes);
    if (other)
        return_block(pool, other);
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
        struct cache *slab = pages_map(SLAB_BYTES);

        for (size_t i = 0; slab && i < SLAB_BYTES / sizeof(*slab); i++) {
            slab[i].others = spare;
            spare = &slab[i];
        }
    }
    struct cache *cache = spare;
    if (cache)
        spare = cache->others;
    return cache;
}

static void flush(struct cache *cache);

/* Registers a thread's cache with its pool. */
static void enter_pool(struct pool *pool, struct cache *cache)
{
    lock_take(&pool->lock);
    cache->next = pool->caches;
    pool->caches = cache;
    lock_release(&pool->lock);
}

/* Undoes it, and takes the cache's blocks back into the pool. */
static void leave_pool(struct pool *pool, struct cache *cache)
{
    struct cache **at = &pool->caches;

    lock_take(&pool->lock);
    cache_empty(pool, 0); /* of all threads; the others fill theirs again */
    pool->gone.hits += atomic_load(&cache->hits);
    pool->gone.bytes += atomic_load(&cache->bytes) - atomic_load(&cache->taken_bytes);
    pool->gone.least = pool->gone.bytes;
    pool->gone.count += atomic_load(&cache->count) - atomic_load(&cache->taken_count);
    while (*at && *at != cache)
        at = &(*at)->next;
    if (*at)
        *at = cache->next;
    lock_release(&pool->lock);
}

/* Gives everything that the ending thread cached back to the pools. */
static void thread_ends(void *unused)
{
    (void)unused;
    if (process_is_copy()) /* a forked child: the caches are the parent's, and the lock may be held */
        return;
    ended = true;
    lock_take(&caches_lock);
    while (mine) {
        struct cache *cache = mine;
        struct pool *pool = atomic_load(&cache->pool);

        mine = cache->others;
        if (pool) {
            flush(cache);
            leave_pool(pool, cache);
        }
        memset(cache, 0, sizeof(*cache));
        cache->others = spare;
        spare = cache;
    }
    lock_release(&caches_lock);
}

static void make_key(void)
{
    have_key = pthread_key_create(&key, thread_ends) == 0;
}

/* Opens a cache of this thread for the pool, or returns NULL. Not with the pool's lock. */
static struct cache *open_cache(struct pool *pool)
{
    pthread_once(&once, make_key);
    if (ended || !have_key || pthread_setspecific(key, &mine))
        return NULL;
    lock_take(&caches_lock);
    struct cache *cache = mine;
    while (cache && atomic_load(&cache->pool)) /* reuse one of a closed pool */
        cache = cache->others;
    if (!cache && (cache = new_cache())) {
        cache->others = mine;
        mine = cache;
    }
    if (cache) {
        struct cache *const others = cache->others;

        memset(cache, 0, sizeof(*cache));
        cache->others = others;
        cache->tcache = HEAP_LATER;
        atomic_store(&cache->pool, pool);
        enter_pool(pool, cache);
    }
    lock_release(&caches_lock);
    return cache;
}

struct cache *cache_mine(struct pool *pool)
{
    struct cache *cache = find(pool);

    return __builtin_expect(cache != NULL, 1) ? cache : open_cache(pool);
}

/* Returns the heap's blocks in the slots to it. Any thread may call it. */
static void empty_slots(struct cache *cache)
{
    uint64_t address, bytes;

    for (unsigned i = 0; i < CACHE_HEAP; i++) {
        if ((address = empty_slot(&cache->slots[i], &bytes)))
            heap_give(HEAP_NO_TCACHE, address, bytes);
    }
}

/* The caller has set busy. */
static void empty_tcache(struct cache *cache)
{
    heap_tcache_close(cache->tcache);
    cache->tcache = HEAP_LATER;
}

static void flush(struct cache *cache)
{
    empty_slots(cache);
    wait_busy(cache);
    empty_tcache(cache);
    leave_heap(cache);
}

void cache_flush_small(const struct pool *pool)
{
    struct cache *cache = find(pool);

    if (cache)
        flush(cache);
}

/* Flushes another thread's cache, without waiting if that thread uses the heap: it may wait for work. */
static void flush_another(struct cache *cache)
{
    empty_slots(cache);
    if (atomic_exchange_explicit(&cache->busy, true, memory_order_acquire))
        return;
    empty_tcache(cache);
    leave_heap(cache);
}

void cache_flush_all(struct pool *pool)
{
    lock_take(&caches_lock);
    for (struct cache *cache = pool->caches; cache; cache = cache->next)
        flush_another(cache);
    lock_release(&caches_lock);
}

void cache_flush_idle(struct pool *pool)
{
    lock_take(&caches_lock);
    for (struct cache *cache = pool->caches; cache; cache = cache->next) {
        const uint64_t hits = get(&cache->hits), count = get(&cache->count);

        if (hits == cache->seen_hits && count == cache->seen_count)
            flush_another(cache);
        cache->seen_hits = hits;
        cache->seen_count = count;
    }
    lock_release(&caches_lock);
}

void cache_close(struct pool *pool)
{
    lock_take(&caches_lock);
    for (struct cache *cache = pool->caches; cache; cache = cache->next) {
        flush_another(cache);
        atomic_store(&cache->pool, NULL);
    }
    pool->caches = NULL;
    lock_release(&caches_lock);
}
