/* ipc_wire: the packets that two wrapped processes exchange about exported blocks.
 *
 * The exporter listens on a SOCK_SEQPACKET socket in the abstract namespace whose name holds 128 random bits.
 * An importer sends HELLO once and keeps that connection; the greeting brings a page that both map
 * (ipc_page.h) and the receiving end of the exporter's board (ipc_board.h). It sends FETCH on a separate
 * connection, so that no other thread waits for the answer. The other side may be any process: a packet that
 * is not exactly as described here is an error. Owns no lock.
 */
#ifndef GPUCAP_IPC_WIRE_H
#define GPUCAP_IPC_WIRE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define IPC_KEY    16
#define IPC_BATCH  64  /* descriptors in one answer: both sides need room for this many at a time */
#define IPC_CHUNKS 253 /* descriptors in any packet: Linux's SCM_MAX_FD */

/* What a CUipcMemHandle of ours holds. */
struct ipc_ticket {
    uint64_t magic;
    uint32_t version;
    int32_t pid;                /* of the exporter, for messages */
    unsigned char key[IPC_KEY]; /* names the exporter's socket */
    uint64_t id;                /* of the block, never used twice by one exporter; its slot: ipc_page.h */
    uint64_t bytes;             /* of the block */
    uint64_t offset;            /* of the block in its first chunk */
    uint64_t zero;
};
#define IPC_TICKET_MAGIC   UINT64_C(0x4370694361707567) /* "gupaCipC" */
#define IPC_TICKET_VERSION 2                            /* of the ticket and of everything below */
_Static_assert(sizeof(struct ipc_ticket) == CU_IPC_HANDLE_SIZE, "a ticket fills a handle");

#define IPC_PACKET_MAGIC (0x67636900u + IPC_TICKET_VERSION)

enum ipc_what {
    IPC_HELLO = 1, /* answered by an ipc_greeting */
    IPC_FETCH, /* answered by an ipc_chunks: those of block `id` from number `first` on, at most IPC_BATCH */
    IPC_CLOSED /* the importer has closed a block that the exporter has freed; no answer */
};

struct ipc_request {
    uint32_t magic, what;
    uint64_t id, first;
};

enum { IPC_GREETING_PAGE, IPC_GREETING_BOARD, IPC_GREETING_FDS };

struct ipc_greeting {
    uint32_t magic;
    int32_t error; /* 0 and IPC_GREETING_FDS descriptors, or an errno and none */
};

/* One chunk of an exported block. */
struct ipc_chunk {
    uint64_t id, bytes, offset; /* of the block, as in its ticket */
    uint64_t chunk_bytes;
    CUuuid card;
};

/* Chunks, with a descriptor for each: one answer, or the contents of a board. */
struct ipc_chunks {
    uint32_t magic;
    int32_t error; /* 0, or an errno and no chunks */
    uint32_t count, zero;
    struct ipc_chunk list[IPC_CHUNKS];
};

/* Writes the address of the socket with this key. Returns its length. */
socklen_t ipc_wire_name(struct sockaddr_un *name, const unsigned char key[IPC_KEY]);

/* Sends one packet with file descriptors. Never waits. Returns 0 or -errno. */
int ipc_wire_send(int fd, const void *packet, size_t bytes, const int *fds, unsigned count);

/* Waits for a packet or the other side's end, until `until` (clock_ms) at most. Returns 0 or -ETIMEDOUT. */
int ipc_wire_wait(int fd, uint64_t until);

/* Receives one packet of exactly `bytes`, with at most `*count` file descriptors, which the caller closes.
 * Never waits. Returns 0; -EAGAIN: there is none; -EPIPE: the other side has closed; -EMFILE: no room for the
 * descriptors; -EPROTO: the packet is not as expected; another -errno. */
int ipc_wire_receive(int fd, void *packet, size_t bytes, int *fds, unsigned *count);

/* Receives chunks and *count descriptors, one for each chunk. With `peek` the packet stays in the queue.
 * Returns 0, the exporter's -errno, or as ipc_wire_receive; on an error there are no descriptors. */
int ipc_wire_chunks(int fd, struct ipc_chunks *chunks, int fds[IPC_CHUNKS], unsigned *count, bool peek);

void ipc_wire_close(const int *fds, unsigned count);

/* Returns true if the process at the other end belongs to the same user. *pid is its number. */
bool ipc_wire_trusts(int fd, pid_t *pid);

#endif
