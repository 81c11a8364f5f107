/* pool_chunks: the physical chunks of a pool, each granted by the pool's budget. All functions need the
 * pool's lock, except pool_held_on. */
#ifndef GPUCAP_POOL_CHUNKS_H
#define GPUCAP_POOL_CHUNKS_H

#include "interpose/pool/pool_state.h"

/* Creates a chunk if the budget grants it. Returns 0 or -errno. */
int pool_create_chunk(struct pool *pool, uint64_t bytes, struct vmm_chunk *chunk);

/* Releases an unmapped chunk and gives its bytes back to the budget. If the driver refuses, the chunk stays
 * held until pool_release_left succeeds. */
void pool_release_chunk(struct pool *pool, const struct vmm_chunk *chunk);
void pool_release_left(struct pool *pool);

/* Unmaps and releases the whole free chunk at `start`. Its work is done and it is mapped nowhere else.
 * Returns 0 or -errno. */
int pool_give_back(struct pool *pool, uint64_t start);

/* Finds the highest whole chunk in the free bytes from `floor` to `*below`, and sets *below to its start.
 * Returns false if there is none. Going from high to low leaves the rest of a range in one piece. */
bool pool_next_chunk(const struct pool *pool, uint64_t floor, uint64_t *below, uint64_t *start,
                     uint64_t *bytes);

/* Returns the bytes of whole chunks in free ranges. Stops counting at `enough`. */
uint64_t pool_whole_bytes(struct pool *pool, uint64_t enough);

/* Returns the end of the highest range that has ever been mapped. */
uint64_t pool_mapped_end(const struct pool *pool);

/* Returns scratch memory for `count` chunks, valid until the next call, or NULL. */
struct vmm_chunk *pool_scratch(struct pool *pool, uint64_t count);

/* Unmaps and releases every chunk, and frees the scratch memory. Dead places are unmapped before. */
void pool_chunks_close(struct pool *pool);

/* Counts releases to the driver by all pools. A caller whose request was refused compares it with an earlier
 * value to see whether memory was released meanwhile. */
extern _Atomic uint64_t pool_given_back;

/* Returns what the pools of a card hold together. */
uint64_t pool_held_on(CUdevice ordinal);

#endif
