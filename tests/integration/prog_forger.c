/* prog_forger: a process that lies to the library about memory of other processes: forged handles, exporters
 * that answer with nonsense, clients that ask for it. Each must cost the liar an error code, and the library
 * nothing: no crash, no hang, no descriptor. Speaks the library's own words (interpose/ipc_wire.h). */
#include "prog_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc_wire.h"

#define OPEN_FLAGS CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;

    MUST(true, folder != NULL);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static CUresult try_open(const struct ipc_ticket *ticket)
{
    CUipcMemHandle handle;
    CUdeviceptr block = 0;
    CUresult result;

    memcpy(&handle, ticket, sizeof handle);
    result = cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS);
    MUST(result == CUDA_SUCCESS, block != 0);
    return result;
}

/* ---- forged handles ---- */

#define NOBODYS CUDA_ERROR_INVALID_HANDLE /* a key that nobody has, as that of a process that has ended */

static void handles(void)
{
    CUipcMemHandle handle;
    struct ipc_ticket good, bad;
    CUdeviceptr block;
    size_t bytes;

    prog_context(0);
    if (!prog_is_other()) {
        pid_t pid = prog_start(false);
        MUST(0, cuMemAlloc(&block, 1000));
        MUST(0, cuMemAlloc(&block, 10000));
        MUST(0, cuIpcGetMemHandle(&handle, block));
        prog_send(&handle, sizeof handle);
        prog_join(pid);
        return;
    }
    prog_receive(&good, sizeof good);
    for (size_t i = 0; i < sizeof good; i++) {
        bad = good;
        ((unsigned char *)&bad)[i] ^= 0x81;
        if (i - offsetof(struct ipc_ticket, pid) < sizeof bad.pid) /* for messages only */
            continue;
        MUST(i - offsetof(struct ipc_ticket, key) < IPC_KEY ? NOBODYS : CUDA_ERROR_INVALID_VALUE,
             try_open(&bad));
    }
    for (int i = 0; i < 200; i++) {
        MUST(sizeof bad, getrandom(&bad, sizeof bad, 0));
        if (i % 2) {
            bad.magic = good.magic;
            bad.version = good.version;
            bad.zero = 0;
        }
        MUST(i % 2 ? NOBODYS : CUDA_ERROR_INVALID_VALUE, try_open(&bad));
    }
    memcpy(&handle, &good, sizeof handle);
    MUST(0, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS));
    MUST(0, cuMemGetAddressRange(NULL, &bytes, block));
    MUST(10000, bytes);
}

/* ---- a false exporter ---- */

enum lie {
    HANGS_UP,
    SAYS_LITTLE,
    SAYS_TOO_MUCH,
    WRONG_MAGIC,
    NEGATIVE_ERROR,
    UNKNOWN_ERROR,
    OTHER_BYTES,
    NO_CHUNKS,
    ENDLESS_CHUNKS,
    UNKNOWN_CARD,
    DESCRIPTORS_TOO_EARLY,
    HANGS_UP_LATER, /* from here on only the chunks are lies */
    NO_PROGRESS,
    FEWER_DESCRIPTORS,
    MORE_DESCRIPTORS,
    EMPTY_CHUNKS,
    ODD_CHUNKS,
    GIANT_CHUNKS,
    NO_MEMORY_BEHIND,
    OTHER_FILES,
    LIES
};

static enum lie lie;
static struct ipc_ticket ticket;
static CUuuid card;

static void lie_about_block(struct ipc_reply *reply)
{
    *reply = (struct ipc_reply){
        .magic = IPC_PACKET_MAGIC, .bytes = ticket.bytes, .offset = ticket.offset, .chunks = 2, .card = card};
    switch (lie) {
    case WRONG_MAGIC:
        reply->magic++;
        break;
    case NEGATIVE_ERROR:
        reply->error = -5;
        break;
    case UNKNOWN_ERROR:
        reply->error = 12345;
        break;
    case OTHER_BYTES:
        reply->bytes++;
        break;
    case NO_CHUNKS:
        reply->chunks = 0;
        break;
    case ENDLESS_CHUNKS:
        reply->chunks = UINT64_MAX;
        break;
    case UNKNOWN_CARD:
        reply->card.bytes[0] ^= 1;
        break;
    default:
        break;
    }
}

/* The number of descriptors to send with it. */
static unsigned lie_about_chunks(struct ipc_reply *reply, int *fds)
{
    unsigned count = 2;

    lie_about_block(reply);
    reply->count = 2;
    reply->sizes[0] = reply->sizes[1] = 2 * MIB;
    switch (lie) {
    case NO_PROGRESS:
        reply->count = count = 0;
        break;
    case FEWER_DESCRIPTORS:
        count = 1;
        break;
    case MORE_DESCRIPTORS:
        count = IPC_BATCH;
        break;
    case EMPTY_CHUNKS:
        reply->sizes[1] = 0;
        break;
    case ODD_CHUNKS:
        reply->sizes[1] = 12345;
        break;
    case GIANT_CHUNKS:
        reply->sizes[1] = UINT64_MAX - 2 * MIB + 1;
        break;
    default:
        break;
    }
    for (unsigned i = 0; i < count; i++)
        fds[i] = lie == OTHER_FILES ? open("/dev/zero", O_RDWR | O_CLOEXEC)
                                    : open("/dev/null", O_RDONLY | O_CLOEXEC);
    return count;
}

