/* thread: see thread.h. */
#include "interpose/base/thread.h"

#include <signal.h>

int thread_start_joinable(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a thread inherits the mask */
    const int rc = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

bool thread_start(void *(*run)(void *argument), void *argument)
{
    pthread_t thread;

    return thread_start_joinable(&thread, run, argument) == 0 && pthread_detach(thread) == 0;
}
