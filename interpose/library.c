/* library: see library.h. Owns no lock but a pthread_once. The mode is one atomic, which moves to another
 * place once CUDA has started. */
#include "interpose/library.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "interpose/account/device.h"
#include "interpose/account/measure.h"
#include "interpose/base/process.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/decay.h"
#include "interpose/pool/pools.h"
#include "interpose/pool/streams.h"
#include "interpose/see/recorder.h"
#include "interpose/settings/log.h"
#include "interpose/share/ipc.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int first_state = -1;
_Atomic(atomic_int *) library_state = &first_state;
static atomic_bool started; /* CUDA has started in this process */
static struct options options;
bool library_limited;

static int state(void)
{
    return atomic_load(atomic_load(&library_state));
}

static void set_state(enum library_mode mode)
{
    atomic_store(atomic_load(&library_state), (int)mode);
}

/* A child cannot use CUDA once its parent has started it. It owns nothing of the parent's account and reads
 * none of its tables again, so no lock need be held over a fork. Only what is read in every mode is reset:
 * the streams in use, and the list of pools. */
static void after_fork_child(void)
{
    driver_after_fork();
    if (!atomic_load(&started))
        return;
    set_state(LIBRARY_PASS);
    device_after_fork();
    capture_after_fork();
    streams_after_fork();
    pools_after_fork();
    recorder_after_fork();
}

/* From here on we make no driver call of our own; the program's calls go straight through. */
static void at_exit(void)
{
    if (process_is_copy())
        return;
    if (state() == LIBRARY_ON)
        pools_report();
    set_state(LIBRARY_PASS);
    recorder_stop();
    measure_end(); /* a thread that allocates may be about to load NVML */
}

/* Adjusts the other options to guard and fill. */
static void adjust_options(void)
{
    if ((options.guard || options.fill) && !options.pool)
        log_error("guard and fill have no effect with pool=off");
    if (options.guard)
        options.decay = 0; /* freed memory is unmapped at once, so that its use faults */
    if (options.fill)
        options.deferred = false; /* freed memory is filled when its work is done, before the free returns */
}

/* Loads the options and returns the mode that they ask for. */
static enum library_mode set_up(void)
{
    char error[OPTIONS_ERROR_MAX];

    if (options_load_here(&options, error)) {
        log_error("%s; CUDA is refused, so that the program does not run without its limit", error);
        return LIBRARY_REFUSE;
    }
    log_set(options.log);
    adjust_options();
    library_limited = options_any_limit(&options);
    if (!library_limited && !options.pool && !options.record[0])
        return LIBRARY_PASS;
    device_setup(&options);
    pools_setup(&options);
    decay_setup(&options, ipc_imports_sweep);
    if (atexit(at_exit)) {
        log_error("no memory to set up; CUDA is refused, so that the program does not run without its limit");
        return LIBRARY_REFUSE;
    }
    return LIBRARY_ON;
}

static void begin(void)
{
    set_state(set_up());
}

enum library_mode library_begin(void)
{
    pthread_once(&once, begin);
    return (enum library_mode)state();
}

const struct options *library_options(void)
{
    library_mode();
    return &options;
}

void library_refuse(void)
{
    set_state(LIBRARY_REFUSE);
}

bool library_cuda_started(void)
{
    static atomic_flag handled = ATOMIC_FLAG_INIT;

    atomic_store(&started, true);
    if (state() != LIBRARY_ON || atomic_flag_test_and_set(&handled))
        return false;
    atomic_int *own = process_mark();
    if (own) {
        atomic_store(own, LIBRARY_ON);
        atomic_store(&library_state, own);
    }
    if (pthread_atfork(NULL, NULL, after_fork_child)) {
        log_error("no memory to set up; CUDA is refused, so that the program does not run without its limit");
        set_state(LIBRARY_REFUSE);
        return false;
    }
    return true;
}
