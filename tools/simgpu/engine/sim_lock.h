/* sim_lock: the one lock of the engine.
 *
 * It guards all state of the engine (objects, blocks, queues). It is never held while work runs (a copy, a
 * kernel, a host function) or while code of the program runs; only the staging of pageable memory reads the
 * program's bytes under it. sim_lock_wait() sleeps until some work has ended. A thread cannot be cancelled
 * while it holds the lock.
 */
#ifndef SIMGPU_LOCK_H
#define SIMGPU_LOCK_H

#include <pthread.h>

void sim_lock_take(void);
void sim_lock_drop(void);

/* Takes the lock from here to the end of the block, however the block is left. */
#define SIM_LOCKED() const int locked_ __attribute__((cleanup(sim_lock_end))) = sim_lock_begin()

static inline int sim_lock_begin(void)
{
    sim_lock_take();
    return 0;
}

static inline void sim_lock_end(const int *locked)
{
    (void)locked;
    sim_lock_drop();
}

/* Drops the lock, sleeps until sim_lock_wake() and takes the lock again. May return early. */
void sim_lock_wait(void);
/* Wakes all threads in sim_lock_wait(). */
void sim_lock_wake(void);
/* Like sim_lock_wait(), but sleeps on the condition of one stream's worker. */
void sim_lock_wait_on(pthread_cond_t *signal);

#endif
