/* lock: the one lock of the engine. See lock.h. */
#include "lock.h"

static pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;

void lock_take(void)
{
    pthread_mutex_lock(&engine_lock);
}

void lock_drop(void)
{
    pthread_mutex_unlock(&engine_lock);
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
