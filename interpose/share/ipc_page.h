/* ipc_page: memory that an exporter shares with one importer: which blocks are exported, and which of them
 * the importer has open. Both sides decide by it without asking the other.
 *
 * There is a word for each slot, and a block's slot is part of its id. The word holds the id, how often the
 * importer has the block open, and whether the exporter has freed it. The importer counts, and takes no block
 * that is freed; the exporter marks it freed, and from then on waits for the count to become 0. Both change
 * the word by atomic operations, so that one of the two always sees the other's change. When the importer has
 * died the exporter drops the page with all that was counted there.
 *
 * The other side may write anything here at any time: a word of another id says nothing about this one. The
 * size cannot shrink, so that no read of it ends the process (SIGBUS). Owns no lock.
 */
#ifndef GPUCAP_IPC_PAGE_H
#define GPUCAP_IPC_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Exports at a time. The page is 2 MiB, of which the kernel keeps what is used. */
#define IPC_SLOTS (1u << 18)

struct ipc_page {
    _Atomic uint64_t words[IPC_SLOTS];
};

static inline uint32_t ipc_page_slot(uint64_t id)
{
    return (uint32_t)(id % IPC_SLOTS);
}

/* The exporter makes a page. A descriptor of it and its mapping, or -errno. */
int ipc_page_make(struct ipc_page **page);
/* The importer maps the page of a descriptor, which stays open. 0; -EPROTO: it is none; another -errno. */
int ipc_page_map(int fd, struct ipc_page **page);
void ipc_page_unmap(struct ipc_page *page);

/* The exporter: the block of this id can be opened. */
void ipc_page_offer(struct ipc_page *page, uint64_t id);
/* The exporter: it cannot be opened any more. True if the importer has it open, and will tell when not. */
bool ipc_page_withdraw(struct ipc_page *page, uint64_t id);
/* The exporter: true if the importer has it open. */
bool ipc_page_holds(const struct ipc_page *page, uint64_t id);

/* The importer: opens it once more. 0; -ENOENT: freed or never exported; -EMFILE: open too often. */
int ipc_page_take(struct ipc_page *page, uint64_t id);
/* The importer: closes it once. True if it was the last time and the exporter, which has freed the block, is
 * to be told. */
bool ipc_page_drop(struct ipc_page *page, uint64_t id);

#endif