/* False if that was all. */
static bool answer_falsely(int fd, const struct ipc_request *request)
{
    struct ipc_reply reply;
    int fds[IPC_BATCH] = {0};
    char much[2 * sizeof reply] = {0};
    unsigned count = 0;

    if (lie == HANGS_UP || (lie == HANGS_UP_LATER && request->what == IPC_FETCH))
        return false;
    if (lie == SAYS_LITTLE || lie == SAYS_TOO_MUCH)
        return send(fd, much, lie == SAYS_LITTLE ? 3 : sizeof much, MSG_NOSIGNAL) > 0;
    if (request->what == IPC_FETCH || lie == DESCRIPTORS_TOO_EARLY)
        count = lie_about_chunks(&reply, fds);
    else
        lie_about_block(&reply);
    int rc = ipc_wire_send(fd, &reply, sizeof reply, fds, count);
    while (count)
        close(fds[--count]);
    return rc == 0;
}

static void *exporter(void *listener)
{
    struct ipc_request request;
    unsigned none = 0;
    int fd = accept4((int)(intptr_t)listener, NULL, NULL, SOCK_CLOEXEC);

    MUST(true, fd >= 0);
    while (ipc_wire_receive(fd, &request, sizeof request, NULL, &none, 20000) == 0 &&
           answer_falsely(fd, &request))
        continue;
    close(fd);
    return NULL;
}

static int listen_falsely(void)
{
    struct sockaddr_un name;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    ticket = (struct ipc_ticket){.magic = IPC_TICKET_MAGIC,
                                 .version = IPC_TICKET_VERSION,
                                 .pid = getpid(),
                                 .id = 1,
                                 .bytes = 1000,
                                 .offset = 512};
    MUST(IPC_KEY, getrandom(ticket.key, IPC_KEY, 0));
    const socklen_t length = ipc_wire_name(&name, ticket.key);
    MUST(0, bind(fd, (struct sockaddr *)&name, length));
    MUST(0, listen(fd, 5));
    return fd;
}

static void exporters(void)
{
    prog_context(0);
    MUST(0, cuDeviceGetUuid(&card, 0));
    const int before = open_descriptors();
    for (lie = 0; lie < LIES; lie++) {
        int listener = listen_falsely();
        pthread_t thread;

        MUST(0, pthread_create(&thread, NULL, exporter, (void *)(intptr_t)listener));
        MUST(true, try_open(&ticket) != CUDA_SUCCESS);
        MUST(0, pthread_join(thread, NULL));
        close(listener);
        MUST(before, open_descriptors());
    }
}

/* Answers nothing at all, and does not even accept. */
static void silent_exporters(void)
{
    prog_context(0);
    const int listener = listen_falsely();
    MUST(true, try_open(&ticket) != CUDA_SUCCESS);
    close(listener);
}

/* ---- a false client ---- */

static int connect_falsely(const struct ipc_ticket *to)
{
    struct sockaddr_un name;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const socklen_t length = ipc_wire_name(&name, to->key);

    MUST(0, connect(fd, (struct sockaddr *)&name, length));
    return fd;
}

static void ask(int fd, uint32_t what, uint64_t id, uint64_t first)
{
    const struct ipc_request request = {.magic = IPC_PACKET_MAGIC, .what = what, .id = id, .first = first};

    ipc_wire_send(fd, &request, sizeof request, NULL, 0); /* a connection that was hung up on is fine */
}

static void bother(const struct ipc_ticket *to)
{
    struct ipc_request wrong = {.magic = 1};
    char much[10000] = {0};
    int fds[IPC_BATCH], fd;

    fd = connect_falsely(to);
    send(fd, much, 1, MSG_NOSIGNAL);
    close(fd);
    fd = connect_falsely(to);
    send(fd, much, sizeof much, MSG_NOSIGNAL);
    close(fd);
    fd = connect_falsely(to);
    send(fd, &wrong, sizeof wrong, MSG_NOSIGNAL);
    close(fd);
    fd = connect_falsely(to);
    for (int i = 0; i < IPC_BATCH; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    wrong.magic = IPC_PACKET_MAGIC;
    ipc_wire_send(fd, &wrong, sizeof wrong, fds, IPC_BATCH);
    for (int i = 0; i < IPC_BATCH; i++)
        close(fds[i]);
    close(fd);
    fd = connect_falsely(to);
    for (uint32_t what = 0; what < 10; what++) {
        ask(fd, what, to->id, UINT64_MAX);
        ask(fd, what, to->id + 1000, 0);
    }
    close(fd);
    fd = connect_falsely(to); /* asks a lot, reads nothing, and stays */
    for (int i = 0; i < 2000; i++) {
        ask(fd, IPC_OPEN, to->id, 0);
        ask(fd, IPC_FETCH, to->id, 0);
    }
}

static void clients(void)
{
    CUipcMemHandle handle;
    struct ipc_ticket to;
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other()) {
        prog_receive(&handle, sizeof handle);
        memcpy(&to, &handle, sizeof to);
        bother(&to);
        MUST(0, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS)); /* the honest way still works */
        MUST(0, prog_wrong(block, 8, 1000));
        MUST(0, cuIpcCloseMemHandle(block));
        return;
    }
    MUST(0, cuMemAlloc(&block, 1000));
    prog_fill(block, 8, 1000);
    MUST(0, cuIpcGetMemHandle(&handle, block));
    pid_t pid = prog_start(false);
    const int before = open_descriptors();
    prog_send(&handle, sizeof handle);
    prog_join(pid);
    for (int i = 0; i < 500 && open_descriptors() > before; i++)
        usleep(10000);
    MUST(before, open_descriptors());
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"handles", handles},
        {"exporters", exporters},
        {"silent_exporters", silent_exporters},
        {"clients", clients},
    };

    return prog_main(argc, argv, all, sizeof all / sizeof *all);
}
