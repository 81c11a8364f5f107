/* sim_pool_extent: what is free in one chunk of a pool, by address.
 *
 * An extent is free for everybody, or freed in a stream that may not have come to the free yet: then only
 * that stream may take it, because its later work comes behind anyway. Neighbours of the same kind are one
 * extent. Guarded by the engine's lock.
 */
#ifndef SIMGPU_POOL_EXTENT_H
#define SIMGPU_POOL_EXTENT_H

#include "tools/simgpu/engine/sim_ops.h"

struct sim_extent {
    struct sim_link link; /* in chunk->free, by address */
    uint64_t start, size;
    uint64_t stream;      /* id of the stream that freed it; 0: free for everybody */
    struct sim_ops after; /* with stream: what must be done first */
};

struct sim_extent *sim_extent_of(struct sim_link *link);

/* Adds a free range. `after` (taken over) is for a stream that is not 0, and is later than what the stream
 * freed before. False: no memory, and nothing has changed. */
bool sim_extent_add(struct sim_link *extents, uint64_t start, uint64_t size, uint64_t stream,
                    struct sim_ops *after);

/* Extents that lie side by side and that one stream may use. */
struct sim_extent_run {
    struct sim_extent *first;
    uint64_t size;
};
/* The smallest run of at least `size` bytes that is smaller than *best (or any, if best->first is NULL).
 * stream 0: of what is free for everybody. True: *best is new. */
bool sim_extent_find(struct sim_link *extents, uint64_t size, uint64_t stream, struct sim_extent_run *best);
/* Takes `size` bytes from the beginning of a run; gives their address. */
uint64_t sim_extent_take(struct sim_extent *first, uint64_t size);

/* What this stream freed (0: any stream) and has come to becomes free for everybody. */
void sim_extent_settle(struct sim_link *extents, uint64_t stream);
/* Takes [start, start + size) out of an extent that has all of it. False: no memory, and nothing has changed.
 */
bool sim_extent_cut(struct sim_extent *extent, uint64_t start, uint64_t size);

#endif
