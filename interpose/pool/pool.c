/* pool: see pool.h. Allocation and release; what happens when nothing fits is in pool_grow.c. */
#include "interpose/pool/pool.h"
#include "interpose/base/clock.h"
#include "interpose/pool/pool_dead.h"
#include "interpose/pool/pool_expose.h"
#include "interpose/pool/pool_grow.h"
#include "interpose/pool/pool_guard.h"
#include "interpose/pool/pool_split.h"
#include "interpose/see/tags.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_CAPACITY 4096 /* blocks in the table by address; a power of two */
/* After this many frees or bytes the pool closes the epoch and reclaims older ones, which costs about 1.5 us
 * (H200). Doing so only when nothing fits keeps neighbouring free ranges apart: three times the driver calls
 * on gpt_varlen with two streams. */
#define CLOSE_FREES 32
#define CLOSE_BYTES (UINT64_C(256) << 20)
#define NEAR        64 /* units searched in the table before a walk along the neighbours */
#define ID_BITS     48 /* bits of a block id for blocks of one pool; the bits above are the pool's number */

_Thread_local bool pool_freed_pinned;
static _Atomic uint64_t pools_opened;

/* ---- blocks by address ---- */

/* A single multiplication keeps the equal distances of blocks of one size: a few thousand of an unlucky size
 * would form one run in the table. Mixing with a shift between two multiplications breaks this up: less than
 * one step from its home on average, for every size up to 4 MiB (measured). */
static uint64_t home_of(const struct pool *pool, uint64_t address)
{
    uint64_t h = address / RANGES_UNIT * UINT64_C(0x9e3779b97f4a7c15);

    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return h >> 32 & (pool->table_capacity - 1);
}

static void *map_zeroed(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static void table_put(struct pool *pool, struct range *range)
{
    uint64_t i = home_of(pool, range->start);

    while (pool->table[i].address)
        i = (i + 1) & (pool->table_capacity - 1);
    pool->table[i] = (struct pool_entry){range->start, range};
}

/* Makes room for one more block, so that table_put cannot fail. */
static int table_prepare(struct pool *pool)
{
    struct pool_entry *old = pool->table;
    const uint64_t old_capacity = pool->table_capacity;

    if (2 * (pool->table_count + 1) <= old_capacity)
        return 0;
    const uint64_t capacity = old ? old_capacity * 2 : FIRST_CAPACITY;
    struct pool_entry *bigger = map_zeroed(capacity * sizeof(*bigger));
    if (!bigger)
        return -ENOMEM;
    pool->table = bigger;
    pool->table_capacity = capacity;
    for (uint64_t i = 0; i < old_capacity; i++) {
        if (old[i].address)
            table_put(pool, old[i].range);
    }
    if (old)
        munmap(old, old_capacity * sizeof(*old));
    return 0;
}

static struct pool_entry *table_find(const struct pool *pool, uint64_t address)
{
    if (!pool->table)
        return NULL;
    for (uint64_t i = home_of(pool, address); pool->table[i].address;
         i = (i + 1) & (pool->table_capacity - 1)) {
        if (pool->table[i].address == address)
            return &pool->table[i];
    }
    return NULL;
}

/* Backward-shift deletion: no tombstones. */
static void table_erase(struct pool *pool, struct pool_entry *entry)
{
    const uint64_t mask = pool->table_capacity - 1;
    uint64_t hole = (uint64_t)(entry - pool->table);

    for (uint64_t i = (hole + 1) & mask; pool->table[i].address; i = (i + 1) & mask) {
        uint64_t home = home_of(pool, pool->table[i].address);

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            pool->table[hole] = pool->table[i];
            hole = i;
        }
    }
    pool->table[hole].address = 0;
    pool->table_count--;
}

/* ---- life ---- */

