/* small: see small.h. */
#include "interpose/pool/small.h"

#include <errno.h>

#include "interpose/base/clock.h"
#include "interpose/base/pages.h"
#include "interpose/base/sums.h"
#include "interpose/pool/pool_grow.h"
#include "interpose/settings/log.h"

#define FIRST_CAPACITY 1024 /* of the ring; a power of two */
#define LOOK_EVERY     32   /* pending frees between two looks at the older ones */
#define BATCH          64
#define PIN            (MARK_PINNED ^ MARK_LIVE) /* the bit in a live block's word that says so */

static struct small_page *page_of(const struct pool *pool, uint64_t address)
{
    const uint64_t offset = address - pool->vmm.base;

    return pool->small.on && offset < pool->vmm.span
               ? atomic_load_explicit(&pool->small.pages[offset / SMALL_PAGE], memory_order_acquire)
               : NULL;
}

/* Returns NULL where no extent has ever been, and for addresses that are not a multiple of the unit. */
static struct mark *unit_of(const struct pool *pool, uint64_t address)
{
    struct small_page *page = address % RANGES_UNIT ? NULL : page_of(pool, address);

    return page ? &page->marks[address % SMALL_PAGE / RANGES_UNIT] : NULL;
}

/* Called when the heap contradicts our marks. The bytes in question are not used again until the pool is
 * closed, so that they never belong to two blocks. */
static void note_damage(struct pool *pool)
{
    atomic_fetch_add(&pool->small.wrong, 1);
    LOG_ERROR_ONCE("the heap of small blocks is damaged; the affected memory is not reused");
}

static uint64_t rounded(const struct mark *unit)
{
    const uint64_t asked = atomic_load_explicit(&unit->asked, memory_order_relaxed);

    return (asked + RANGES_UNIT - 1) & ~(RANGES_UNIT - 1);
}

/* ---- extents ----
 *
 * Extents share pages of their own, so that small long-lived blocks do not keep many chunks. With the pool's
 * lock.
 */

static bool piece_taken(const struct small_page *page, unsigned i)
{
    return page->pieces[i / 64] >> i % 64 & 1;
}

static bool pieces_taken(const struct small_page *page, unsigned from, unsigned count)
{
    bool taken = from + count <= SMALL_PIECES;

    for (unsigned i = from; taken && i < from + count; i++)
        taken = piece_taken(page, i);
    return taken;
}

static void mark_pieces(struct small_page *page, unsigned from, unsigned count)
{
    for (unsigned i = from; i < from + count; i++)
        page->pieces[i / 64] ^= UINT64_C(1) << i % 64;
}

static void link_page(struct pool *pool, struct small_page *page)
{
    page->next = pool->small.first;
    page->here = &pool->small.first;
    if (page->next)
        page->next->here = &page->next;
    pool->small.first = page;
}

static void unlink_page(struct small_page *page)
{
    *page->here = page->next;
    if (page->next)
        page->next->here = page->here;
}

/* Returns the first of `count` free pieces at a multiple of `step`, or SMALL_PIECES. */
static unsigned find_pieces(const struct small_page *page, unsigned count, unsigned step)
{
    unsigned from = 0, run = 0;

    if (page->taken + count > SMALL_PIECES)
        return SMALL_PIECES;
    while (run < count && from + count <= SMALL_PIECES) {
        if (!piece_taken(page, from + run)) {
            run++;
            continue;
        }
        from = (from + run) / step * step + step;
        run = 0;
    }
    return run == count ? from : SMALL_PIECES;
}

static struct small_page *new_page(struct pool *pool)
{
    struct pool_effort effort = {.made = false};
    struct range *range = pool_take_aligned(pool, SMALL_PAGE, &effort);
    struct small_page *page = range ? page_of(pool, range->start) : NULL;

    if (range && !page && (page = pages_map_sparse(sizeof(*page)))) {
        page->made = pool->small.made;
        pool->small.made = page;
        page->address = range->start;
        atomic_store_explicit(&pool->small.pages[(range->start - pool->vmm.base) / SMALL_PAGE], page,
                              memory_order_release);
    }
    if (range && !page)
        ranges_give(&pool->ranges, range, range->epoch);
    if (!page)
        return NULL;
    pool->small.grown += effort.made;
    page->range = range;
    link_page(pool, page);
    atomic_fetch_add(&pool->small.extent_bytes, SMALL_PAGE);
    return page;
}

