/* A random order that needs no memory: place -> sample as a permutation that is computed, not stored (a
 * Feistel network walked until it lands inside). So any place of any epoch is known at once, which is what
 * lets a resumed run go on in the middle. */
#ifndef HARNESS_SHUFFLE_H
#define HARNESS_SHUFFLE_H

#include "harness/base/rng.h"

enum { SHUFFLE_ROUNDS = 6 };

/* The place-th of count samples in the order that key gives. place < count. */
static inline uint64_t shuffle_place(uint64_t key, uint64_t place, uint64_t count)
{
    int half = 1;
    uint64_t mask;

    while (half < 32 && (uint64_t)1 << (2 * half) < count)
        half++;
    mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = place >> half, right = place & mask;

        for (uint64_t round = 0; round < SHUFFLE_ROUNDS; round++) {
            struct rng rng = rng_derive(key + round, right);
            uint64_t mixed = left ^ (rng_next(&rng) & mask);

            left = right;
            right = mixed;
        }
        place = left << half | right;
    } while (place >= count);
    return place;
}

/* The same within windows of `window` samples: 0 leaves the order as it is. */
static inline uint64_t shuffle_sample(uint64_t seed, uint64_t epoch, uint64_t place, uint64_t count,
                                      uint64_t window)
{
    uint64_t first, size;
    struct rng key;

    if (window == 0)
        return place;
    if (window > count)
        window = count;
    first = place / window * window;
    size = count - first < window ? count - first : window;
    key = rng_derive(rng_derive(seed, epoch).state, first);
    return first + shuffle_place(rng_next(&key), place - first, size);
}

#endif
