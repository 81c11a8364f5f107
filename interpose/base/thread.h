/* thread: starts the library's own threads. Owns no lock. */
#ifndef GPUCAP_THREAD_H
#define GPUCAP_THREAD_H

#include <stdbool.h>

/* Starts a detached thread with all signals blocked: they are for the host program's threads. Returns false
 * if it cannot be started. */
bool thread_start(void *(*run)(void *argument), void *argument);

#endif
