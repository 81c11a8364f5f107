/* Packets about exported blocks, from a process that may say anything: each is taken whole, with a descriptor
 * for each chunk, or refused without one. The first byte is the number of descriptors that come with it; the
 * rest is the beginning of the packet, which the second byte may fill up with zeros to its right length. */
#include "fuzz.h"
#include "interpose/share/ipc_wire.h"

#include <errno.h>
#include <unistd.h>

#define MOST 8 /* descriptors */

static int descriptors(void)
{
    const int next = dup(0);

    close(next);
    return next;
}

static void send_packet(int fd, const uint8_t *bytes, size_t count)
{
    static struct ipc_chunks packet;
    int fds[MOST];

    memset(&packet, 0, sizeof(packet));
    memcpy(&packet, bytes + 2, count - 2 < sizeof(packet) ? count - 2 : sizeof(packet));
    if (bytes[1] & 2) /* past the first check */
        packet.magic = IPC_PACKET_MAGIC;
    for (int i = 0; i < MOST; i++)
        fds[i] = 0;
    ipc_wire_send(fd, &packet, bytes[1] & 1 ? sizeof(packet) : count - 2, fds, bytes[0] % (MOST + 1));
}

static void receive_chunks(int fd, bool peek)
{
    struct ipc_chunks chunks;
    int fds[IPC_CHUNKS];
    unsigned count;
    const int rc = ipc_wire_chunks(fd, &chunks, fds, &count, peek);

    FUZZ_PROMISE(rc <= 0 && count <= MOST && (rc == 0 || count == 0));
    FUZZ_PROMISE(rc || (chunks.count == count && chunks.magic == IPC_PACKET_MAGIC && !chunks.error));
    ipc_wire_close(fds, count);
}

static void receive_request(int fd)
{
    struct ipc_request request;
    unsigned none = 0;
    const int rc = ipc_wire_receive(fd, &request, sizeof(request), NULL, &none);

    FUZZ_PROMISE(rc <= 0 && none == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    int ends[2];

    if (count < 2)
        return 0;
    const int before = descriptors();
    FUZZ_PROMISE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    send_packet(ends[0], bytes, count);
    receive_chunks(ends[1], true);
    receive_chunks(ends[1], false);
    send_packet(ends[0], bytes, count);
    receive_request(ends[1]);
    ipc_wire_close(ends, 2);
    FUZZ_PROMISE(descriptors() == before);
    return 0;
}
