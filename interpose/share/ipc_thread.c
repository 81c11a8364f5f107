/* ipc_thread: see ipc_thread.h. */
#include "interpose/share/ipc_thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "interpose/base/process.h"
#include "interpose/base/thread.h"
#include "interpose/share/ipc.h"
#include "interpose/share/ipc_exports.h"
#include "interpose/share/ipc_source.h"

static struct lock thread_lock = LOCK_INITIALIZER(LOCK_SERVICE);
/* guarded by thread_lock */
static bool registered; /* the handlers for fork and exit */
static bool running;
static atomic_bool leaving; /* for good */
static int wake = -1;       /* eventfd; set before the thread starts, and constant while it runs */
static pthread_t thread;

/* ---- the thread ---- */

static void *serve(void *room)
{
    struct pollfd *list = room;
    eventfd_t count;
    int patience = -1;

    while (!atomic_load(&leaving)) {
        list[0] = (struct pollfd){.fd = wake, .events = POLLIN};
        const nfds_t broker = ipc_broker_list(list + 1);
        const nfds_t sources = ipc_sources_list(list + 1 + broker);

        if (poll(list, 1 + broker + sources, patience) < 0 && errno != EINTR)
            break;
        if (list[0].revents & POLLNVAL)
            break; /* the program has closed our descriptor */
        if (list[0].revents)
            eventfd_read(wake, &count);
        patience = ipc_broker_attend(list + 1);
        ipc_sources_attend(list + 1 + broker, sources);
    }
    free(list);
    return NULL;
}

static int start(void)
{
    struct pollfd *list = calloc(1 + IPC_BROKER_POLLS + IPC_SOURCES_POLLS, sizeof(*list));
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
    const int rc = leaving ? -ESHUTDOWN : running ? eventfd_write(wake, 1) : start();
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
    lock_take(&ipc_export_lock);
    ipc_imports_before_fork();
    ipc_sources_before_fork();
    lock_take(&thread_lock);
}

static void after_fork(void)
{
    lock_release(&thread_lock);
    ipc_sources_after_fork(false);
    ipc_imports_after_fork(false);
    lock_release(&ipc_export_lock);
}

/* The child has no such thread, no exports and no imports. It closes the parent's connections, which would
 * otherwise look alive after the parent has died. */
static void after_fork_child(void)
{
    if (running)
        close(wake);
    running = false;
    lock_release(&thread_lock);
    ipc_imports_after_fork(true);
    ipc_sources_after_fork(true);
    ipc_broker_after_fork();
    ipc_exports_after_fork();
    lock_release(&ipc_export_lock);
}

int ipc_thread_prepare(void)
{
    lock_take(&thread_lock);
    int rc = leaving ? -ESHUTDOWN : 0;
    if (!registered && rc == 0) {
        if (pthread_atfork(before_fork, after_fork, after_fork_child) || atexit(before_exit))
            rc = -ENOMEM;
        registered = rc == 0;
    }
    lock_release(&thread_lock);
    return rc;
}
