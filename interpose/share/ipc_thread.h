/* ipc_thread: the one thread of a process that shares blocks. What it does comes from ipc.c.
 *
 * It starts when there is something to do, blocks every signal, and has left the driver before the driver's
 * own exit handlers run. It does not exist in a forked child, which inherits nothing that is shared. Owns
 * thread_lock, held for a few instructions, and has all locks of ipc taken around a fork.
 */
#ifndef GPUCAP_IPC_THREAD_H
#define GPUCAP_IPC_THREAD_H

#include <poll.h>
#include <stdbool.h>

struct ipc_work {
    nfds_t room;                                             /* descriptors at most */
    nfds_t (*list)(struct pollfd *list);                     /* lists those to poll and returns how many */
    int (*attend)(const struct pollfd *list, nfds_t listed); /* handles events; returns poll's next timeout */
    void (*before_fork)(void);
    void (*after_fork)(bool in_child);
};

/* Registers the handlers for fork and exit. Call before anything is shared, with the same work each time.
 * Returns 0, -ENOMEM, or -ESHUTDOWN if the process is about to exit. */
int ipc_thread_prepare(const struct ipc_work *work);

/* Starts the thread, or wakes it because there is a new descriptor to poll. Returns 0 or -errno. */
int ipc_thread_wake(void);

#endif
