/* ipc_export: the process that owns exported blocks, see ipc.h.
 *
 * One thread answers at the socket; it alone touches connections, with export_lock, which also guards the
 * table of exports. The driver is asked for file descriptors with the lock held: those calls do not wait for
 * work. A process that has a block open and ends without saying so keeps it until it is seen to be dead: the
 * kernel closes its socket before its work on the device has been stopped.
 */
#include "ipc.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc_wire.h"
#include "process.h"

#define PEERS_MAX   1024      /* connections at a time */
#define HELD_MAX    (1 << 16) /* blocks that one process may have open */
#define BACKLOG     128
#define BREATHER_MS 100 /* before trying again when descriptors or memory have run out */

struct export
{
    uint64_t id;
    struct pool *pool;
    uint64_t address, block_id, bytes, offset;
    struct vmm_chunk *chunks;
    uint64_t count;
    CUuuid card;
    uint64_t holders; /* times it is open elsewhere */
    bool freed;       /* by the program */
    int ending;       /* calls that may end its context: nobody asks the driver about it */
    struct export *next;
};

struct peer {
    int fd;      /* -1: has hung up */
    int process; /* pidfd, or -1 */
    uint64_t *held;
    size_t held_count, held_room;
    struct peer *next;
};

static pthread_mutex_t export_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by export_lock */
static struct export *exports;
static struct peer *peers;
static unsigned peer_count;
static uint64_t last_id;
static bool registered; /* what happens at fork and exit */
static bool leaving;
static struct {
    bool running;
    int listener, wake;
    pthread_t thread;
    unsigned char key[IPC_KEY];
} broker = {.listener = -1, .wake = -1};

/* ---- exports ---- */

static struct export *find(uint64_t id)
{
    struct export *e = exports;

    while (e && e->id != id)
        e = e->next;
    return e;
}

static void forget(struct export *gone)
{
    struct export **at = &exports;

    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    free(gone->chunks);
    free(gone);
}

static bool is_live(const struct export *e)
{
    struct pool_block block;

    return pool_block(e->pool, e->address, false, &block) == 0 && block.id == e->block_id;
}

/* Nobody needs the pin any more: the program has freed the block, and nobody has it open. What is behind its
 * work is not asked of a context that may be ending. */
static void settle(struct export *e)
{
    e->freed = e->freed || !is_live(e);
    if (e->freed && e->holders == 0 && !e->ending) {
        pool_unpin(e->pool, e->address);
        forget(e);
    }
}

void ipc_sweep(void)
{
    struct export *next;

    atomic_store(&pool_pinned_frees, 0);
    pthread_mutex_lock(&export_lock);
    for (struct export *e = exports; e; e = next) {
        next = e->next;
        settle(e);
    }
    pthread_mutex_unlock(&export_lock);
}

void ipc_exports_ending(CUcontext context, bool ending)
{
    struct export *next;

    pthread_mutex_lock(&export_lock);
    for (struct export *e = exports; e; e = next) {
        next = e->next;
        if (e->pool->context != context)
            continue;
        e->ending += ending ? 1 : e->ending > 0 ? -1 : 0;
        if (!ending)
            settle(e);
    }
    pthread_mutex_unlock(&export_lock);
}

void ipc_exports_end(CUcontext context)
{
    struct export *next;

    pthread_mutex_lock(&export_lock);
    for (struct export *e = exports; e; e = next) {
        next = e->next;
        if (e->pool->context == context)
            forget(e);
    }
    pthread_mutex_unlock(&export_lock);
}

/* ---- who has what open ---- */

static int hold(struct peer *peer, struct export *e)
{
    if (peer->held_count == peer->held_room) {
        const size_t room = peer->held_room ? 2 * peer->held_room : 8;
        uint64_t *bigger = room <= HELD_MAX ? realloc(peer->held, room * sizeof *bigger) : NULL;

        if (!bigger)
            return ENOMEM;
        peer->held = bigger;
        peer->held_room = room;
    }
    peer->held[peer->held_count++] = e->id;
    e->holders++;
    return 0;
}

static bool holds(const struct peer *peer, uint64_t id, size_t *place)
{
    for (*place = 0; *place < peer->held_count; ++*place) {
        if (peer->held[*place] == id)
            return true;
    }
    return false;
}

static void let_go(struct peer *peer, size_t place)
{
    struct export *e = find(peer->held[place]);

    peer->held[place] = peer->held[--peer->held_count];
    if (e) {
        e->holders--;
        settle(e);
    }
}

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
    free(gone->held);
    free(gone);
}

/* What it has open stays pinned until it has died; where that cannot be seen, for ever. */
static void hang_up(struct peer *peer)
{
    close(peer->fd);
    peer->fd = -1;
    if (peer->held_count == 0 || peer->process < 0)
        remove_peer(peer);
}

