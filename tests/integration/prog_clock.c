/* prog_clock: another monotonic clock for the programs that check themselves.
 *
 * The library waits for another thread or process for a tenth of a second to some seconds, then goes on
 * without it. A busy machine may not run that one for as long: with a clock that is slower, as many times as
 * PROG_SLOW_CLOCK says, it has more time, and what comes at once still does. A test of the end of such a wait
 * sets PROG_FAST_CLOCK instead: then poll() waits as many times less, in programs that export their symbols.
 * Sleeps and the time of day are as they were. Never used on a card. Owns no lock.
 */
#include "prog_check.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int slower, faster; /* 0: not read yet */

static int factor(atomic_int *kept, const char *variable)
{
    const char *const text = atomic_load(kept) ? NULL : getenv(variable);

    if (!atomic_load(kept))
        atomic_store(kept, text ? atoi(text) : 1);
    return atomic_load(kept);
}

/* In place of libc's, for all libraries of the program. The first call comes before any constructor of ours.
 */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int divisor = factor(&slower, "PROG_SLOW_CLOCK"), times = factor(&faster, "PROG_FAST_CLOCK");
    const int result = (int)syscall(SYS_clock_gettime, clock, now);

    if (result == 0 && clock == CLOCK_MONOTONIC && (divisor > 1 || times > 1)) {
        const long long ns = (now->tv_sec * 1000000000LL + now->tv_nsec) / divisor * times;

        *now = (struct timespec){.tv_sec = (time_t)(ns / 1000000000LL), .tv_nsec = (long)(ns % 1000000000LL)};
    }
    return result;
}

/* Likewise. */
int poll(struct pollfd *list, nfds_t count, int milliseconds)
{
    const int times = factor(&faster, "PROG_FAST_CLOCK");
    const long long ns = milliseconds * 1000000LL / times;
    const struct timespec span = {.tv_sec = (time_t)(ns / 1000000000LL),
                                  .tv_nsec = (long)(ns % 1000000000LL)};

    return (int)syscall(SYS_ppoll, list, count, milliseconds < 0 ? NULL : &span, NULL, (size_t)0);
}
