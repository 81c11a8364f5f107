/* pool_table: see pool_table.h. */
#include "interpose/pool/pool_table.h"

#include <errno.h>

#include "interpose/base/pages.h"

#define FIRST_CAPACITY 4096 /* blocks; a power of two */
#define NEAR           64   /* units searched in the table before a walk along the neighbours */

/* A single multiplication keeps the equal distances of blocks of one size: a few thousand of an unlucky size
 * would form one run in the table. Mixing with a shift between two multiplications breaks this up: less than
 * one step from its home on average, for every size up to 4 MiB (measured). */
static uint64_t home_of(const struct pool *pool, uint64_t address)
{
    uint64_t h = address / RANGES_UNIT * UINT64_C(0x9e3779b97f4a7c15);

    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return h >> 32 & (pool->table_capacity - 1);
}

static void enter(struct pool *pool, struct range *range)
{
    uint64_t i = home_of(pool, range->start);

    while (pool->table[i].address)
        i = (i + 1) & (pool->table_capacity - 1);
    pool->table[i] = (struct pool_entry){range->start, range};
}

int pool_table_prepare(struct pool *pool)
{
    struct pool_entry *old = pool->table;
    const uint64_t old_capacity = pool->table_capacity;

    if (2 * (pool->table_count + 1) <= old_capacity)
        return 0;
    const uint64_t capacity = old ? old_capacity * 2 : FIRST_CAPACITY;
    struct pool_entry *bigger = pages_map(capacity * sizeof(*bigger));
    if (!bigger)
        return -ENOMEM;
    pool->table = bigger;
    pool->table_capacity = capacity;
    for (uint64_t i = 0; i < old_capacity; i++) {
        if (old[i].address)
            enter(pool, old[i].range);
    }
    if (old)
        munmap(old, old_capacity * sizeof(*old));
    return 0;
}

void pool_table_put(struct pool *pool, struct range *range)
{
    enter(pool, range);
    pool->table_count++;
}

static struct pool_entry *find(const struct pool *pool, uint64_t address)
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
void pool_table_erase(struct pool *pool, const struct range *range)
{
    const uint64_t mask = pool->table_capacity - 1;
    uint64_t hole = (uint64_t)(find(pool, range->start) - pool->table);

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
    for (uint64_t i = 0; i < pool->table_capacity; i++) {
        const struct pool_entry *entry = &pool->table[i];

        if (entry->address && mark_word(&entry->range->mark) & MARK_LIVE)
            visit(entry->address, &entry->range->mark, argument);
    }
}

const char *pool_table_check(const struct pool *pool)
{
    uint64_t entries = 0;

    for (uint64_t i = 0; i < pool->table_capacity; i++) {
        const struct pool_entry *entry = &pool->table[i];

        if (!entry->address)
            continue;
        entries++;
        if (entry->range->start != entry->address || entry->range->state != RANGE_LIVE ||
            find(pool, entry->address) != entry)
            return "the table by address holds what it should not";
    }
    return entries == pool->table_count ? NULL : "the table by address counts wrong";
}

void pool_table_close(struct pool *pool)
{
    if (pool->table)
        munmap(pool->table, pool->table_capacity * sizeof(*pool->table));
}
