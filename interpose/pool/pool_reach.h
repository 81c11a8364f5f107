/* pool_reach: access to a pool's memory from outside: other processes that open a block, other cards, and
 * devices on the bus. All of it is rare. Callers do not hold the pool's lock. */
#ifndef GPUCAP_POOL_REACH_H
#define GPUCAP_POOL_REACH_H

#include "interpose/pool/pool_state.h"

/* Pins a block for another process: its memory is not unmapped, moved or reused until the last pool_unpin,
 * even if the program frees the block. Returns 0 or -EINVAL. */
int pool_pin(struct pool *pool, uint64_t address);
/* Removes one pin; the last one frees the memory of a freed block. Returns 0 or -EINVAL. */
int pool_unpin(struct pool *pool, uint64_t address);

/* Returns the chunks behind a pinned block in *chunks, in order of address; the block begins `*offset` bytes
 * into the first. The caller frees the array. Returns 0, -EINVAL or -ENOMEM. */
int pool_backing(struct pool *pool, uint64_t address, struct vmm_chunk **chunks, uint64_t *count,
                 uint64_t *offset);

/* Marks a block that a descriptor or a device on the bus may reach for an unknown time. When the program
 * frees it, its memory goes back to the driver instead of being reused; that of a block of the heap, which
 * shares its chunk with others, stays in the pool unused (POOL_LOST_MOST). Returns 0 or -EINVAL. */
int pool_expose(struct pool *pool, uint64_t address);

/* Waits for all work on memory freed so far, if any may have been handed out again meanwhile. Call before
 * another process, card or context, or a device on the bus, may touch a block. The caller holds no lock that
 * work could wait for. */
void pool_wait_all(struct pool *pool);

/* Gives another card access to all memory of the pool, present and future, until pool_remove_peer has been
 * called as often. Returns 0, or -errno and changes nothing. */
int pool_add_peer(struct pool *pool, CUdevice peer);
void pool_remove_peer(struct pool *pool, CUdevice peer);

#endif
