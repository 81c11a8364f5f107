/* pool_reach: see pool_reach.h. */
#include "interpose/pool/pool_reach.h"

#include <errno.h>
#include <stdlib.h>

#include "interpose/pool/pool_blocks.h"
#include "interpose/pool/pool_chunks.h"
#include "interpose/pool/pool_expose.h"
#include "interpose/pool/pool_pending.h"
#include "interpose/pool/small.h"

void pool_wait_all(struct pool *pool)
{
    if (fence_reused_early())
        fence_wait_all(&pool->fence);
}

int pool_add_peer(struct pool *pool, CUdevice peer)
{
    lock_take(&pool->lock);
    int rc = vmm_add_peer(&pool->vmm, peer, pool_mapped_end(pool));
    lock_release(&pool->lock);
    return rc;
}

void pool_remove_peer(struct pool *pool, CUdevice peer)
{
    lock_take(&pool->lock);
    vmm_remove_peer(&pool->vmm, peer, pool_mapped_end(pool));
    lock_release(&pool->lock);
}

/* With the lock. */
static int list_chunks(struct pool *pool, uint64_t address, uint64_t size, struct vmm_chunk **chunks,
                       uint64_t *count, uint64_t *offset)
{
    const uint64_t end = address + size;
    uint64_t first, bytes, n = 0;

    if (!vmm_chunk_at(&pool->vmm, address, &first, &bytes))
        return -EINVAL;
    *chunks = calloc((end - first + VMM_PAGE - 1) / VMM_PAGE, sizeof(**chunks));
    if (!*chunks)
        return -ENOMEM;
    for (uint64_t at = first; at < end; at += (*chunks)[n++].bytes)
        (*chunks)[n] = vmm_chunk_from(&pool->vmm, at);
    *count = n;
    *offset = address - first;
    return 0;
}

int pool_backing(struct pool *pool, uint64_t address, struct vmm_chunk **chunks, uint64_t *count,
                 uint64_t *offset)
{
    int rc = -EINVAL;

    lock_take(&pool->lock);
    const struct range *range = ranges_at(&pool->ranges, address);
    uint64_t word;
    const struct mark *unit = small_find(pool, address, &word);
    if (unit && unit->pins)
        rc = list_chunks(pool, address, unit->asked, chunks, count, offset);
    else if (range && range->state == RANGE_LIVE && range->start == address && range->mark.pins)
        rc = list_chunks(pool, address, range->bytes, chunks, count, offset);
    lock_release(&pool->lock);
    return rc;
}

int pool_pin(struct pool *pool, uint64_t address)
{
    struct range *range;
    uint64_t word;

    lock_take(&pool->lock);
    struct mark *mark = pool_find_mark(pool, address, &range, &word);
    const bool pinned = mark && atomic_compare_exchange_strong(&mark->word, &word, word | MARK_PINNED);
    if (pinned)
        mark->pins++;
    lock_release(&pool->lock);
    return pinned ? 0 : -EINVAL;
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
        pool_put_off(pool, range, epoch);
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
    struct range *range;
    uint64_t word;

    lock_take(&pool->lock);
    struct mark *mark = pool_find_mark(pool, address, &range, &word);
    if (mark)
        atomic_store_explicit(&mark->exposed, true, memory_order_relaxed);
    /* Pinned, it is never cached at its free, which would happen without the lock. */
    const bool pinned = mark && atomic_compare_exchange_strong(&mark->word, &word, word | MARK_PINNED);
    /* A small block shares its chunk with many others: it stays pinned, and its few bytes are not reused. */
    if (pinned && !range)
        mark->pins++;
    lock_release(&pool->lock);
    return pinned ? 0 : -EINVAL;
}
