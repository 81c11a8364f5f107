/* lock: the one lock of the engine.
 *
 * Everything the engine knows (objects, blocks, queues) is guarded by it. It is never held while work runs (a
 * copy, a kernel, a host function) nor while a caller's code runs; only staging pageable memory reads the
 * caller's bytes under it. lock_wait() sleeps until some work has ended. A thread is not cancelled while it
 * holds it.
 */
#ifndef SIMGPU_LOCK_H
#define SIMGPU_LOCK_H

#include <pthread.h>

void lock_take(void);
void lock_drop(void);

void lock_wait(void); /* until lock_wake(); the lock is dropped meanwhile; may wake early */
void lock_wake(void); /* all who lock_wait() */
void lock_wait_on(pthread_cond_t *signal); /* the same for one stream's worker */

#endif
