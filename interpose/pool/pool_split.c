/* pool_split: see pool_split.h. */
#include "interpose/pool/pool_split.h"

#include "interpose/pool/pool_chunks.h"
#include "interpose/pool/pool_dead.h"
#include "interpose/pool/pool_grow.h"

/* A chunk of fewer usual ones is left as it is: 16 MiB near a limit, 64 MiB with room to spare, where moving
 * it is not worth what splitting costs (gpt_varlen: 64 ms instead of 108 making room). */
#define USUALS 8
#define PART   64 /* a chunk of at most this part of the block's size is not split */

/* The chunk under the end of a block. */
struct last_chunk {
    uint64_t start, bytes;
    uint64_t covered; /* bytes covered by the block, from the start on */
};

/* Returns true if the block covers only the beginning of a chunk that is too large for it, and the rest is
 * free with all work done. */
static bool is_too_large(const struct pool *pool, const struct range *block, struct last_chunk *chunk)
{
    const uint64_t end = block->start + block->bytes, reached = atomic_load(&pool->fence.done);
    const struct range *rest = block->upper;

    if (!vmm_chunk_at(&pool->vmm, end - 1, &chunk->start, &chunk->bytes) ||
        chunk->bytes < USUALS * RANGES_PAGE || chunk->bytes <= block->bytes / PART ||
        chunk->start < block->start)
        return false;
    chunk->covered = end - chunk->start;
    return chunk->covered < chunk->bytes && block->epoch <= reached && rest && rest->state == RANGE_FREE &&
           rest->epoch <= reached && rest->start + rest->bytes >= chunk->start + chunk->bytes &&
           chunk->bytes >= USUALS * pool_usual_chunk(pool);
}

/* Plans the sizes of the new chunks: the usual one under the end of the block, doubling behind it. With room
 * to spare those before it are as large as fits under the block, up to a quarter of the old one: fewer to
 * create. Returns their number. */
static uint64_t plan_pieces(const struct last_chunk *chunk, uint64_t usual, struct vmm_chunk *pieces)
{
    const uint64_t most = usual > RANGES_PAGE ? chunk->bytes / 4 : usual;
    uint64_t count = 0, piece, behind = usual;

    for (uint64_t at = 0; at < chunk->bytes; at += piece) {
        piece = at < chunk->covered ? usual : (behind *= 2);
        while (at + 2 * piece <= chunk->covered && 2 * piece <= most)
            piece *= 2;
        if (piece > chunk->bytes - at)
            piece = chunk->bytes - at;
        pieces[count++].bytes = piece;
    }
    return count;
}

/* Maps new chunks into the hole that a chunk has left. Returns false without memory: it stays a hole. */
static bool fill(struct pool *pool, const struct last_chunk *chunk, struct vmm_chunk *pieces, uint64_t count)
{
    uint64_t made = 0, stuck = 0, at = chunk->start;

    while (made < count && pool_create_chunk(pool, pieces[made].bytes, &pieces[made]) == 0)
        made++;
    if (made == count && vmm_map(&pool->vmm, chunk->start, pieces, count, &stuck) == 0) {
        ranges_map(&pool->ranges, chunk->start, chunk->bytes, 0);
        return true;
    }
    for (uint64_t i = 0; i < stuck; at += pieces[i++].bytes)
        pool_stuck(pool, at, &pieces[i], true);
    for (uint64_t i = stuck; i < made; i++)
        pool_release_chunk(pool, &pieces[i]);
    return false;
}

/* Replaces a chunk that is wholly free. Returns false if the chunk is released but could not be replaced. */
static bool replace(struct pool *pool, const struct last_chunk *chunk)
{
    const uint64_t usual = pool_usual_chunk(pool), most = chunk->bytes / usual + 1;
    struct vmm_chunk *pieces = pool_scratch(pool, most);

    if (!pieces || ranges_prepare(&pool->ranges, 8 + 2 * (unsigned)most) || pool_dead_prepare(pool, most) ||
        !pool_unmap_dead_of(pool, chunk->start, fence_reached(&pool->fence)) ||
        pool_give_back(pool, chunk->start))
        return true;
    return fill(pool, chunk, pieces, plan_pieces(chunk, usual, pieces));
}

struct range *pool_split_around(struct pool *pool, struct range *range)
{
    const uint64_t start = range->start, bytes = range->bytes;
    struct last_chunk chunk;

    if (!is_too_large(pool, range, &chunk))
        return range;
    ranges_give(&pool->ranges, range, range->epoch);
    if (!replace(pool, &chunk) || ranges_prepare(&pool->ranges, 8))
        return NULL;
    return ranges_take_at(&pool->ranges, start, bytes);
}
