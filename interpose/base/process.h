/* process: tells the process that has started CUDA from copies of it.
 *
 * A child after fork has all memory of its parent, but none of its threads and no driver that works; whatever
 * lock another thread held stays taken there for ever. Handlers of fork do not run in a child that the
 * program has made by clone itself. So there is a page that the kernel empties in every copy: to look at it
 * costs a load. Owns no lock.
 */
#ifndef GPUCAP_PROCESS_H
#define GPUCAP_PROCESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

/* CUDA has started here. Returns a word for the caller's use, which is 0 in each copy that is made from now
 * on; NULL: this kernel (before 4.14) has no such memory. */
atomic_int *process_mark(void);

/* True in a copy that was made after process_mark; also in a child that shares this memory. Asks the kernel:
 * for rare places only. */
bool process_is_copy(void);

/* In exit handlers: takes a lock, unless it is held for longer than any other thread holds it. Then a signal
 * handler of the program has interrupted its holder, which is the calling thread, and called exit. */
bool process_lock_at_exit(pthread_mutex_t *lock);
/* Until when an exit handler waits for what would not take long. */
struct timespec process_exit_patience(void);

#endif