/* Tests one page, unless the limit is full, which is not a failure. */
static int try_out(struct pool *pool)
{
    if (!pool->budget.take(pool->budget.owner, VMM_PAGE))
        return 0;
    const int rc = vmm_try(&pool->vmm);
    pool->budget.settle(pool->budget.owner, VMM_PAGE, pool->vmm.left_count > 0);
    return rc;
}

int pool_open(struct pool *pool, CUcontext context, CUdevice ordinal, const struct pool_budget *budget,
              uint32_t slack_permille)
{
    memset(pool, 0, sizeof(*pool));
    pool->context = context;
    pool->ordinal = ordinal;
    pool->budget = *budget;
    pool->slack_permille = slack_permille;
    pool->dead_kept = POOL_DEAD_KEPT;
    pool->next_id = atomic_fetch_add(&pools_opened, 1) << ID_BITS;
    int rc = vmm_open(&pool->vmm, ordinal);
    if (rc)
        return rc;
    rc = try_out(pool);
    if (rc)
        goto close_vmm;
    rc = fence_open(&pool->fence, context);
    if (rc)
        goto close_vmm;
    rc = ranges_init(&pool->ranges, pool->vmm.base, pool->vmm.span);
    if (rc)
        goto close_fence;
    lock_init(&pool->lock, LOCK_POOL);
    small_open(pool);
    return 0;
close_fence:
    fence_close(&pool->fence, true);
close_vmm:
    pool_release_left(pool);
    vmm_close(&pool->vmm);
    return rc;
}

static void release_everything(struct pool *pool)
{
    uint64_t start, bytes, end = pool_mapped_end(pool);
    struct vmm_chunk chunk;

    for (uint64_t at = pool->vmm.base; at < end; at += RANGES_PAGE) {
        if (!vmm_chunk_at(&pool->vmm, at, &start, &bytes) || start != at)
            continue;
        if (vmm_unmap(&pool->vmm, at, &chunk) == 0)
            pool_release_chunk(pool, &chunk);
    }
}

/* Subtracts blocks that the program never freed from the bytes of their tags. */
static void untag(struct pool *pool)
{
    for (uint64_t i = 0; i < pool->table_capacity; i++) {
        const struct pool_entry *entry = &pool->table[i];
        const uint16_t tag = entry->address ? entry->range->mark.tag : 0;

        if (tag && mark_word(&entry->range->mark) & MARK_LIVE)
            tags_remove(tag, entry->range->bytes);
    }
}

void pool_close(struct pool *pool, bool context_lives)
{
    cache_close(pool);
    untag(pool); /* cache_close came first, so no thread that ends touches the pool any more */
    small_close(pool);
    pool_dead_close(pool);
    pool_expose_close(pool);
    release_everything(pool);
    pool_release_left(pool);
    fence_close(&pool->fence, context_lives);
    vmm_close(&pool->vmm);
    ranges_destroy(&pool->ranges);
    if (pool->table)
        munmap(pool->table, pool->table_capacity * sizeof(*pool->table));
    if (pool->chunks)
        munmap(pool->chunks, pool->chunk_capacity * sizeof(*pool->chunks));
    lock_destroy(&pool->lock);
    memset(pool, 0, sizeof(*pool));
}

/* ---- allocation ---- */

/* Reserves the metadata of one allocation, so that nothing after it fails for lack of host memory. */
static int prepare(struct pool *pool)
{
    int rc = ranges_prepare(&pool->ranges, 8);

    return rc ? rc : table_prepare(pool);
}

uint64_t pool_live_bytes(const struct pool *pool, uint64_t cached)
{
    const uint64_t live = pool->ranges.live_bytes - pool->small.extent_bytes - pool->pending_bytes - cached;

    /* Threads' figures are read one after the other: a block that moves between threads meanwhile may be
     * counted twice or not at all. */
    return (int64_t)live < 0 ? 0 : live < pool->vmm.physical ? live : pool->vmm.physical;
}

static uint64_t less(uint64_t from, uint64_t bytes)
{
    return from > bytes ? from - bytes : 0;
}

