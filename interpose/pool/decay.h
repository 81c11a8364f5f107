/* decay: gives memory that has been idle for a while back to the driver, and unmaps closed imports.
 *
 * Memory that has been free for a whole period is idle: each pool keeps the least it had free since the last
 * look. A thread of our own looks at the pools four times a period. It starts with the first free, blocks
 * every signal, and has left the driver before the driver's own exit handlers run. It does not exist in a
 * forked child. Owns no lock.
 */
#ifndef GPUCAP_DECAY_H
#define GPUCAP_DECAY_H

#include "interpose/settings/options.h"

struct fence;

/* Sets the options: how long memory must be idle (decay), and the free share above which a quarter of that is
 * enough (early). `imports` unmaps closed blocks of other processes (ipc_imports_sweep). */
void decay_setup(const struct options *options, void (*imports)(struct fence *));

/* Call when memory was freed, or a closed import could not be unmapped. The first call starts the thread. */
void decay_wake(void);

#endif
