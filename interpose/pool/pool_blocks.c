/* pool_blocks: see pool_blocks.h. */
#include "interpose/pool/pool_blocks.h"

#include <errno.h>

#include "interpose/pool/pool_table.h"
#include "interpose/pool/small.h"

/* Looks up the small block that begins at the address or, with `inside`, contains it. False: none. */
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
    const struct range *range = pool_table_live(pool, address, &word);
    if (!range && inside)
        range = pool_table_around(pool, address, &word);
    if (range)
        *block = (struct pool_block){
            range->start, atomic_load_explicit(&range->mark.asked, memory_order_relaxed), word >> 2,
            range->mark.pins, atomic_load_explicit(&range->mark.sync_memops, memory_order_relaxed)};
    lock_release(&pool->lock);
    return range ? 0 : -EINVAL;
}

struct mark *pool_find_mark(struct pool *pool, uint64_t address, struct range **range, uint64_t *word)
{
    struct mark *unit = small_find(pool, address, word);

    *range = unit || *word ? NULL : pool_table_live(pool, address, word);
    return *range ? &(*range)->mark : unit;
}

int pool_set_sync_memops(struct pool *pool, uint64_t address, bool on)
{
    struct range *range;
    uint64_t word;

    lock_take(&pool->lock);
    struct mark *mark = pool_find_mark(pool, address, &range, &word);
    if (mark)
        atomic_store_explicit(&mark->sync_memops, on, memory_order_relaxed);
    lock_release(&pool->lock);
    return mark ? 0 : -EINVAL;
}

void pool_each_live(struct pool *pool,
                    void (*visit)(uint64_t address, const struct mark *mark, void *argument), void *argument)
{
    lock_take(&pool->lock);
    pool_table_each(pool, visit, argument);
    small_each(pool, visit, argument);
    lock_release(&pool->lock);
}
