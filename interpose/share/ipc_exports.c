/* ipc_exports: see ipc_exports.h.
 *
 * An export is found by its id through its slot (ipc_page.h), and by its address through a hash, so an export
 * and a free cost the same however many there are.
 */
#include "interpose/share/ipc_exports.h"

#include <errno.h>
#include <stdlib.h>

#include "interpose/pool/pool_blocks.h"
#include "interpose/share/ipc_page.h"

#define BUCKETS 4096

struct lock ipc_export_lock = LOCK_INITIALIZER(LOCK_EXPORTS);
/* guarded by ipc_export_lock */
static struct ipc_exported *slots[IPC_SLOTS];
static struct ipc_exported *buckets[BUCKETS];
static uint32_t export_count;
static uint64_t last_id; /* the next id is greater and its slot is empty */

static struct ipc_exported **bucket_of(uint64_t address)
{
    return &buckets[address / RANGES_UNIT * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (BUCKETS - 1)];
}

struct ipc_exported *ipc_exports_find(uint64_t id)
{
    struct ipc_exported *e = slots[ipc_page_slot(id)];

    return e && e->id == id ? e : NULL;
}

/* The block is pinned while it is in the table, so no other block can have its address. */
struct ipc_exported *ipc_exports_find_block(const struct pool *pool, uint64_t address)
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

int ipc_exports_add(struct ipc_exported *e)
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

void ipc_exports_remove(struct ipc_exported *gone)
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

bool ipc_exports_is_live(const struct ipc_exported *e)
{
    struct pool_block block;

    return pool_block(e->pool, e->address, false, &block) == 0 && block.id == e->block_id;
}

static void forget_visited(struct ipc_exported *e, void *unused)
{
    (void)unused;
    ipc_exports_remove(e);
}

void ipc_exports_after_fork(void)
{
    ipc_exports_each(forget_visited, NULL);
}
