/* sim_lock: the one lock of the engine.
 *
 * Everything the engine knows (objects, blocks, queues) is guarded by it. It is never held while work runs (a
 * copy, a kernel, a host function) nor while a caller's code runs; only staging pageable memory reads the
 * caller's bytes under it. sim_lock_wait() sleeps until some work has ended. A thread is not cancelled while
 * it holds it.
 */
#ifndef SIMGPU_LOCK_H
#define SIMGPU_LOCK_H

#include <pthread.h>

void sim_lock_take(void);
void sim_lock_drop(void);

void sim_lock_wait(void); /* until sim_lock_wake(); the lock is dropped meanwhile; may wake early */
void sim_lock_wake(void); /* all who sim_lock_wait() */
void sim_lock_wait_on(pthread_cond_t *signal); /* the same for one stream's worker */

#endif
