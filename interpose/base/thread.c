/* thread: see thread.h. */
#include "interpose/base/thread.h"

#include <signal.h>

static int start(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *argument),
                 void *argument)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a thread inherits the mask */
    const int rc = pthread_create(thread, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

int thread_start_joinable(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
    return start(thread, NULL, run, argument);
}

/* Detached from the start: the process may exit before a later call would detach it. */
bool thread_start(void *(*run)(void *argument), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;

    if (pthread_attr_init(&attributes))
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const bool started = start(&thread, &attributes, run, argument) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}
