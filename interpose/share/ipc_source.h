/* ipc_source: an importer's connections to exporters, one for each, with the page and the board that its
 * greeting brought (ipc_wire.h). A connection is kept until the exporter has gone, so that its blocks can be
 * opened while it is stopped or busy; its end tells the exporter that we are gone.
 *
 * Owns source_lock, which guards the lists of connections. It is also held while there are descriptors that a
 * forked child must not keep, but never while an exporter is waited for. Rank: after import_lock.
 */
#ifndef GPUCAP_IPC_SOURCE_H
#define GPUCAP_IPC_SOURCE_H

#include <poll.h>

#include "interpose/share/ipc_wire.h"

#define IPC_PATIENCE_MS 10000 /* for first contact with another process, and for all chunks of a block */

struct ipc_source;

/* A connection to an exporter. */
struct ipc_link {
    int fd;
    uint64_t until; /* by clock_ms: all answers on it must have come by then */
    struct ipc_link *next;
};

/* Takes in chunks; the descriptors are closed after it. 0 or -errno. Called with source_lock. */
typedef int ipc_source_taker(void *argument, const struct ipc_chunks *chunks, const int *fds);

/* The connection to the exporter of a block, with one more user. The first time it waits for the exporter. 0;
 * -ECONNREFUSED, -ECONNRESET or -EPIPE: the exporter has gone; -ETIMEDOUT: it does not answer; -EPERM: it is
 * another user's; -EPROTO: it does not speak as ipc_wire.h says; another -errno. */
int ipc_source_get(const struct ipc_ticket *ticket, struct ipc_source **source);
void ipc_source_put(struct ipc_source *source);

/* Opens a block once more, without asking: from now on the exporter keeps its memory. 0; -ENOENT: it has been
 * freed; -EMFILE: open too often. */
int ipc_source_take(struct ipc_source *source, uint64_t id);
/* Closes it once. Never waits. */
void ipc_source_drop(struct ipc_source *source, uint64_t id);

/* Takes in what is on the exporter's board, without asking. 0 as well if there is nothing, or `take`'s
 * -errno.
 */
int ipc_source_look(const struct ipc_source *source, ipc_source_taker *take, void *argument);

/* Asks an exporter on a connection of its own, so that no other thread waits for the answer: opens it, asks
 * for chunks of a block from number `first` on, waits and takes them in, closes it. */
int ipc_source_connect(struct ipc_link *link, const struct ipc_ticket *ticket);
int ipc_source_ask(const struct ipc_link *link, uint64_t id, uint64_t first, ipc_source_taker *take,
                   void *argument);
void ipc_source_disconnect(struct ipc_link *link);

/* For ipc_thread.h: lists what is to be polled and returns how many; then ends connections whose exporter has
 * gone, so that nothing here keeps its memory. */
#define IPC_SOURCES_POLLS 1024
nfds_t ipc_sources_list(struct pollfd *list);
void ipc_sources_attend(const struct pollfd *list, nfds_t count);

void ipc_sources_before_fork(void);
void ipc_sources_after_fork(bool in_child);

#endif
