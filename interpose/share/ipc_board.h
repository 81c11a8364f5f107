/* ipc_board: descriptors of exported blocks, which importers read without asking the exporter.
 *
 * The board is one packet in the queue of a socket pair. Every importer has the receiving end and peeks at
 * the packet (MSG_PEEK), which gives it descriptors of its own and needs no thread of the exporter. The
 * exporter replaces the packet when it exports or frees a block. So no descriptors of a freed block remain,
 * and its memory can be released. Had they been sent to each importer, one that does not read would keep the
 * memory.
 *
 * Only the newest exports fit (ipc_board_room); importers ask for the others. The caller holds
 * ipc_export_lock.
 */
#ifndef GPUCAP_IPC_BOARD_H
#define GPUCAP_IPC_BOARD_H

#include "interpose/share/ipc_wire.h"

/* Returns how many chunks fit. */
unsigned ipc_board_room(void);

/* Returns the receiving end, created at the first call, or -errno. The board keeps and closes it. */
int ipc_board_fd(void);

/* Returns true if the board has the chunks of the block. */
bool ipc_board_has(uint64_t id);

/* Puts the chunks of a block on the board and drops the oldest blocks if there is no room. The board must
 * have been created (ipc_board_fd); it takes over the descriptors. */
void ipc_board_add(const struct ipc_chunks *chunks, const int *fds);

/* Takes the chunks of a block off the board. */
void ipc_board_remove(uint64_t id);

/* Closes the descriptors in the child of a fork, which shares the board with its parent. */
void ipc_board_after_fork(void);

#endif
