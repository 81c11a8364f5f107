/* ipc_exports: the exporting side of ipc.h, in two parts: the table of exports (ipc_export.c) and the broker
 * that serves importers (ipc_broker.c). ipc_export_lock guards both; the caller of every function here but
 * ipc_broker_list and ipc_broker_attend holds it. */
#ifndef GPUCAP_IPC_EXPORTS_H
#define GPUCAP_IPC_EXPORTS_H

#include <poll.h>

#include "interpose/pool/pool.h"

#include "interpose/share/ipc_wire.h"

#define IPC_PEERS_MAX 1024 /* connections at a time */

/* An exported block. It is pinned as long as it is in the table. */
struct ipc_exported {
    uint64_t id; /* as in its ticket */
    struct pool *pool;
    uint64_t address, block_id, bytes, offset;
    struct vmm_chunk *chunks;
    uint64_t count;
    CUuuid card;
    bool freed; /* by the program */
    int ending; /* calls under way that may end its context: no driver calls for it meanwhile */
    struct ipc_exported *next; /* of the same hash */
};

extern struct lock ipc_export_lock;

/* ---- the table ---- */

/* Returns the export with this id, or NULL. */
struct ipc_exported *ipc_exports_find(uint64_t id);
/* Visits all exports, newest first. `visit` may remove the one it visits. */
void ipc_exports_each(void (*visit)(struct ipc_exported *exported, void *argument), void *argument);
/* Unpins and removes an export if the program has freed the block and no importer has it open. Call after an
 * importer closed it or the program may have freed it. */
void ipc_exports_settle(struct ipc_exported *exported);
/* Forgets all exports, in the child of a fork. */
void ipc_exports_after_fork(void);

/* ---- the broker ---- */

/* Opens the socket at the first call and starts the thread of ipc_thread.h. Returns 0 or -errno. */
int ipc_broker_start(void);
/* Returns the key of the socket, or NULL if it is not open. */
const unsigned char *ipc_broker_key(void);
/* Offers a new export to every importer and puts it on the board. */
void ipc_broker_offer(const struct ipc_exported *exported);
/* Withdraws an export: no importer can open it any more. Returns true if one has it open. */
bool ipc_broker_withdraw(const struct ipc_exported *exported);
void ipc_broker_after_fork(void);

/* Called by ipc_thread.c. ipc_broker_list lists the descriptors to poll, at most IPC_BROKER_POLLS, and
 * returns how many; ipc_broker_attend handles their events and returns the timeout of the next poll in ms. */
#define IPC_BROKER_POLLS (1 + 2 * IPC_PEERS_MAX)
nfds_t ipc_broker_list(struct pollfd *list);
int ipc_broker_attend(const struct pollfd *list);

#endif
