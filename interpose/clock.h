/* clock: time that only goes forward, for waits and figures. */
#ifndef GPUCAP_CLOCK_H
#define GPUCAP_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_ms(void)
{
    return clock_ns() / 1000000U;
}

#endif
