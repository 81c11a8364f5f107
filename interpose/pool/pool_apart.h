/* pool_apart: what a card's pools hold idle after a refusal, and what keeps it from being one block, for
 * `gpucap why`. Changes nothing but threads' caches, which it empties. Never calls the driver. */
#ifndef GPUCAP_POOL_APART_H
#define GPUCAP_POOL_APART_H

#include "interpose/pool/pool_state.h"
#include "interpose/see/recording.h"

struct pool_apart {
    uint64_t of[RECORDING_APART_COUNT]; /* enum recording_apart */
    uint64_t whole;                     /* whole free chunks, which can be mapped side by side */
    uint64_t edge;                      /* the largest free part of a chunk to which they can be joined */
    uint64_t largest;                   /* free range */
};

/* Adds the figures of one pool, for a request of `request` bytes that was refused. Takes the pool's lock. */
void pool_apart_add(struct pool_apart *apart, struct pool *pool, uint64_t request);

/* Fills in JOINED and PARTS, after the last pool. */
void pool_apart_end(struct pool_apart *apart);

#endif
