/* ipc_export: the table of this process's exported blocks, see ipc.h and ipc_exports.h.
 *
 * An export is found by its id through its slot (ipc_page.h), and by its address through a hash, so an export
 * and a free cost the same however many there are.
 */
#include "interpose/share/ipc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/share/ipc_exports.h"
#include "interpose/share/ipc_page.h"

#define BUCKETS 4096

struct lock ipc_export_lock = LOCK_INITIALIZER(LOCK_EXPORTS);
/* guarded by ipc_export_lock */
static struct ipc_exported *slots[IPC_SLOTS];
static struct ipc_exported *buckets[BUCKETS];
static uint32_t export_count;
static uint64_t last_id; /* the next id is greater and its slot is empty */

/* ---- the table ---- */

static struct ipc_exported **bucket_of(uint64_t address)
{
    return &buckets[address / RANGES_UNIT * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (BUCKETS - 1)];
}

struct ipc_exported *ipc_exports_find(uint64_t id)
{
    struct ipc_exported *e = slots[ipc_page_slot(id)];

    return e && e->id == id ? e : NULL;
}

/* Finds an export by address. The block is pinned while it is in the table, so no other block can have its
 * address. */
static struct ipc_exported *find_block(const struct pool *pool, uint64_t address)
{
    struct ipc_exported *e = *bucket_of(address);

    while (e && (e->pool != pool || e->address != address))
        e = e->next;
    return e;
}

void ipc_exports_each(void (*visit)(struct ipc_exported *exported, void *argument), void *argument)
{
    uint32_t left = export_count;

    for (uint32_t at = ipc_page_slot(last_id); left; at = (at - 1) % IPC_SLOTS) {
        if (slots[at]) {
            left--;
            visit(slots[at], argument);
        }
    }
}

/* Returns 0 or -ENOSPC. */
static int insert(struct ipc_exported *e)
{
    if (export_count == IPC_SLOTS)
        return -ENOSPC;
    do
        last_id++;
    while (slots[ipc_page_slot(last_id)]);
    e->id = last_id;
    slots[ipc_page_slot(e->id)] = e;
    e->next = *bucket_of(e->address);
    *bucket_of(e->address) = e;
    export_count++;
    return 0;
}

static void forget(struct ipc_exported *gone)
{
    struct ipc_exported **at = bucket_of(gone->address);

    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    slots[ipc_page_slot(gone->id)] = NULL;
    export_count--;
    free(gone->chunks);
    free(gone);
}

/* ---- how long a block is exported ---- */

static bool is_live(const struct ipc_exported *e)
{
    struct pool_block block;

    return pool_block(e->pool, e->address, false, &block) == 0 && block.id == e->block_id;
}

/* While its context may be ending, the export stays: pool_unpin would call the driver. */
void ipc_exports_settle(struct ipc_exported *e)
{
    if (!e->freed && is_live(e))
        return;
    e->freed = true;
    if (!ipc_broker_withdraw(e) && !e->ending) {
        pool_unpin(e->pool, e->address);
        forget(e);
    }
}

void ipc_freed(struct pool *pool, uint64_t address)
{
    lock_take(&ipc_export_lock);
    struct ipc_exported *e = find_block(pool, address);
    if (e)
        ipc_exports_settle(e);
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
        ipc_exports_settle(e);
    if (change->by == 0) {
        ipc_broker_withdraw(e);
        forget(e);
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

static void forget_visited(struct ipc_exported *e, void *unused)
{
    (void)unused;
    forget(e);
}

void ipc_exports_after_fork(void)
{
    ipc_exports_each(forget_visited, NULL);
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
    if (rc == 0 && ((rc = fill_in(e)) || (rc = insert(e))))
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
    if (pool->vmm.properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return -ENOTSUP;
    const int rc = ipc_broker_start();
    if (rc)
        return rc;
    *out = find_block(pool, address);
    if (!*out)
        return add(pool, address, out);
    return !(*out)->freed && is_live(*out) ? 0 : -EINVAL;
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

int ipc_export(struct pool *pool, uint64_t address, CUipcMemHandle *handle)
{
    pool_settle(pool); /* another process's work is not ordered behind ours */
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
