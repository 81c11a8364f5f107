/* ipc: see ipc.h. How blocks become exports and cease to be, and what joins the two sides: the one thread
 * serves both, and a fork takes the locks of both. The table of exports is in ipc_exports.c, the connections
 * to importers are in ipc_broker.c, the importing side is in ipc_import.c. */
#include "interpose/share/ipc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/pool/pool_reach.h"
#include "interpose/settings/log.h"
#include "interpose/share/ipc_broker.h"
#include "interpose/share/ipc_import.h"
#include "interpose/share/ipc_source.h"
#include "interpose/share/ipc_thread.h"

/* ---- the thread and fork ---- */

static nfds_t broker_polls; /* of the last list; for the thread alone */

static nfds_t list_all(struct pollfd *list)
{
    broker_polls = ipc_broker_list(list);
    return broker_polls + ipc_sources_list(list + broker_polls);
}

static int attend_to_all(const struct pollfd *list, nfds_t listed)
{
    const int patience = ipc_broker_attend(list);

    ipc_sources_attend(list + broker_polls, listed - broker_polls);
    return patience;
}

static void before_fork(void)
{
    lock_take(&ipc_export_lock);
    ipc_imports_before_fork();
    ipc_sources_before_fork();
}

/* The child has no exports and no imports. It closes the parent's connections, which would otherwise look
 * alive after the parent has died. */
static void after_fork(bool in_child)
{
    if (in_child) {
        ipc_imports_after_fork(true);
        ipc_sources_after_fork(true);
        ipc_broker_after_fork();
        ipc_exports_after_fork();
    } else {
        ipc_sources_after_fork(false);
        ipc_imports_after_fork(false);
    }
    lock_release(&ipc_export_lock);
}

static const struct ipc_work work = {IPC_BROKER_POLLS + IPC_SOURCES_POLLS, list_all, attend_to_all,
                                     before_fork, after_fork};

/* ---- how long a block is exported ---- */

void ipc_freed(struct pool *pool, uint64_t address)
{
    lock_take(&ipc_export_lock);
    struct ipc_exported *e = ipc_exports_find_block(pool, address);
    if (e)
        ipc_broker_remove_unused(e);
    lock_release(&ipc_export_lock);
}

static void begin_end(struct ipc_exported *e, void *context)
{
    if (e->pool->context == context)
        e->ending++;
}

static void abort_end(struct ipc_exported *e, void *context)
{
    if (e->pool->context != context)
        return;
    e->ending -= e->ending > 0;
    ipc_broker_remove_unused(e);
}

static void end(struct ipc_exported *e, void *context)
{
    if (e->pool->context != context)
        return;
    ipc_broker_withdraw(e);
    ipc_exports_remove(e);
}

static void visit_all(void (*visit)(struct ipc_exported *e, void *context), CUcontext context)
{
    lock_take(&ipc_export_lock);
    ipc_exports_each(visit, context);
    lock_release(&ipc_export_lock);
}

void ipc_exports_ending(CUcontext context, bool ending)
{
    visit_all(ending ? begin_end : abort_end, context);
}

void ipc_exports_end(CUcontext context)
{
    visit_all(end, context);
}

/* ---- handles ---- */

static int fill_in(struct ipc_exported *e)
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

static int add(struct pool *pool, uint64_t address, struct ipc_exported **out)
{
    struct ipc_exported *e = calloc(1, sizeof(*e));

    if (!e)
        return -ENOMEM;
    e->pool = pool;
    e->address = address;
    int rc = pool_pin(pool, address);
    if (rc == 0 && ((rc = fill_in(e)) || (rc = ipc_exports_add(e))))
        pool_unpin(pool, address);
    if (rc) {
        free(e->chunks);
        free(e);
        return rc;
    }
    ipc_broker_offer(e);
    *out = e;
    return 0;
}

/* Finds or creates the export of a block. */
static int get(struct pool *pool, uint64_t address, struct ipc_exported **out)
{
    const int rc = ipc_broker_start();
    if (rc)
        return rc;
    *out = ipc_exports_find_block(pool, address);
    if (!*out)
        return add(pool, address, out);
    return !(*out)->freed && ipc_exports_is_live(*out) ? 0 : -EINVAL;
}

/* With the lock. */
static void write_ticket(const struct ipc_exported *e, CUipcMemHandle *handle)
{
    struct ipc_ticket ticket = {.magic = IPC_TICKET_MAGIC,
                                .version = IPC_TICKET_VERSION,
                                .pid = getpid(),
                                .id = e->id,
                                .bytes = e->bytes,
                                .offset = e->offset};

    memcpy(ticket.key, ipc_broker_key(), IPC_KEY);
    memcpy(handle, &ticket, sizeof(ticket));
}

static int export_block(struct pool *pool, uint64_t address, CUipcMemHandle *handle)
{
    lock_take(&ipc_export_lock);
    struct ipc_exported *e;
    const int rc = get(pool, address, &e);
    if (rc == 0)
        write_ticket(e, handle);
    lock_release(&ipc_export_lock);
    return rc;
}

/* Returns true if this process made the ticket. */
static bool is_own(const struct ipc_ticket *ticket)
{
    lock_take(&ipc_export_lock);
    const unsigned char *key = ipc_broker_key();
    const bool own = key && memcmp(ticket->key, key, IPC_KEY) == 0;
    lock_release(&ipc_export_lock);
    return own;
}

/* ---- export and open ---- */

int ipc_export(struct pool *pool, uint64_t address, CUipcMemHandle *handle)
{
    pool_wait_all(pool); /* another process's work is not ordered behind ours */
    if (pool->vmm.properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return -ENOTSUP;
    const int rc = ipc_thread_prepare(&work);
    return rc ? rc : export_block(pool, address, handle);
}

bool ipc_is_ours(const CUipcMemHandle *handle)
{
    struct ipc_ticket ticket;

    memcpy(&ticket, handle, sizeof(ticket));
    return ticket.magic == IPC_TICKET_MAGIC;
}

static const char *reason(int rc)
{
    switch (rc) {
    case -ENOENT:
        return "it has freed the block";
    case -ECANCELED:
        return "the context was ended meanwhile";
    case -ETIMEDOUT:
        return "it does not answer";
    case -EPROTONOSUPPORT:
        return "it runs another version of this library";
    case -EPERM:
        return "it belongs to another user";
    case -ECONNREFUSED:
    case -ECONNRESET:
    case -EPIPE:
        return "it has ended";
    default:
        return strerrordesc_np(-rc) ? strerrordesc_np(-rc) : "its answer cannot be read";
    }
}

int ipc_open(const CUipcMemHandle *handle, CUcontext context, CUdeviceptr *address)
{
    struct ipc_ticket ticket;
    int rc = -EPROTONOSUPPORT;

    memcpy(&ticket, handle, sizeof(ticket));
    if (ticket.version == IPC_TICKET_VERSION) {
        if (is_own(&ticket))
            return -EXDEV;
        if (!ticket.bytes || ticket.zero)
            return -EINVAL;
        rc = ipc_thread_prepare(&work);
        if (rc == 0 || rc == -ESHUTDOWN) /* a process that is about to exit may still open blocks */
            rc = ipc_imports_open(&ticket, context, address);
    }
    if (rc)
        log_info("cannot open a block of process %d: %s", ticket.pid, reason(rc));
    return rc;
}