static uint64_t extent_take(void *owner, uint64_t bytes, uint64_t alignment)
{
    struct pool *pool = owner;
    const unsigned count = (unsigned)(bytes / SMALL_PIECE);
    const unsigned step = alignment > SMALL_PIECE ? (unsigned)(alignment / SMALL_PIECE) : 1;
    unsigned from = SMALL_PIECES;

    if (bytes > SMALL_PAGE || alignment > SMALL_PAGE || bytes % SMALL_PIECE)
        return 0;
    lock_take(&pool->lock);
    struct small_page *page = pool->small.first;
    while (page && (from = find_pieces(page, count, step)) == SMALL_PIECES)
        page = page->next;
    if (!page && (page = new_page(pool)))
        from = find_pieces(page, count, step);
    if (page) {
        mark_pieces(page, from, count);
        page->taken += count;
        if (page->taken == SMALL_PIECES)
            unlink_page(page);
    }
    const uint64_t address = page ? page->range->start + (uint64_t)from * SMALL_PIECE : 0;
    lock_release(&pool->lock);
    return address;
}

/* Frees a page. If blocks are reused early, those in it may still have work; otherwise it is done. */
static void end_page(struct pool *pool, struct small_page *page)
{
    const uint64_t epoch = fence_reused_early() ? fence_epoch_quietly(&pool->fence) : 0;

    unlink_page(page);
    ranges_give(&pool->ranges, page->range, epoch);
    page->range = NULL;
    atomic_fetch_sub(&pool->small.extent_bytes, SMALL_PAGE);
}

static void extent_give(void *owner, uint64_t address, uint64_t bytes)
{
    struct pool *pool = owner;
    const unsigned from = (unsigned)(address % SMALL_PAGE / SMALL_PIECE);
    const unsigned count = (unsigned)(bytes / SMALL_PIECE);

    lock_take(&pool->lock);
    struct small_page *page = page_of(pool, address);
    if (page && page->range && pieces_taken(page, from, count)) {
        mark_pieces(page, from, count);
        if (page->taken == SMALL_PIECES)
            link_page(pool, page);
        page->taken -= count;
        if (page->taken == 0)
            end_page(pool, page);
    } else {
        note_damage(pool);
    }
    lock_release(&pool->lock);
}

void small_open(struct pool *pool)
{
    struct small *small = &pool->small;
    const uint64_t bytes = pool->vmm.span / SMALL_PAGE * sizeof(*small->pages);

    if (!heap_exists() || !(small->pages = pages_map_sparse(bytes)))
        return;
    small->source = (struct heap_source){.owner = pool, .take = extent_take, .give = extent_give};
    small->on = heap_open(&small->source, &small->arena) == 0;
}

void small_each(struct pool *pool, void (*visit)(uint64_t address, const struct mark *mark, void *argument),
                void *argument)
{
    for (const struct small_page *page = pool->small.made; page; page = page->made) {
        for (unsigned i = 0; i < SMALL_PAGE_UNITS; i++) {
            if (mark_word(&page->marks[i]) & MARK_LIVE)
                visit(page->address + (uint64_t)i * RANGES_UNIT, &page->marks[i], argument);
        }
    }
}

void small_close(struct pool *pool)
{
    struct small *small = &pool->small;

    if (small->on) /* another pool may get these addresses, so the heap must keep nothing there */
        heap_purge(small->arena);
    while (small->made) {
        struct small_page *page = small->made;

        small->made = page->made;
        munmap(page, sizeof(*page));
    }
    if (small->pages)
        munmap((void *)small->pages, pool->vmm.span / SMALL_PAGE * sizeof(*small->pages));
    if (small->pending)
        munmap(small->pending, small->pending_capacity * sizeof(*small->pending));
}

/* ---- blocks ---- */

