/* sim_pool_chunk: the memory of a pool: chunks taken from the card, and the free extents in them.
 *
 * The part of sim_pool.h that only sim_pool.c, sim_pool_extent.c and this see. Guarded by the engine's lock.
 */
#ifndef SIMGPU_POOL_CHUNK_H
#define SIMGPU_POOL_CHUNK_H

#include "tools/simgpu/engine/sim_block.h"
#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/engine/sim_pool_extent.h"

#define POOL_STEP      (UINT64_C(32) << 20) /* the driver grows a pool by this while there is room (measured) */
#define POOL_ALIGNMENT UINT64_C(512)

struct sim_chunk {
    struct sim_link link; /* in pool->chunks */
    struct sim_phys *phys;
    uint64_t start;
    struct sim_link free; /* extents (sim_pool_extent.h) */
};

struct CUmemPoolHandle_st {
    struct sim_link link; /* all pools */
    CUdevice device;
    bool dead; /* destroyed while blocks were out: goes with the last one */
    uint64_t threshold;
    uint64_t max_size; /* 0: none */
    int reuse[3];      /* CU_MEMPOOL_ATTR_REUSE_*: kept, and answered */
    uint64_t reserved, reserved_high, used, used_high;
    unsigned long blocks;
    struct sim_link chunks;
    CUmemAccess_flags access[CARD_MAX_DEVICES];
};

/* A place of that size for this stream; grows the pool when it must. Where the card has no more, free
 * granules are given back and taken anew, so that all that is free and done serves a request of any size. */
CUresult sim_chunk_take(struct CUmemPoolHandle_st *pool, const struct CUstream_st *stream, uint64_t size,
                        uint64_t *start);
bool sim_chunk_give(struct CUmemPoolHandle_st *pool, uint64_t start,
                    uint64_t size); /* done; false: no memory to note it */
/* Free when these ops are done; at once for the stream itself. Takes over the ops. False: no memory. */
bool sim_chunk_give_later(struct CUmemPoolHandle_st *pool, uint64_t start, uint64_t size,
                          const struct CUstream_st *stream, struct sim_ops *after);
void sim_chunk_settle(struct CUmemPoolHandle_st *pool,
                      uint64_t stream); /* sim_extent_settle() of all chunks */
void sim_chunk_trim(struct CUmemPoolHandle_st *pool,
                    uint64_t keep); /* gives back chunks that are wholly free */
const struct sim_chunk *sim_chunk_of(const struct CUmemPoolHandle_st *pool,
                                     uint64_t address); /* NULL: none */
uint64_t sim_chunk_round(uint64_t size);                /* what a block of that size takes */

#endif
