/* ipc: see ipc.h. Joins the exporting side (ipc_export.c) and the importing side (ipc_import.c): the one
 * thread serves both, and a fork takes the locks of both. */
#include "interpose/share/ipc.h"

#include <errno.h>
#include <string.h>

#include "interpose/pool/pool_reach.h"
#include "interpose/settings/log.h"
#include "interpose/share/ipc_broker.h"
#include "interpose/share/ipc_export.h"
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

/* ---- export and open ---- */

int ipc_export(struct pool *pool, uint64_t address, CUipcMemHandle *handle)
{
    pool_settle(pool); /* another process's work is not ordered behind ours */
    if (pool->vmm.properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return -ENOTSUP;
    const int rc = ipc_thread_prepare(&work);
    return rc ? rc : ipc_export_block(pool, address, handle);
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
        return strerrordesc_np(-rc) ? strerrordesc_np(-rc) : "it answers with nonsense";
    }
}

int ipc_open(const CUipcMemHandle *handle, CUcontext context, CUdeviceptr *address)
{
    struct ipc_ticket ticket;
    int rc = -EPROTONOSUPPORT;

    memcpy(&ticket, handle, sizeof(ticket));
    if (ticket.version == IPC_TICKET_VERSION) {
        if (ipc_is_own(handle))
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
