/* ipc_source: see ipc_source.h. */
#include "interpose/share/ipc_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/share/ipc_page.h"
#include "interpose/share/ipc_thread.h"

#define RETRY_NS 5000000 /* while the exporter's queue is full */

struct ipc_source {
    struct ipc_link link;
    unsigned char key[IPC_KEY];
    struct ipc_page *page;
    /* guarded by source_lock */
    int board; /* -1: none */
    unsigned users;
    bool lost; /* its exporter has ended: the last user frees it */
    struct ipc_source *next;
};

static struct lock source_lock = LOCK_INITIALIZER(LOCK_SOURCES);
/* guarded by source_lock */
static struct ipc_source *sources;
static struct ipc_link *links; /* of sources, and temporary ones for a question */

/* ---- connections ---- */

static int open_link(struct ipc_link *link)
{
    lock_take(&source_lock);
    link->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int rc = link->fd < 0 ? -errno : 0;
    if (rc == 0) {
        link->next = links;
        links = link;
    }
    lock_release(&source_lock);
    return rc;
}

/* With the lock. */
static void close_link(struct ipc_link *link)
{
    struct ipc_link **at = &links;

    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    close(link->fd);
}

void ipc_source_disconnect(struct ipc_link *link)
{
    lock_take(&source_lock);
    close_link(link);
    lock_release(&source_lock);
}

