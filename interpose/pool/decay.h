/* decay: gives memory that a program does not use back to the driver, after a while, and blocks of others
 * that it has closed to them.
 *
 * What has been free for a whole period is idle: each pool notes the least it had free since the last look. A
 * thread of our own looks, once a period; it starts with the first free, blocks every signal, and is out of
 * the driver before the driver's own exit handlers run. It does not exist in a forked child. Owns no lock.
 */
#ifndef GPUCAP_DECAY_H
#define GPUCAP_DECAY_H

#include "interpose/settings/options.h"

struct fence;

/* Sets how long memory must be idle, and above which free share of what is held a quarter of that is enough.
 * `imports` unmaps closed blocks of other processes (ipc_imports_sweep). */
void decay_setup(const struct options *options, void (*imports)(struct fence *));

/* Memory has come free, or a block was closed that could not be unmapped. Starts the thread the first time.
 */
void decay_wake(void);

#endif
