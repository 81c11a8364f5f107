/* prog_forger: a process that deceives the library in the role of an exporter: forged handles, and exporters
 * that answer with nonsense. The library must return an error code, and not crash, hang or leak a descriptor.
 * Speaks the library's protocol (interpose/share/ipc_wire.h). */
#include "prog_share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "interpose/share/ipc_page.h"
#include "interpose/share/ipc_wire.h"

static CUresult try_open(const struct ipc_ticket *ticket)
{
    CUipcMemHandle handle;
    CUdeviceptr block = 0;
    CUresult result;

    memcpy(&handle, ticket, sizeof(handle));
    result = cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS);
    MUST(result == CUDA_SUCCESS, block != 0);
    if (result == CUDA_SUCCESS)
        MUST(0, cuIpcCloseMemHandle(block));
    return result;
}

/* ---- forged handles ---- */

#define NO_SUCH_KEY CUDA_ERROR_INVALID_HANDLE /* as that of a process that has ended */

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
        prog_send(&handle, sizeof(handle));
        prog_join(pid);
        return;
    }
    prog_receive(&good, sizeof(good));
    for (size_t i = 0; i < sizeof(good); i++) {
        bad = good;
        ((unsigned char *)&bad)[i] ^= 0x81;
        if (i - offsetof(struct ipc_ticket, pid) < sizeof(bad.pid)) /* for messages only */
            continue;
        MUST(i - offsetof(struct ipc_ticket, key) < IPC_KEY ? NO_SUCH_KEY : CUDA_ERROR_INVALID_VALUE,
             try_open(&bad));
    }
    for (int i = 0; i < 200; i++) {
        MUST(sizeof(bad), getrandom(&bad, sizeof(bad), 0));
        if (i % 2) {
            bad.magic = good.magic;
            bad.version = good.version;
            bad.zero = 0;
        }
        MUST(i % 2 ? NO_SUCH_KEY : CUDA_ERROR_INVALID_VALUE, try_open(&bad));
    }
    memcpy(&handle, &good, sizeof(handle));
    MUST(0, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS));
    MUST(0, cuMemGetAddressRange(NULL, &bytes, block));
    MUST(10000, bytes);
}

/* ---- a false exporter ---- */

#define PART   (2 * MIB) /* of its block, which has two */
#define PARTS  2
#define OFFSET 512
#define BYTES  (PART + 1000)

/* In all longer than an importer waits by its fast clock. */
#define SLOW_US    250000
#define SLOW_PARTS 10

enum lie {
    NONE,            /* a correct exporter: shows that the lies below are the reason for refusals */
    BOARD_NO_SOCKET, /* also correct: the importer then asks the exporter */
    HONEST,          /* number of correct ones */
    /* in its greeting */
    HANGS_UP = HONEST,
    SAYS_LITTLE,
    SAYS_TOO_MUCH,
    WRONG_MAGIC,
    NEGATIVE_ERROR,
    UNKNOWN_ERROR,
    ERROR_WITH_DESCRIPTORS,
    NO_DESCRIPTORS,
    ONE_DESCRIPTOR,
    THREE_DESCRIPTORS,
    PAGE_TOO_SMALL,
    PAGE_TOO_LARGE,
    PAGE_SHRINKS,
    PAGE_NO_MEMORY,
    PAGE_READ_ONLY,
    /* in the page */
    WORD_EMPTY,
    WORD_FREED,
    WORD_OF_ANOTHER,
    WORD_FULL,
    /* about its chunks, on the board and in its answers */
    CHUNKS_HANG_UP,
    CHUNKS_LITTLE,
    CHUNKS_WRONG_MAGIC,
    CHUNKS_NEGATIVE_ERROR,
    CHUNKS_WITH_ERROR,
    CHUNKS_NOT_ZERO,
    CHUNKS_ENDLESS,
    FEWER_DESCRIPTORS,
    MORE_DESCRIPTORS,
    ALL_DESCRIPTORS,
    NO_CHUNKS,
    OTHER_ID,
    OTHER_BYTES,
    OTHER_OFFSET,
    LATER_OFFSET,
    OFFSET_BEHIND,
    UNKNOWN_CARD,
    ANOTHER_CARD_LATER,
    EMPTY_CHUNK,
    ODD_CHUNK,
    GIANT_CHUNK,
    LARGER_CHUNK,
    ONE_CHUNK_MISSING,
    ONE_CHUNK_MORE,
    NO_MEMORY_BEHIND,
    OTHER_FILES,
    LIES,
    SLOW = LIES /* correct, but each chunk takes a while */
};

