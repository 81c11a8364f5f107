/* ipc_wire: what two wrapped processes say to each other about an exported block.
 *
 * One packet for a question, one for the answer, on a SOCK_SEQPACKET socket in the abstract namespace whose
 * name holds 128 random bits. Whoever is at the other end may be anybody: every packet is checked for its
 * size, and what does not fit is an error, never a guess. Owns no lock.
 */
#ifndef GPUCAP_IPC_WIRE_H
#define GPUCAP_IPC_WIRE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define IPC_KEY   16
#define IPC_BATCH 64 /* file descriptors in one packet: both sides must have room for so many at a time */

/* What a CUipcMemHandle of ours holds. */
struct ipc_ticket {
    uint64_t magic;
    uint32_t version;
    int32_t pid;                /* of the exporter, for messages */
    unsigned char key[IPC_KEY]; /* names the exporter's socket */
    uint64_t id;                /* of the block, never used twice by one exporter */
    uint64_t bytes;             /* of the block */
    uint64_t offset;            /* of the block in its first chunk */
    uint64_t zero;
};
#define IPC_TICKET_MAGIC   UINT64_C(0x4370694361707567) /* "gupaCipC" */
#define IPC_TICKET_VERSION 1
_Static_assert(sizeof(struct ipc_ticket) == CU_IPC_HANDLE_SIZE, "a ticket fills a handle");

enum ipc_what {
    IPC_OPEN = 1, /* from now on the block is in use here */
    IPC_FETCH,    /* chunks from number `first` on, as file descriptors */
    IPC_CLOSE     /* no longer; there is no answer */
};

#define IPC_PACKET_MAGIC 0x67636970u

struct ipc_request {
    uint32_t magic, what;
    uint64_t id, first;
};

struct ipc_reply {
    uint32_t magic;
    int32_t error; /* 0 or an errno */
    uint64_t bytes, offset, chunks;
    CUuuid card;
    uint32_t count; /* of chunks in this packet */
    uint32_t zero;
    uint64_t sizes[IPC_BATCH];
};

/* The address of the socket of a key, and its length. */
socklen_t ipc_wire_name(struct sockaddr_un *name, const unsigned char key[IPC_KEY]);

/* Sends one packet with file descriptors. Never waits. 0 or -errno. */
int ipc_wire_send(int fd, const void *packet, size_t bytes, const int *fds, unsigned count);

/* Receives one packet of exactly `bytes`, with at most `*count` file descriptors, which the caller closes. 0;
 * -EPIPE: the other side has gone; -ETIMEDOUT; -EPROTO: it said something else; another -errno. */
int ipc_wire_receive(int fd, void *packet, size_t bytes, int *fds, unsigned *count, int timeout_ms);

/* True if the process at the other end belongs to the same user; *pid is its number, if that can be told. */
bool ipc_wire_trusts(int fd, pid_t *pid);

#endif
