/* sim_pool_chunk: the memory of a pool. See sim_pool_chunk.h. */
#include "tools/simgpu/engine/sim_pool_chunk.h"

#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_stream.h"
#include "tools/simgpu/engine/sim_va.h"

#include <stdlib.h>
#include <sys/mman.h>

#define TIMES_THE_CARD 4                   /* addresses: a chunk that is added later needs new ones */
#define MOST_ADDRESSES (UINT64_C(1) << 40) /* of a pool on a card */
#define LEAST_SLOTS    32
#define HOST_ADDRESSES (UINT64_C(1) << 36) /* of the pool of host memory */

uint64_t sim_chunk_round(uint64_t size)
{
    return (size + POOL_ALIGNMENT - 1) & ~(POOL_ALIGNMENT - 1);
}

static uint64_t address_of(const struct CUmemPoolHandle_st *pool, unsigned int slot)
{
    return pool->start + slot * POOL_CHUNK;
}

static unsigned int slot_of(const struct CUmemPoolHandle_st *pool, uint64_t address)
{
    return (unsigned int)((address - pool->start) / POOL_CHUNK);
}

static unsigned int chunks_for(uint64_t size)
{
    return (unsigned int)(size / POOL_CHUNK + (size % POOL_CHUNK > 0));
}

struct sim_phys *sim_chunk_memory(const struct CUmemPoolHandle_st *pool, uint64_t address)
{
    return pool->chunks[slot_of(pool, address)];
}

struct sim_range sim_chunk_at(const struct CUmemPoolHandle_st *pool, uint64_t address)
{
    return (struct sim_range){.start = address_of(pool, slot_of(pool, address)), .size = POOL_CHUNK};
}

bool sim_chunk_give(struct CUmemPoolHandle_st *pool, uint64_t start, uint64_t size)
{
    return sim_extent_add(&pool->free, start, size, 0, NULL);
}

bool sim_chunk_give_later(struct CUmemPoolHandle_st *pool, uint64_t start, uint64_t size,
                          const struct CUstream_st *stream, struct sim_ops *after)
{
    return sim_extent_add(&pool->free, start, size, stream->id, after);
}

/* ---- addresses ---- */

static unsigned int slots_of(const struct CUmemPoolHandle_st *pool)
{
    if (pool->device == PHYS_HOST)
        return chunks_for(HOST_ADDRESSES);
    const uint64_t card = sim_device_info(pool->device)->capacity;
    return chunks_for(card < MOST_ADDRESSES / TIMES_THE_CARD ? card * TIMES_THE_CARD : MOST_ADDRESSES);
}

/* Takes fewer addresses where they are limited, as ThreadSanitizer does. */
static bool has_addresses(struct CUmemPoolHandle_st *pool)
{
    if (pool->start)
        return true;
    pool->slots = slots_of(pool);
    while (!(pool->start = sim_va_reserve(pool->slots * POOL_CHUNK, 0, 0)) && pool->slots > LEAST_SLOTS)
        pool->slots /= 2;
    pool->chunks = pool->start ? calloc(pool->slots, sizeof(*pool->chunks)) : NULL;
    if (pool->start && !pool->chunks) {
        sim_va_release(pool->start, pool->slots * POOL_CHUNK);
        pool->start = 0;
    }
    return pool->start != 0;
}

void sim_chunk_end(struct CUmemPoolHandle_st *pool)
{
    if (!pool->start)
        return;
    sim_va_release(pool->start, pool->slots * POOL_CHUNK);
    free(pool->chunks);
}

/* ---- chunks ---- */

/* Puts memory into an empty slot, as free for every stream. */
static bool fill(struct CUmemPoolHandle_st *pool, unsigned int slot, struct sim_phys *phys)
{
    if (!sim_va_back(address_of(pool, slot), phys, PROT_READ | PROT_WRITE))
        return false;
    if (!sim_chunk_give(pool, address_of(pool, slot), POOL_CHUNK)) {
        sim_va_unback(address_of(pool, slot), POOL_CHUNK);
        return false;
    }
    pool->chunks[slot] = phys;
    if (slot >= pool->end)
        pool->end = slot + 1;
    return true;
}

