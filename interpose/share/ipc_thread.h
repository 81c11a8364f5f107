/* ipc_thread: the one thread of a process that shares blocks. It serves the importers of this process's
 * blocks (ipc_exports.h), and notices when an exporter has gone whose blocks are at hand here (ipc_source.h).
 *
 * It starts when there is something to do, blocks every signal, and is out of the driver before the driver's
 * own exit handlers run. It does not exist in a forked child, which keeps nothing of what is shared. Owns
 * thread_lock, held for a few instructions, and takes all locks of ipc around a fork.
 */
#ifndef GPUCAP_IPC_THREAD_H
#define GPUCAP_IPC_THREAD_H

/* To be called before anything is shared: sees to what happens at fork and exit. 0; -ENOMEM; -ESHUTDOWN: the
 * process is about to exit. */
int ipc_thread_prepare(void);

/* There is something new to poll: starts the thread or wakes it. 0 or -errno. */
int ipc_thread_wake(void);

#endif
