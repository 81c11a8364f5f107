/* sums: arithmetic on sizes that neither wraps around nor goes below zero. */
#ifndef GPUCAP_SUMS_H
#define GPUCAP_SUMS_H

#include <stdint.h>

/* Returns a + b, at most UINT64_MAX. */
static inline uint64_t sums_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Returns a - b, at least 0. */
static inline uint64_t sums_minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t sums_smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
