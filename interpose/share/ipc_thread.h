/* ipc_thread: the one thread of a process that shares blocks. It serves the importers of this process's
 * blocks (ipc_exports.h), and detects when an exporter that this process imports from has ended
 * (ipc_source.h).
 *
 * It starts when there is something to do, blocks every signal, and has left the driver before the driver's
 * own exit handlers run. It does not exist in a forked child, which inherits nothing that is shared. Owns
 * thread_lock, held for a few instructions, and takes all locks of ipc around a fork.
 */
#ifndef GPUCAP_IPC_THREAD_H
#define GPUCAP_IPC_THREAD_H

/* Registers the handlers for fork and exit. Call before anything is shared. Returns 0, -ENOMEM, or -ESHUTDOWN
 * if the process is about to exit. */
int ipc_thread_prepare(void);

/* Starts the thread, or wakes it because there is a new descriptor to poll. Returns 0 or -errno. */
int ipc_thread_wake(void);

#endif
