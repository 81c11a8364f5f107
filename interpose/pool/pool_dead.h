/* pool_dead: places that chunks have left. All functions but pool_sweep need the pool's lock.
 *
 * A chunk may be mapped at two addresses at once (measured). A free chunk that a stream still uses is mapped
 * at its new place at once: stream order keeps the two uses apart, as it does for any reused block. The old
 * place stays mapped and is dead: nothing else is mapped there, which is fine, because address space costs
 * nothing. It is unmapped when the chunk is to be released or when there are many dead places, and only after
 * its work is done.
 */
#ifndef GPUCAP_POOL_DEAD_H
#define GPUCAP_POOL_DEAD_H

#include "interpose/pool/pool_state.h"

/* Dead places that stay mapped: an unmap costs 16 us, keeping one costs nothing (H200). */
#define POOL_DEAD_KEPT 2048

/* Makes room for `count` more entries, so that pool_retire and pool_stuck cannot fail. Returns 0 or
 * -ENOMEM. */
int pool_dead_prepare(struct pool *pool, uint64_t count);

/* Retires the whole free chunk at `start`, last freed in `epoch`: its place becomes dead. Returns the chunk.
 * Needs two prepared nodes. */
struct vmm_chunk pool_retire(struct pool *pool, uint64_t start, uint64_t epoch);

/* Undoes the latest pool_retire. */
void pool_revive(struct pool *pool, const struct vmm_chunk *chunk);

/* Records a chunk at `start`, in a hole, that the driver let neither be used nor unmapped. `only`: it is
 * mapped nowhere else; it counts as held and is released once it can be unmapped. Needs two prepared nodes
 * and pool_dead_prepare. */
void pool_stuck(struct pool *pool, uint64_t start, const struct vmm_chunk *chunk, bool only);

/* Unmaps dead places whose epoch is at most `reached`: all stuck ones, and the oldest if there are very
 * many. */
void pool_unmap_dead(struct pool *pool, uint64_t reached);

/* Unmaps the dead places of the chunk that is mapped at `start`. Returns true if it is mapped nowhere else
 * now; only then does unmapping and releasing it free memory. */
bool pool_unmap_dead_of(struct pool *pool, uint64_t start, uint64_t reached);

/* Unmaps dead places when there are many, and releases chunks that could not be released. Called by the
 * library's own threads (decay.c, lend.c). */
void pool_sweep(struct pool *pool);

/* Unmaps all dead places, even if their work is not done, and frees the list. */
void pool_dead_close(struct pool *pool);

#endif