/* The same without freed memory that is pinned or exposed. */
static uint64_t programs_bytes(const struct pool *pool, uint64_t cached)
{
    return less(pool_live_bytes(pool, cached), pool->pinned_bytes);
}

/* Updates the peaks with the most bytes that were live since this thread last called it: caches hand out
 * blocks without the lock. Call before changing anything. */
static void note_peak(struct pool *pool)
{
    const uint64_t live = programs_bytes(pool, cache_figures(pool).least);

    if (live > pool->peak_live)
        pool->peak_live = live;
    if (live > pool->period_peak)
        pool->period_peak = live;
    if (live > pool->recent_peak)
        pool->recent_peak = live;
}

static void enter_block(struct pool *pool, struct range *range, uint64_t asked)
{
    const uint64_t id = atomic_fetch_add_explicit(&pool->next_id, 1, memory_order_relaxed) + 1;

    atomic_store_explicit(&range->mark.asked, asked, memory_order_relaxed);
    atomic_store_explicit(&range->mark.sync_memops, false, memory_order_relaxed);
    atomic_store_explicit(&range->mark.exposed, false, memory_order_relaxed);
    atomic_store_explicit(&range->mark.tag, tags_current, memory_order_relaxed);
    if (tags_current)
        tags_add(tags_current, range->bytes);
    table_put(pool, range);
    pool->table_count++;
    atomic_store_explicit(&range->mark.word, id << 2 | MARK_LIVE, memory_order_release);
    note_peak(pool);
    if (pool->ranges.free_bytes < pool->least_free)
        pool->least_free = pool->ranges.free_bytes;
}

/* Turns a block that has no owner any more into free memory. */
static void return_block(struct pool *pool, struct range *range)
{
    table_erase(pool, table_find(pool, range->start));
    ranges_give(&pool->ranges, range, range->epoch);
}

bool pool_empty_caches(struct pool *pool, uint64_t least)
{
    struct range *range;
    bool any = false;

    while ((range = cache_steal(pool, least))) {
        return_block(pool, range);
        any = true;
    }
    return any;
}

/* Takes the best free range. Returns NULL if none fits. */
static struct range *take_best(struct pool *pool, uint64_t size)
{
    struct range *range = ranges_take(&pool->ranges, ranges_zone_for(size), size);

    if (!range || (range = pool_split_around(pool, range)))
        return range;
    /* The chunk was released, but the smaller ones could not be created. Try again, without splitting. */
    return ranges_prepare(&pool->ranges, 8) ? NULL : ranges_take(&pool->ranges, ranges_zone_for(size), size);
}

/* Takes cached large blocks back first: left apart from their free neighbours they would make chunks move. */
static struct range *take_free(struct pool *pool, uint64_t size)
{
    if (size >= RANGES_PAGE) {
        pool_empty_caches(pool, RANGES_PAGE);
        pool_prefer_fit(pool, size);
    }
    struct range *range = take_best(pool, size);
    if (!range && pool_empty_caches(pool, 0))
        range = take_best(pool, size);
    return range;
}

struct range *pool_take_extent(struct pool *pool, uint64_t bytes, uint64_t alignment,
                               struct pool_effort *effort)
{
    struct ranges *ranges = &pool->ranges;
    struct range *range;

    if (ranges_prepare(ranges, 8))
        return NULL;
    range = ranges_take_aligned(ranges, RANGES_SMALL, bytes, alignment);
    if (!range && pool_empty_caches(pool, 0))
        range = ranges_take_aligned(ranges, RANGES_SMALL, bytes, alignment);
    if (range || pool_make_fit(pool, RANGES_SMALL, bytes + alignment - RANGES_UNIT, false, &range, effort))
        return range;
    /* The range has room for every alignment, so this fits. */
    const enum ranges_zone zone = range->start < ranges->border ? RANGES_SMALL : RANGES_LARGE;
    const bool prepared = ranges_prepare(ranges, 8) == 0;
    ranges_give(ranges, range, range->epoch);
    return prepared ? ranges_take_aligned(ranges, zone, bytes, alignment) : NULL;
}

