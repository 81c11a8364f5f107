/* pool_split: replaces large chunks by smaller ones.
 *
 * A program's own arena is made of a few large chunks (pool_grow.c). After the arena is freed, smaller blocks
 * may be put there, and each would keep a large chunk from being moved or released. So the chunk is split
 * first. Needs the pool's lock.
 */
#ifndef GPUCAP_POOL_SPLIT_H
#define GPUCAP_POOL_SPLIT_H

#include "interpose/pool/pool_state.h"

/* Splits the last chunk under the block just taken at `range` if it is too large for that block. Returns the
 * block's range, or NULL if there was no memory for the smaller chunks: then the block is not taken. */
struct range *pool_split_around(struct pool *pool, struct range *range);

#endif
