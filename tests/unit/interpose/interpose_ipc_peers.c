/* ipc with a process at the other end that says anything it likes: a hostile importer, which is a socket of
 * the test, and a hostile exporter, which is a thread of it. */
#include "ipc_fake.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/base/clock.h"
#include "interpose/share/ipc_page.h"

void setUp(void)
{
    ipc_fake_setup();
}

void tearDown(void) {}

/* ---- a hostile importer ---- */

static int connect_to(const struct ipc_ticket *ticket)
{
    struct sockaddr_un name;
    const socklen_t length = ipc_wire_name(&name, ticket->key);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    TEST_ASSERT_EQUAL_INT(0, connect(fd, (struct sockaddr *)&name, length));
    return fd;
}

static void expect_closed(int fd)
{
    char byte;

    TEST_ASSERT_EQUAL_INT(0, ipc_wire_wait(fd, clock_ms() + IPC_FAKE_PATIENCE));
    TEST_ASSERT_TRUE(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
}

static void test_an_importer_that_talks_nonsense_is_disconnected(void)
{
    const struct ipc_request hello = {.magic = IPC_PACKET_MAGIC, .what = IPC_HELLO};
    struct ipc_request other = hello;
    struct ipc_greeting greeting;
    int fds[IPC_GREETING_FDS];
    unsigned count = IPC_GREETING_FDS;

    ipc_fake_allocate(0, 0);
    const struct ipc_ticket ticket = ipc_fake_export(0, 0);
    int fd = connect_to(&ticket);
    other.magic++;
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(fd, &other, sizeof(other), NULL, 0));
    expect_closed(fd);
    fd = connect_to(&ticket);
    other = (struct ipc_request){.magic = IPC_PACKET_MAGIC, .what = 99};
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(fd, &other, sizeof(other), NULL, 0));
    expect_closed(fd);
    fd = connect_to(&ticket);
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(fd, &hello, sizeof(hello) - 1, NULL, 0));
    expect_closed(fd);
    fd = connect_to(&ticket);
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(fd, &hello, sizeof(hello), NULL, 0));
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_wait(fd, clock_ms() + IPC_FAKE_PATIENCE));
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_receive(fd, &greeting, sizeof(greeting), fds, &count));
    TEST_ASSERT_EQUAL_UINT(IPC_GREETING_FDS, count);
    ipc_wire_close(fds, count);
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(fd, &hello, sizeof(hello), NULL, 0)); /* a second time */
    expect_closed(fd);
    ipc_fake_free(0, 0);
}

/* One that has a block open, the first or the last of two, may go on to use it after its connection is
 * closed.
 */
static void test_a_block_stays_while_an_importer_without_a_connection_has_it_open(void)
{
    const struct ipc_request hello = {.magic = IPC_PACKET_MAGIC, .what = IPC_HELLO};

    for (int held = 0; held < 2; held++) {
        const int blocks[] = {2 * held, 2 * held + 1};
        struct ipc_greeting greeting;
        struct ipc_ticket tickets[2];
        struct ipc_page *page;
        int fds[IPC_GREETING_FDS];
        unsigned count = IPC_GREETING_FDS;

        for (int i = 0; i < 2; i++) {
            ipc_fake_allocate(0, blocks[i]);
            tickets[i] = ipc_fake_export(0, blocks[i]);
        }
        const int fd = connect_to(&tickets[0]);
        TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(fd, &hello, sizeof(hello), NULL, 0));
        TEST_ASSERT_EQUAL_INT(0, ipc_wire_wait(fd, clock_ms() + IPC_FAKE_PATIENCE));
        TEST_ASSERT_EQUAL_INT(0, ipc_wire_receive(fd, &greeting, sizeof(greeting), fds, &count));
        TEST_ASSERT_EQUAL_INT(0, ipc_page_map(fds[IPC_GREETING_PAGE], &page));
        ipc_wire_close(fds, count);
        TEST_ASSERT_EQUAL_INT(0, ipc_page_take(page, tickets[held].id));
        TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(fd, &hello, sizeof(hello), NULL, 0)); /* a second time */
        expect_closed(fd);
        ipc_fake_free(0, blocks[0]);
        ipc_fake_free(0, blocks[1]);
        TEST_ASSERT_TRUE(ipc_fake_unpinned(0, blocks[!held]));
        TEST_ASSERT_EQUAL_INT(1, ipc_fake_pins(0, blocks[held])); /* until the process has died */
        ipc_page_unmap(page);
    }
}

