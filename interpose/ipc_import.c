/* ipc_import: the process that opens blocks of other processes, see ipc.h.
 *
 * One connection for each exporter, kept as long as something of it is open here: its end tells the exporter
 * that we are gone. open_lock makes opens and closes take turns and guards connections; table_lock guards the
 * list of what is open, so that a question about an address never waits for another process. Nobody waits for
 * the device with either of them: it may be waiting for what another thread does after a fork or an open.
 */
#include "capture.h"
#include "ipc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "decay.h"
#include "ipc_wire.h"
#include "log.h"

#define PATIENCE_MS 10000               /* for each answer of another process */
#define RETRY_NS    5000000             /* while its queue is full */
#define CHUNKS_MAX  (UINT64_C(1) << 22) /* of one block: 8 TiB in the smallest chunks */
#define FIRST_ID    (UINT64_C(1) << 62) /* BUFFER_IDs of opened blocks: apart from those of pools and driver */

/* A connection to an exporter. */
struct source {
    unsigned char key[IPC_KEY];
    int fd; /* -1: lost */
    unsigned users;
    struct source *next;
};

struct import {
    struct ipc_ticket ticket;
    struct source *source;
    struct ipc_block block;
    uint64_t base, span; /* of the address space */
    uint64_t mapped;     /* bytes from base on */
    CUmemGenericAllocationHandle *handles;
    uint64_t *sizes;
    uint64_t chunks, count; /* expected; imported so far */
    unsigned opens;         /* changed with both locks; 0: closed, to be unmapped when its work is done */
    int ending;             /* calls that may end its context; guarded by open_lock */
    bool waiting;           /* who closed it, for that work, without a lock; guarded by open_lock */
    uint64_t epoch;         /* of its work, once a sweep has found it closed; 0: none yet; likewise */
    struct import *next;
};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t waited = PTHREAD_COND_INITIALIZER; /* with open_lock */
static struct source *sources;                           /* guarded by open_lock */
static struct import *imports;                           /* changed with both locks */
static atomic_uint import_count;
static uint64_t last_id; /* guarded by open_lock */
static bool registered;  /* likewise: what happens at fork */

/* ---- connections ---- */

static void lose(struct source *source)
{
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
}

static void drop_source(struct source *source)
{
    struct source **at = &sources;

    if (--source->users)
        return;
    while (*at != source)
        at = &(*at)->next;
    *at = source->next;
    lose(source);
    free(source);
}

