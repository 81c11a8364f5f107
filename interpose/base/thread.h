/* thread: starts the library's own threads. Owns no lock. */
#ifndef GPUCAP_THREAD_H
#define GPUCAP_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a detached thread with all signals blocked: they are for the host program's threads. Returns false
 * if it cannot be started. */
bool thread_start(void *(*run)(void *argument), void *argument);
/* The same for a thread that the caller joins. Returns 0 or -errno. */
int thread_start_joinable(pthread_t *thread, void *(*run)(void *argument), void *argument);

#endif
