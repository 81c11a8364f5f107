/* A random order without a table: place -> sample is a computed permutation (a Feistel network, repeated
 * until the result is in range). Any place of any epoch is known at once, so a resumed run can start in the
 * middle. */
#ifndef HARNESS_SHUFFLE_H
#define HARNESS_SHUFFLE_H

#include "harness/base/rng.h"

enum { SHUFFLE_ROUNDS = 6 };

/* Returns which of `count` samples is at `place` in the order of this key. place < count. */
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

/* The same within windows of `window` samples. A window of 0 keeps the order. */
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
