/* lock: the one lock of the engine. See lock.h. */
#include "lock.h"

static pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static _Thread_local int cancel_state; /* before the thread took the lock */

void lock_take(void)
{
    int before;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(&engine_lock);
    cancel_state = before;
}

void lock_drop(void)
{
    pthread_mutex_unlock(&engine_lock);
    pthread_setcancelstate(cancel_state, NULL);
}

void lock_wait(void)
{
    pthread_cond_wait(&progress, &engine_lock);
}

void lock_wake(void)
{
    pthread_cond_broadcast(&progress);
}

void lock_wait_on(pthread_cond_t *signal)
{
    pthread_cond_wait(signal, &engine_lock);
}
