/* decay: see decay.h. */
#include "interpose/pool/decay.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "interpose/base/process.h"
#include "interpose/pool/pools.h"

#define LOOKS_PER_PERIOD 4
/* How long an exit waits for a look. It ends sooner, unless the thread that exits holds a lock that the look
 * needs: then a signal handler has interrupted it, and never will that lock come free. */
#define PATIENCE_MS 1000

static const struct options *settings;
static void (*sweep_imports)(struct fence *);
static atomic_bool asked;    /* for the thread, and whether there is one or not */
static atomic_bool looking;  /* the thread may be in the driver */
static atomic_bool stopping; /* for good */

void decay_setup(const struct options *options, void (*imports)(struct fence *))
{
    settings = options;
    sweep_imports = imports;
}

static void sleep_ms(long ms)
{
    const struct timespec span = {ms / 1000, ms % 1000 * 1000000L};

    clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL);
}

/* Gives back what has been idle. `look`: the number of this look, of which every fourth ends a period. */
static void look_at(struct pool *pool, void *argument)
{
    const unsigned look = *(const unsigned *)argument;
    CUcontext before;

    if (atomic_load(&stopping) || driver.cuCtxPushCurrent_v2(pool->context) != CUDA_SUCCESS)
        return;
    pool_sweep(pool);
    sweep_imports(&pool->fence);
    if (look % LOOKS_PER_PERIOD == 0 || pool_mostly_free(pool, settings->high.permille)) {
        const uint64_t idle = pool_idle_bytes(pool);

        if (idle)
            pool_trim(pool, idle);
    }
    driver.cuCtxPopCurrent_v2(&before);
}

/* Who stops it says so first and then asks whether it looks; here it is the other way round, so that one of
 * the two notices. */
static void *run(void *unused)
{
    const long quarter_ms = 1 + (long)(settings->decay * 1000 / LOOKS_PER_PERIOD);

    for (unsigned look = 1; !atomic_load(&stopping); look++) {
        sleep_ms(quarter_ms);
        atomic_store(&looking, true);
        if (!atomic_load(&stopping))
            pools_each(look_at, &look);
        atomic_store(&looking, false);
    }
    return unused;
}

/* A thread that sleeps is left alone: it ends with the process, or finds out. A copy of the process has none.
 */
static void stop(void)
{
    if (process_is_copy())
        return;
    atomic_store(&stopping, true);
    for (int ms = 0; ms < PATIENCE_MS && atomic_load(&looking); ms++)
        sleep_ms(1);
}

/* Signals are the host program's: none may be delivered to our thread. */
static void start_quietly(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;

    if (pthread_attr_init(&attributes))
        return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* If there can be no thread, memory goes back only when somebody needs it. */
    pthread_create(&thread, &attributes, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

void decay_wake(void)
{
    /* Without settings the library is passive, and has no memory to give back. */
    if (atomic_load_explicit(&asked, memory_order_relaxed) || !settings || settings->decay <= 0 ||
        atomic_exchange(&asked, true))
        return;
    /* Registered now, it runs before any handler of the driver, which has long been at work. */
    if (atexit(stop) == 0)
        start_quietly();
}
