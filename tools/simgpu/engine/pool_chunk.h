/* pool_chunk: the memory of a pool: chunks taken from the card, and the free extents in them.
 *
 * The part of pool.h that only its own two files see. Guarded by the engine's lock.
 */
#ifndef SIMGPU_POOL_CHUNK_H
#define SIMGPU_POOL_CHUNK_H

#include "card.h"
#include "pool.h"
#include "stream.h"

#define POOL_STEP      (UINT64_C(32) << 20) /* the driver grows a pool by about this */
#define POOL_ALIGNMENT UINT64_C(512)

struct chunk {
    struct link link; /* in pool->chunks */
    struct CUmemPoolHandle_st *pool;
    struct phys *phys;
    uint64_t start;
    struct link free; /* extents by address, never two that touch */
};

struct CUmemPoolHandle_st {
    struct link link; /* all pools */
    CUdevice device;
    bool dead; /* destroyed while blocks were out: goes with the last one */
    uint64_t threshold;
    uint64_t max_size; /* 0: none */
    int reuse[3];      /* CU_MEMPOOL_ATTR_REUSE_*: kept, and answered */
    uint64_t reserved, reserved_high, used, used_high;
    unsigned long blocks;
    struct link chunks;
    struct link pending; /* freed in a stream that has not come there yet */
    CUmemAccess_flags access[CARD_MAX_DEVICES];
};

/* A place of that size for this stream; grows the pool when it must. */
CUresult chunk_take(struct CUmemPoolHandle_st *pool, const struct CUstream_st *stream, uint64_t size,
                    struct chunk **chunk, uint64_t *start);
bool chunk_give(struct chunk *chunk, uint64_t start, uint64_t size); /* false: no memory to note it */
/* Free when these ops are done; at once for the stream itself. Takes over the ops. False: no memory. */
bool chunk_give_later(struct chunk *chunk, uint64_t start, uint64_t size, const struct CUstream_st *stream,
                      struct ops *after);
void chunk_settle(struct CUmemPoolHandle_st *pool);              /* pending ones that are done become free */
void chunk_trim(struct CUmemPoolHandle_st *pool, uint64_t keep); /* gives back what is wholly free */
uint64_t chunk_round(uint64_t size);                             /* what a block of that size takes */

#endif
