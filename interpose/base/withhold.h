/* withhold: keeps the signals that a write of ours can raise from the program, which would not get them
 * without us: SIGPIPE, and SIGXFSZ above the limit of `ulimit -f`. Owns no lock.
 */
#ifndef GPUCAP_WITHHOLD_H
#define GPUCAP_WITHHOLD_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

struct withheld {
    sigset_t before, pending;
};

static inline void withhold_begin(struct withheld *withheld)
{
    sigset_t both;

    sigemptyset(&both);
    sigaddset(&both, SIGPIPE);
    sigaddset(&both, SIGXFSZ);
    sigpending(&withheld->pending);
    pthread_sigmask(SIG_BLOCK, &both, &withheld->before);
}

/* Takes back the signal that came with this errno (0: all went well), unless the program had one pending. */
static inline void withhold_end(const struct withheld *withheld, int error)
{
    const int raised = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
    const struct timespec at_once = {0};
    sigset_t ours;

    sigemptyset(&ours);
    if (raised && !sigismember(&withheld->pending, raised)) {
        sigaddset(&ours, raised);
        while (sigtimedwait(&ours, NULL, &at_once) < 0 && errno == EINTR)
            continue;
    }
    pthread_sigmask(SIG_SETMASK, &withheld->before, NULL);
}

#endif
