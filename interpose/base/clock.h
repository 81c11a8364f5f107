/* clock: monotonic time for waits and figures, and deadlines for waits on a lock. */
#ifndef GPUCAP_CLOCK_H
#define GPUCAP_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

/* Since the machine started, the same in every namespace: for other processes. */
static inline uint64_t clock_boot_ns(void)
{
    return clock_read(CLOCK_BOOTTIME);
}

static inline uint64_t clock_ms(void)
{
    return clock_ns() / 1000000U;
}

/* Sleeps, or returns early when a signal handler has run. */
static inline void clock_sleep(uint64_t ns)
{
    const struct timespec span = {(time_t)(ns / 1000000000U), (long)(ns % 1000000000U)};

    nanosleep(&span, NULL);
}

/* Returns the time of day `ns` from now: the deadline that pthread locks take. */
static inline struct timespec clock_after(uint64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000U);
    until.tv_nsec = (long)(ns % 1000000000U);
    return until;
}

#endif
