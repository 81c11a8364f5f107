/* ipc_board: see ipc_board.h. */
#include "interpose/share/ipc_board.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The kernel limits the descriptors in socket queues of all processes of a user together to the sender's
 * RLIMIT_NOFILE; beyond that none can be sent at all. The board leaves room for this many exporters. */
#define EXPORTERS 128

static struct {
    int in, out;
    bool posted;            /* our packet is in the queue, unless an importer has taken it */
    struct ipc_chunks held; /* oldest first; chunks of one block side by side */
    int fds[IPC_CHUNKS];
} board = {.in = -1, .out = -1};

unsigned ipc_board_room(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur / EXPORTERS >= IPC_CHUNKS)
        return IPC_CHUNKS;
    return (unsigned)(files.rlim_cur / EXPORTERS);
}

int ipc_board_fd(void)
{
    int ends[2];

    if (board.out >= 0)
        return board.out;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
        return -errno;
    board.in = ends[0];
    board.out = ends[1];
    board.held = (struct ipc_chunks){.magic = IPC_PACKET_MAGIC};
    board.posted = false;
    return board.out;
}

/* Replaces the packet, the new one first, so that importers always find one. If that fails, they ask. */
static void post(void)
{
    const bool sent = board.held.count && ipc_wire_send(board.in, &board.held, sizeof(board.held), board.fds,
                                                        board.held.count) == 0;
    char byte;

    if (board.posted)
        recv(board.out, &byte, sizeof(byte), MSG_DONTWAIT);
    board.posted = sent;
}

/* Returns the index of the first chunk of a block, or the count if there is none. */
static unsigned find(uint64_t id)
{
    unsigned at = 0;

    while (at < board.held.count && board.held.list[at].id != id)
        at++;
    return at;
}

bool ipc_board_has(uint64_t id)
{
    return find(id) < board.held.count;
}

/* Drops all chunks of the block whose first chunk is at index `at`. */
static void drop(unsigned at)
{
    struct ipc_chunk *list = board.held.list;
    const uint64_t id = list[at].id;
    unsigned end = at;

    while (end < board.held.count && list[end].id == id)
        close(board.fds[end++]);
    memmove(list + at, list + end, (board.held.count - end) * sizeof(*list));
    memmove(board.fds + at, board.fds + end, (board.held.count - end) * sizeof(*board.fds));
    board.held.count -= end - at;
}

void ipc_board_add(const struct ipc_chunks *chunks, const int *fds)
{
    while (board.held.count && board.held.count + chunks->count > ipc_board_room())
        drop(0);
    memcpy(board.held.list + board.held.count, chunks->list, chunks->count * sizeof(*chunks->list));
    memcpy(board.fds + board.held.count, fds, chunks->count * sizeof(*fds));
    board.held.count += chunks->count;
    post();
}

void ipc_board_remove(uint64_t id)
{
    const unsigned at = find(id);

    if (at == board.held.count)
        return;
    drop(at);
    post();
}

void ipc_board_after_fork(void)
{
    if (board.out < 0)
        return;
    ipc_wire_close(board.fds, board.held.count);
    board.held.count = 0;
    close(board.in);
    close(board.out);
    board.in = board.out = -1;
}
