/* pool: see pool.h. Allocation and release; what happens when nothing fits is in pool_grow.c. */
#include "interpose/pool/pool.h"

#include <errno.h>
#include <string.h>

#include "interpose/base/clock.h"
#include "interpose/pool/pool_expose.h"
#include "interpose/pool/pool_grow.h"
#include "interpose/pool/pool_split.h"
#include "interpose/pool/pool_table.h"
#include "interpose/pool/small.h"

#define ID_BITS 48 /* bits of a block id for blocks of one pool; the bits above are the pool's number */

_Thread_local bool pool_freed_pinned;
/* The large block that this thread took last; NULL if it has freed another since. Only compared. */
static _Thread_local const struct range *latest;
static _Atomic uint64_t pools_opened;

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + RANGES_UNIT - 1) & ~(RANGES_UNIT - 1);
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
    rc = ranges_init(&pool->ranges, pool->vmm.base, pool->vmm.span);
    if (rc)
        goto close_vmm;
    rc = ranges_init(&pool->unmoved, pool->vmm.base, pool->vmm.span);
    if (rc)
        goto destroy_ranges;
    pool->ranges.unmoved = &pool->unmoved;
    fence_open(&pool->fence, context);
    lock_init(&pool->lock, LOCK_POOL);
    small_open(pool);
    return 0;
destroy_ranges:
    ranges_destroy(&pool->ranges);
close_vmm:
    pool_release_left(pool);
    vmm_close(&pool->vmm);
    return rc;
}

/* Subtracts a block that the program never freed from the bytes of its tag. */
static void untag(uint64_t address, const struct mark *mark, void *unused)
{
    (void)address, (void)unused;
    if (mark->tag)
        tags_remove(mark->tag, rounded(mark_asked(mark)));
}

void pool_close(struct pool *pool, bool context_lives)
{
    cache_close(pool);
    pool_each_live(pool, untag, NULL); /* ending threads no longer touch the pool */
    small_close(pool);
    pool_dead_close(pool);
    pool_chunks_close(pool);
    pool_release_left(pool);
    fence_close(&pool->fence, context_lives);
    vmm_close(&pool->vmm);
    ranges_destroy(&pool->ranges);
    ranges_destroy(&pool->unmoved);
    pool_table_close(pool);
    lock_destroy(&pool->lock);
    memset(pool, 0, sizeof(*pool));
}

/* ---- allocation ---- */

/* Reserves the metadata of one allocation, so that nothing after it fails for lack of host memory. */
static int prepare(struct pool *pool)
{
    int rc = ranges_prepare(&pool->ranges, 8);

    return rc ? rc : pool_table_prepare(pool);
}

static void enter_block(struct pool *pool, struct range *range, uint64_t asked)
{
    const uint64_t id = atomic_fetch_add_explicit(&pool->next_id, 1, memory_order_relaxed) + 1;

    cache_mark(&range->mark, asked, range->bytes);
    pool_table_put(pool, range);
    atomic_store_explicit(&range->mark.word, id << 2 | MARK_LIVE, memory_order_release);
    pool_note_peak(pool);
    if (pool->ranges.free_bytes < pool->least_free)
        pool->least_free = pool->ranges.free_bytes;
}

/* Takes the best free range. Returns NULL if none fits. */
static struct range *take_best(struct pool *pool, uint64_t size)
{
    struct range *range = ranges_take(&pool->ranges, ranges_zone_for(&pool->ranges, size), size);

    if (!range || (range = pool_split_around(pool, range)))
        return range;
    /* The chunk was released, but the smaller ones could not be created. Try again, without splitting. */
    return ranges_prepare(&pool->ranges, 8)
               ? NULL
               : ranges_take(&pool->ranges, ranges_zone_for(&pool->ranges, size), size);
}

/* Takes cached blocks back first: left apart from their free neighbours they would make the pool grow or move
 * chunks. */
static struct range *take_free(struct pool *pool, uint64_t size)
{
    cache_return_mid(pool);
    if (size >= RANGES_LARGE_FROM) {
        cache_return_large(pool);
        pool_prefer_fit(pool, size);
    }
    struct range *range = take_best(pool, size);
    if (!range && cache_empty(pool, 0))
        range = take_best(pool, size);
    return range;
}

/* Takes a block without the pool's lock. Returns true and *address. */
static bool take_fast(struct pool *pool, uint64_t bytes, uint64_t size, uint64_t *address)
{
    if (cache_take(pool, bytes, size, address))
        return true;
    struct cache *cache = pool_is_small(pool, size) ? cache_mine(pool) : NULL;
    return cache && small_take(pool, cache, bytes, size, address);
}

/* Takes a range for a block, from free memory or by making room. Returns 0 or -ENOMEM. */
static int take_range(struct pool *pool, uint64_t size, struct range **range, struct pool_effort *effort)
{
    if (pool->guard)
        return pool_guard_take(pool, size, range, effort);
    *range = take_free(pool, size);
    return *range ? 0 : pool_make_fit(pool, ranges_zone_for(&pool->ranges, size), size, true, range, effort);
}