/* Takes a block without the pool's lock. Returns true and *address. */
static bool take_fast(struct pool *pool, uint64_t bytes, uint64_t size, uint64_t *address)
{
    if (cache_take(pool, bytes, size, address))
        return true;
    struct cache *cache = pool->small.on && small_fits(size) ? cache_mine(pool) : NULL;
    return cache && small_take(pool, cache, bytes, size, address);
}

/* Takes a range for a block, from free memory or by making room. Returns 0 or -ENOMEM. */
static int take_range(struct pool *pool, uint64_t size, struct range **range, struct pool_effort *effort)
{
    if (pool->guard)
        return pool_guard_take(pool, size, range, effort);
    *range = take_free(pool, size);
    return *range ? 0 : pool_make_fit(pool, ranges_zone_for(size), size, true, range, effort);
}

static int take_slow(struct pool *pool, uint64_t bytes, uint64_t size, uint64_t *address,
                     struct pool_effort *effort)
{
    lock_take(&pool->lock);
    note_peak(pool);
    struct range *range = NULL;
    int rc = prepare(pool);
    if (rc == 0)
        rc = take_range(pool, size, &range, effort);
    if (range &&
        (rc = table_prepare(pool))) { /* other threads may have used the room while the lock was dropped */
        pool_guard_give_rest(pool, range);
        ranges_give(&pool->ranges, range, range->epoch);
        range = NULL;
    }
    if (range) {
        pool->hits += !effort->made;
        enter_block(pool, range, bytes);
        *address = range->start;
    }
    lock_release(&pool->lock);
    return rc;
}

/* Gives unused memory of the heap back to the pool, if that could make `size` fit. Returns true if the pool
 * got any. */
static bool settle_small(struct pool *pool, uint64_t size, struct pool_effort *effort)
{
    struct cache *cache = pool->small.on ? cache_mine(pool) : NULL;
    const uint64_t began = clock_ns();
    uint64_t wait_ns;

    if (!cache || !pool_may_have(pool, size))
        return false;
    const bool any = small_settle(pool, cache, &wait_ns);
    lock_take(&pool->lock);
    pool->waits += wait_ns && !effort->waited;
    effort->waited = effort->waited || wait_ns;
    pool->wait_ns += wait_ns;
    pool->room_ns += clock_ns() - began;
    lock_release(&pool->lock);
    return any;
}

int pool_alloc(struct pool *pool, uint64_t bytes, uint64_t *address)
{
    if (bytes == 0 || bytes > pool->vmm.span / 2)
        return bytes ? -ENOMEM : -EINVAL;
    const uint64_t size = (bytes + RANGES_UNIT - 1) & ~(RANGES_UNIT - 1);

    if (take_fast(pool, bytes, size, address))
        return 0;
    struct pool_effort effort = {.made = false};
    int rc = take_slow(pool, bytes, size, address, &effort);
    if (rc && settle_small(pool, size, &effort))
        rc = take_slow(pool, bytes, size, address, &effort);
    return rc;
}

/* ---- release ---- */

