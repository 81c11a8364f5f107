/* ipc_export: how blocks become exports and cease to be, see ipc.h. The table of them is in ipc_exports.c,
 * the connections to importers are in ipc_broker.c. */
#include "interpose/share/ipc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/share/ipc_broker.h"
#include "interpose/share/ipc_export.h"
#include "interpose/share/ipc_wire.h"

/* ---- how long a block is exported ---- */

void ipc_freed(struct pool *pool, uint64_t address)
{
    lock_take(&ipc_export_lock);
    struct ipc_exported *e = ipc_exports_find_block(pool, address);
    if (e)
        ipc_broker_settle(e);
    lock_release(&ipc_export_lock);
}

struct change {
    CUcontext context;
    int by; /* 0: the context has ended */
};

static void change_ending(struct ipc_exported *e, void *argument)
{
    const struct change *change = argument;

    if (e->pool->context != change->context)
        return;
    e->ending += change->by > 0 || e->ending > 0 ? change->by : 0;
    if (change->by < 0)
        ipc_broker_settle(e);
    if (change->by == 0) {
        ipc_broker_withdraw(e);
        ipc_exports_remove(e);
    }
}

static void change_context(CUcontext context, int by)
{
    struct change change = {context, by};

    lock_take(&ipc_export_lock);
    ipc_exports_each(change_ending, &change);
    lock_release(&ipc_export_lock);
}

void ipc_exports_ending(CUcontext context, bool ending)
{
    change_context(context, ending ? 1 : -1);
}

void ipc_exports_end(CUcontext context)
{
    change_context(context, 0);
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

int ipc_export_block(struct pool *pool, uint64_t address, CUipcMemHandle *handle)
{
    lock_take(&ipc_export_lock);
    struct ipc_exported *e;
    const int rc = get(pool, address, &e);
    if (rc == 0)
        write_ticket(e, handle);
    lock_release(&ipc_export_lock);
    return rc;
}

bool ipc_is_own(const CUipcMemHandle *handle)
{
    struct ipc_ticket ticket;

    memcpy(&ticket, handle, sizeof(ticket));
    lock_take(&ipc_export_lock);
    const unsigned char *key = ipc_broker_key();
    const bool own = key && memcmp(ticket.key, key, IPC_KEY) == 0;
    lock_release(&ipc_export_lock);
    return own;
}
