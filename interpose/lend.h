/* lend: gives memory that this process does not use to the other processes of its job.
 *
 * A thread per card sleeps until another process asks (ledger_listen). It gives idle memory back to the
 * driver, lowers this process's lease to what it uses, and follows a changed limit. It blocks every signal,
 * is out of the driver before the driver's own exit handlers run, and does not exist in a forked child. Owns
 * no lock.
 */
#ifndef GPUCAP_LEND_H
#define GPUCAP_LEND_H

#include "interpose/account/device.h"

/* Starts the card's thread, the first time. A context exists on the card. */
void lend_start(struct device *device);

/* Memory has come free: gives it to a process of the job that waits, if one does. A few instructions if none
 * does. */
void lend_freed(struct device *device);

/* Asks the other processes of the job for `missing` bytes, and then waits as wait= says until the job's
 * budget has room for `need`. True: try again, and then call lend_end with *waited. Never waits in a capture,
 * or for what can never fit. */
bool lend_borrow(struct device *device, uint64_t need, uint64_t missing, bool *waited);
void lend_end(struct device *device, uint64_t need, bool waited);

#endif
