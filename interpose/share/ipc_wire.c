/* ipc_wire: see ipc_wire.h. */
#include "interpose/share/ipc_wire.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "interpose/base/clock.h"

#define NAME_PREFIX "gpucap-ipc-"

void ipc_wire_close(const int *fds, unsigned count)
{
    while (count)
        close(fds[--count]);
}

socklen_t ipc_wire_name(struct sockaddr_un *name, const unsigned char key[IPC_KEY])
{
    char *at = name->sun_path + 1; /* after the zero byte of the abstract namespace */

    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    at += sprintf(at, NAME_PREFIX);
    for (int i = 0; i < IPC_KEY; i++)
        at += sprintf(at, "%02x", key[i]);
    return (socklen_t)(at - (char *)name);
}

/* Room for the file descriptors of one packet, aligned as the kernel requires. */
union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(IPC_CHUNKS * sizeof(int))];
};

int ipc_wire_send(int fd, const void *packet, size_t bytes, const int *fds, unsigned count)
{
    struct iovec part = {.iov_base = (void *)packet, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;

    if (count) {
        memset(&control, 0, sizeof(control));
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : (size_t)sent == bytes ? 0 : -EPROTO;
}

/* Takes the descriptors out of a message that there is room for, closes the others. Returns how many. */
static unsigned take_descriptors(struct msghdr *message, int *fds, unsigned room, bool *too_many)
{
    unsigned count = 0;

    for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t here = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        for (size_t i = 0; i < here; i++) {
            int one;

            memcpy(&one, CMSG_DATA(h) + i * sizeof(one), sizeof(one));
            if (count < room) {
                fds[count++] = one;
            } else {
                close(one);
                *too_many = true;
            }
        }
    }
    return count;
}

static int receive(int fd, void *packet, size_t bytes, int *fds, unsigned *count, int flags)
{
    struct iovec part = {.iov_base = packet, .iov_len = bytes};
    union control control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control)};
    const unsigned room = *count;
    bool bad = false;
    ssize_t got;

    *count = 0;
    do
        got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    *count = take_descriptors(&message, fds, room, &bad);
    bad |= (size_t)got != bytes || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (!bad)
        return 0;
    ipc_wire_close(fds, *count);
    *count = 0;
    /* `control` has room for all that a packet can bring, so this process had no room for them. */
    return message.msg_flags & MSG_CTRUNC ? -EMFILE : got == 0 ? -EPIPE : -EPROTO;
}

int ipc_wire_receive(int fd, void *packet, size_t bytes, int *fds, unsigned *count)
{
    return receive(fd, packet, bytes, fds, count, 0);
}

int ipc_wire_wait(int fd, uint64_t until)
{
    struct pollfd other = {.fd = fd, .events = POLLIN};

    for (;;) {
        const uint64_t now = clock_ms();
        const int ready = poll(&other, 1, now < until ? (int)(until - now) : 0);

        if (ready > 0)
            return 0;
        if (now >= until)
            return -ETIMEDOUT;
    }
}

/* Checks chunks that came with `descriptors` descriptors. Returns 0 or -errno. */
static int check(const struct ipc_chunks *chunks, unsigned descriptors)
{
    if (chunks->magic != IPC_PACKET_MAGIC || chunks->zero || chunks->error < 0 ||
        chunks->count > IPC_CHUNKS || chunks->count != descriptors || (chunks->error && chunks->count))
        return -EPROTO;
    return -chunks->error;
}

int ipc_wire_chunks(int fd, struct ipc_chunks *chunks, int fds[IPC_CHUNKS], unsigned *count, bool peek)
{
    *count = IPC_CHUNKS;
    int rc = receive(fd, chunks, sizeof(*chunks), fds, count, peek ? MSG_PEEK : 0);

    if (rc == 0 && (rc = check(chunks, *count)))
        ipc_wire_close(fds, *count);
    if (rc)
        *count = 0;
    return rc;
}

bool ipc_wire_trusts(int fd, pid_t *pid)
{
    struct ucred other;
    socklen_t bytes = sizeof(other);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) || bytes != sizeof(other) ||
        other.uid != geteuid())
        return false;
    *pid = other.pid;
    return true;
}
