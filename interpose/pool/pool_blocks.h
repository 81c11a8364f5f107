/* pool_blocks: looks up a pool's blocks. Callers do not hold the pool's lock, except for pool_find_mark. */
#ifndef GPUCAP_POOL_BLOCKS_H
#define GPUCAP_POOL_BLOCKS_H

#include "interpose/pool/pool_state.h"

struct pool_block {
    uint64_t address, asked, id; /* ids are unique within the process */
    uint32_t pins;
    bool sync_memops; /* what pool_set_sync_memops has set */
};
/* Looks up the live block that begins at `address` or, with `inside`, contains it. Returns 0 or -EINVAL. */
int pool_block(struct pool *pool, uint64_t address, bool inside, struct pool_block *block);

/* Returns the mark of the live block that begins at `address`, and its word, or NULL. *range: its range, or
 * NULL for a small block. The caller holds the pool's lock. */
struct mark *pool_find_mark(struct pool *pool, uint64_t address, struct range **range, uint64_t *word);

/* Stores CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of a block until it is freed. Returns 0 or -EINVAL. */
int pool_set_sync_memops(struct pool *pool, uint64_t address, bool on);

/* Calls `visit` for each block of the program, with its address and mark, with the lock. A block that is
 * allocated or freed meanwhile may be missed or shown. */
void pool_each_live(struct pool *pool,
                    void (*visit)(uint64_t address, const struct mark *mark, void *argument), void *argument);

#endif
