/* pool_expose: freed blocks whose memory a descriptor (dma-buf) or a device on the bus may still reach.
 *
 * Such memory must not be reused, and we cannot know when the last access ends. So its chunks are released,
 * and the driver keeps the memory until the last descriptor is closed. A chunk with other live blocks in it
 * is released after they are freed. All functions need the pool's lock.
 */
#ifndef GPUCAP_POOL_EXPOSE_H
#define GPUCAP_POOL_EXPOSE_H

#include "interpose/pool/pool_state.h"

/* Takes over the range of an exposed block that was freed and is no longer in the table. Releases its chunks
 * if they hold nothing else. */
void pool_expose_free(struct pool *pool, struct range *range, uint64_t epoch);

/* Releases the chunks of all exposed memory that hold no other block and whose work is done. */
void pool_expose_sweep(struct pool *pool);

#endif
