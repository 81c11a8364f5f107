/* ipc_thread: see ipc_thread.h. */
#include "interpose/share/ipc_thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/base/process.h"
#include "interpose/base/thread.h"
#include "interpose/settings/log.h"

#define BREATHER_NS UINT64_C(100000000) /* before polling again if the kernel had no memory for it */

static struct lock thread_lock = LOCK_INITIALIZER(LOCK_SERVICE);
/* guarded by thread_lock */
static const struct ipc_work *_Atomic work; /* NULL: the handlers for fork and exit are not registered */
static bool running;
static atomic_bool leaving; /* for good */
static int wake = -1;       /* eventfd; set before the thread starts, and constant while it runs */
static pthread_t thread;

/* ---- the thread ---- */

/* The thread ends, and the next wake starts another one. */
static void end_thread(void)
{
    lock_take(&thread_lock);
    if (running) /* else the exit joins it */
        pthread_detach(thread);
    running = false;
    lock_release(&thread_lock);
}

/* Other processes wait meanwhile: `poll` may also fail for long, after the program has lowered its limit of
 * open files. */
static void breathe(int error)
{
    if (error == EINTR)
        return;
    LOG_ERROR_ONCE("cannot serve processes that open this one's memory at the moment (%s); trying again",
                   strerror(error));
    clock_sleep(BREATHER_NS);
}

static void *serve(void *room)
{
    struct pollfd *list = room;
    eventfd_t count;
    int patience = -1;
    bool closed = false; /* the program has closed our descriptor */

    while (!closed && !atomic_load(&leaving)) {
        list[0] = (struct pollfd){.fd = wake, .events = POLLIN};
        const nfds_t listed = work->list(list + 1);

        if (poll(list, 1 + listed, patience) < 0) {
            breathe(errno);
            continue;
        }
        closed = list[0].revents & POLLNVAL;
        if (list[0].revents && !closed)
            eventfd_read(wake, &count);
        patience = work->attend(list + 1, listed); /* it may have closed others as well */
    }
    free(list);
    end_thread();
    return NULL;
}

static int start(void)
{
    struct pollfd *list = calloc(1 + work->room, sizeof(*list));
    int rc = list ? 0 : -ENOMEM;

    if (rc == 0 && (wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        rc = -errno;
    if (rc == 0 && (rc = thread_start_joinable(&thread, serve, list)))
        close(wake);
    if (rc)
        free(list);
    running = rc == 0;
    return rc;
}

int ipc_thread_wake(void)
{
    lock_take(&thread_lock);
    const int rc = leaving ? -ESHUTDOWN : !running ? start() : eventfd_write(wake, 1) ? -errno : 0;
    lock_release(&thread_lock);
    return rc;
}

/* ---- exit and fork ---- */

/* Stops the thread, so that it makes no driver call after the program's own have ended. */
static void before_exit(void)
{
    const struct timespec until = process_exit_patience();

    if (process_is_copy() || !lock_take_at_exit(&thread_lock))
        return;
    const bool was_running = running;
    leaving = true;
    running = false;
    lock_release(&thread_lock);
    if (was_running && eventfd_write(wake, 1) == 0)
        pthread_timedjoin_np(thread, NULL, &until);
}

static void before_fork(void)
{
    work->before_fork();
    lock_take(&thread_lock);
}

static void after_fork(void)
{
    lock_release(&thread_lock);
    work->after_fork(false);
}

/* The child has no such thread. */
static void after_fork_child(void)
{
    if (running)
        close(wake);
    running = false;
    lock_release(&thread_lock);
    work->after_fork(true);
}

int ipc_thread_prepare(const struct ipc_work *given)
{
    lock_take(&thread_lock);
    int rc = leaving ? -ESHUTDOWN : 0;
    if (!work && rc == 0) {
        work = given; /* for the handlers */
        if (atexit(before_exit) || pthread_atfork(before_fork, after_fork, after_fork_child)) {
            work = NULL;
            rc = -ENOMEM;
        }
    }
    lock_release(&thread_lock);
    return rc;
}
