/* pool_split: large chunks made smaller.
 *
 * A program's own arena is made of a few large chunks (pool_grow.c). Where smaller blocks come to live in the
 * place of a freed arena, each would keep a large chunk from moving and from being given back, so the chunk
 * is replaced by smaller ones first. Needs the pool's lock.
 */
#ifndef GPUCAP_POOL_SPLIT_H
#define GPUCAP_POOL_SPLIT_H

#include "interpose/pool/pool.h"

/* Replaces chunks that are too large for the block that was just taken at `range`. Returns the block's range,
 * or NULL if the memory went to others meanwhile: then the block is not taken. */
struct range *pool_split_around(struct pool *pool, struct range *range);

#endif