static int take_slow(struct pool *pool, uint64_t bytes, uint64_t size, uint64_t *address,
                     struct pool_effort *effort)
{
    lock_take(&pool->lock);
    pool_note_peak(pool);
    pool->requested += size;
    struct range *range = NULL;
    int rc = prepare(pool);
    if (rc == 0)
        rc = take_range(pool, size, &range, effort);
    /* Other threads may have used the room in the table while the lock was dropped. */
    if (range && (rc = pool_table_prepare(pool))) {
        pool_guard_give_rest(pool, range);
        ranges_give(&pool->ranges, range, range->epoch);
        range = NULL;
    }
    if (range) {
        pool->hits += !effort->made;
        if (range->bytes >= RANGES_LARGE_FROM)
            latest = range;
        enter_block(pool, range, bytes);
        *address = range->start;
    }
    lock_release(&pool->lock);
    return rc;
}

/* Gives unused memory of the heap back to the pool, if `size` may fit then. Returns true if it got any. */
static bool trim_small(struct pool *pool, uint64_t size, struct pool_effort *effort)
{
    struct cache *cache = pool->small.on ? cache_mine(pool) : NULL;
    const uint64_t began = clock_ns();
    uint64_t wait_ns;

    lock_take(&pool->lock);
    const bool may_fit = cache && pool_may_fit(pool, size);
    lock_release(&pool->lock);
    if (!may_fit)
        return false;
    const bool any = small_trim_wait(pool, cache, &wait_ns);
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
    const uint64_t size = rounded(bytes);

    if (take_fast(pool, bytes, size, address))
        return 0;
    struct pool_effort effort = {.made = false};
    int rc = take_slow(pool, bytes, size, address, &effort);
    if (rc && trim_small(pool, size, &effort))
        rc = take_slow(pool, bytes, size, address, &effort);
    return rc;
}

/* ---- release ---- */

/* Frees a block whose word has been taken. A large block is cached only if no other has come or gone since it
 * was taken: then its place is still the best fit. Without this rule blocks stay where they once fitted, and
 * generated programs hold up to 3 % more (bench_generate). */
static void release_block(struct pool *pool, struct range *range, bool done)
{
    const uint64_t epoch = done ? 0 : fence_epoch(&pool->fence);

    if (epoch && !streams_in_order()) {
        pool_table_erase(pool, range);
        pool_put_off(pool, range, epoch);
        return;
    }
    if (range->bytes < RANGES_LARGE_FROM || range == latest || !pool->ranges.roomy) {
        cache_put(pool, range, epoch);
        return;
    }
    latest = NULL;
    cache_return_large(pool);
    pool_table_erase(pool, range);
    ranges_give(&pool->ranges, range, epoch);
}

/* With the lock. A block whose word is 0 stays in the table until its memory is free. */
static int free_block(struct pool *pool, uint64_t address, bool done)
{
    uint64_t word;
    struct range *range = pool_table_live(pool, address, &word);

    if (!range || !atomic_compare_exchange_strong(&range->mark.word, &word, 0))
        return -EINVAL;
    pool_note_peak(pool);
    const uint16_t tag = atomic_load_explicit(&range->mark.tag, memory_order_relaxed);
    if (tag)
        tags_remove(tag, range->bytes);
    pool_guard_give_rest(pool, range);
    if (atomic_load_explicit(&range->mark.exposed, memory_order_relaxed) && !range->mark.pins) {
        pool_table_erase(pool, range);
        pool_expose_free(pool, range, done ? 0 : fence_epoch(&pool->fence));
        return 0;
    }
    if (!range->mark.pins) {
        release_block(pool, range, done);
        return 0;
    }
    /* The program's block is gone, but another process holds its memory: leave it as it is. */
    pool_table_erase(pool, range);
    pool->pinned_bytes += range->bytes;
    atomic_store_explicit(&range->mark.asked, 0, memory_order_relaxed);
    pool_freed_pinned = true;
    return 0;
}

bool pool_knows_block(struct pool *pool, uint64_t address)
{
    uint64_t word;

    return cache_knows_live(pool, address) || small_find(pool, address, &word);
}

bool pool_has_block(struct pool *pool, uint64_t address)
{
    struct pool_block block;

    return cache_knows_live(pool, address) || !pool_block(pool, address, false, &block);
}

int pool_free(struct pool *pool, uint64_t address, bool done)
{
    if (cache_keep(pool, address, done))
        return 0;
    int rc = small_free(pool, cache_mine(pool), address, done);
    if (rc > 0)
        pool_freed_pinned = true;
    if (rc != -ENOENT)
        return rc < 0 ? rc : 0;
    lock_take(&pool->lock);
    rc = free_block(pool, address, done);
    lock_release(&pool->lock);
    return rc;
}

/* ---- check ---- */

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
    wrong = wrong ? wrong : ranges_check(&pool->unmoved);
    wrong = wrong ? wrong : pool_table_check(pool);
    if (!wrong && pending != pool->pending_bytes)
        wrong = "the sum of pending blocks is wrong";
    if (!wrong && held != pool->vmm.physical)
        wrong = "what is held is neither live nor free";
    if (!wrong && atomic_load(&pool->small.wrong))
        wrong = "the heap of small blocks is damaged";
    lock_release(&pool->lock);
    return wrong;
}
