/* sim_pool_chunk: the memory of a pool. See sim_pool_chunk.h. */
#include "tools/simgpu/engine/sim_pool_chunk.h"

#include "tools/simgpu/engine/sim_stream.h"
#include "tools/simgpu/engine/sim_va.h"

#include <stdlib.h>
#include <sys/mman.h>

uint64_t sim_chunk_round(uint64_t size)
{
    return (size + POOL_ALIGNMENT - 1) & ~(POOL_ALIGNMENT - 1);
}

static struct sim_chunk *of_link(struct sim_link *link)
{
    return LIST_ITEM(link, struct sim_chunk, link);
}

static uint64_t end_of(const struct sim_chunk *chunk)
{
    return chunk->start + chunk->phys->size;
}

static struct sim_chunk *find(const struct CUmemPoolHandle_st *pool, uint64_t address)
{
    struct sim_link *at;

    for (at = pool->chunks.next; at != &pool->chunks; at = at->next)
        if (address >= of_link(at)->start && address < end_of(of_link(at)))
            return of_link(at);
    return NULL;
}

const struct sim_chunk *sim_chunk_of(const struct CUmemPoolHandle_st *pool, uint64_t address)
{
    return find(pool, address);
}

bool sim_chunk_give(struct CUmemPoolHandle_st *pool, uint64_t start, uint64_t size)
{
    return sim_extent_add(&find(pool, start)->free, start, size, 0, NULL);
}

bool sim_chunk_give_later(struct CUmemPoolHandle_st *pool, uint64_t start, uint64_t size,
                          const struct CUstream_st *stream, struct sim_ops *after)
{
    return sim_extent_add(&find(pool, start)->free, start, size, stream->id, after);
}

void sim_chunk_settle(struct CUmemPoolHandle_st *pool, uint64_t stream)
{
    struct sim_link *at;

    for (at = pool->chunks.next; at != &pool->chunks; at = at->next)
        sim_extent_settle(&of_link(at)->free, stream);
}

/* ---- growing ---- */

/* Adds a chunk to the pool; size is whole granules. */
static CUresult grow(struct CUmemPoolHandle_st *pool, uint64_t size)
{
    struct sim_chunk *chunk = calloc(1, sizeof(*chunk));
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!chunk || (pool->max_size && pool->reserved + size > pool->max_size))
        goto fail;
    result = sim_phys_create(pool->device, size, false, &chunk->phys);
    if (result != CUDA_SUCCESS)
        goto fail;
    result = CUDA_ERROR_OUT_OF_MEMORY;
    sim_list_init(&chunk->free);
    chunk->start = sim_va_reserve(size, 0, 0);
    if (!chunk->start)
        goto fail_phys;
    if (!sim_va_back(chunk->start, chunk->phys, PROT_READ | PROT_WRITE) ||
        !sim_extent_add(&chunk->free, chunk->start, size, 0, NULL))
        goto fail_address;
    sim_list_append(&pool->chunks, &chunk->link);
    pool->reserved += size;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return CUDA_SUCCESS;
fail_address:
    sim_va_release(chunk->start, size);
fail_phys:
    sim_phys_drop(chunk->phys);
fail:
    free(chunk);
    return result;
}

/* ---- giving back ---- */

/* Is all memory that the chunk still has free for every stream? */
static bool wholly_free(struct sim_chunk *chunk)
{
    uint64_t free_bytes = 0;
    struct sim_link *at;

    for (at = chunk->free.next; at != &chunk->free; at = at->next)
        free_bytes += sim_extent_of(at)->stream == 0 ? sim_extent_of(at)->size : 0;
    return free_bytes == sim_phys_held(chunk->phys);
}

static void give_back(struct CUmemPoolHandle_st *pool, struct sim_chunk *chunk)
{
    while (!sim_list_empty(&chunk->free))
        sim_extent_take(sim_extent_of(chunk->free.next), sim_extent_of(chunk->free.next)->size);
    pool->reserved -= sim_phys_held(chunk->phys);
    sim_va_release(chunk->start, chunk->phys->size);
    sim_phys_drop(chunk->phys);
    sim_list_remove(&chunk->link);
    free(chunk);
}

void sim_chunk_trim(struct CUmemPoolHandle_st *pool, uint64_t keep)
{
    struct sim_link *at, *next;

    for (at = pool->chunks.next; at != &pool->chunks && pool->reserved > keep; at = next) {
        next = at->next;
        if (wholly_free(of_link(at)) && pool->reserved - sim_phys_held(of_link(at)->phys) >= keep)
            give_back(pool, of_link(at));
    }
}

/* Gives the whole granules of an extent back to the card. The chunk keeps their addresses, unmapped. */
static void give_back_part(struct CUmemPoolHandle_st *pool, struct sim_chunk *chunk,
                           struct sim_extent *extent)
{
    const uint64_t low = sim_phys_round(extent->start - chunk->start);
    const uint64_t high = (extent->start + extent->size - chunk->start) & ~(PHYS_GRANULE - 1);

    if (low >= high || !sim_extent_cut(extent, chunk->start + low, high - low))
        return;
    sim_va_unback(chunk->start + low, high - low);
    sim_phys_give_part(chunk->phys, low, high - low);
    pool->reserved -= high - low;
}

/* Gives every granule that is free for every stream back to the card. */
static void give_back_granules(struct CUmemPoolHandle_st *pool)
{
    struct sim_link *at, *e, *next;

    sim_chunk_trim(pool, 0);
    for (at = pool->chunks.next; at != &pool->chunks; at = at->next)
        for (e = of_link(at)->free.next; e != &of_link(at)->free; e = next) {
            next = e->next;
            if (sim_extent_of(e)->stream == 0)
                give_back_part(pool, of_link(at), sim_extent_of(e));
        }
}

/* ---- taking ---- */

static bool take_from(struct CUmemPoolHandle_st *pool, uint64_t size, uint64_t stream, uint64_t *start)
{
    struct sim_extent_run best = {NULL, 0};
    struct sim_link *at;

    for (at = pool->chunks.next; at != &pool->chunks; at = at->next)
        sim_extent_find(&of_link(at)->free, size, stream, &best);
    if (!best.first)
        return false;
    *start = sim_extent_take(best.first, size);
    return true;
}

CUresult sim_chunk_take(struct CUmemPoolHandle_st *pool, const struct CUstream_st *stream, uint64_t size,
                        uint64_t *start)
{
    const uint64_t steps = (size + POOL_STEP - 1) & ~(POOL_STEP - 1);
    CUresult result;

    sim_chunk_settle(pool, 0);
    if (take_from(pool, size, 0, start) || take_from(pool, size, stream->id, start))
        return CUDA_SUCCESS;
    result = grow(pool, steps);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = grow(pool, sim_phys_round(size));
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        give_back_granules(pool);
        result = grow(pool, sim_phys_round(size));
    }
    if (result == CUDA_SUCCESS && !take_from(pool, size, 0, start))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}