/* ---- a hostile exporter ---- */

static struct {
    int listener, fd;
    struct ipc_greeting greeting;
    unsigned fds;   /* descriptors that come with it */
    int page_bytes; /* of the page; -1: a right one */
    int board[2];
} liar = {.listener = -1};

static struct ipc_ticket liars_ticket(void)
{
    struct ipc_ticket ticket = {
        .magic = IPC_TICKET_MAGIC, .version = IPC_TICKET_VERSION, .bytes = 1, .id = 5};
    struct sockaddr_un name;

    memset(ticket.key, 0, IPC_KEY);
    memcpy(ticket.key, &(pid_t){getpid()}, sizeof(pid_t));
    if (liar.listener < 0) {
        const socklen_t length = ipc_wire_name(&name, ticket.key);

        liar.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        TEST_ASSERT_EQUAL_INT(0, bind(liar.listener, (struct sockaddr *)&name, length));
        TEST_ASSERT_EQUAL_INT(0, listen(liar.listener, 5));
    }
    return ticket;
}

static void *lie(void *unused)
{
    struct ipc_request hello;
    struct ipc_page *page = NULL;
    unsigned none = 0;
    int fds[IPC_GREETING_FDS + 1];

    liar.fd = accept4(liar.listener, NULL, NULL, SOCK_CLOEXEC);
    ipc_wire_wait(liar.fd, clock_ms() + IPC_FAKE_PATIENCE);
    ipc_wire_receive(liar.fd, &hello, sizeof(hello), NULL, &none);
    fds[IPC_GREETING_PAGE] = liar.page_bytes < 0 ? ipc_page_make(&page) : memfd_create("page", MFD_CLOEXEC);
    if (page)
        ipc_page_offer(page, 5);
    fds[IPC_GREETING_BOARD] = fds[IPC_GREETING_FDS] = liar.board[1];
    ipc_wire_send(liar.fd, &liar.greeting, sizeof(liar.greeting), fds, liar.fds);
    close(fds[IPC_GREETING_PAGE]);
    ipc_page_unmap(page);
    return unused;
}

/* Connects to the liar, which answers as `liar` says. */
static int meet_liar(uint32_t magic, int error, unsigned fds, int page_bytes, struct ipc_source **source)
{
    const struct ipc_ticket ticket = liars_ticket();
    pthread_t thread;

    liar.greeting = (struct ipc_greeting){.magic = magic, .error = error};
    liar.fds = fds;
    liar.page_bytes = page_bytes;
    TEST_ASSERT_EQUAL_INT(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, liar.board));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, lie, NULL));
    const int rc = ipc_source_get(&ticket, source);
    pthread_join(thread, NULL);
    return rc;
}

static void leave_liar(void)
{
    close(liar.fd);
    close(liar.board[0]);
    close(liar.board[1]);
}

static void test_a_greeting_that_is_not_as_agreed_is_refused(void)
{
    static const struct {
        uint32_t magic;
        int error;
        unsigned fds;
        int page_bytes, expected;
    } cases[] = {
        {IPC_PACKET_MAGIC + 1, 0, 2, -1, -EPROTO}, {IPC_PACKET_MAGIC, -1, 0, -1, -EPROTO},
        {IPC_PACKET_MAGIC, 0, 1, -1, -EPROTO},     {IPC_PACKET_MAGIC, 0, 3, -1, -EPROTO},
        {IPC_PACKET_MAGIC, EIO, 2, -1, -EPROTO},   {IPC_PACKET_MAGIC, EMFILE, 0, -1, -EMFILE},
        {IPC_PACKET_MAGIC, 0, 2, 0, -EPROTO},
    };
    struct ipc_source *source;

    liars_ticket();
    const int before = ipc_fake_descriptors();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        TEST_ASSERT_EQUAL_INT(cases[i].expected, meet_liar(cases[i].magic, cases[i].error, cases[i].fds,
                                                           cases[i].page_bytes, &source));
        leave_liar();
        ipc_fake_expect_descriptors(before);
    }
}

