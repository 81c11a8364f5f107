/* Random numbers that are the same on every machine: splitmix64, and a normal distribution made from it
 * without libm, whose results differ between versions in the last bits. */
#ifndef HARNESS_RNG_H
#define HARNESS_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns an independent generator for one purpose, or one item, of a run with this seed. */
static inline struct rng rng_derive(uint64_t seed, uint64_t item)
{
    struct rng rng = {seed};

    rng.state = rng_next(&rng) ^ (item * 0xd1342543de82ef95u);
    rng.state = rng_next(&rng);
    return rng;
}

/* Returns a number in [-1, 1). */
static inline float rng_symmetric(struct rng *rng)
{
    return (float)((double)(rng_next(rng) >> 11) * 0x1p-52 - 1.0);
}

/* Returns a number of mean 0 and variance 1: the sum of four uniform 16-bit numbers, taken from one draw. */
static inline float rng_normal(struct rng *rng)
{
    const float sqrt3 = 1.7320508f;
    uint64_t bits = rng_next(rng);
    uint32_t sum = (uint32_t)(bits & 0xffff) + (uint32_t)(bits >> 16 & 0xffff) +
                   (uint32_t)(bits >> 32 & 0xffff) + (uint32_t)(bits >> 48);

    return ((float)sum * 0x1p-16f - 2.0f) * sqrt3;
}

/* Returns a number in [0, bound). `bound` is at least 1. */
static inline uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)rng_next(rng) * bound) >> 64);
}

#endif