static void put_off(struct pool *pool, struct range *range, uint64_t epoch)
{
    range->epoch = epoch;
    range->newer = NULL;
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

/* Frees a block whose word has been taken. */
static void release_block(struct pool *pool, struct range *range, bool done)
{
    const uint64_t epoch = done ? 0 : fence_epoch(&pool->fence);

    if (epoch && !streams_in_order()) {
        table_erase(pool, table_find(pool, range->start));
        put_off(pool, range, epoch);
        return;
    }
    range->epoch = epoch;
    if (!pool->guard)
        range = cache_put(pool, range, epoch);
    if (range)
        return_block(pool, range);
}

/* Returns the live block that begins at an address, or NULL; *word is its word. */
static struct range *find_live(const struct pool *pool, uint64_t address, uint64_t *word)
{
    const struct pool_entry *entry = table_find(pool, address);

    *word = entry ? atomic_load_explicit(&entry->range->mark.word, memory_order_acquire) : 0;
    return *word & MARK_LIVE ? entry->range : NULL;
}

/* With the lock. A block whose word is 0 stays in the table until its memory is free. */
static int free_block(struct pool *pool, uint64_t address, bool done)
{
    uint64_t word;
    struct range *range = find_live(pool, address, &word);

    if (!range || !atomic_compare_exchange_strong(&range->mark.word, &word, 0))
        return -EINVAL;
    note_peak(pool);
    const uint16_t tag = atomic_load_explicit(&range->mark.tag, memory_order_relaxed);
    if (tag)
        tags_remove(tag, range->bytes);
    pool_guard_give_rest(pool, range);
    if (atomic_load_explicit(&range->mark.exposed, memory_order_relaxed) && !range->mark.pins) {
        table_erase(pool, table_find(pool, address));
        pool_expose_free(pool, range, done ? 0 : fence_epoch(&pool->fence));
        return 0;
    }
    if (!range->mark.pins) {
        release_block(pool, range, done);
        return 0;
    }
    /* The program's block is gone, but another process holds its memory: leave it as it is. */
    table_erase(pool, table_find(pool, address));
    pool->pinned_bytes += range->bytes;
    atomic_store_explicit(&range->mark.asked, 0, memory_order_relaxed);
    pool_freed_pinned = true;
    return 0;
}

int pool_free(struct pool *pool, uint64_t address, bool done)
{
    if (cache_keep(pool, address, done))
        return 0;
    int rc = small_free(pool, cache_mine(pool), address, done);
    if (rc != -ENOENT)
        return rc;
    lock_take(&pool->lock);
    rc = free_block(pool, address, done);
    lock_release(&pool->lock);
    return rc;
}

void pool_add_cache(struct pool *pool, struct cache *cache)
{
    lock_take(&pool->lock);
    cache->next = pool->caches;
    pool->caches = cache;
    lock_release(&pool->lock);
}

void pool_drop_cache(struct pool *pool, struct cache *cache)
{
    struct cache **at = &pool->caches;

    lock_take(&pool->lock);
    pool_empty_caches(pool, 0); /* of all threads; the others fill theirs again */
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

int pool_pin(struct pool *pool, uint64_t address)
{
    uint64_t word;

    lock_take(&pool->lock);
    const int rc = small_pin(pool, address);
    if (rc != -ENOENT) {
        lock_release(&pool->lock);
        return rc;
    }
    struct range *range = find_live(pool, address, &word);
    if (range && !atomic_compare_exchange_strong(&range->mark.word, &word, word | MARK_PINNED))
        range = NULL;
    if (range)
        range->mark.pins++;
    lock_release(&pool->lock);
    return range ? 0 : -EINVAL;
}

/* Handles the end of the last pin. With the lock. */
static void unpinned(struct pool *pool, struct range *range)
{
    uint64_t word = atomic_load(&range->mark.word);

    const bool exposed = atomic_load_explicit(&range->mark.exposed, memory_order_relaxed);

    if (word) { /* still live: remove the pinned state unless the block is exposed */
        atomic_store(&range->mark.word, (word & ~(uint64_t)MARK_STATE) | (exposed ? MARK_PINNED : MARK_LIVE));
        return;
    }
    pool->pinned_bytes -= range->bytes;
    const uint64_t epoch = fence_epoch(&pool->fence);
    if (exposed)
        pool_expose_free(pool, range, epoch);
    else if (!streams_in_order())
        put_off(pool, range, epoch);
    else
        ranges_give(&pool->ranges, range, epoch);
}

int pool_unpin(struct pool *pool, uint64_t address)
{
    lock_take(&pool->lock);
    const int rc = small_unpin(pool, address);
    if (rc != -ENOENT) {
        lock_release(&pool->lock);
        if (rc)
            small_free_pinned(pool, address);
        return 0;
    }
    struct range *range = ranges_at(&pool->ranges, address);
    const bool pinned = range && range->state == RANGE_LIVE && range->start == address && range->mark.pins;
    if (pinned && --range->mark.pins == 0)
        unpinned(pool, range);
    lock_release(&pool->lock);
    return pinned ? 0 : -EINVAL;
}

int pool_expose(struct pool *pool, uint64_t address)
{
    uint64_t word;

    lock_take(&pool->lock);
    /* A small block shares its chunk with many others: pin it, and never reuse its few bytes. */
    const int rc = small_pin(pool, address);
    struct range *range = rc == -ENOENT ? find_live(pool, address, &word) : NULL;
    if (range)
        atomic_store_explicit(&range->mark.exposed, true, memory_order_relaxed);
    /* Pinned, it is never cached at its free, which would happen without the lock. */
    if (range && !atomic_compare_exchange_strong(&range->mark.word, &word, word | MARK_PINNED))
        range = NULL;
    lock_release(&pool->lock);
    return rc == 0 || range ? 0 : -EINVAL;
}

int pool_set_sync_memops(struct pool *pool, uint64_t address, bool on)
{
    uint64_t word;

    struct mark *unit = small_find(pool, address, &word);
    if (unit) {
        atomic_store_explicit(&unit->sync_memops, on, memory_order_relaxed);
        return 0;
    }
    lock_take(&pool->lock);
    struct range *range = find_live(pool, address, &word);
    if (range)
        atomic_store_explicit(&range->mark.sync_memops, on, memory_order_relaxed);
    lock_release(&pool->lock);
    return range ? 0 : -EINVAL;
}

/* Finds the block that begins at most NEAR units below an address, without a walk along the neighbours. */
static struct pool_entry *find_near(const struct pool *pool, uint64_t address)
{
    struct pool_entry *entry = NULL;

    address &= ~(RANGES_UNIT - 1);
    for (unsigned i = 0; i < NEAR && !entry && address - i * RANGES_UNIT >= pool->vmm.base; i++)
        entry = table_find(pool, address - i * RANGES_UNIT);
    return entry;
}

static struct range *find_around(const struct pool *pool, uint64_t address, uint64_t *word)
{
    const struct pool_entry *entry = find_near(pool, address);
    struct range *range = entry ? entry->range : ranges_at(&pool->ranges, address);

    range = range && range->state == RANGE_LIVE ? find_live(pool, range->start, word) : NULL;
    return range && address - range->start < atomic_load_explicit(&range->mark.asked, memory_order_relaxed)
               ? range
               : NULL;
}

/* Looks up the small block that begins at the address, or, with `inside`, contains it. Returns true if there
 * is one. */
static bool small_block(struct pool *pool, uint64_t address, bool inside, struct pool_block *block)
{
    uint64_t start = address, word;
    const struct mark *unit =
        inside ? small_around(pool, address, &start, &word) : small_find(pool, address, &word);

    if (unit)
        *block = (struct pool_block){start, atomic_load_explicit(&unit->asked, memory_order_relaxed),
                                     word >> 2, (word & MARK_STATE) == MARK_PINNED,
                                     atomic_load_explicit(&unit->sync_memops, memory_order_relaxed) != 0};
    return unit != NULL;
}

int pool_block(struct pool *pool, uint64_t address, bool inside, struct pool_block *block)
{
    uint64_t word;

    if (small_block(pool, address, inside, block))
        return 0;
    lock_take(&pool->lock);
    const struct range *range = find_live(pool, address, &word);
    if (!range && inside)
        range = find_around(pool, address, &word);
    if (range)
        *block = (struct pool_block){
            range->start, atomic_load_explicit(&range->mark.asked, memory_order_relaxed), word >> 2,
            range->mark.pins, atomic_load_explicit(&range->mark.sync_memops, memory_order_relaxed)};
    lock_release(&pool->lock);
    return range ? 0 : -EINVAL;
}

/* ---- figures ---- */

/* With the lock. */
static struct pool_stats figures(struct pool *pool)
{
    struct pool_stats s;
    const struct vmm *vmm = &pool->vmm;
    note_peak(pool);
    pool_empty_caches(pool, 0);
    const struct cache_figures cached = cache_figures(pool); /* other threads may have cached blocks again */
    const uint64_t count = pool->table_count - cached.count; /* see pool_live_bytes */
    const uint64_t live = programs_bytes(pool, cached.bytes);
    const uint64_t pinned = atomic_load(&pool->small.pinned_bytes); /* < 0 if an unpin was counted first */
    const uint64_t pending = pool->pending_bytes + pool->small.pending_bytes + pool->pinned_bytes +
                             ((int64_t)pinned < 0 ? 0 : pinned);
    s = (struct pool_stats){
        .live = live,
        .live_count = (int64_t)count < 0 ? 0 : count,
        .cached = less(less(vmm->physical, live), pending),
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
    s.stranded = s.cached > usable ? s.cached - usable : 0;
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

uint64_t pool_idle_bytes(struct pool *pool)
{
    pool_take_in(pool);
    const uint64_t small = small_flush_idle(pool); /* was idle, but not counted as free */
    lock_take(&pool->lock);
    pool_empty_caches(pool, 0); /* what is still free at the next call is idle */
    const uint64_t free_now = pool->ranges.free_bytes, least = pool->least_free + small;
    const uint64_t idle = least < free_now ? least : free_now;
    pool->least_free = free_now;
    pool->recent_peak = pool->period_peak;
    pool->period_peak = programs_bytes(pool, cache_figures(pool).bytes);
    lock_release(&pool->lock);
    return idle;
}

bool pool_mostly_free(struct pool *pool, uint32_t permille)
{
    lock_take(&pool->lock);
    const uint64_t free_now = pool->vmm.physical - pool_live_bytes(pool, cache_figures(pool).bytes);
    const bool mostly = free_now > pool->vmm.physical / 1000 * permille;
    lock_release(&pool->lock);
    return mostly;
}

uint64_t pool_reclaimable(struct pool *pool)
{
    pool_take_in(pool);
    cache_flush_all(pool);
    lock_take(&pool->lock);
    pool_empty_caches(pool, 0);
    uint64_t bytes = pool_whole_bytes(pool, UINT64_MAX);
    lock_release(&pool->lock);
    return bytes;
}

/* Checks the table by address against the ranges. */
static const char *check_table(const struct pool *pool)
{
    uint64_t entries = 0;

    for (uint64_t i = 0; i < pool->table_capacity; i++) {
        const struct pool_entry *entry = &pool->table[i];

        if (!entry->address)
            continue;
        entries++;
        if (entry->range->start != entry->address || entry->range->state != RANGE_LIVE ||
            table_find(pool, entry->address) != entry)
            return "the table by address holds what it should not";
    }
    return entries == pool->table_count ? NULL : "the table by address counts wrong";
}

const char *pool_check(struct pool *pool)
{
    uint64_t pending = 0;

    lock_take(&pool->lock);
    const struct ranges *ranges = &pool->ranges;
    uint64_t held = ranges->live_bytes + ranges->free_bytes + pool->stuck_bytes;
    for (unsigned i = 0; i < pool->vmm.left_count; i++)
        held += pool->vmm.left[i].bytes;
    for (const struct range *p = pool->pending; p; p = p->newer)
        pending += p->bytes;
    const char *wrong = ranges_check(ranges);
    wrong = wrong ? wrong : check_table(pool);
    if (!wrong && pending != pool->pending_bytes)
        wrong = "the sum of pending blocks is wrong";
    if (!wrong && held != pool->vmm.physical)
        wrong = "what is held is neither live nor free";
    if (!wrong && atomic_load(&pool->small.wrong))
        wrong = "the heap of small blocks is damaged";
    lock_release(&pool->lock);
    return wrong;
}
