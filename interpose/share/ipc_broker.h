/* ipc_broker: serves the importers of this process's exports. ipc_export_lock guards it; the caller of every
 * function here but ipc_broker_list and ipc_broker_attend holds it. */
#ifndef GPUCAP_IPC_BROKER_H
#define GPUCAP_IPC_BROKER_H

#include <poll.h>

#include "interpose/share/ipc_exports.h"

#define IPC_PEERS_MAX 1024 /* connections at a time */

/* Opens the socket at the first call and starts the thread, which must be prepared. Returns 0 or -errno. */
int ipc_broker_start(void);
/* Returns the key of the socket, or NULL if it is not open. */
const unsigned char *ipc_broker_key(void);
/* Offers a new export to every importer and puts it on the board. */
void ipc_broker_offer(const struct ipc_exported *exported);
/* Withdraws an export: no importer can open it any more. Returns true if one has it open. */
bool ipc_broker_withdraw(const struct ipc_exported *exported);
/* Unpins and removes an export if the program has freed the block and no importer has it open. Call after an
 * importer closed it or the program may have freed it. */
void ipc_broker_remove_unused(struct ipc_exported *exported);
void ipc_broker_after_fork(void);

/* Called by the thread. ipc_broker_list lists the descriptors to poll, at most IPC_BROKER_POLLS, and
 * returns how many; ipc_broker_attend handles their events and returns the timeout of the next poll in ms. */
#define IPC_BROKER_POLLS (1 + 2 * IPC_PEERS_MAX)
nfds_t ipc_broker_list(struct pollfd *list);
int ipc_broker_attend(const struct pollfd *list);

#endif
