/* prog_intruder: a process that deceives the library in the role of an importer. Whatever it sends, the
 * exporter must not crash, hang or leak a descriptor, and must serve other importers. Speaks the library's
 * protocol (interpose/share/ipc_wire.h). */
#include "prog_share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "interpose/share/ipc_page.h"
#include "interpose/share/ipc_wire.h"

#define BYTES 1000

static int connect_to(const struct ipc_ticket *to)
{
    struct sockaddr_un name;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const socklen_t length = ipc_wire_name(&name, to->key);

    MUST(0, connect(fd, (struct sockaddr *)&name, length));
    return fd;
}

/* A connection that the exporter has hung up on is fine. */
static void ask(int fd, uint32_t what, uint64_t id, uint64_t first)
{
    const struct ipc_request request = {.magic = IPC_PACKET_MAGIC, .what = what, .id = id, .first = first};

    ipc_wire_send(fd, &request, sizeof(request), NULL, 0);
}

/* Waits until the exporter has hung up, and drops what it says before that. */
static void await_hang_up(int fd)
{
    struct pollfd look = {.fd = fd};
    char byte;

    while (poll(&look, 1, 20000) > 0 && recv(fd, &byte, 1, MSG_DONTWAIT) > 0)
        continue;
    MUST(true, (look.revents & POLLHUP) != 0);
    close(fd);
}

/* Says HELLO and maps the page; the board is closed. */
static struct ipc_page *greet(int fd)
{
    struct ipc_greeting greeting;
    struct ipc_page *page = NULL;
    int fds[IPC_GREETING_FDS];
    unsigned count = IPC_GREETING_FDS;

    ask(fd, IPC_HELLO, 0, 0);
    MUST(1, poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 20000));
    MUST(0, ipc_wire_receive(fd, &greeting, sizeof(greeting), fds, &count));
    MUST(IPC_GREETING_FDS, count);
    MUST(0, ipc_page_map(fds[IPC_GREETING_PAGE], &page));
    ipc_wire_close(fds, count);
    return page;
}

/* ---- packets ---- */

static void send_wrong_packets(const struct ipc_ticket *to)
{
    struct ipc_request wrong = {.magic = IPC_PACKET_MAGIC - 1, .what = IPC_HELLO};
    const char much[10000] = {0};
    int fds[IPC_CHUNKS], fd;

    fd = connect_to(to);
    send(fd, much, 1, MSG_NOSIGNAL);
    await_hang_up(fd);
    fd = connect_to(to);
    send(fd, much, sizeof(much), MSG_NOSIGNAL);
    await_hang_up(fd);
    fd = connect_to(to);
    send(fd, &wrong, sizeof(wrong), MSG_NOSIGNAL); /* of another version */
    await_hang_up(fd);
    fd = connect_to(to);
    wrong.magic = IPC_PACKET_MAGIC;
    for (int i = 0; i < IPC_CHUNKS; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ipc_wire_send(fd, &wrong, sizeof(wrong), fds, IPC_CHUNKS);
    ipc_wire_close(fds, IPC_CHUNKS);
    await_hang_up(fd);
}

static void ask_nonsense(const struct ipc_ticket *to)
{
    int fd;

    for (uint32_t what = 0; what < 10; what++) {
        fd = connect_to(to);
        ask(fd, what, to->id, UINT64_MAX);
        ask(fd, what, to->id + 1000, 0);
        ask(fd, what, UINT64_MAX, 1);
        ask(fd, 99, 0, 0);
        await_hang_up(fd);
    }
    fd = connect_to(to);
    munmap(greet(fd), sizeof(struct ipc_page));
    ask(fd, IPC_HELLO, 0, 0); /* a second time */
    await_hang_up(fd);
}

/* Asks a lot, reads nothing, and stays. */
static void flood(const struct ipc_ticket *to)
{
    const int fd = connect_to(to);

    for (int i = 0; i < 2000; i++)
        ask(fd, IPC_FETCH, to->id, 0);
    for (int i = 0; i < 200; i++)
        connect_to(to);
}

/* Writes random words into its page, and reports closes of blocks that it never had open. */
static void scribble(const struct ipc_ticket *to)
{
    const int fd = connect_to(to);
    struct ipc_page *page = greet(fd);

    memset(page, 0xff, sizeof(*page));
    for (int i = 0; i < 100; i++)
        ask(fd, IPC_CLOSED, 0, 0);
    memset(page, 0, sizeof(*page));
    ask(fd, IPC_CLOSED, 0, 0);
    munmap(page, sizeof(*page));
    close(fd);
}

static void packets(void)
{
    CUipcMemHandle handle;
    struct ipc_ticket to;
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other()) {
        prog_receive(&handle, sizeof(handle));
        memcpy(&to, &handle, sizeof(to));
        send_wrong_packets(&to);
        ask_nonsense(&to);
        scribble(&to);
        flood(&to);
        MUST(0, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS)); /* the honest way still works */
        MUST(0, prog_wrong(block, 8, BYTES));
        MUST(0, cuIpcCloseMemHandle(block));
        return;
    }
    MUST(0, cuMemAlloc(&block, BYTES));
    prog_fill(block, 8, BYTES);
    MUST(0, cuIpcGetMemHandle(&handle, block));
    const pid_t pid = prog_start(false);
    const int before = open_descriptors();
    prog_send(&handle, sizeof(handle));
    prog_join(pid);
    await_descriptors(before);
}

/* ---- another user ---- */

#define OTHER_USER 65534

static int as_other_user(const struct ipc_ticket *to)
{
    const struct ipc_request hello = {.magic = IPC_PACKET_MAGIC, .what = IPC_HELLO};
    struct sockaddr_un name;
    const socklen_t length = ipc_wire_name(&name, to->key);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    char byte;

    if (setresuid(OTHER_USER, OTHER_USER, OTHER_USER))
        return 2;
    if (connect(fd, (struct sockaddr *)&name, length))
        return 1;
    ipc_wire_send(fd, &hello, sizeof(hello), NULL, 0);
    return recv(fd, &byte, 1, 0) > 0;
}

static void other_user(void)
{
    struct ipc_ticket to;
    CUipcMemHandle handle;
    CUdeviceptr block;
    int status;

    prog_context(0);
    MUST(0, cuMemAlloc(&block, BYTES));
    MUST(0, cuIpcGetMemHandle(&handle, block));
    memcpy(&to, &handle, sizeof(to));
    const pid_t child = fork();
    if (child == 0)
        _exit(as_other_user(&to));
    MUST(child, waitpid(child, &status, 0));
    MUST(0, status);
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"packets", packets},
        {"other_user", other_user},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