static enum lie lie;
static bool on_board; /* lies on the board as well, and not only in answers */
static struct ipc_ticket ticket;
static CUuuid card;
static CUmemGenericAllocationHandle memory[PARTS];

static void make_memory(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};

    MUST(0, cuDeviceGetUuid(&card, 0));
    for (int i = 0; i < PARTS; i++)
        MUST(0, cuMemCreate(&memory[i], PART, &properties, 0));
}

static int chunk_fd(unsigned number)
{
    int fd = -1;

    if (lie == NO_MEMORY_BEHIND)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (lie == OTHER_FILES)
        return open("/dev/zero", O_RDWR | O_CLOEXEC);
    MUST(0, cuMemExportToShareableHandle(&fd, memory[number % PARTS],
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

static void lie_about_chunk(struct ipc_chunks *chunks)
{
    struct ipc_chunk *last = &chunks->list[PARTS - 1];

    switch (lie) {
    case OTHER_ID:
        chunks->list[0].id++;
        break;
    case OTHER_BYTES:
        chunks->list[0].bytes++;
        break;
    case OTHER_OFFSET:
        chunks->list[0].offset = 0;
        break;
    case LATER_OFFSET:
        last->offset = 0;
        break;
    case UNKNOWN_CARD:
        chunks->list[0].card.bytes[0] ^= 1;
        break;
    case ANOTHER_CARD_LATER:
        last->card.bytes[0] ^= 1;
        break;
    case EMPTY_CHUNK:
        last->chunk_bytes = 0;
        break;
    case ODD_CHUNK:
        last->chunk_bytes = 12345;
        break;
    case GIANT_CHUNK:
        last->chunk_bytes = UINT64_MAX - PART + 1;
        break;
    case LARGER_CHUNK:
        last->chunk_bytes = 2 * PART;
        break;
    default:
        break;
    }
}

static void lie_about_packet(struct ipc_chunks *chunks)
{
    switch (lie) {
    case CHUNKS_WRONG_MAGIC:
        chunks->magic++;
        break;
    case CHUNKS_NEGATIVE_ERROR:
        chunks->error = -5;
        break;
    case CHUNKS_WITH_ERROR:
        chunks->error = EIO;
        break;
    case CHUNKS_NOT_ZERO:
        chunks->zero = 1;
        break;
    case CHUNKS_ENDLESS:
        chunks->count = UINT32_MAX;
        break;
    default:
        break;
    }
}

static unsigned number_of_chunks(void)
{
    return lie == ONE_CHUNK_MISSING ? PARTS - 1 : lie == ONE_CHUNK_MORE ? PARTS + 1 : PARTS;
}

/* Sends the chunks from `first` on, or what it says they are. */
static bool send_chunks(int fd, uint64_t first)
{
    static const int much[] = {[FEWER_DESCRIPTORS] = -1, [MORE_DESCRIPTORS] = 1, [ALL_DESCRIPTORS] = 251};
    struct ipc_chunks chunks = {.magic = IPC_PACKET_MAGIC};
    int fds[IPC_CHUNKS];
    unsigned count;

    if (lie == CHUNKS_HANG_UP)
        return false;
    if (lie == SLOW) {
        usleep(SLOW_US);
        first = PARTS - 1; /* one at a time */
    }
    for (uint64_t i = first; i < number_of_chunks() && lie != NO_CHUNKS; i++)
        chunks.list[chunks.count++] = (struct ipc_chunk){ticket.id, ticket.bytes, ticket.offset, PART, card};
    lie_about_chunk(&chunks);
    count = chunks.count + (unsigned)(lie < sizeof(much) / sizeof(*much) && chunks.count ? much[lie] : 0);
    lie_about_packet(&chunks);
    for (unsigned i = 0; i < count; i++)
        fds[i] = chunk_fd(i);
    const int rc = ipc_wire_send(fd, &chunks, lie == CHUNKS_LITTLE ? 100 : sizeof(chunks), fds, count);
    ipc_wire_close(fds, count);
    return rc == 0;
}

static int make_board(void)
{
    int ends[2];

    if (lie == BOARD_NO_SOCKET)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    MUST(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    if (on_board)
        send_chunks(ends[0], 0);
    close(ends[0]);
    return ends[1];
}

/* A page of another size, or one that can change it. */
static int make_other_page(size_t bytes, int seals)
{
    const int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    MUST(0, ftruncate(fd, (off_t)bytes));
    if (bytes >= sizeof(struct ipc_page)) { /* that is all that is wrong with it */
        struct ipc_page *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        MUST(true, page != MAP_FAILED);
        ipc_page_offer(page, ticket.id);
        MUST(0, munmap(page, bytes));
    }
    MUST(0, fcntl(fd, F_ADD_SEALS, seals));
    return fd;
}

static int make_honest_page(void)
{
    struct ipc_page *page;
    const int fd = ipc_page_make(&page);

    MUST(true, fd >= 0);
    if (lie != WORD_EMPTY)
        ipc_page_offer(page, lie == WORD_OF_ANOTHER ? ticket.id + IPC_SLOTS : ticket.id);
    if (lie == WORD_FREED)
        ipc_page_withdraw(page, ticket.id);
    while (lie == WORD_FULL && ipc_page_take(page, ticket.id) == 0)
        continue;
    ipc_page_unmap(page);
    return fd;
}

static int make_page(void)
{
    switch (lie) {
    case PAGE_TOO_SMALL:
        return make_other_page(4096, F_SEAL_SHRINK);
    case PAGE_TOO_LARGE:
        return make_other_page(2 * sizeof(struct ipc_page), F_SEAL_SHRINK);
    case PAGE_SHRINKS:
        return make_other_page(sizeof(struct ipc_page), F_SEAL_GROW);
    case PAGE_READ_ONLY:
        return make_other_page(sizeof(struct ipc_page), F_SEAL_SHRINK | F_SEAL_WRITE);
    case PAGE_NO_MEMORY:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    default:
        return make_honest_page();
    }
}

static bool send_greeting(int fd)
{
    struct ipc_greeting greeting = {.magic = IPC_PACKET_MAGIC};
    int fds[] = {make_page(), make_board(), open("/dev/null", O_RDONLY | O_CLOEXEC)};
    unsigned count = 2;

    if (lie == WRONG_MAGIC)
        greeting.magic++;
    if (lie == NEGATIVE_ERROR)
        greeting.error = -5;
    if (lie == UNKNOWN_ERROR)
        greeting.error = 12345;
    if (lie == ERROR_WITH_DESCRIPTORS)
        greeting.error = EIO;
    if (lie == NO_DESCRIPTORS || lie == NEGATIVE_ERROR || lie == UNKNOWN_ERROR)
        count = 0;
    if (lie == ONE_DESCRIPTOR || lie == THREE_DESCRIPTORS)
        count = lie == ONE_DESCRIPTOR ? 1 : 3;
    const int rc = ipc_wire_send(fd, &greeting, sizeof(greeting), fds, count);
    ipc_wire_close(fds, sizeof(fds) / sizeof(*fds));
    return rc == 0;
}

/* False if that was all. */
static bool answer_falsely(int fd, const struct ipc_request *request)
{
    const char much[2 * sizeof(struct ipc_greeting)] = {0};

    if (lie == HANGS_UP)
        return false;
    if (lie == SAYS_LITTLE || lie == SAYS_TOO_MUCH)
        return send(fd, much, lie == SAYS_LITTLE ? 3 : sizeof(much), MSG_NOSIGNAL) > 0;
    return request->what == IPC_HELLO ? send_greeting(fd) : send_chunks(fd, request->first);
}

#define CONNECTIONS 4

static int stop[2]; /* a pipe */

/* Answers on all connections until it is stopped. */
static void *exporter(void *listener)
{
    struct pollfd list[2 + CONNECTIONS] = {{stop[0], POLLIN, 0}, {(int)(intptr_t)listener, POLLIN, 0}};
    struct ipc_request request;
    nfds_t n = 2;

    while (poll(list, n, -1) > 0 && !list[0].revents) {
        for (nfds_t i = 2; i < n; i++) {
            unsigned none = 0;

            if (list[i].revents && (ipc_wire_receive(list[i].fd, &request, sizeof(request), NULL, &none) ||
                                    !answer_falsely(list[i].fd, &request))) {
                close(list[i].fd);
                list[i].fd = -1;
            }
        }
        if (list[1].revents && n < 2 + CONNECTIONS)
            list[n++] = (struct pollfd){accept4(list[1].fd, NULL, NULL, SOCK_CLOEXEC), POLLIN, 0};
    }
    while (n-- > 2) {
        if (list[n].fd >= 0)
            close(list[n].fd);
    }
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
                                 .bytes = lie == SLOW            ? SLOW_PARTS * PART
                                          : lie == OFFSET_BEHIND ? PART /* would be complete */
                                                                 : BYTES,
                                 .offset = lie == OFFSET_BEHIND ? PART : OFFSET};
    MUST(IPC_KEY, getrandom(ticket.key, IPC_KEY, 0));
    const socklen_t length = ipc_wire_name(&name, ticket.key);
    MUST(0, bind(fd, (struct sockaddr *)&name, length));
    MUST(0, listen(fd, 5));
    return fd;
}

static void meet_exporter(void)
{
    int listener = listen_falsely();
    pthread_t thread;

    MUST(0, pipe2(stop, O_CLOEXEC));
    MUST(0, pthread_create(&thread, NULL, exporter, (void *)(intptr_t)listener));
    MUST(lie < HONEST, try_open(&ticket) == CUDA_SUCCESS);
    if (lie < HONEST)
        MUST(0, try_open(&ticket));
    MUST(1, write(stop[1], "x", 1));
    MUST(0, pthread_join(thread, NULL));
    close(listener);
    close(stop[0]);
    close(stop[1]);
}

static void exporters(void)
{
    prog_context(0);
    make_memory();
    const int before = open_descriptors() + 1; /* the library's thread starts once, and stays */
    for (lie = 0; lie < LIES; lie++) {
        for (int where = 0; where < 2; where++) {
            on_board = where;
            meet_exporter();
            await_descriptors(before);
        }
    }
}

static CUcontext shared_context;

static void *open_in_vain(void *silent)
{
    MUST(0, cuCtxSetCurrent(shared_context));
    MUST(CUDA_ERROR_TIMEOUT, try_open(silent));
    return NULL;
}

/* One exporter never accepts a connection. Another one keeps sending and never finishes. */
static void slow_exporters(void)
{
    pthread_t opener, thread;

    shared_context = prog_context(0);
    make_memory();
    const int silent_listener = listen_falsely();
    struct ipc_ticket silent = ticket;
    MUST(0, pthread_create(&opener, NULL, open_in_vain, &silent));
    lie = SLOW;
    const int listener = listen_falsely();
    MUST(0, pipe2(stop, O_CLOEXEC));
    MUST(0, pthread_create(&thread, NULL, exporter, (void *)(intptr_t)listener));
    MUST(CUDA_ERROR_TIMEOUT, try_open(&ticket));
    MUST(1, write(stop[1], "x", 1));
    MUST(0, pthread_join(thread, NULL));
    MUST(0, pthread_join(opener, NULL));
    close(listener);
    close(silent_listener);
}

/* A ticket of the library's first version. */
static void old_exporters(void)
{
    prog_context(0);
    const int listener = listen_falsely();
    ticket.version = 1;
    MUST(CUDA_ERROR_INVALID_VALUE, try_open(&ticket));
    close(listener);
}

/* ---- an exporter of another user ---- */

#define OTHER_USER 65534

/* True if the importer said anything to it. */
static bool is_spoken_to(int listener)
{
    char byte;
    const int fd = accept(listener, NULL, NULL);

    return fd >= 0 && recv(fd, &byte, 1, 0) > 0;
}

static void users_exporter(void)
{
    int ready[2], listener;

    prog_context(0);
    MUST(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ready));
    const pid_t child = fork();
    if (child == 0) {
        if (setresuid(OTHER_USER, OTHER_USER, OTHER_USER))
            _exit(2);
        listener = listen_falsely();
        if (send(ready[1], &ticket, sizeof(ticket), 0) != sizeof(ticket))
            _exit(1);
        _exit(is_spoken_to(listener) ? 1 : 0);
    }
    close(ready[1]);
    if (recv(ready[0], &ticket, sizeof(ticket), 0) == sizeof(ticket))
        MUST(CUDA_ERROR_INVALID_VALUE, try_open(&ticket));
    int status;
    MUST(child, waitpid(child, &status, 0));
    MUST(0, status);
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"handles", handles},
        {"exporters", exporters},
        {"slow_exporters", slow_exporters},
        {"old_exporters", old_exporters},
        {"users_exporter", users_exporter},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