bool small_take(struct pool *pool, struct cache *cache, uint64_t asked, uint64_t size, uint64_t *address)
{
    const uint64_t block = cache_heap_take(pool, cache, size);
    struct mark *unit = unit_of(pool, block);

    if (!block)
        return false;
    if (__builtin_expect(!unit,
                         0)) { /* host memory: jemalloc frees its data of a thread before our last call */
        heap_give(HEAP_NO_TCACHE, block, size);
        return false;
    }
    if (__builtin_expect(mark_word(unit) != 0, 0)) { /* in use */
        note_damage(pool);
        return false;
    }
    const uint64_t word = cache_new_id(pool, cache) << 2 | MARK_LIVE;
    cache_mark(unit, asked, size);
    atomic_store_explicit(&unit->word, word, memory_order_release);
    cache_count_small(cache, size);
    *address = block;
    return true;
}

struct mark *small_find(struct pool *pool, uint64_t address, uint64_t *word)
{
    struct mark *unit = unit_of(pool, address);

    *word = unit ? atomic_load_explicit(&unit->word, memory_order_acquire) : 0;
    return *word & MARK_LIVE ? unit : NULL;
}

struct mark *small_around(struct pool *pool, uint64_t address, uint64_t *start, uint64_t *word)
{
    uint64_t at = address & ~(RANGES_UNIT - 1);

    for (unsigned i = 0; i < HEAP_LARGEST / RANGES_UNIT && at >= pool->vmm.base; i++, at -= RANGES_UNIT) {
        struct mark *unit = small_find(pool, at, word);

        if (!unit)
            continue;
        *start = at;
        return address - at < atomic_load_explicit(&unit->asked, memory_order_relaxed) ? unit : NULL;
    }
    return NULL;
}

/* ---- release ---- */

static bool ring_put(struct small *small, struct small_pending block)
{
    if (small->pending_count == small->pending_capacity) {
        const uint64_t old = small->pending_capacity, capacity = old ? old * 2 : FIRST_CAPACITY;
        struct small_pending *ring = pages_map_sparse(capacity * sizeof(*ring));

        if (!ring)
            return false;
        for (uint64_t i = 0; i < small->pending_count; i++)
            ring[i] = small->pending[(small->pending_first + i) & (old - 1)];
        if (small->pending)
            munmap(small->pending, old * sizeof(*ring));
        small->pending = ring;
        small->pending_first = 0;
        small->pending_capacity = capacity;
    }
    small->pending[(small->pending_first + small->pending_count++) & (small->pending_capacity - 1)] = block;
    return true;
}

/* Returns a freed block to the heap, now or when its work is done. If there is no memory to record it, it is
 * lost until the pool is closed, which is better than handing it out too early. */
static void release_block(struct pool *pool, struct cache *cache, uint64_t address, uint64_t bytes, bool done)
{
    const uint64_t epoch = done ? 0 : fence_epoch(&pool->fence);
    bool look = false;

    if (!epoch || streams_in_order()) {
        if (cache)
            cache_put_small(pool, cache, unit_of(pool, address), address, bytes);
        else
            cache_heap_give(NULL, address, bytes);
        return;
    }
    lock_take(&pool->lock);
    if (ring_put(&pool->small, (struct small_pending){address, bytes, epoch})) {
        pool->small.pending_bytes += bytes;
        look = pool->small.pending_count % LOOK_EVERY == 0;
    }
    lock_release(&pool->lock);
    if (!look)
        return;
    fence_poll(&pool->fence);
    small_reclaim(pool, cache);
}

/* Counts a free in the thread's cache, or in the pool if there is none. */
static void count_free(struct pool *pool, struct cache *cache, uint64_t bytes)
{
    if (cache) {
        cache_count_small(cache, 0 - bytes);
        return;
    }
    lock_take(&pool->lock);
    pool->gone.bytes += bytes;
    pool->gone.least += bytes;
    pool->gone.count++;
    lock_release(&pool->lock);
}

