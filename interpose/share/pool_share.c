/* pool_share: access to a pool's memory from outside: peer cards, and the chunks behind blocks that other
 * processes open. All of it is rare. The pool's own lock guards it. */
#include "interpose/pool/pool.h"
#include "interpose/pool/pool_grow.h"

#include <errno.h>
#include <stdlib.h>

void pool_settle(struct pool *pool)
{
    fence_settle(&pool->fence);
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
