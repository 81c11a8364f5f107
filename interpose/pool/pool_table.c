/* pool_table: see pool_table.h. */
#include "interpose/pool/pool_table.h"

#define NEAR 64 /* units searched in the table before a walk along the neighbours */

static const struct table_of entries = {sizeof(struct pool_entry), false};

int pool_table_prepare(struct pool *pool)
{
    return table_prepare(&pool->table, &entries, 1);
}

void pool_table_put(struct pool *pool, struct range *range)
{
    table_put(&pool->table, &entries, &(struct pool_entry){range->start, range});
}

static struct pool_entry *find(const struct pool *pool, uint64_t address)
{
    return table_find(&pool->table, &entries, &(struct pool_entry){.address = address});
}

void pool_table_erase(struct pool *pool, const struct range *range)
{
    table_erase(&pool->table, &entries, find(pool, range->start));
}

struct range *pool_table_live(const struct pool *pool, uint64_t address, uint64_t *word)
{
    const struct pool_entry *entry = find(pool, address);

    *word = entry ? atomic_load_explicit(&entry->range->mark.word, memory_order_acquire) : 0;
    return *word & MARK_LIVE ? entry->range : NULL;
}

/* Finds the block that begins at most NEAR units below an address, without a walk along the neighbours. */
static struct pool_entry *find_near(const struct pool *pool, uint64_t address)
{
    struct pool_entry *entry = NULL;

    address &= ~(RANGES_UNIT - 1);
    for (unsigned i = 0; i < NEAR && !entry && address - i * RANGES_UNIT >= pool->vmm.base; i++)
        entry = find(pool, address - i * RANGES_UNIT);
    return entry;
}

struct range *pool_table_around(const struct pool *pool, uint64_t address, uint64_t *word)
{
    const struct pool_entry *entry = find_near(pool, address);
    struct range *range = entry ? entry->range : ranges_at(&pool->ranges, address);

    range = range && range->state == RANGE_LIVE ? pool_table_live(pool, range->start, word) : NULL;
    return range && address - range->start < atomic_load_explicit(&range->mark.asked, memory_order_relaxed)
               ? range
               : NULL;
}

void pool_table_each(const struct pool *pool,
                     void (*visit)(uint64_t address, const struct mark *mark, void *argument), void *argument)
{
    const struct pool_entry *entry;

    for (uint64_t at = 0; (entry = table_next(&pool->table, &entries, &at));) {
        if (mark_word(&entry->range->mark) & MARK_LIVE)
            visit(entry->address, &entry->range->mark, argument);
    }
}

const char *pool_table_check(const struct pool *pool)
{
    const struct pool_entry *entry;

    for (uint64_t at = 0; (entry = table_next(&pool->table, &entries, &at));) {
        if (entry->range->start != entry->address || entry->range->state != RANGE_LIVE)
            return "the table by address holds what it should not";
    }
    return table_check(&pool->table, &entries);
}

void pool_table_close(struct pool *pool)
{
    table_close(&pool->table, &entries);
}
