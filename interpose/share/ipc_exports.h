/* ipc_exports: the exporting side of ipc.h, in two parts: the table of exports (ipc_export.c), and the broker
 * that deals with importers (ipc_broker.c). ipc_export_lock guards both; every function here but
 * ipc_broker_list and ipc_broker_attend wants it held.
 */
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
    int ending; /* calls that may end its context: the driver is not asked about it meanwhile */
    struct ipc_exported *next; /* of the same hash */
};

extern struct lock ipc_export_lock;

/* ---- the table ---- */

/* The export of an id, or NULL. */
struct ipc_exported *ipc_exports_find(uint64_t id);
/* Visits all exports, the newest first; the one that is visited may go. */
void ipc_exports_each(void (*visit)(struct ipc_exported *exported, void *argument), void *argument);
/* An importer has closed a block, or the program may have freed it: unpins it if it is freed and open
 * nowhere. */
void ipc_exports_settle(struct ipc_exported *exported);
/* A child after fork: there are no exports here. */
void ipc_exports_after_fork(void);

/* ---- the broker ---- */

/* Opens the socket, at the first call, and sees that the thread of ipc_thread.h serves it. 0 or -errno. */
int ipc_broker_start(void);
/* The key of the socket, or NULL if there is none. */
const unsigned char *ipc_broker_key(void);
/* Tells every importer of a new export, and puts it on the board. */
void ipc_broker_offer(const struct ipc_exported *exported);
/* No importer opens it from now on. True if one has it open. */
bool ipc_broker_withdraw(const struct ipc_exported *exported);
void ipc_broker_after_fork(void);

/* For ipc_thread.h: lists what is to be polled, at most IPC_BROKER_POLLS, and returns how many; then deals
 * with what has happened there. Returns for how long to poll next time, in ms. */
#define IPC_BROKER_POLLS (1 + 2 * IPC_PEERS_MAX)
nfds_t ipc_broker_list(struct pollfd *list);
int ipc_broker_attend(const struct pollfd *list);

#endif