static void post_lies(uint32_t count, uint32_t zero, int32_t error, unsigned fds)
{
    struct ipc_chunks chunks = {.magic = IPC_PACKET_MAGIC, .count = count, .zero = zero, .error = error};
    int some[8];

    for (int i = 0; i < 8; i++) {
        some[i] = 0;
        chunks.list[i].id = 5;
    }
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(liar.board[0], &chunks, sizeof(chunks), some, fds));
}

static void test_a_board_with_nonsense_is_an_empty_one(void)
{
    struct ipc_source *source;
    char byte;

    liars_ticket();
    const int start = ipc_fake_descriptors();
    TEST_ASSERT_EQUAL_INT(0, meet_liar(IPC_PACKET_MAGIC, 0, 2, -1, &source));
    const int before = ipc_fake_descriptors();
    TEST_ASSERT_EQUAL_UINT(0, ipc_fake_on_board(source, 5)); /* empty */
    for (int i = 0; i < 5; i++) {
        static const struct {
            uint32_t count, zero;
            int32_t error;
            unsigned fds;
        } cases[] = {{3, 0, 0, 2}, {2, 0, 0, 3}, {2, 1, 0, 2}, {2, 0, EIO, 2}, {IPC_CHUNKS + 1, 0, 0, 2}};

        post_lies(cases[i].count, cases[i].zero, cases[i].error, cases[i].fds);
        TEST_ASSERT_EQUAL_UINT(0, ipc_fake_on_board(source, 5));
        recv(liar.board[1], &byte, 1, 0);
    }
    struct {
        struct ipc_chunks chunks;
        uint64_t more;
    } longer = {.chunks.magic = IPC_PACKET_MAGIC, .chunks.count = 1, .chunks.list[0].id = 5};
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(liar.board[0], &longer, sizeof(longer), &(int){0}, 1));
    TEST_ASSERT_EQUAL_UINT(0, ipc_fake_on_board(source, 5)); /* it goes on where it should end */
    recv(liar.board[1], &byte, 1, 0);
    TEST_ASSERT_EQUAL_INT(1, (int)send(liar.board[0], "x", 1, 0));
    TEST_ASSERT_EQUAL_UINT(0, ipc_fake_on_board(source, 5));
    recv(liar.board[1], &byte, 1, 0);
    post_lies(2, 0, 0, 2);
    TEST_ASSERT_EQUAL_UINT(2, ipc_fake_on_board(source, 5));
    recv(liar.board[1], &byte, 1, 0);
    ipc_fake_expect_descriptors(before);
    TEST_ASSERT_EQUAL_INT(0, ipc_source_take(source, 5));
    leave_liar(); /* it ends; the block stays open here */
    struct ipc_source *next;
    TEST_ASSERT_EQUAL_INT(0, meet_liar(IPC_PACKET_MAGIC, 0, 2, -1, &next));
    TEST_ASSERT_TRUE_MESSAGE(next != source, "an exporter that has ended is not used again");
    ipc_source_drop(source, 5);
    ipc_source_put(source);
    leave_liar();
    ipc_source_put(next);
    ipc_fake_expect_descriptors(start); /* nothing here keeps an ended exporter's memory */
}

static void test_an_exporter_that_is_not_there_leaves_no_connection(void)
{
    struct ipc_ticket ticket = liars_ticket();
    struct ipc_source *source;
    struct ipc_link link;

    ticket.key[IPC_KEY - 1] = 77;
    const int before = ipc_fake_descriptors();
    for (int i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL_INT(-ECONNREFUSED, ipc_source_get(&ticket, &source));
        TEST_ASSERT_EQUAL_INT(-ECONNREFUSED, ipc_source_connect(&link, &ticket));
    }
    ipc_fake_expect_descriptors(before);
}

int main(void)
{
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){1024, 1024}); /* the board has room for eight chunks */
    UNITY_BEGIN();
    RUN_TEST(test_an_importer_that_talks_nonsense_is_disconnected);
    RUN_TEST(test_a_greeting_that_is_not_as_agreed_is_refused);
    RUN_TEST(test_a_board_with_nonsense_is_an_empty_one);
    RUN_TEST(test_an_exporter_that_is_not_there_leaves_no_connection);
    RUN_TEST(test_a_block_stays_while_an_importer_without_a_connection_has_it_open);
    return UNITY_END();
}
