/* library: see library.h. Owns no lock but a pthread_once; the mode is one atomic. */
#include "library.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cache.h"
#include "decay.h"
#include "device.h"
#include "log.h"
#include "pools.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
atomic_int library_state = -1;
static atomic_bool started; /* CUDA, in this process */
static struct options options;

/* CUDA does not work in the child of a process that has started it: nothing of the parent's account is ours,
 * and none of its tables is looked at again, so that no lock need be held over a fork. */
static void after_fork_child(void)
{
    driver_after_fork();
    cache_after_fork();
    if (atomic_load(&started))
        atomic_store(&library_state, LIBRARY_PASS);
}

/* From here on we call nothing of the driver by ourselves; what the program calls goes straight through. */
static void at_exit(void)
{
    if (atomic_load(&library_state) == LIBRARY_ON) /* a forked child has no pools of its own */
        pools_report();
    atomic_store(&library_state, LIBRARY_PASS);
}

/* What the options ask for. */
static enum library_mode set_up(void)
{
    char error[OPTIONS_ERROR_MAX], path[OPTIONS_PATH_MAX];
    struct options_places places = options_places_here(path);

    if (options_load(&options, &places, error)) {
        log_error("%s; CUDA is refused, so that the program does not run without its limit", error);
        return LIBRARY_REFUSE;
    }
    log_set(options.log);
    if (!options_any_limit(&options) && !options.pool)
        return LIBRARY_PASS;
    device_setup(&options);
    pools_setup(&options);
    decay_setup(&options);
    if (atexit(at_exit)) {
        log_error("no memory to set up; CUDA is refused, so that the program does not run without its limit");
        return LIBRARY_REFUSE;
    }
    return LIBRARY_ON;
}

static void begin(void)
{
    atomic_store_explicit(&library_state, set_up(), memory_order_release);
}

enum library_mode library_begin(void)
{
    pthread_once(&once, begin);
    return (enum library_mode)atomic_load_explicit(&library_state, memory_order_acquire);
}

const struct options *library_options(void)
{
    if (__builtin_expect(atomic_load_explicit(&library_state, memory_order_acquire) < 0, 0))
        library_begin();
    return &options;
}

void library_cuda_started(void)
{
    static atomic_flag handled = ATOMIC_FLAG_INIT;

    atomic_store(&started, true);
    if (atomic_load(&library_state) != LIBRARY_ON || !log_first(&handled))
        return;
    if (pthread_atfork(NULL, NULL, after_fork_child)) {
        log_error("no memory to set up; CUDA is refused, so that the program does not run without its limit");
        atomic_store(&library_state, LIBRARY_REFUSE);
    }
}
