/* ipc_broker: the exporter's end of the connections with importers, see ipc_broker.h and ipc_wire.h.
 *
 * Only the thread of ipc_thread.h adds and removes connections, with ipc_export_lock. The driver is asked for
 * descriptors with the lock held, because those calls do not wait for work. Nothing here waits for an
 * importer. If an importer ends without closing a block, the block stays pinned until its process is seen to
 * be dead: the kernel closes the socket before it stops the process's work on the device.
 */
#include "interpose/share/ipc_broker.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/pool/pool_reach.h"
#include "interpose/share/ipc_board.h"
#include "interpose/share/ipc_page.h"
#include "interpose/share/ipc_thread.h"
#include "interpose/share/ipc_wire.h"

#define BACKLOG     128
#define BREATHER_MS 100 /* before trying again when descriptors or memory have run out */

struct peer {
    int fd;                /* -1: closed */
    int process;           /* pidfd, or -1 */
    struct ipc_page *page; /* NULL: no HELLO yet */
    struct peer *next;
};

/* guarded by ipc_export_lock */
static struct peer *peers;
static unsigned peer_count;
static int listener = -1;
static bool crowded; /* no room for a connection: do not poll the listener for a moment */
static bool
    some_closed; /* an importer has closed a freed block or died: freed blocks may be open nowhere now */
static unsigned char key[IPC_KEY];

/* ---- descriptors and offers ---- */