/* Takes the memory of a slot out of it. Returns NULL, with nothing changed, if something lives there. */
static struct sim_phys *empty(struct CUmemPoolHandle_st *pool, unsigned int slot)
{
    struct sim_phys *phys = pool->chunks[slot];

    if (!phys || !sim_extent_cut(&pool->free, address_of(pool, slot), POOL_CHUNK))
        return NULL;
    sim_va_unback(address_of(pool, slot), POOL_CHUNK);
    pool->chunks[slot] = NULL;
    while (pool->end > 0 && !pool->chunks[pool->end - 1])
        pool->end--;
    return phys;
}

void sim_chunk_trim(struct CUmemPoolHandle_st *pool, uint64_t keep)
{
    unsigned int slot;

    for (slot = 0; slot < pool->end && pool->reserved > keep && pool->reserved - keep >= POOL_CHUNK; slot++) {
        struct sim_phys *phys = empty(pool, slot);

        if (phys) {
            sim_phys_drop(phys);
            pool->reserved -= POOL_CHUNK;
        }
    }
}

/* ---- growing ---- */

static bool add_chunk(struct CUmemPoolHandle_st *pool, unsigned int slot)
{
    struct sim_phys *phys;

    if (pool->max_size && pool->reserved >= pool->max_size)
        return false;
    if (sim_phys_try(pool->device, POOL_CHUNK, &phys) != CUDA_SUCCESS)
        return false;
    if (!fill(pool, slot, phys)) {
        sim_phys_drop(phys);
        return false;
    }
    pool->reserved += POOL_CHUNK;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return true;
}

/* Returns the first of so many empty slots in a row, or pool->slots. */
static unsigned int empty_slots(const struct CUmemPoolHandle_st *pool, unsigned int count)
{
    unsigned int slot, found = 0;

    for (slot = 0; slot < pool->slots && found < count; slot++)
        found = pool->chunks[slot] ? 0 : found + 1;
    return found == count ? slot - count : pool->slots;
}

/* Makes a free range of so many bytes: adds chunks at the end of the pool; or, if the addresses there are
 * used up, where chunks were given back. */
static bool grow(struct CUmemPoolHandle_st *pool, uint64_t size, uint64_t stream)
{
    const uint64_t tail = sim_extent_before(&pool->free, address_of(pool, pool->end), stream);
    unsigned int slot = pool->end, count = chunks_for(size - tail);

    if (slot + count > pool->slots)
        slot = empty_slots(pool, count = chunks_for(size));
    if (slot == pool->slots)
        return false;
    for (; count > 0; count--, slot++)
        if (!add_chunk(pool, slot))
            return false;
    return true;
}

static bool take_from(struct CUmemPoolHandle_st *pool, uint64_t size, uint64_t stream, uint64_t *start)
{
    struct sim_extent *first = sim_extent_find(&pool->free, size, stream);

    if (!first)
        return false;
    *start = sim_extent_take(first, size);
    return true;
}

CUresult sim_chunk_take(struct CUmemPoolHandle_st *pool, const struct CUstream_st *stream, uint64_t size,
                        uint64_t *start)
{
    sim_extent_settle(&pool->free, 0);
    if (take_from(pool, size, 0, start) || take_from(pool, size, stream->id, start))
        return CUDA_SUCCESS;
    if (!has_addresses(pool) || size > pool->slots * POOL_CHUNK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!grow(pool, size, stream->id)) {
        sim_phys_make_room(pool->device);
        (void)grow(pool, size, stream->id);
    }
    if (take_from(pool, size, stream->id, start))
        return CUDA_SUCCESS;
    sim_chunk_trim(pool, pool->threshold);
    return CUDA_ERROR_OUT_OF_MEMORY;
}