/* Connects to the exporter. A file descriptor or -errno. */
static int connect_to(const struct ipc_ticket *ticket)
{
    const struct timespec pause = {.tv_nsec = RETRY_NS};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un name;
    const socklen_t length = ipc_wire_name(&name, ticket->key);
    int tries = PATIENCE_MS / (RETRY_NS / 1000000), rc = fd < 0 ? -errno : -EAGAIN;
    pid_t pid;

    while (rc == -EAGAIN && tries-- > 0) {
        rc = connect(fd, (struct sockaddr *)&name, length) ? -errno : 0;
        if (rc == -EAGAIN)
            nanosleep(&pause, NULL);
    }
    if (rc == 0 && !ipc_wire_trusts(fd, &pid))
        rc = -EPERM;
    if (rc == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return rc;
}

/* The connection to the exporter of a block, with one more user. */
static int get_source(const struct ipc_ticket *ticket, struct source **out)
{
    struct source *source = sources;

    while (source && memcmp(source->key, ticket->key, IPC_KEY) != 0)
        source = source->next;
    if (!source) {
        source = calloc(1, sizeof *source);
        if (!source)
            return -ENOMEM;
        memcpy(source->key, ticket->key, IPC_KEY);
        source->fd = -1;
        source->next = sources;
        sources = source;
    }
    source->users++;
    if (source->fd < 0) {
        const int fd = connect_to(ticket);

        if (fd < 0) {
            drop_source(source);
            return fd;
        }
        source->fd = fd;
    }
    *out = source;
    return 0;
}

/* Asks, and waits for the answer. */
static int ask(struct source *source, const struct ipc_request *request, struct ipc_reply *reply, int *fds,
               unsigned *count)
{
    int rc = source->fd < 0 ? -EPIPE : ipc_wire_send(source->fd, request, sizeof *request, NULL, 0);

    if (rc == 0)
        rc = ipc_wire_receive(source->fd, reply, sizeof *reply, fds, count, PATIENCE_MS);
    else
        *count = 0;
    if (rc == 0 && (reply->magic != IPC_PACKET_MAGIC || reply->error < 0 || reply->count > IPC_BATCH ||
                    *count != reply->count || (reply->error && reply->count)))
        rc = -EPROTO;
    if (rc) {
        while (*count)
            close(fds[--*count]);
        lose(source); /* whatever comes next would be the answer to something else */
        return rc;
    }
    return -reply->error;
}

/* ---- what the exporter has ---- */

static int card_of(const CUuuid *card, CUdevice *ordinal)
{
    CUuuid uuid;
    int count = 0;

    driver.cuDeviceGetCount(&count);
    for (*ordinal = 0; *ordinal < count; ++*ordinal) {
        if (driver.cuDeviceGetUuid_v2(&uuid, *ordinal) == CUDA_SUCCESS &&
            memcmp(&uuid, card, sizeof uuid) == 0)
            return 0;
    }
    return -ENODEV;
}

static int ask_to_open(struct import *import)
{
    const struct ipc_request request = {.magic = IPC_PACKET_MAGIC, .what = IPC_OPEN, .id = import->ticket.id};
    struct ipc_reply reply;
    int fds[IPC_BATCH];
    unsigned none = 0;
    int rc = ask(import->source, &request, &reply, fds, &none);

    if (rc)
        return rc;
    if (reply.bytes != import->ticket.bytes || reply.offset != import->ticket.offset || reply.count ||
        reply.chunks == 0 || reply.chunks > CHUNKS_MAX)
        return -EPROTO;
    import->chunks = reply.chunks;
    return card_of(&reply.card, &import->block.ordinal);
}

static void tell_closed(const struct import *import)
{
    const struct ipc_request request = {
        .magic = IPC_PACKET_MAGIC, .what = IPC_CLOSE, .id = import->ticket.id};

    if (import->source->fd >= 0 && ipc_wire_send(import->source->fd, &request, sizeof request, NULL, 0))
        lose(import->source);
}

/* Takes in the chunks of one answer; the descriptors are closed. */
static int take_in(struct import *import, const struct ipc_reply *reply, const int *fds)
{
    int rc = reply->count == 0 || reply->count > import->chunks - import->count ? -EPROTO : 0;

    for (unsigned i = 0; i < reply->count; i++) {
        const uint64_t bytes = reply->sizes[i];

        if (rc == 0 && (bytes == 0 || bytes % VMM_PAGE || bytes > VMM_SPAN - import->span))
            rc = -EPROTO;
        if (rc == 0 &&
            driver.cuMemImportFromShareableHandle(&import->handles[import->count], (void *)(intptr_t)fds[i],
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS)
            rc = -EIO;
        if (rc == 0) {
            import->sizes[import->count++] = bytes;
            import->span += bytes;
        }
        close(fds[i]);
    }
    return rc;
}

static int fetch(struct import *import)
{
    struct ipc_request request = {.magic = IPC_PACKET_MAGIC, .what = IPC_FETCH, .id = import->ticket.id};
    struct ipc_reply reply;
    int fds[IPC_BATCH], rc = 0;

    import->handles = calloc(import->chunks, sizeof *import->handles);
    import->sizes = calloc(import->chunks, sizeof *import->sizes);
    if (!import->handles || !import->sizes)
        return -ENOMEM;
    while (rc == 0 && import->count < import->chunks) {
        unsigned got = IPC_BATCH;

        request.first = import->count;
        rc = ask(import->source, &request, &reply, fds, &got);
        if (rc == 0)
            rc = take_in(import, &reply, fds);
    }
    if (rc == 0 && (import->ticket.offset >= import->sizes[0] ||
                    import->ticket.bytes > import->span - import->ticket.offset))
        rc = -EPROTO;
    return rc;
}

/* ---- mapping ---- */

static int map(struct import *import, CUdevice current)
{
    CUmemAccessDesc access[2] = {{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = current},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    const bool elsewhere = current != import->block.ordinal;
    CUdeviceptr base;

    if (driver.cuMemAddressReserve(&base, import->span, VMM_PAGE, 0, 0) != CUDA_SUCCESS)
        return -ENOMEM;
    import->base = base;
    for (uint64_t i = 0; i < import->count; i++) {
        if (driver.cuMemMap(base + import->mapped, import->sizes[i], 0, import->handles[i], 0) !=
            CUDA_SUCCESS)
            return -EIO;
        import->mapped += import->sizes[i];
    }
    access[1] = access[0];
    access[1].location.id = import->block.ordinal;
    if (driver.cuMemSetAccess(base, import->span, access, elsewhere ? 2 : 1) != CUDA_SUCCESS)
        return -EIO;
    return 0;
}

/* Undoes whatever has been done for an import that is in no table, and frees it. */
static void undo(struct import *import, bool opened)
{
    if (import->mapped)
        driver.cuMemUnmap(import->base, import->mapped);
    for (uint64_t i = 0; i < import->count; i++)
        driver.cuMemRelease(import->handles[i]);
    if (import->base)
        driver.cuMemAddressFree(import->base, import->span);
    if (opened)
        tell_closed(import);
    drop_source(import->source);
    free(import->handles);
    free(import->sizes);
    free(import);
}

static void add(struct import *import)
{
    import->block.start = import->base + import->ticket.offset;
    import->block.bytes = import->ticket.bytes;
    import->block.id = FIRST_ID + ++last_id;
    import->opens = 1;
    pthread_mutex_lock(&table_lock);
    import->next = imports;
    imports = import;
    atomic_fetch_add(&import_count, 1);
    pthread_mutex_unlock(&table_lock);
}

static void count_opens(struct import *import, int change)
{
    pthread_mutex_lock(&table_lock);
    import->opens += (unsigned)change;
    pthread_mutex_unlock(&table_lock);
}

static void end(struct import *import)
{
    struct import **at = &imports;

    pthread_mutex_lock(&table_lock);
    while (*at != import)
        at = &(*at)->next;
    *at = import->next;
    atomic_fetch_sub(&import_count, 1);
    pthread_mutex_unlock(&table_lock);
    undo(import, true);
}

/* ---- fork ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&open_lock);
    pthread_mutex_lock(&table_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&table_lock);
    pthread_mutex_unlock(&open_lock);
}

/* What is open is the parent's. Its connections must not look alive when it has died. */
static void after_fork_child(void)
{
    while (imports) {
        struct import *import = imports;

        imports = import->next;
        drop_source(import->source);
        free(import->handles);
        free(import->sizes);
        free(import);
    }
    atomic_store(&import_count, 0);
    pthread_cond_init(&waited, NULL); /* who waits is not here */
    after_fork();
}

/* None of what follows is a place to be cancelled at: the lock would stay taken. */
static int enter(void)
{
    int before;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(&open_lock);
    if (!registered)
        registered = pthread_atfork(before_fork, after_fork, after_fork_child) == 0;
    return before;
}

static void leave(int before)
{
    pthread_mutex_unlock(&open_lock);
    pthread_setcancelstate(before, NULL);
}

/* ---- open and close ---- */

bool ipc_is_ours(const CUipcMemHandle *handle)
{
    struct ipc_ticket ticket;

    memcpy(&ticket, handle, sizeof ticket);
    return ticket.magic == IPC_TICKET_MAGIC && ticket.version == IPC_TICKET_VERSION && ticket.bytes &&
           ticket.zero == 0;
}

/* One that is about to be unmapped cannot be opened again. */
static struct import *find_open(const struct ipc_ticket *ticket, CUcontext context)
{
    struct import *import = imports;

    while (import &&
           !(import->block.context == context && !import->waiting && import->ticket.id == ticket->id &&
             memcmp(import->ticket.key, ticket->key, IPC_KEY) == 0))
        import = import->next;
    return import;
}

/* To be unmapped, and nobody is about to. */
static bool is_closed(const struct import *import)
{
    return !import->opens && !import->waiting && !import->ending;
}

static struct import *find_closed(void)
{
    struct import *import = imports;

    while (import && !is_closed(import))
        import = import->next;
    return import;
}

/* The work of the context on what is about to be unmapped. False: not done, or a capture is open. */
static bool wait_for_work(CUcontext context)
{
    return capture_wait_context(context) == CUDA_SUCCESS;
}

/* Unmaps what is closed when its work is done. Nobody else waits for that, but for those who end the context,
 * which waits for all its work as well. */
static bool unmap(struct import *import)
{
    import->waiting = true;
    pthread_mutex_unlock(&open_lock);
    const bool done = wait_for_work(import->block.context) && !capture_any();
    pthread_mutex_lock(&open_lock);
    import->waiting = false;
    pthread_cond_broadcast(&waited);
    if (done)
        end(import);
    return done;
}

/* What is closed, now or beside a capture that has ended since. */
static void unmap_closed(void)
{
    struct import *import = find_closed();

    while (import && unmap(import))
        import = find_closed();
}

static int open_new(const struct ipc_ticket *ticket, CUcontext context, struct import **out)
{
    struct import *import = calloc(1, sizeof *import);
    bool opened = false;
    CUdevice current;

    if (!import)
        return -ENOMEM;
    import->ticket = *ticket;
    import->block.context = context;
    int rc = get_source(ticket, &import->source);
    if (rc) {
        free(import);
        return rc;
    }
    rc = ask_to_open(import);
    opened = rc == 0 || rc == -ENODEV || rc == -EPROTO;
    if (rc == 0 && driver.cuCtxGetDevice(&current) != CUDA_SUCCESS)
        rc = -EIO;
    if (rc == 0)
        rc = fetch(import);
    if (rc == 0)
        rc = map(import, current);
    if (rc) {
        undo(import, opened);
        return rc;
    }
    add(import);
    *out = import;
    return 0;
}

int ipc_open(const CUipcMemHandle *handle, CUcontext context, CUdeviceptr *address)
{
    struct ipc_ticket ticket;
    int rc = 0;

    memcpy(&ticket, handle, sizeof ticket);
    if (ipc_is_own(handle))
        return -EXDEV;
    const int cancel = enter();
    struct import *import = find_open(&ticket, context);
    if (import)
        count_opens(import, 1);
    else
        rc = open_new(&ticket, context, &import);
    if (rc == 0)
        *address = import->block.start;
    leave(cancel);
    if (rc)
        log_info("cannot open a block of process %d: %s", ticket.pid, strerrordesc_np(-rc));
    return rc;
}

int ipc_close(CUdeviceptr address)
{
    if (!atomic_load(&import_count))
        return -ENOENT;
    const int cancel = enter();
    struct import *import = imports;
    while (import && !(import->block.start == address && import->opens))
        import = import->next;
    const bool found = import;
    if (found)
        count_opens(import, -1);
    if (found && !import->opens) {
        import->epoch = 0;
        unmap_closed();
    }
    const bool left = found && find_closed();
    leave(cancel);
    if (left)
        decay_wake();
    return found ? 0 : -ENOENT;
}

/* Never waits, not even for the lock: whoever has it may be waiting for another process. */
void ipc_imports_sweep(struct fence *fence)
{
    struct import *import, *next;

    if (!atomic_load(&import_count) || capture_any() || pthread_mutex_trylock(&open_lock))
        return;
    if (find_closed())
        fence_poll(fence);
    for (import = imports; import && !capture_any(); import = next) {
        next = import->next;
        if (!is_closed(import) || import->block.context != fence->context)
            continue;
        if (!import->epoch)
            import->epoch = fence_epoch_quietly(fence);
        if (fence_done(fence, import->epoch))
            end(import);
    }
    pthread_mutex_unlock(&open_lock);
}

enum ipc_place ipc_find(uint64_t address, struct ipc_block *block)
{
    enum ipc_place place = IPC_NOT_OURS;

    if (__builtin_expect(!atomic_load(&import_count), 1))
        return place;
    pthread_mutex_lock(&table_lock);
    struct import *import = imports;
    while (import && address - import->base >= import->span)
        import = import->next;
    if (import) {
        *block = import->block;
        place = import->opens && address - block->start < block->bytes ? IPC_BLOCK : IPC_BESIDE;
    }
    pthread_mutex_unlock(&table_lock);
    return place;
}

static bool anybody_waits(CUcontext context)
{
    const struct import *import = imports;

    while (import && (import->block.context != context || !import->waiting))
        import = import->next;
    return import;
}

static void await_closers(CUcontext context)
{
    while (anybody_waits(context))
        pthread_cond_wait(&waited, &open_lock);
}

void ipc_imports_ending(CUcontext context, bool ending)
{
    if (!atomic_load(&import_count))
        return;
    const int cancel = enter();
    for (struct import *import = imports; import; import = import->next) {
        if (import->block.context == context)
            import->ending += ending ? 1 : import->ending > 0 ? -1 : 0;
    }
    if (ending)
        await_closers(context);
    leave(cancel);
}

void ipc_imports_end(CUcontext context)
{
    struct import *next;

    if (!atomic_load(&import_count))
        return;
    const int cancel = enter();
    await_closers(context); /* of what was opened while it ended */
    for (struct import *import = imports; import; import = next) {
        next = import->next;
        if (import->block.context == context)
            end(import);
    }
    leave(cancel);
}
