/* pool_live: lists the blocks of a pool, for recordings that begin late. See pool.h. */
#include "interpose/pool/pool.h"

void pool_each_live(struct pool *pool, void (*visit)(const struct pool_live *block, void *argument),
                    void *argument)
{
    lock_take(&pool->lock);
    for (uint64_t i = 0; i < pool->table_capacity; i++) {
        const struct pool_entry *entry = &pool->table[i];
        const struct mark *mark = entry->address ? &entry->range->mark : NULL;

        if (mark && mark_word(mark) & MARK_LIVE)
            visit(&(struct pool_live){entry->address, mark_asked(mark), mark->tag}, argument);
    }
    small_each_live(pool, visit, argument);
    lock_release(&pool->lock);
}
