/* decay: see decay.h. */
#include "interpose/pool/decay.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "interpose/base/clock.h"
#include "interpose/base/process.h"
#include "interpose/base/thread.h"
#include "interpose/pool/pools.h"

#define LOOKS_PER_PERIOD 4
#define NS_PER_MS        1000000U
/* How long an exit waits for a look. The look ends sooner, unless it needs a lock that the exiting thread
 * holds because a signal handler interrupted it: that lock is never released. */
#define PATIENCE_MS 1000

static const struct options *settings;
static void (*sweep_imports)(struct fence *);
static atomic_bool asked;    /* the thread was requested, whether or not it could be started */
static atomic_bool looking;  /* the thread may be in the driver */
static atomic_bool stopping; /* for good */

void decay_setup(const struct options *options, void (*imports)(struct fence *))
{
    settings = options;
    sweep_imports = imports;
}

/* Trims idle memory of one pool. `argument`: the number of this look; every fourth ends a period. */
static void look_at(struct pool *pool, void *argument)
{
    const unsigned look = *(const unsigned *)argument;
    CUcontext before;

    if (atomic_load(&stopping) || driver.cuCtxPushCurrent_v2(pool->context) != CUDA_SUCCESS)
        return;
    pool_sweep(pool);
    sweep_imports(&pool->fence);
    if (look % LOOKS_PER_PERIOD == 0 || pool_mostly_free(pool, settings->early.permille)) {
        const uint64_t idle = pool_idle_bytes(pool);

        if (idle)
            pool_trim(pool, idle);
    }
    driver.cuCtxPopCurrent_v2(&before);
}

/* Sets `looking` and then reads `stopping`; stop() does the opposite, so one of the two sees the other. */
static void *run(void *unused)
{
    const uint64_t quarter_ms = 1 + (uint64_t)(settings->decay * 1000 / LOOKS_PER_PERIOD);

    for (unsigned look = 1; !atomic_load(&stopping); look++) {
        clock_sleep(quarter_ms * NS_PER_MS);
        atomic_store(&looking, true);
        if (!atomic_load(&stopping))
            pools_each(look_at, &look);
        atomic_store(&looking, false);
    }
    return unused;
}

/* Waits until the thread has left the driver; a sleeping thread is left alone. A forked child has none. */
static void stop(void)
{
    if (process_is_copy())
        return;
    atomic_store(&stopping, true);
    for (int ms = 0; ms < PATIENCE_MS && atomic_load(&looking); ms++)
        clock_sleep(NS_PER_MS);
}

void decay_wake(void)
{
    /* Without settings the library is passive and has no memory to give back. */
    if (atomic_load_explicit(&asked, memory_order_relaxed) || !settings || settings->decay <= 0 ||
        atomic_exchange(&asked, true))
        return;
    /* Registered now, so it runs before the exit handlers of the driver, which were registered earlier. */
    if (atexit(stop) == 0)
        thread_start(run, NULL); /* without it, memory is given back only when it is needed */
}
