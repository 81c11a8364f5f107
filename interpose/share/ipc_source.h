/* ipc_source: an importer's connections to exporters, one for each, with the page and the board that came
 * with its greeting (ipc_wire.h). A connection is kept until the exporter has ended, so that its blocks can
 * be opened while it is stopped or busy. Closing it shows the exporter that this process has ended.
 *
 * Owns source_lock, which guards the lists of connections. It is also held while there are descriptors that a
 * forked child must not inherit, but never while waiting for an exporter. Rank: after import_lock.
 */
#ifndef GPUCAP_IPC_SOURCE_H
#define GPUCAP_IPC_SOURCE_H

#include <poll.h>

#include "interpose/share/ipc_wire.h"

#define IPC_PATIENCE_MS 10000 /* for the first contact with an exporter, and for all chunks of a block */

struct ipc_source;

/* A connection to an exporter. */
struct ipc_link {
    int fd;
    uint64_t until; /* deadline for all answers, by clock_ms */
    struct ipc_link *next;
};

/* Imports chunks, with source_lock; the caller closes the descriptors. Returns 0 or -errno. */
typedef int ipc_source_taker(void *argument, const struct ipc_chunks *chunks, const int *fds);

/* Returns the connection to the exporter of a block in *source, and adds a user; the first time it waits for
 * the exporter. Returns 0; -ECONNREFUSED, -ECONNRESET or -EPIPE: the exporter has ended; -ETIMEDOUT: it does
 * not answer; -EPERM: it belongs to another user; -EPROTO: it violates ipc_wire.h; another -errno. */
int ipc_source_get(const struct ipc_ticket *ticket, struct ipc_source **source);
void ipc_source_put(struct ipc_source *source);

/* Counts one more open of a block, without asking; then the exporter keeps its memory. Returns 0; -ENOENT: it
 * is freed; -EMFILE: open too often. */
int ipc_source_take(struct ipc_source *source, uint64_t id);
/* Counts one close. Never waits. */
void ipc_source_drop(struct ipc_source *source, uint64_t id);

/* Imports chunks from the exporter's board, which may be empty. Returns 0 or `take`'s -errno. */
int ipc_source_look(const struct ipc_source *source, ipc_source_taker *take, void *argument);

/* Ask an exporter on a separate connection, so that no other thread waits for the answer: open it; request
 * the chunks of a block from number `first` on, wait for and import them; close it. */
int ipc_source_connect(struct ipc_link *link, const struct ipc_ticket *ticket);
int ipc_source_ask(const struct ipc_link *link, uint64_t id, uint64_t first, ipc_source_taker *take,
                   void *argument);
void ipc_source_disconnect(struct ipc_link *link);

/* Called by the thread. ipc_sources_list lists the descriptors to poll and returns how many;
 * ipc_sources_attend closes connections to exporters that have ended, so that nothing here keeps their
 * memory. */
#define IPC_SOURCES_POLLS 1024
nfds_t ipc_sources_list(struct pollfd *list);
void ipc_sources_attend(const struct pollfd *list, nfds_t count);

void ipc_sources_before_fork(void);
void ipc_sources_after_fork(bool in_child);

#endif
