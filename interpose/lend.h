/* lend: lends idle memory of this process to the other processes of its job, and borrows theirs.
 *
 * One thread per card sleeps until another process asks (ledger_listen). It gives idle memory back to the
 * driver, lowers this process's lease to what it uses, and follows a changed limit. The thread blocks every
 * signal, has left the driver before the driver's own exit handlers run, and does not exist in a forked
 * child. Owns no lock.
 */
#ifndef GPUCAP_LEND_H
#define GPUCAP_LEND_H

#include "interpose/account/device.h"

/* Starts the thread of a card on the first call. The card must have a context. */
void lend_start(struct device *device);

/* Call after memory became free: has the card's thread lend it if a process of the job waits for memory.
 * Costs a few instructions if none does. */
void lend_freed(struct device *device);

/* Asks the other processes of the job for `missing` bytes; if they give none, waits as the option `wait` says
 * until the job's budget has room for `need`. Returns true if it is worth trying again; call lend_end with
 * *waited after that try. Never waits during a capture, or for more than the limit. */
bool lend_borrow(struct device *device, uint64_t need, uint64_t missing, bool *waited);
void lend_end(struct device *device, uint64_t need, bool waited);

#endif