/* Connects to an exporter of this user. Returns 0, or -errno and leaves no link. */
int ipc_source_connect(struct ipc_link *link, const struct ipc_ticket *ticket)
{
    struct sockaddr_un name;
    const socklen_t length = ipc_wire_name(&name, ticket->key);
    int rc = open_link(link);
    pid_t pid;

    if (rc)
        return rc;
    link->until = clock_ms() + IPC_PATIENCE_MS;
    while ((rc = connect(link->fd, (struct sockaddr *)&name, length) ? -errno : 0) == -EAGAIN &&
           clock_ms() < link->until)
        clock_sleep(RETRY_NS);
    if (rc == 0 && !ipc_wire_trusts(link->fd, &pid))
        rc = -EPERM;
    if (rc)
        ipc_source_disconnect(link);
    return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

/* Sends a request and waits for an answer to arrive. */
static int ask(const struct ipc_link *link, const struct ipc_request *request)
{
    const int rc = ipc_wire_send(link->fd, request, sizeof(*request), NULL, 0);

    return rc ? rc : ipc_wire_wait(link->fd, link->until);
}

/* ---- sources; with the lock ---- */

/* Frees a source that is in no list. */
static void destroy(struct ipc_source *source)
{
    close_link(&source->link);
    if (source->board >= 0)
        close(source->board);
    ipc_page_unmap(source->page);
    free(source);
}

static void end(struct ipc_source *source)
{
    struct ipc_source **at = &sources;

    while (*at != source)
        at = &(*at)->next;
    *at = source->next;
    destroy(source);
}

static bool is_gone(const struct ipc_source *source)
{
    struct pollfd look = {.fd = source->link.fd};

    return poll(&look, 1, 0) > 0;
}

/* Marks a source whose exporter has ended, and closes the board, whose blocks are gone. */
static void lose(struct ipc_source *source)
{
    source->lost = true;
    close(source->board);
    source->board = -1;
    if (!source->users)
        end(source);
}

/* Returns the live connection to the exporter with this key and adds a user, or returns NULL. */
static struct ipc_source *find(const unsigned char key[IPC_KEY])
{
    struct ipc_source *source = sources;

    while (source && (source->lost || memcmp(source->key, key, IPC_KEY) != 0))
        source = source->next;
    if (source && is_gone(source)) {
        lose(source);
        source = NULL;
    }
    if (source)
        source->users++;
    return source;
}

/* Receives the exporter's greeting and its descriptors. Returns 0 or -errno. */
static int take_greeting(struct ipc_source *source)
{
    struct ipc_greeting greeting;
    int fds[IPC_GREETING_FDS];
    unsigned count = IPC_GREETING_FDS;
    int rc = ipc_wire_receive(source->link.fd, &greeting, sizeof(greeting), fds, &count);

    if (rc)
        return rc;
    if (greeting.magic != IPC_PACKET_MAGIC || greeting.error < 0 ||
        count != (greeting.error ? 0 : IPC_GREETING_FDS)) {
        ipc_wire_close(fds, count);
        return -EPROTO;
    }
    if (greeting.error)
        return -greeting.error;
    source->board = fds[IPC_GREETING_BOARD];
    rc = ipc_page_map(fds[IPC_GREETING_PAGE], &source->page);
    close(fds[IPC_GREETING_PAGE]);
    return rc;
}

/* ---- first contact ---- */

/* Connects a new source and waits for the exporter's greeting. The source is in no list yet. */
static int connect_to(const struct ipc_ticket *ticket, struct ipc_source **out)
{
    const struct ipc_request hello = {.magic = IPC_PACKET_MAGIC, .what = IPC_HELLO};
    struct ipc_source *source = calloc(1, sizeof(*source));

    if (!source)
        return -ENOMEM;
    memcpy(source->key, ticket->key, IPC_KEY);
    source->board = -1;
    int rc = ipc_source_connect(&source->link, ticket);
    if (rc) {
        free(source);
        return rc;
    }
    rc = ask(&source->link, &hello);
    if (rc) {
        ipc_source_disconnect(&source->link);
        free(source);
        return rc;
    }
    *out = source;
    return 0;
}

/* Adds a source to the list, unless another thread was faster. With the lock. */
static int add(struct ipc_source *made, struct ipc_source **out)
{
    const int rc = take_greeting(made);

    *out = rc ? NULL : find(made->key);
    if (rc || *out) {
        destroy(made);
        return rc;
    }
    made->users = 1;
    made->next = sources;
    sources = *out = made;
    return 0;
}

int ipc_source_get(const struct ipc_ticket *ticket, struct ipc_source **out)
{
    struct ipc_source *made = NULL;

    lock_take(&source_lock);
    *out = find(ticket->key);
    lock_release(&source_lock);
    if (*out)
        return 0;
    int rc = connect_to(ticket, &made);
    if (rc)
        return rc;
    lock_take(&source_lock);
    rc = add(made, out);
    lock_release(&source_lock);
    if (rc == 0)
        ipc_thread_wake(); /* if it fails, the next call for this exporter notices its end */
    return rc;
}

void ipc_source_put(struct ipc_source *source)
{
    lock_take(&source_lock);
    if (--source->users == 0 && source->lost)
        end(source);
    lock_release(&source_lock);
}

/* ---- its blocks ---- */

int ipc_source_take(struct ipc_source *source, uint64_t id)
{
    return ipc_page_take(source->page, id);
}

/* A full queue needs no more packets: the exporter looks at all freed blocks when it reads one. */
void ipc_source_drop(struct ipc_source *source, uint64_t id)
{
    const struct ipc_request closed = {.magic = IPC_PACKET_MAGIC, .what = IPC_CLOSED};

    if (ipc_page_drop(source->page, id))
        ipc_wire_send(source->link.fd, &closed, sizeof(closed), NULL, 0);
}

/* Receives one packet of chunks without waiting and imports them. */
static int receive(const int *fd, bool peek, ipc_source_taker *take, void *argument)
{
    struct ipc_chunks chunks;
    int fds[IPC_CHUNKS];
    unsigned count;

    lock_take(&source_lock);
    int rc = ipc_wire_chunks(*fd, &chunks, fds, &count, peek);
    if (rc == 0)
        rc = take(argument, &chunks, fds);
    else if (peek)
        rc = 0; /* the caller asks for what is not on the board */
    ipc_wire_close(fds, count);
    lock_release(&source_lock);
    return rc;
}

int ipc_source_look(const struct ipc_source *source, ipc_source_taker *take, void *argument)
{
    return receive(&source->board, true, take, argument);
}

int ipc_source_ask(const struct ipc_link *link, uint64_t id, uint64_t first, ipc_source_taker *take,
                   void *argument)
{
    const struct ipc_request request = {IPC_PACKET_MAGIC, IPC_FETCH, id, first};
    const int rc = ask(link, &request);

    return rc ? rc : receive(&link->fd, false, take, argument);
}

/* ---- the thread, and fork ---- */

nfds_t ipc_sources_list(struct pollfd *list)
{
    nfds_t n = 0;

    lock_take(&source_lock);
    for (const struct ipc_source *s = sources; s && n < IPC_SOURCES_POLLS; s = s->next) {
        if (!s->lost)
            list[n++] = (struct pollfd){.fd = s->link.fd}; /* only to see its end */
    }
    lock_release(&source_lock);
    return n;
}

void ipc_sources_attend(const struct pollfd *list, nfds_t count)
{
    struct ipc_source *next;

    while (count && !list[count - 1].revents)
        count--;
    if (!count)
        return;
    lock_take(&source_lock);
    for (struct ipc_source *s = sources; s; s = next) {
        next = s->next;
        if (!s->lost && is_gone(s))
            lose(s);
    }
    lock_release(&source_lock);
}

void ipc_sources_before_fork(void)
{
    lock_take(&source_lock);
}

/* Links that belong to no source are of threads that the child does not have. */
void ipc_sources_after_fork(bool in_child)
{
    while (in_child && sources)
        end(sources);
    while (in_child && links)
        close_link(links);
    lock_release(&source_lock);
}
