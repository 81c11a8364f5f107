/* pool_chunks: see pool_chunks.h. */
#include "interpose/pool/pool_chunks.h"

#include <errno.h>

#include "interpose/base/pages.h"
#include "interpose/see/owner.h"

#define FIRST_SCRATCH 1024 /* chunks */
#define HELD_CARDS    64

_Atomic uint64_t pool_given_back;
static _Atomic uint64_t held[HELD_CARDS]; /* by the pools of each card, for recordings */

/* Notes for a recording that the pools of a card hold `bytes` more, or less. */
static void note_held(const struct pool *pool, enum recording_type type, uint64_t bytes)
{
    _Atomic uint64_t *of_card = &held[(unsigned)pool->ordinal % HELD_CARDS];
    const uint64_t change = type == RECORDING_GROW ? bytes : 0 - bytes;
    const uint64_t now = atomic_fetch_add_explicit(of_card, change, memory_order_relaxed) + change;

    if (events_are_on())
        events_note(&(struct recording_event){.head.type = (uint16_t)type,
                                              .device = (uint16_t)pool->ordinal,
                                              .bytes = bytes,
                                              .other = now,
                                              .owner = type == RECORDING_GROW ? owner_current : 0});
}

uint64_t pool_held_on(CUdevice ordinal)
{
    return atomic_load_explicit(&held[(unsigned)ordinal % HELD_CARDS], memory_order_relaxed);
}

uint64_t pool_mapped_end(const struct pool *pool)
{
    const struct range *last = pool->ranges.first;

    while (last->upper)
        last = last->upper;
    /* The address space never fills up, so the last range is the hole behind everything. */
    return last->start;
}

bool pool_next_chunk(const struct pool *pool, uint64_t floor, uint64_t *below, uint64_t *start,
                     uint64_t *bytes)
{
    uint64_t end = *below & ~(RANGES_PAGE - 1);

    while (end > floor && vmm_chunk_at(&pool->vmm, end - RANGES_PAGE, start, bytes)) {
        if (*start < floor)
            return false;
        end = *start;
        if (*start + *bytes <= *below) {
            *below = *start;
            return true;
        }
    }
    return false;
}

uint64_t pool_whole_bytes(struct pool *pool, uint64_t enough)
{
    uint64_t total = 0;

    for (struct range *f = pool->ranges.oldest; f && total < enough; f = f->newer) {
        uint64_t below = f->start + f->bytes, start, bytes;

        while (total < enough && pool_next_chunk(pool, f->start, &below, &start, &bytes))
            total += bytes;
    }
    return total;
}

int pool_create_chunk(struct pool *pool, uint64_t bytes, struct vmm_chunk *chunk)
{
    if (!pool->budget.take(pool->budget.owner, bytes))
        return -ENOMEM;
    const int rc = vmm_create(&pool->vmm, bytes, chunk);
    pool->budget.settle(pool->budget.owner, bytes, rc == 0);
    if (rc == 0)
        note_held(pool, RECORDING_GROW, bytes);
    if (rc == 0 && pool->vmm.physical > pool->peak_physical)
        pool->peak_physical = pool->vmm.physical;
    return rc;
}

/* Counts bytes that went back to the driver. */
static void note_release(struct pool *pool, uint64_t bytes)
{
    pool->budget.give(pool->budget.owner, bytes);
    note_held(pool, RECORDING_TRIM, bytes);
    atomic_fetch_add(&pool_given_back, 1);
}

void pool_release_chunk(struct pool *pool, const struct vmm_chunk *chunk)
{
    if (vmm_release(&pool->vmm, chunk))
        note_release(pool, chunk->bytes);
}

void pool_release_left(struct pool *pool)
{
    const uint64_t bytes = pool->vmm.left_count ? vmm_release_left(&pool->vmm) : 0;

    if (bytes)
        note_release(pool, bytes);
}

int pool_give_back(struct pool *pool, uint64_t start)
{
    struct vmm_chunk chunk;

    if (ranges_prepare(&pool->ranges, 8))
        return -ENOMEM;
    const int rc = vmm_unmap(&pool->vmm, start, &chunk);
    if (rc)
        return rc;
    ranges_unmap(&pool->ranges, start, chunk.bytes);
    pool_release_chunk(pool, &chunk);
    return 0;
}

struct vmm_chunk *pool_scratch(struct pool *pool, uint64_t count)
{
    struct vmm_chunk *chunks =
        pages_grow(pool->chunks, &pool->chunk_capacity, 0, count, sizeof(*chunks), FIRST_SCRATCH);

    if (chunks)
        pool->chunks = chunks;
    return chunks;
}

void pool_chunks_close(struct pool *pool)
{
    uint64_t start, bytes, end = pool_mapped_end(pool);
    struct vmm_chunk chunk;

    for (uint64_t at = pool->vmm.base; at < end; at += RANGES_PAGE) {
        if (!vmm_chunk_at(&pool->vmm, at, &start, &bytes) || start != at)
            continue;
        if (vmm_unmap(&pool->vmm, at, &chunk) == 0)
            pool_release_chunk(pool, &chunk);
    }
    if (pool->chunks)
        munmap(pool->chunks, pool->chunk_capacity * sizeof(*pool->chunks));
}
