/* ipc_page: memory that an exporter shares with one importer: which blocks are exported, and which of them
 * the importer has open. Each side decides by it without asking the other.
 *
 * There is one word for each slot, and a block's slot is part of its id. The word holds the id, how often the
 * importer has the block open, and whether the exporter has freed it. The importer counts its opens and opens
 * no freed block; the exporter sets the freed bit and then waits until the count is 0. Both change the word
 * by atomic operations, so one of the two always sees the other's change. When the importer has died, the
 * exporter drops the page and its counts.
 *
 * The other side may write anything here at any time: a word with another id is ignored. The file cannot
 * shrink, so reading the page never raises SIGBUS. Owns no lock.
 */
#ifndef GPUCAP_IPC_PAGE_H
#define GPUCAP_IPC_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Exports at a time. The page is 2 MiB; the kernel allocates only the parts that are used. */
#define IPC_SLOTS (1u << 18)

struct ipc_page {
    _Atomic uint64_t words[IPC_SLOTS];
};

static inline uint32_t ipc_page_slot(uint64_t id)
{
    return (uint32_t)(id % IPC_SLOTS);
}

/* Exporter: creates a page and maps it. Returns a descriptor of it, or -errno. */
int ipc_page_make(struct ipc_page **page);
/* Importer: maps a descriptor's page; it stays open. Returns 0, -EPROTO for another file, or -errno. */
int ipc_page_map(int fd, struct ipc_page **page);
void ipc_page_unmap(struct ipc_page *page);

/* Exporter: allows the importer to open the block. */
void ipc_page_offer(struct ipc_page *page, uint64_t id);
/* Exporter: marks the block freed, so that it cannot be opened any more. Returns true if the importer has it
 * open; the importer then sends IPC_CLOSED after its last close. */
bool ipc_page_withdraw(struct ipc_page *page, uint64_t id);
/* Exporter: returns true if the importer has the block open. */
bool ipc_page_holds(const struct ipc_page *page, uint64_t id);

/* Importer: counts one more open. Returns 0; -ENOENT: freed or never exported; -EMFILE: open too often. */
int ipc_page_take(struct ipc_page *page, uint64_t id);
/* Importer: counts one close. Returns true for the last one of a freed block: send IPC_CLOSED. */
bool ipc_page_drop(struct ipc_page *page, uint64_t id);

#endif
