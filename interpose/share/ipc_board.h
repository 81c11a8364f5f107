/* ipc_board: descriptors of exported blocks, where importers find them without asking the exporter.
 *
 * The board is one packet in the queue of a socket pair. Every importer has the receiving end and looks at
 * the packet without taking it (MSG_PEEK), which gives it descriptors of its own; that needs no thread of the
 * exporter. The exporter replaces the packet when it exports or frees a block. So descriptors of a freed
 * block are nowhere any more, and its memory can go back to the driver: had they been sent to each importer,
 * one that does not read would keep the memory.
 *
 * There is room for the newest exports only (ipc_board_room); others are asked for. The caller holds
 * ipc_export_lock.
 */
#ifndef GPUCAP_IPC_BOARD_H
#define GPUCAP_IPC_BOARD_H

#include "interpose/share/ipc_wire.h"

/* How many chunks fit. */
unsigned ipc_board_room(void);

/* The receiving end, made at the first call, or -errno. It stays the board's. */
int ipc_board_fd(void);

/* True if the board has the chunks of a block. */
bool ipc_board_has(uint64_t id);

/* Puts the chunks of a block on the board, which has been made (ipc_board_fd), and drops the oldest where
 * there is no room. The descriptors become the board's. */
void ipc_board_add(const struct ipc_chunks *chunks, const int *fds);

/* Takes the chunks of a block off the board. */
void ipc_board_remove(uint64_t id);

/* A child shares the board with its parent: only closes its descriptors. */
void ipc_board_after_fork(void);

#endif
