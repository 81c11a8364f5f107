/* library: see library.h. Owns no lock but a pthread_once; the mode is one atomic. */
#include "library.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "blocks.h"
#include "device.h"
#include "log.h"
#include "measure.h"
#include "pools.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int mode = LIBRARY_PASS;
static atomic_bool started; /* CUDA, in this process */
static struct options options;

/* Locks are taken in the order of their rank (pools, devices, accounts, blocks), so that no table is
 * half-written in the child. */
static void before_fork(void)
{
    measure_finish();
    pools_lock_for_fork();
    device_lock_for_fork();
    blocks_lock_for_fork();
}

static void after_fork_parent(void)
{
    blocks_unlock_after_fork();
    device_unlock_after_fork();
    pools_unlock_after_fork();
}

/* CUDA does not work in the child of a process that has started it: nothing of the parent's account is ours.
 */
static void after_fork_child(void)
{
    after_fork_parent();
    driver_after_fork();
    if (atomic_load(&started))
        atomic_store(&mode, LIBRARY_PASS);
}

/* From here on we call nothing of the driver by ourselves; what the program calls goes straight through. */
static void at_exit(void)
{
    atomic_store(&mode, LIBRARY_PASS);
}

static void begin(void)
{
    char error[OPTIONS_ERROR_MAX], path[OPTIONS_PATH_MAX];
    struct options_places places = options_places_here(path);

    if (options_load(&options, &places, error)) {
        log_error("%s; CUDA is refused, so that the program does not run without its limit", error);
        atomic_store(&mode, LIBRARY_REFUSE);
        return;
    }
    log_set(options.log);
    if (!options_any_limit(&options) && !options.pool)
        return;
    device_setup(&options);
    pools_setup(&options);
    if (pthread_atfork(before_fork, after_fork_parent, after_fork_child) || atexit(at_exit)) {
        log_error("no memory to set up; CUDA is refused, so that the program does not run without its limit");
        atomic_store(&mode, LIBRARY_REFUSE);
        return;
    }
    atomic_store(&mode, LIBRARY_ON);
}

enum library_mode library_mode(void)
{
    pthread_once(&once, begin);
    return (enum library_mode)atomic_load_explicit(&mode, memory_order_acquire);
}

const struct options *library_options(void)
{
    pthread_once(&once, begin);
    return &options;
}

void library_cuda_started(void)
{
    atomic_store(&started, true);
}
