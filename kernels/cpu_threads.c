/* The thread pool of cpu_threads_for(). Loops are in a list, guarded by one mutex that is held only to take a
 * piece, never while one runs. The caller works on its own loop too, so that progress never depends on a pool
 * thread. There may be none: with one processor, without memory, or in a loop inside a loop. */
#include "kernels/cpu_threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

enum { MOST_THREADS = 64 };

struct loop {
    cpu_threads_fn fn;
    const void *arg;
    size_t count, grain;
    size_t next;    /* the first item not yet taken; guarded by pool.lock */
    size_t running; /* pieces taken and not finished; guarded by pool.lock */
    struct loop *after;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work; /* a loop was added */
    pthread_cond_t done; /* a loop's last piece ended */
    struct loop *loops;  /* loops with pieces to take */
    int threads;         /* 0: not started yet */
} pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool inside;

static void before_fork(void)
{
    pthread_mutex_lock(&pool.lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&pool.lock);
}

/* The child has only the forking thread: the pool's threads and the loops of other callers do not exist in
 * it. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.work, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.loops = NULL;
    pool.threads = 0;
}

static void prepare_once(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

int cpu_threads_count(void)
{
    cpu_set_t set;
    long count =
        sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);

    if (count < 1)
        return 1;
    return count < MOST_THREADS ? (int)count : MOST_THREADS;
}

static void unlink_loop(const struct loop *loop)
{
    struct loop **link = &pool.loops;

    while (*link && *link != loop)
        link = &(*link)->after;
    if (*link)
        *link = loop->after;
}

/* Takes one piece of the loop and runs it. The lock is held on entry and on return, but not during the piece.
 */
static void run_piece(struct loop *loop)
{
    size_t begin = loop->next;
    size_t end = loop->count - begin < loop->grain ? loop->count : begin + loop->grain;

    loop->next = end;
    loop->running++;
    if (end == loop->count)
        unlink_loop(loop);
    pthread_mutex_unlock(&pool.lock);
    loop->fn(loop->arg, begin, end);
    pthread_mutex_lock(&pool.lock);
    loop->running--;
    if (loop->running == 0 && loop->next == loop->count)
        pthread_cond_broadcast(&pool.done);
}

static void *serve(void *unused)
{
    inside = true;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.loops)
            pthread_cond_wait(&pool.work, &pool.lock);
        run_piece(pool.loops);
    }
    return unused;
}

/* Lock held. Continues with fewer threads if one cannot be started. */
static void start_threads(void)
{
    sigset_t all, before;
    pthread_attr_t attributes;

    pool.threads = cpu_threads_count();
    if (pool.threads == 1 || pthread_attr_init(&attributes))
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = 1; i < pool.threads; i++) {
        pthread_t thread;

        if (pthread_create(&thread, &attributes, serve, NULL))
            break;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void cpu_threads_for(size_t count, size_t grain, cpu_threads_fn fn, const void *arg)
{
    struct loop loop = {.fn = fn, .arg = arg, .count = count, .grain = grain ? grain : 1};

    if (count <= loop.grain || inside) {
        for (size_t at = 0; at < count; at += loop.grain)
            fn(arg, at, count - at < loop.grain ? count : at + loop.grain);
        return;
    }
    pthread_once(&once, prepare_once);
    inside = true;
    pthread_mutex_lock(&pool.lock);
    if (pool.threads == 0)
        start_threads();
    loop.after = pool.loops;
    pool.loops = &loop;
    pthread_cond_broadcast(&pool.work);
    while (loop.next < loop.count)
        run_piece(&loop);
    while (loop.running > 0)
        pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    inside = false;
}
