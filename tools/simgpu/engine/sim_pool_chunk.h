/* sim_pool_chunk: the memory of a pool: one range of addresses, filled with chunks of 32 MiB.
 *
 * As measured on an H200 (driver 580): a pool grows at the end of its addresses, always by whole chunks, so
 * that a block may begin in one chunk and end in another. If the card has no chunk left, all pools give back
 * the chunks in which nothing lives, and the pool tries again; chunks added for a request that is refused
 * after all stay, as far as the release threshold allows. Memory between blocks that live is never joined.
 * One thing is not simulated: the driver leaves the rest of a chunk that was added on the second try unused
 * at first.
 *
 * Only for sim_pool.c and for the code that asks for the memory of a pooled block. Guarded by the engine's
 * lock.
 */
#ifndef SIMGPU_POOL_CHUNK_H
#define SIMGPU_POOL_CHUNK_H

#include "tools/simgpu/engine/sim_block.h"
#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/engine/sim_pool_extent.h"

#define POOL_CHUNK     (UINT64_C(32) << 20)
#define POOL_ALIGNMENT UINT64_C(512)

struct CUmemPoolHandle_st {
    struct sim_link link; /* in the list of all pools */
    CUdevice device;
    bool dead; /* destroyed while it had blocks: is deleted with the last one */
    uint64_t threshold;
    uint64_t max_size; /* 0: no limit; else the pool grows until it has reached it */
    int reuse[3];      /* CU_MEMPOOL_ATTR_REUSE_*: stored for queries, without effect */
    uint64_t reserved, reserved_high, used, used_high;
    unsigned long blocks;
    uint64_t start;           /* of its addresses; 0: it has none yet */
    unsigned int slots, end;  /* chunks that fit into the addresses; all chunks are below slot `end` */
    struct sim_phys **chunks; /* by slot; NULL: no memory there */
    struct sim_link free;     /* free extents (sim_pool_extent.h) */
    CUmemAccess_flags access[CARD_MAX_DEVICES];
};

/* Allocates a range for this stream, the smallest free one that is large enough; grows the pool if needed. */
CUresult sim_chunk_take(struct CUmemPoolHandle_st *pool, const struct CUstream_st *stream, uint64_t size,
                        uint64_t *start);
/* Frees a range whose work is done. Returns false if the host is out of memory. */
bool sim_chunk_give(struct CUmemPoolHandle_st *pool, uint64_t start, uint64_t size);
/* Frees a range when these ops are done; the stream itself may use it at once. Takes ownership of the ops.
 * Returns false if the host is out of memory. */
bool sim_chunk_give_later(struct CUmemPoolHandle_st *pool, uint64_t start, uint64_t size,
                          const struct CUstream_st *stream, struct sim_ops *after);
/* Gives chunks in which nothing lives back to the card, as long as `keep` bytes stay. */
void sim_chunk_trim(struct CUmemPoolHandle_st *pool, uint64_t keep);
/* Releases the addresses of a pool without chunks. */
void sim_chunk_end(struct CUmemPoolHandle_st *pool);
/* Returns the memory at an address of a block. */
struct sim_phys *sim_chunk_memory(const struct CUmemPoolHandle_st *pool, uint64_t address);
/* Returns the range of the chunk at an address of a block. */
struct sim_range sim_chunk_at(const struct CUmemPoolHandle_st *pool, uint64_t address);
/* Returns the bytes that a block of that size takes. */
uint64_t sim_chunk_round(uint64_t size);

#endif
