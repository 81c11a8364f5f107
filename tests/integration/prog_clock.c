/* prog_clock: a slower monotonic clock for the programs that check themselves, if PROG_SLOW_CLOCK says how
 * many times slower.
 *
 * The library waits for another thread or process for a tenth of a second to some seconds, then goes on
 * without it. A busy machine may not run that one for as long. With this clock it has more time, and what
 * comes at once still does. Sleeps and the time of day are as they were. Never used on a card. Owns no lock.
 */
#include "prog_check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int slower; /* 0: not read yet */

/* In place of libc's, for all libraries of the program. The first call comes before any constructor of ours.
 */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const char *const text = atomic_load(&slower) ? NULL : getenv("PROG_SLOW_CLOCK");

    if (!atomic_load(&slower))
        atomic_store(&slower, text ? atoi(text) : 1);
    const int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_MONOTONIC && atomic_load(&slower) > 1) {
        const long long ns = (now->tv_sec * 1000000000LL + now->tv_nsec) / atomic_load(&slower);

        *now = (struct timespec){.tv_sec = (time_t)(ns / 1000000000LL), .tv_nsec = (long)(ns % 1000000000LL)};
    }
    return result;
}
