/* sim_pool_extent: the free ranges of a pool, by address.
 *
 * An extent is free for every stream, or was freed by a stream that may not have reached the free yet. In the
 * second case only that stream may take it, since its later work runs behind the free anyway. Adjacent
 * extents of the same kind are merged. Guarded by the engine's lock.
 */
#ifndef SIMGPU_POOL_EXTENT_H
#define SIMGPU_POOL_EXTENT_H

#include "tools/simgpu/engine/sim_ops.h"

struct sim_extent {
    struct sim_link link; /* in pool->free, by address */
    uint64_t start, size;
    uint64_t stream;      /* id of the stream that freed it; 0: free for every stream */
    struct sim_ops after; /* if stream is not 0: ops that must be done before other streams may take it */
};

/* Adds a free range. For a stream other than 0, takes ownership of `after`, which must be later than the ops
 * of the stream's earlier frees. Returns false, with nothing changed, if the host is out of memory. */
bool sim_extent_add(struct sim_link *extents, uint64_t start, uint64_t size, uint64_t stream,
                    struct sim_ops *after);

/* Returns the first extent of the smallest run of adjacent extents that has at least `size` bytes, of those
 * that a stream may use or, with 0, of what is free for every stream; NULL if there is none. */
struct sim_extent *sim_extent_find(struct sim_link *extents, uint64_t size, uint64_t stream);
/* Returns the bytes that this stream may use and that end at this address. */
uint64_t sim_extent_before(struct sim_link *extents, uint64_t end, uint64_t stream);
/* Takes `size` bytes from the beginning of a run. Returns their address. */
uint64_t sim_extent_take(struct sim_extent *first, uint64_t size);

/* Makes extents whose ops are done free for every stream: those that this stream freed, or all (0). */
void sim_extent_settle(struct sim_link *extents, uint64_t stream);
/* Removes [start, start + size). Returns false, with nothing changed, if not all of it is free for every
 * stream, or if the host is out of memory. */
bool sim_extent_cut(struct sim_link *extents, uint64_t start, uint64_t size);

#endif
