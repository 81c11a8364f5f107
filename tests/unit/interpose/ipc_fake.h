/* ipc_fake: a pool, a driver and an importer's mappings for tests of interpose/share, and what an importer
 * does with ipc_source.h. Exporter and importer are one process, with the real thread and real sockets
 * between them. */
#ifndef GPUCAP_IPC_FAKE_H
#define GPUCAP_IPC_FAKE_H

#include <stdatomic.h>

#include "interpose/share/ipc.h"
#include "interpose/share/ipc_source.h"
#include "interpose/share/ipc_wire.h"

#define IPC_FAKE_BLOCKS   8
#define IPC_FAKE_MANY     100 /* chunks of the last block: more than one answer has room for; others have 2 */
#define IPC_FAKE_BASE     UINT64_C(0x700000000000)
#define IPC_FAKE_AT(i)    (IPC_FAKE_BASE + (uint64_t)(i)*0x10000)
#define IPC_FAKE_PATIENCE 200000 /* ms, for what comes at once unless there is a fault */

extern struct pool ipc_fake_pools[2];                        /* of two contexts, on cards 0 and 1 */
extern int ipc_fake_waits;                                   /* calls of pool_wait_all */
extern int ipc_fake_opened;                                  /* calls of ipc_imports_open */
extern atomic_int ipc_fake_fail_backing, ipc_fake_fail_uuid; /* so many calls fail */
extern atomic_int ipc_fake_fail_export;                      /* the call of this number fails */
extern atomic_ulong ipc_fake_polls;                          /* calls of poll */
extern atomic_int ipc_fake_polling;                          /* threads in poll now */

void ipc_fake_setup(void);

/* The program's allocations and frees; a block has 4096 bytes, 512 bytes into its first chunk. */
void ipc_fake_allocate(int pool, int i);
void ipc_fake_free(int pool, int i);
/* Forgets a block, as the end of its pool does. */
void ipc_fake_forget(int pool, int i);
int ipc_fake_pins(int pool, int i);
/* Waits until the thread has unpinned a block. Returns false after IPC_FAKE_PATIENCE. */
bool ipc_fake_unpinned(int pool, int i);
/* Exports a block, which must succeed. */
struct ipc_ticket ipc_fake_export(int pool, int i);

/* Returns the connection to the exporter of a ticket, which must succeed. */
struct ipc_source *ipc_fake_source(const struct ipc_ticket *ticket);

/* What an importer has received. */
struct ipc_fake_got {
    unsigned count;
    uint64_t wanted; /* chunks of this block are counted */
    struct ipc_chunk last;
};
/* An ipc_source_taker with such an argument. */
int ipc_fake_take(void *got, const struct ipc_chunks *chunks, const int *fds);
/* Returns how many chunks of the block are on the exporter's board. */
unsigned ipc_fake_on_board(const struct ipc_source *source, uint64_t id);

/* Returns how many descriptors are open. */
int ipc_fake_descriptors(void);
/* Waits until so many are: another end is closed by the thread. Fails the test after IPC_FAKE_PATIENCE. */
void ipc_fake_expect_descriptors(int expected);

#endif