static void died(struct peer *peer)
{
    while (peer->held_count)
        let_go(peer, 0);
    remove_peer(peer);
}

/* ---- questions and answers ---- */

/* Exports the chunks of one packet. 0 or an errno. */
static int export_chunks(const struct export *e, uint64_t first, struct ipc_reply *reply, int *fds)
{
    CUcontext context = e->pool->context; /* this thread has none of its own */
    int error = 0;

    if (driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return EIO;
    while (!error && reply->count < IPC_BATCH && first + reply->count < e->count) {
        const struct vmm_chunk *chunk = &e->chunks[first + reply->count];

        if (driver.cuMemExportToShareableHandle(&fds[reply->count], chunk->handle,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
            error = EIO;
        else
            reply->sizes[reply->count++] = chunk->bytes;
    }
    driver.cuCtxPopCurrent_v2(&context);
    return error;
}

static int answer(struct peer *peer, const struct ipc_request *request, struct ipc_reply *reply, int *fds)
{
    struct export *e = find(request->id);
    size_t place;

    if (e) {
        reply->bytes = e->bytes;
        reply->offset = e->offset;
        reply->chunks = e->count;
        reply->card = e->card;
    }
    switch (request->what) {
    case IPC_OPEN:
        return e && !e->freed && !e->ending && is_live(e) ? hold(peer, e) : ENOENT;
    case IPC_FETCH:
        return e && !e->ending && holds(peer, e->id, &place) ? export_chunks(e, request->first, reply, fds)
                                                             : ENOENT;
    default:
        return EINVAL;
    }
}

/* One packet from a peer. False if there will be no more. */
static bool converse(struct peer *peer)
{
    struct ipc_reply reply = {.magic = IPC_PACKET_MAGIC};
    struct ipc_request request;
    int fds[IPC_BATCH];
    unsigned none = 0;
    size_t place;
    int rc = ipc_wire_receive(peer->fd, &request, sizeof request, fds, &none, 0);

    if (rc == -ETIMEDOUT)
        return true;
    if (rc || request.magic != IPC_PACKET_MAGIC)
        return false;
    if (request.what == IPC_CLOSE) {
        if (holds(peer, request.id, &place))
            let_go(peer, place);
        return true;
    }
    reply.error = answer(peer, &request, &reply, fds);
    const unsigned made = reply.count;
    if (reply.error)
        reply.count = 0;
    rc = ipc_wire_send(peer->fd, &reply, sizeof reply, fds, reply.count);
    for (unsigned i = 0; i < made; i++)
        close(fds[i]);
    return rc == 0;
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

/* A new connection. False if there is no room for it at the moment. */
static bool admit(void)
{
    const int fd = accept4(broker.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct peer *peer;
    pid_t pid;

    if (fd < 0)
        return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    if (peer_count == PEERS_MAX || !ipc_wire_trusts(fd, &pid) || !(peer = calloc(1, sizeof *peer))) {
        close(fd);
        return true;
    }
    peer->fd = fd;
    peer->process = open_process(pid);
    peer->next = peers;
    peers = peer;
    peer_count++;
    return true;
}

enum { WAKE, LISTENER, FIRST_PEER };

/* What to wait for: one entry for each peer, in the order of the list. */
static nfds_t list_peers(struct pollfd *list)
{
    nfds_t n = FIRST_PEER;

    for (const struct peer *p = peers; p; p = p->next)
        list[n++] = (struct pollfd){.fd = p->fd >= 0 ? p->fd : p->process, .events = POLLIN};
    return n;
}

/* With the lock. */
static void attend(const struct pollfd *list)
{
    struct peer *next;

    for (struct peer *p = peers; p; p = next) {
        const short seen = (list++)->revents;

        next = p->next;
        if (!seen)
            continue;
        if (p->fd < 0)
            died(p);
        else if ((seen & POLLNVAL) || !converse(p))
            hang_up(p);
    }
}

static void *serve(void *list_room)
{
    struct pollfd *list = list_room;
    bool crowded = false;

    for (;;) {
        list[WAKE] = (struct pollfd){.fd = broker.wake, .events = POLLIN};
        list[LISTENER] = (struct pollfd){.fd = crowded ? -1 : broker.listener, .events = POLLIN};
        const nfds_t n = list_peers(list);

        if (poll(list, n, crowded ? BREATHER_MS : -1) < 0 && errno != EINTR)
            break;
        if (list[WAKE].revents || (list[LISTENER].revents & POLLNVAL))
            break; /* the end, or the program has closed what is not its own */
        pthread_mutex_lock(&export_lock);
        attend(list + FIRST_PEER);
        crowded = (list[LISTENER].revents & POLLIN) && !admit();
        pthread_mutex_unlock(&export_lock);
    }
    free(list);
    return NULL;
}

/* ---- its beginning and its end ---- */

/* No call of ours into the driver comes after the end of the program's own. */
static void before_exit(void)
{
    const struct timespec until = process_exit_patience();

    if (process_is_copy() || !process_lock_at_exit(&export_lock))
        return;
    const bool running = broker.running;
    leaving = true;
    broker.running = false;
    pthread_mutex_unlock(&export_lock);
    if (running && eventfd_write(broker.wake, 1) == 0)
        pthread_timedjoin_np(broker.thread, NULL, &until);
}

static void before_fork(void)
{
    pthread_mutex_lock(&export_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&export_lock);
}

/* The thread is not in the child, and the blocks are not the child's. */
static void after_fork_child(void)
{
    while (peers)
        remove_peer(peers);
    while (exports)
        forget(exports);
    if (broker.running) {
        close(broker.listener);
        close(broker.wake);
    }
    broker.running = false;
    after_fork();
}

/* Signals are the host program's: none may be delivered to our thread. */
static int start_quietly(void)
{
    struct pollfd *list = calloc(PEERS_MAX + FIRST_PEER, sizeof *list);
    sigset_t all, before;

    if (!list)
        return -ENOMEM;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&broker.thread, NULL, serve, list);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        free(list);
    return -rc;
}

static int listen_at(int fd)
{
    struct sockaddr_un name;
    socklen_t length;

    if (getrandom(broker.key, sizeof broker.key, 0) != sizeof broker.key)
        return -EIO;
    length = ipc_wire_name(&name, broker.key);
    if (bind(fd, (struct sockaddr *)&name, length) || listen(fd, BACKLOG))
        return -errno;
    return 0;
}

static int start(void)
{
    if (broker.running || leaving)
        return leaving ? -ESHUTDOWN : 0;
    if (!registered && (pthread_atfork(before_fork, after_fork, after_fork_child) || atexit(before_exit)))
        return -ENOMEM;
    registered = true;
    broker.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    broker.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = broker.listener < 0 || broker.wake < 0 ? -errno : listen_at(broker.listener);
    if (rc == 0)
        rc = start_quietly();
    broker.running = rc == 0;
    if (rc) {
        if (broker.listener >= 0)
            close(broker.listener);
        if (broker.wake >= 0)
            close(broker.wake);
    }
    return rc;
}

/* ---- handles ---- */

static int fill_in(struct export *e)
{
    struct pool_block block;
    int rc = pool_block(e->pool, e->address, false, &block);

    if (rc)
        return rc;
    e->block_id = block.id;
    e->bytes = block.asked;
    if (driver.cuDeviceGetUuid_v2(&e->card, e->pool->ordinal) != CUDA_SUCCESS)
        return -EIO;
    return pool_backing(e->pool, e->address, &e->chunks, &e->count, &e->offset);
}

static int add(struct pool *pool, uint64_t address, struct export **out)
{
    if (pool->vmm.properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return -ENOTSUP;
    int rc = start();
    struct export *e = rc ? NULL : calloc(1, sizeof *e);
    if (!e)
        return rc ? rc : -ENOMEM;
    e->pool = pool;
    e->address = address;
    rc = pool_pin(pool, address);
    if (rc == 0 && (rc = fill_in(e)))
        pool_unpin(pool, address);
    if (rc) {
        free(e);
        return rc;
    }
    e->id = ++last_id;
    e->next = exports;
    exports = e;
    *out = e;
    return 0;
}

static struct export *find_block(const struct pool *pool, uint64_t address)
{
    for (struct export *e = exports; e; e = e->next) {
        if (e->pool == pool && e->address == address && is_live(e))
            return e;
    }
    return NULL;
}

int ipc_export(struct pool *pool, uint64_t address, CUipcMemHandle *handle)
{
    pool_settle(pool); /* another process's work comes behind none of ours */
    pthread_mutex_lock(&export_lock);
    struct export *e = find_block(pool, address);
    int rc = e ? 0 : add(pool, address, &e);
    if (rc == 0) {
        struct ipc_ticket ticket = {.magic = IPC_TICKET_MAGIC,
                                    .version = IPC_TICKET_VERSION,
                                    .pid = getpid(),
                                    .id = e->id,
                                    .bytes = e->bytes,
                                    .offset = e->offset};
        memcpy(ticket.key, broker.key, IPC_KEY);
        memcpy(handle, &ticket, sizeof ticket);
    }
    pthread_mutex_unlock(&export_lock);
    return rc;
}

bool ipc_is_own(const CUipcMemHandle *handle)
{
    struct ipc_ticket ticket;

    memcpy(&ticket, handle, sizeof ticket);
    pthread_mutex_lock(&export_lock);
    const bool own = broker.running && memcmp(ticket.key, broker.key, IPC_KEY) == 0;
    pthread_mutex_unlock(&export_lock);
    return own;
}
