/* sim_pool_chunk: the memory of a pool: chunks taken from the card, and the free extents in them.
 *
 * Only for sim_pool.c and for the code that asks for the memory of a pooled block. Guarded by the engine's
 * lock.
 */
#ifndef SIMGPU_POOL_CHUNK_H
#define SIMGPU_POOL_CHUNK_H

#include "tools/simgpu/engine/sim_block.h"
#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/engine/sim_pool_extent.h"

#define POOL_STEP                                                                                            \
    (UINT64_C(32) << 20) /* the driver grows a pool by this while the card has room (measured) */
#define POOL_ALIGNMENT UINT64_C(512)

struct sim_chunk {
    struct sim_link link; /* in pool->chunks */
    struct sim_phys *phys;
    uint64_t start;
    struct sim_link free; /* free extents (sim_pool_extent.h) */
};

struct CUmemPoolHandle_st {
    struct sim_link link; /* in the list of all pools */
    CUdevice device;
    bool dead; /* destroyed while it had blocks: is deleted with the last one */
    uint64_t threshold;
    uint64_t max_size; /* 0: no limit */
    int reuse[3];      /* CU_MEMPOOL_ATTR_REUSE_*: stored for queries, without effect */
    uint64_t reserved, reserved_high, used, used_high;
    unsigned long blocks;
    struct sim_link chunks;
    CUmemAccess_flags access[CARD_MAX_DEVICES];
};

/* Allocates a range for this stream; grows the pool if needed. If the card has no more, releases all free
 * granules and allocates them again as one chunk, so that fragmentation does not make a request fail. */
CUresult sim_chunk_take(struct CUmemPoolHandle_st *pool, const struct CUstream_st *stream, uint64_t size,
                        uint64_t *start);
/* Frees a range whose work is done. Returns false if the host is out of memory. */
bool sim_chunk_give(struct CUmemPoolHandle_st *pool, uint64_t start, uint64_t size);
/* Frees a range when these ops are done; the stream itself may use it at once. Takes ownership of the ops.
 * Returns false if the host is out of memory. */
bool sim_chunk_give_later(struct CUmemPoolHandle_st *pool, uint64_t start, uint64_t size,
                          const struct CUstream_st *stream, struct sim_ops *after);
/* Calls sim_extent_settle() for all chunks. */
void sim_chunk_settle(struct CUmemPoolHandle_st *pool, uint64_t stream);
/* Gives chunks that are entirely free back to the card, as long as `keep` bytes stay. */
void sim_chunk_trim(struct CUmemPoolHandle_st *pool, uint64_t keep);
/* Returns the chunk that contains an address, or NULL. */
const struct sim_chunk *sim_chunk_of(const struct CUmemPoolHandle_st *pool, uint64_t address);
/* Returns the bytes that a block of that size takes. */
uint64_t sim_chunk_round(uint64_t size);

#endif
