/* sim_lock: the one lock of the engine. See sim_lock.h. */
#include "tools/simgpu/engine/sim_lock.h"

static pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static int cancel_state; /* what the thread that holds the lock had before taking it */

void sim_lock_take(void)
{
    int before;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(&engine_lock);
    cancel_state = before;
}

void sim_lock_drop(void)
{
    const int before = cancel_state;

    pthread_mutex_unlock(&engine_lock);
    pthread_setcancelstate(before, NULL);
}

void sim_lock_wait(void)
{
    sim_lock_wait_on(&progress);
}

void sim_lock_wake(void)
{
    pthread_cond_broadcast(&progress);
}

void sim_lock_wait_on(pthread_cond_t *signal)
{
    const int before = cancel_state;

    pthread_cond_wait(signal, &engine_lock);
    cancel_state = before;
}
