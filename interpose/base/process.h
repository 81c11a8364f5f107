/* process: tells the process that has started CUDA from copies of it.
 *
 * A child after fork has its parent's memory, but no other thread and no working driver. A lock that another
 * thread held stays taken there for ever. Fork handlers do not run in a child that the program made by
 * calling clone itself. So one page of memory, which the kernel clears in every copy, tells a copy from the
 * process itself; reading it costs one load. Owns no lock.
 */
#ifndef GPUCAP_PROCESS_H
#define GPUCAP_PROCESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

/* Call when CUDA has started. Returns a word for the caller's use, which reads 0 in every copy made from then
 * on; NULL on a kernel without such memory (before 4.14). */
atomic_int *process_mark(void);

/* Returns true in a copy made after process_mark, including a child that shares this memory. Makes a system
 * call: only for rare places. */
bool process_is_copy(void);

/* For exit handlers: takes a lock, and returns false if it is held longer than any other thread would hold
 * it. Then the calling thread itself holds it: a signal handler has interrupted it and called exit. */
bool process_lock_at_exit(pthread_mutex_t *lock);
/* Returns the time until which an exit handler waits for something short. */
struct timespec process_exit_patience(void);

#endif
