/* lock: see lock.h. */
#include "interpose/base/lock.h"

#include <stdio.h>
#include <stdlib.h>

#include "interpose/base/process.h"

_Thread_local int lock_depth;
_Thread_local int lock_cancel;

void lock_wait(struct lock *lock, pthread_cond_t *condition)
{
    lock_check_release(lock);
    pthread_cond_wait(condition, &lock->mutex);
    lock_check_taken(lock);
}

bool lock_take_at_exit(struct lock *lock)
{
    lock_disable_cancel();
    if (process_lock_at_exit(&lock->mutex)) {
        lock_check_taken(lock);
        return true;
    }
    lock_restore_cancel();
    return false;
}

#ifdef GPUCAP_LOCK_CHECK

static _Thread_local unsigned held; /* a bit for each rank */

static void fail(const struct lock *lock, const char *what)
{
    fprintf(stderr, "gpucap: lock of rank %d %s (this thread holds the ranks in %#x)\n", (int)lock->rank,
            what, held);
    abort();
}

void lock_check_take(const struct lock *lock)
{
    if (held >> lock->rank)
        fail(lock, "is taken while one of the same or a higher rank is held");
}

void lock_check_taken(struct lock *lock)
{
    held |= 1U << lock->rank;
    lock->holder = &held;
}

void lock_check_release(struct lock *lock)
{
    lock_assert_held(lock);
    held &= ~(1U << lock->rank);
    lock->holder = NULL;
}

void lock_assert_held(const struct lock *lock)
{
    if (lock->holder != &held)
        fail(lock, "is not held by this thread");
}

#endif
