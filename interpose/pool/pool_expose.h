/* pool_expose: freed blocks whose memory a descriptor (dma-buf) or a device on the bus may still reach.
 *
 * Such memory must not be handed out again, and whether it is still reached cannot be known: the chunks go
 * back to the driver, which keeps the memory until the last descriptor is closed. A chunk that has live
 * neighbours in it waits for them. All functions need the pool's lock.
 */
#ifndef GPUCAP_POOL_EXPOSE_H
#define GPUCAP_POOL_EXPOSE_H

#include "interpose/pool/pool.h"

/* A live range that belongs to no block any more. */
struct pool_exposed {
    uint64_t start, bytes;
    uint64_t epoch; /* of the free */
};

/* The program has freed an exposed block, which is in no table any more. */
void pool_expose_free(struct pool *pool, struct range *range, uint64_t epoch);

/* Gives back the chunks of exposed memory that are free of other blocks and whose work is done. */
void pool_expose_sweep(struct pool *pool);

void pool_expose_close(struct pool *pool);

#endif
