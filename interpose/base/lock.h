/* lock: a mutex with a rank.
 *
 * A thread that holds a lock takes only locks of a higher rank. Builds with GPUCAP_LOCK_CHECK (the sanitizer
 * presets) check the order and the holder. A thread cannot be cancelled while it holds a lock: pthread_cancel
 * inside a driver call would leave the lock taken for ever.
 */
#ifndef GPUCAP_LOCK_H
#define GPUCAP_LOCK_H

#include <pthread.h>
#include <stdbool.h>

/* In the order in which they are taken. */
enum lock_rank {
    LOCK_REGISTRY, /* pools.c: which pools there are */
    LOCK_EXPORTS,  /* ipc_exports.h: exported blocks and importers; held while the driver exports a chunk */
    LOCK_IMPORTS,  /* ipc_import.c: blocks of other processes that are open; held for a few instructions */
    LOCK_SOURCES,  /* ipc_source.c: connections to exporters; held while the driver imports chunks */
    LOCK_SERVICE,  /* ipc_thread.c: whether the thread runs; held for a few instructions */
    LOCK_CACHES,   /* cache.c: which caches there are; jemalloc's own locks come after it */
    LOCK_POOL,     /* pool.h: ranges, chunks and blocks of one pool; held across the driver's mapping calls */
    LOCK_FENCE,    /* fence.h: epochs of one context; held while an event is recorded or queried */
    LOCK_ORDER,    /* streams.c: one thread orders streams on the device; held while it records an event */
    LOCK_STREAMS,  /* streams.c: which streams are in use; held for a few instructions */
    LOCK_CAPTURES, /* capture.c: the names of open captures; held for a few instructions */
};

struct lock {
    pthread_mutex_t mutex;
    enum lock_rank rank;
#ifdef GPUCAP_LOCK_CHECK
    const void *holder; /* address of a thread-local variable of the holder; NULL: free */
#endif
};

#define LOCK_INITIALIZER(its_rank)                                                                           \
    {                                                                                                        \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (its_rank)                                               \
    }

extern _Thread_local int lock_depth;  /* locks that this thread holds */
extern _Thread_local int lock_cancel; /* its cancellation state before it took the first */

#ifdef GPUCAP_LOCK_CHECK
void lock_check_take(const struct lock *lock);
void lock_check_taken(struct lock *lock);
void lock_check_release(struct lock *lock);
/* Aborts unless the calling thread holds the lock. */
void lock_assert_held(const struct lock *lock);
#else
static inline void lock_check_take(const struct lock *lock)
{
    (void)lock;
}
static inline void lock_check_taken(struct lock *lock)
{
    (void)lock;
}
static inline void lock_check_release(struct lock *lock)
{
    (void)lock;
}
static inline void lock_assert_held(const struct lock *lock)
{
    (void)lock;
}
#endif

static inline void lock_disable_cancel(void)
{
    if (lock_depth++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &lock_cancel);
}

static inline void lock_restore_cancel(void)
{
    if (--lock_depth == 0)
        pthread_setcancelstate(lock_cancel, NULL);
}

/* Take and release a mutex without a rank. */
static inline void lock_mutex_take(pthread_mutex_t *mutex)
{
    lock_disable_cancel();
    pthread_mutex_lock(mutex);
}

static inline void lock_mutex_release(pthread_mutex_t *mutex)
{
    pthread_mutex_unlock(mutex);
    lock_restore_cancel();
}

static inline void lock_init(struct lock *lock, enum lock_rank rank)
{
    *lock = (struct lock)LOCK_INITIALIZER(rank);
    pthread_mutex_init(&lock->mutex, NULL);
}

static inline void lock_destroy(struct lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

static inline void lock_take(struct lock *lock)
{
    lock_check_take(lock);
    lock_mutex_take(&lock->mutex);
    lock_check_taken(lock);
}

static inline void lock_release(struct lock *lock)
{
    lock_check_release(lock);
    lock_mutex_release(&lock->mutex);
}

/* Waits for a condition, as pthread_cond_wait does. The thread must hold no other lock. */
void lock_wait(struct lock *lock, pthread_cond_t *condition);

/* For exit handlers: takes the lock, and returns false if it stays held for a second. Then the calling thread
 * itself holds it: a signal handler has interrupted it and called exit. */
bool lock_take_at_exit(struct lock *lock);

#endif
