/* Times in seconds. */
#ifndef HARNESS_NOW_H
#define HARNESS_NOW_H

#include <time.h>

static inline double now_by(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* By the monotonic clock: for spans of time. */
static inline double now_s(void)
{
    return now_by(CLOCK_MONOTONIC);
}

#endif