/* Relaxes the capture mode: otherwise the driver may consider the call unsafe and end an open capture. */
static bool export_chunk(const struct vmm_chunk *chunk, int *fd)
{
    const CUstreamCaptureMode mode = driver_relax();
    const bool exported = driver.cuMemExportToShareableHandle(
                              fd, chunk->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS;

    driver_restore(mode);
    return exported;
}

/* Exports at most `most` chunks from number `first` on. Returns 0, or an errno and no chunks. */
static int export_chunks(const struct ipc_exported *e, uint64_t first, unsigned most,
                         struct ipc_chunks *chunks, int *fds)
{
    CUcontext context = e->pool->context; /* the thread may have no context */
    int error = 0;

    *chunks = (struct ipc_chunks){.magic = IPC_PACKET_MAGIC};
    if (driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return EIO;
    while (!error && chunks->count < most && first < e->count && chunks->count < e->count - first) {
        const struct vmm_chunk *chunk = &e->chunks[first + chunks->count];

        if (!export_chunk(chunk, &fds[chunks->count]))
            error = EIO;
        else
            chunks->list[chunks->count++] =
                (struct ipc_chunk){e->id, e->bytes, e->offset, chunk->bytes, e->card};
    }
    driver.cuCtxPopCurrent_v2(&context);
    if (error) {
        ipc_wire_close(fds, chunks->count);
        chunks->count = 0;
    }
    return error;
}

/* Puts a block on the board, if it fits. */
static void post(const struct ipc_exported *e)
{
    struct ipc_chunks chunks;
    int fds[IPC_CHUNKS];

    if (!e->freed && e->count <= ipc_board_room() && !ipc_board_has(e->id) && ipc_board_fd() >= 0 &&
        export_chunks(e, 0, IPC_CHUNKS, &chunks, fds) == 0)
        ipc_board_add(&chunks, fds);
}

void ipc_broker_offer(const struct ipc_exported *e)
{
    for (const struct peer *p = peers; p; p = p->next) {
        if (p->page)
            ipc_page_offer(p->page, e->id);
    }
    post(e);
}

bool ipc_broker_withdraw(const struct ipc_exported *e)
{
    bool held = false;

    ipc_board_remove(e->id);
    for (const struct peer *p = peers; p; p = p->next)
        held |= p->page && ipc_page_withdraw(p->page, e->id);
    return held;
}

/* While its context may be ending, the export stays: pool_unpin would call the driver. */
void ipc_broker_remove_unused(struct ipc_exported *e)
{
    if (!e->freed && ipc_exports_is_live(e))
        return;
    e->freed = true;
    if (!ipc_broker_withdraw(e) && !e->ending) {
        pool_unpin(e->pool, e->address);
        ipc_exports_remove(e);
    }
}

/* ---- the end of a connection ---- */

static void remove_peer(struct peer *gone)
{
    struct peer **at = &peers;

    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    peer_count--;
    if (gone->fd >= 0)
        close(gone->fd);
    if (gone->process >= 0)
        close(gone->process);
    ipc_page_unmap(gone->page);
    free(gone);
}

static void settle_freed(struct ipc_exported *e, void *unused)
{
    (void)unused;
    if (e->freed)
        ipc_broker_remove_unused(e);
}

struct holding {
    const struct ipc_page *page;
    bool any;
};

static void look_for_hold(struct ipc_exported *e, void *argument)
{
    struct holding *holding = argument;

    holding->any |= ipc_page_holds(holding->page, e->id);
}

static bool holds_any(const struct peer *peer)
{
    struct holding holding = {peer->page, false};

    if (peer->page)
        ipc_exports_each(look_for_hold, &holding);
    return holding.any;
}

/* Closes a connection. What the importer has open stays pinned until its process is known to be dead. */
static void disconnect(struct peer *peer)
{
    close(peer->fd);
    peer->fd = -1;
    if (!holds_any(peer))
        remove_peer(peer);
}

static void died(struct peer *peer)
{
    remove_peer(peer);
    some_closed = true;
}

/* ---- the beginning of a connection ---- */

static void offer_to(struct ipc_exported *e, void *page)
{
    if (!e->freed)
        ipc_page_offer(page, e->id);
}

/* Creates the descriptors of the greeting; the caller closes the page's. Returns 0 or -errno. */
static int prepare(struct peer *peer, int *fds)
{
    fds[IPC_GREETING_BOARD] = ipc_board_fd();
    if (fds[IPC_GREETING_BOARD] < 0)
        return fds[IPC_GREETING_BOARD];
    fds[IPC_GREETING_PAGE] = ipc_page_make(&peer->page);
    if (fds[IPC_GREETING_PAGE] < 0)
        return fds[IPC_GREETING_PAGE];
    ipc_exports_each(offer_to, peer->page);
    return 0;
}

/* Answers HELLO. Returns false if the connection is to be closed. */
static bool greet(struct peer *peer)
{
    struct ipc_greeting greeting = {.magic = IPC_PACKET_MAGIC};
    int fds[IPC_GREETING_FDS] = {-1, -1};

    if (peer->page)
        return false;
    greeting.error = -prepare(peer, fds);
    const int rc =
        ipc_wire_send(peer->fd, &greeting, sizeof(greeting), fds, greeting.error ? 0 : IPC_GREETING_FDS);
    if (fds[IPC_GREETING_PAGE] >= 0)
        close(fds[IPC_GREETING_PAGE]);
    return rc == 0 && !greeting.error;
}

/* ---- questions and answers ---- */

/* Answers FETCH and puts the block on the board for other importers. Returns false if sending failed. */
static bool answer(const struct peer *peer, const struct ipc_request *request)
{
    const struct ipc_exported *e = ipc_exports_find(request->id);
    struct ipc_chunks chunks = {.magic = IPC_PACKET_MAGIC};
    int fds[IPC_BATCH];

    chunks.error = e && !e->ending ? export_chunks(e, request->first, IPC_BATCH, &chunks, fds) : ENOENT;
    const int rc = ipc_wire_send(peer->fd, &chunks, sizeof(chunks), fds, chunks.count);
    ipc_wire_close(fds, chunks.count);
    if (!chunks.error)
        post(e);
    return rc == 0;
}

/* Handles one packet from a peer. Returns false if the connection is to be closed. */
static bool converse(struct peer *peer)
{
    struct ipc_request request;
    unsigned none = 0;
    int rc = ipc_wire_receive(peer->fd, &request, sizeof(request), NULL, &none);

    if (rc == -EAGAIN)
        return true;
    if (rc || request.magic != IPC_PACKET_MAGIC)
        return false;
    switch (request.what) {
    case IPC_HELLO:
        return greet(peer);
    case IPC_FETCH:
        return answer(peer, &request);
    case IPC_CLOSED:
        some_closed = true;
        return true;
    default:
        return false;
    }
}

/* ---- the thread ---- */

static int open_process(pid_t pid)
{
#ifdef SYS_pidfd_open
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
#else
    (void)pid;
    return -1;
#endif
}

/* Accepts a connection. Returns false if there is no room for it at the moment. */
static bool admit(void)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct peer *peer;
    pid_t pid;

    if (fd < 0)
        return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    if (peer_count == IPC_PEERS_MAX || !ipc_wire_trusts(fd, &pid) || !(peer = calloc(1, sizeof(*peer)))) {
        close(fd);
        return true;
    }
    *peer = (struct peer){.fd = fd, .process = open_process(pid), .next = peers};
    peers = peer;
    peer_count++;
    return true;
}

/* Lists the listener, and two entries for each peer in the order of the list. */
nfds_t ipc_broker_list(struct pollfd *list)
{
    nfds_t n = 0;

    lock_take(&ipc_export_lock);
    list[n++] = (struct pollfd){.fd = crowded ? -1 : listener, .events = POLLIN};
    for (const struct peer *p = peers; p; p = p->next) {
        list[n++] = (struct pollfd){.fd = p->fd, .events = POLLIN};
        list[n++] = (struct pollfd){.fd = p->process, .events = POLLIN};
    }
    lock_release(&ipc_export_lock);
    return n;
}

int ipc_broker_attend(const struct pollfd *list)
{
    const short at_listener = (list++)->revents;
    struct peer *next;

    lock_take(&ipc_export_lock);
    for (struct peer *p = peers; p; p = next) {
        const short from = (list++)->revents, process = (list++)->revents;

        next = p->next;
        if (process & POLLNVAL)
            p->process = -1;
        if (process & POLLIN)
            died(p);
        else if (from && ((from & POLLNVAL) || !converse(p)))
            disconnect(p);
    }
    if (some_closed)
        ipc_exports_each(settle_freed, NULL);
    some_closed = false;
    if (at_listener & POLLNVAL)
        listener = -1; /* the program has closed our descriptor */
    crowded = (at_listener & POLLIN) && !admit();
    const int patience = crowded ? BREATHER_MS : -1;
    lock_release(&ipc_export_lock);
    return patience;
}

/* ---- the socket ---- */

static int listen_at(int fd)
{
    struct sockaddr_un name;
    socklen_t length;

    if (getrandom(key, sizeof(key), 0) != sizeof(key))
        return -EIO;
    length = ipc_wire_name(&name, key);
    if (bind(fd, (struct sockaddr *)&name, length) || listen(fd, BACKLOG))
        return -errno;
    return 0;
}

int ipc_broker_start(void)
{
    if (listener >= 0)
        return 0;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = fd < 0 ? -errno : listen_at(fd);
    if (rc == 0) {
        listener = fd;
        rc = ipc_thread_wake();
    }
    if (rc) {
        if (fd >= 0)
            close(fd);
        listener = -1;
    }
    return rc;
}

const unsigned char *ipc_broker_key(void)
{
    return listener >= 0 ? key : NULL;
}

void ipc_broker_after_fork(void)
{
    ipc_board_after_fork();
    while (peers)
        remove_peer(peers);
    if (listener >= 0)
        close(listener);
    listener = -1;
}
