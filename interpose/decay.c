/* decay: see decay.h. */
#include "decay.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "pools.h"

#define LOOKS_PER_PERIOD 4

static const struct options *settings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_t thread; /* guarded by lock, while running */
static atomic_bool running;
static bool stopping; /* guarded by lock */

void decay_setup(const struct options *options)
{
    settings = options;
}

/* Gives back what has been idle. `look`: the number of this look, of which every fourth ends a period. */
static void look_at(struct pool *pool, void *argument)
{
    const unsigned look = *(const unsigned *)argument;
    CUcontext before;

    if (driver.cuCtxPushCurrent_v2(pool->context) != CUDA_SUCCESS)
        return;
    pool_sweep(pool);
    if (look % LOOKS_PER_PERIOD == 0 || pool_mostly_free(pool, settings->high.permille)) {
        const uint64_t idle = pool_idle_bytes(pool);

        if (idle)
            pool_trim(pool, idle);
    }
    driver.cuCtxPopCurrent_v2(&before);
}

static bool sleep_a_while(void)
{
    const long quarter_ms = 1 + (long)(settings->decay * 1000 / LOOKS_PER_PERIOD);
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += quarter_ms / 1000;
    until.tv_nsec += quarter_ms % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&lock);
    while (!stopping && pthread_cond_timedwait(&wake, &lock, &until) != ETIMEDOUT)
        ;
    const bool go_on = !stopping;
    pthread_mutex_unlock(&lock);
    return go_on;
}

static void *run(void *unused)
{
    (void)unused;
    for (unsigned look = 1; sleep_a_while(); look++)
        pools_each(look_at, &look);
    return NULL;
}

void decay_wake(void)
{
    sigset_t all, before;

    if (atomic_load_explicit(&running, memory_order_relaxed) || settings->decay <= 0)
        return;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&running) && !stopping) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        /* If there can be no thread, memory goes back only when somebody needs it. */
        pthread_create(&thread, NULL, run, NULL);
        atomic_store(&running, true);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_mutex_unlock(&lock);
}

void decay_stop(void)
{
    pthread_mutex_lock(&lock);
    const bool was_running = atomic_load(&running) && !stopping;
    const pthread_t ending = thread;
    stopping = true;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    if (was_running && ending)
        pthread_join(ending, NULL);
}

void decay_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wake, NULL);
    atomic_store(&running, false);
}
