/* Which elements dropout keeps, the same on both tables. Each group of four elements has 64 random bits,
 * which depend only on the seed, the step and the index of the group (splitmix64 of a counter). Each element
 * uses 16 of them, so that the rate is exact to 1 / 65536. Included from C and from CUDA C. */
#ifndef KERNELS_DROPOUT_H
#define KERNELS_DROPOUT_H

#include <stdint.h>

#ifdef __CUDACC__
#define DROPOUT_HOST_DEVICE __host__ __device__
#else
#define DROPOUT_HOST_DEVICE
#endif

enum { DROPOUT_GROUP = 4, DROPOUT_BITS = 16 };

static inline DROPOUT_HOST_DEVICE uint64_t dropout_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The start of the counter for one call. */
static inline DROPOUT_HOST_DEVICE uint64_t dropout_key(uint64_t seed, uint64_t step)
{
    return dropout_mix(dropout_mix(seed + 0x9e3779b97f4a7c15u) + step);
}

static inline DROPOUT_HOST_DEVICE uint64_t dropout_bits(uint64_t key, uint64_t group)
{
    return dropout_mix(key + (group + 1) * 0x9e3779b97f4a7c15u);
}

/* An element is kept if its 16 bits are at least this. */
static inline DROPOUT_HOST_DEVICE uint32_t dropout_threshold(float rate)
{
    return (uint32_t)(rate * 65536.0f + 0.5f);
}

static inline DROPOUT_HOST_DEVICE int dropout_keeps(uint64_t bits, int place, uint32_t threshold)
{
    return (uint32_t)(bits >> (DROPOUT_BITS * place) & 0xffffu) >= threshold;
}

#endif