int small_free(struct pool *pool, struct cache *cache, uint64_t address, bool done)
{
    uint64_t word;
    struct mark *unit = small_find(pool, address, &word);

    if (!unit)
        return word ? -EINVAL : -ENOENT;
    const uint64_t bytes = rounded(unit), live = word | MARK_PINNED;
    const uint16_t tag = atomic_load_explicit(&unit->tag, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&unit->word, &word, word & PIN ? MARK_BUSY : 0)) {
        if ((word | PIN) != live) /* more than a pin has come or gone: another thread has freed the block */
            return -EINVAL;
    }
    if (tag)
        tags_remove(tag, bytes);
    count_free(pool, cache, bytes);
    if (!(word & PIN)) {
        release_block(pool, cache, address, bytes, done);
        return 0;
    }
    /* Another process holds its memory: small_unpin frees it. Or it is exposed, and nothing does. */
    atomic_fetch_add(&pool->small.pinned_bytes, bytes);
    if (atomic_load_explicit(&unit->exposed, memory_order_relaxed))
        atomic_fetch_add(&pool->small.lost_bytes, bytes);
    return 1;
}

void small_reclaim(struct pool *pool, struct cache *cache)
{
    struct small *small = &pool->small;
    const uint64_t usable = fence_usable(&pool->fence);
    struct small_pending batch[BATCH];
    unsigned count;

    do {
        count = 0;
        lock_take(&pool->lock);
        while (count < BATCH && small->pending_count) {
            const struct small_pending *oldest =
                &small->pending[small->pending_first & (small->pending_capacity - 1)];

            if (oldest->epoch > usable)
                break;
            batch[count++] = *oldest;
            small->pending_bytes -= oldest->bytes;
            small->pending_first++;
            small->pending_count--;
        }
        lock_release(&pool->lock);
        for (unsigned i = 0; i < count; i++)
            cache_heap_give(cache, batch[i].address, batch[i].bytes);
    } while (count == BATCH);
}

void small_trim(struct pool *pool)
{
    if (!pool->small.on)
        return;
    fence_poll(&pool->fence);
    small_reclaim(pool, NULL);
    cache_flush_all(pool);
    heap_purge(pool->small.arena);
}

uint64_t small_flush_idle(struct pool *pool)
{
    const uint64_t before = atomic_load(&pool->small.extent_bytes);

    if (!pool->small.on)
        return 0;
    cache_flush_idle(pool);
    heap_purge(pool->small.arena);
    return sums_minus(before, atomic_load(&pool->small.extent_bytes));
}

bool small_trim_wait(struct pool *pool, struct cache *cache, uint64_t *wait_ns)
{
    const uint64_t before = atomic_load(&pool->small.extent_bytes);
    const uint64_t now = atomic_load(&pool->fence.open); /* later work may depend on this thread */
    bool more = atomic_load(&pool->small.pending_count) != 0;

    *wait_ns = 0;
    while (more && !fence_done(&pool->fence, now)) {
        const uint64_t began = clock_ns();
        const int rc = fence_wait_oldest(&pool->fence, &more);

        *wait_ns += clock_ns() - began;
        if (rc)
            break;
    }
    small_reclaim(pool, cache);
    cache_flush_all(pool);
    heap_purge(pool->small.arena);
    return atomic_load(&pool->small.extent_bytes) < before;
}

/* ---- pins ---- */

int small_unpin(struct pool *pool, uint64_t address)
{
    struct mark *unit = unit_of(pool, address);

    if (!unit || !unit->pins)
        return -ENOENT;
    if (--unit->pins)
        return 0;
    uint64_t word = atomic_load(&unit->word);
    while (word != MARK_BUSY && /* freed */
           !atomic_compare_exchange_weak(&unit->word, &word, (word & ~(uint64_t)MARK_STATE) | MARK_LIVE))
        ;
    return word == MARK_BUSY;
}

void small_free_pinned(struct pool *pool, uint64_t address)
{
    struct mark *unit = unit_of(pool, address);

    if (!unit)
        return;
    const uint64_t bytes = rounded(unit);
    atomic_fetch_sub(&pool->small.pinned_bytes, bytes);
    atomic_store(&unit->word, 0);
    release_block(pool, NULL, address, bytes, false); /* the thread that unpins may never allocate */
}
