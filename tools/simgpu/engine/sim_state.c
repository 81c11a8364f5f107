/* sim_state: the state of the driver in this process. See sim_state.h.
 *
 * Owns no lock; the state is one atomic word. fork() takes the engine's lock, so that no other thread of the
 * parent is inside the engine, or allocating memory for it, at that moment.
 */
#include "tools/simgpu/engine/sim_state.h"

#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_lock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum phase { PHASE_NEW, PHASE_READY, PHASE_FORKED, PHASE_OVER };

static _Atomic enum phase phase = PHASE_NEW;
static pthread_once_t hooks_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    sim_lock_take();
}

static void after_fork_in_parent(void)
{
    sim_lock_drop();
}

static void after_fork_in_child(void)
{
    sim_lock_drop();
    if (atomic_load(&phase) == PHASE_READY) {
        atomic_store(&phase, PHASE_FORKED);
        sim_card_forget();
    }
}

static void at_exit(void)
{
    atomic_store(&phase, PHASE_OVER);
}

static void install_hooks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    atexit(at_exit);
}

static CUresult start(void)
{
    int error = sim_card_open();

    if (error)
        return error == -EINVAL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OPERATING_SYSTEM;
    if (!sim_device_enumerate())
        return CUDA_ERROR_NO_DEVICE;
    pthread_once(&hooks_once, install_hooks);
    atomic_store(&phase, PHASE_READY);
    return CUDA_SUCCESS;
}

CUresult sim_state_init(unsigned int flags)
{
    CUresult result = CUDA_SUCCESS;

    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&phase) != PHASE_NEW) /* a forked child must not even touch the lock */
        return sim_state_check();
    sim_lock_take();
    if (atomic_load(&phase) == PHASE_NEW)
        result = start();
    sim_lock_drop();
    return result;
}

CUresult sim_state_check(void)
{
    switch (atomic_load(&phase)) {
    case PHASE_READY:
        return CUDA_SUCCESS;
    case PHASE_OVER:
        return CUDA_ERROR_DEINITIALIZED;
    default:
        return CUDA_ERROR_NOT_INITIALIZED;
    }
}
