/* ipc_wire: packets that are not exactly as they should be are errors, and leave no descriptor open. */
#include "interpose/share/ipc_wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/base/clock.h"

static int ends[2], files[IPC_CHUNKS];
static struct ipc_chunks chunks, got;
static uid_t user;

uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void)
{
    return user;
}

uid_t __real_geteuid(void);

static int count_open(void)
{
    DIR *list = opendir("/proc/self/fd");
    int count = 0;

    TEST_ASSERT_NOT_NULL(list);
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

void setUp(void)
{
    user = __real_geteuid();
    TEST_ASSERT_EQUAL_INT(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    chunks = (struct ipc_chunks){.magic = IPC_PACKET_MAGIC, .count = 2};
    for (int i = 0; i < 3; i++)
        files[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void tearDown(void)
{
    close(ends[0]);
    close(ends[1]);
    ipc_wire_close(files, 3);
}

/* Sends the chunks with so many descriptors, and returns what the other side makes of them. */
static int exchange(unsigned descriptors, unsigned *count)
{
    static int fds[IPC_CHUNKS];
    const int before = count_open();

    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(ends[0], &chunks, sizeof(chunks), files, descriptors));
    const int rc = ipc_wire_chunks(ends[1], &got, fds, count, false);
    TEST_ASSERT_EQUAL_INT_MESSAGE((int)*count, count_open() - before, "descriptors that the caller knows of");
    ipc_wire_close(fds, *count);
    return rc;
}

static void expect_refused(int rc, unsigned descriptors)
{
    unsigned count = 99;

    TEST_ASSERT_EQUAL_INT(rc, exchange(descriptors, &count));
    TEST_ASSERT_EQUAL_UINT(0, count);
    chunks = (struct ipc_chunks){.magic = IPC_PACKET_MAGIC, .count = 2};
}

static void test_chunks_come_with_a_descriptor_each(void)
{
    unsigned count;

    chunks.list[1].id = 7;
    TEST_ASSERT_EQUAL_INT(0, exchange(2, &count));
    TEST_ASSERT_EQUAL_UINT(2, count);
    TEST_ASSERT_EQUAL_UINT64(7, got.list[1].id);
    expect_refused(-EPROTO, 1);
    expect_refused(-EPROTO, 3);
}

static void test_a_packet_that_is_not_as_described_is_refused(void)
{
    chunks.magic++;
    expect_refused(-EPROTO, 2);
    chunks.zero = 1;
    expect_refused(-EPROTO, 2);
    chunks.error = -5;
    expect_refused(-EPROTO, 2);
    chunks.count = IPC_CHUNKS + 1;
    expect_refused(-EPROTO, 2);
    chunks.error = ENOENT; /* with chunks */
    expect_refused(-EPROTO, 2);
    chunks.error = ENOENT;
    chunks.count = 0;
    expect_refused(-ENOENT, 0); /* the exporter's own answer */
}

static void test_a_packet_of_another_size_is_refused(void)
{
    unsigned count = IPC_CHUNKS;
    int fds[IPC_CHUNKS];

    const int before = count_open();
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(ends[0], &chunks, sizeof(chunks) - 8, files, 2));
    TEST_ASSERT_EQUAL_INT(-EPROTO, ipc_wire_receive(ends[1], &got, sizeof(got), fds, &count));
    count = IPC_CHUNKS;
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(ends[0], &chunks, sizeof(chunks), files, 2));
    TEST_ASSERT_EQUAL_INT(-EPROTO, ipc_wire_receive(ends[1], &got, sizeof(got) - 8, fds, &count));
    count = 1; /* fewer descriptors are expected */
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(ends[0], &chunks, sizeof(chunks), files, 2));
    TEST_ASSERT_EQUAL_INT(-EPROTO, ipc_wire_receive(ends[1], &got, sizeof(got), fds, &count));
    TEST_ASSERT_EQUAL_UINT(0, count);
    TEST_ASSERT_EQUAL_INT(before, count_open());
}

static void test_a_board_may_be_read_again_and_again(void)
{
    int fds[IPC_CHUNKS];
    unsigned count;

    TEST_ASSERT_EQUAL_INT(0, ipc_wire_send(ends[0], &chunks, sizeof(chunks), files, 2));
    for (int i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL_INT(0, ipc_wire_chunks(ends[1], &got, fds, &count, true));
        TEST_ASSERT_EQUAL_UINT(2, count);
        TEST_ASSERT_TRUE(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
        ipc_wire_close(fds, count);
    }
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_chunks(ends[1], &got, fds, &count, false));
    ipc_wire_close(fds, count);
    TEST_ASSERT_EQUAL_INT(-EAGAIN, ipc_wire_chunks(ends[1], &got, fds, &count, false));
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, ipc_wire_wait(ends[1], clock_ms()));
    close(ends[0]);
    TEST_ASSERT_EQUAL_INT(0, ipc_wire_wait(ends[1], clock_ms()));
    TEST_ASSERT_EQUAL_INT(-EPIPE, ipc_wire_chunks(ends[1], &got, fds, &count, false));
    ends[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void test_only_processes_of_the_same_user_are_trusted(void)
{
    pid_t pid = 0;

    TEST_ASSERT_TRUE(ipc_wire_trusts(ends[0], &pid));
    TEST_ASSERT_EQUAL_INT(getpid(), pid);
    user++;
    TEST_ASSERT_FALSE(ipc_wire_trusts(ends[0], &pid));
    TEST_ASSERT_FALSE(ipc_wire_trusts(files[0], &pid));
}

static void test_a_key_is_the_name_of_a_socket(void)
{
    const unsigned char key[IPC_KEY] = {0x01, 0xab, [15] = 0xff};
    struct sockaddr_un name;

    const socklen_t length = ipc_wire_name(&name, key);
    TEST_ASSERT_EQUAL_CHAR('\0', name.sun_path[0]);
    TEST_ASSERT_EQUAL_STRING("gpucap-ipc-01ab00000000000000000000000000ff", name.sun_path + 1);
    TEST_ASSERT_EQUAL_UINT(sizeof(name.sun_family) + 1 + strlen(name.sun_path + 1), length);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_chunks_come_with_a_descriptor_each);
    RUN_TEST(test_a_packet_that_is_not_as_described_is_refused);
    RUN_TEST(test_a_packet_of_another_size_is_refused);
    RUN_TEST(test_a_board_may_be_read_again_and_again);
    RUN_TEST(test_only_processes_of_the_same_user_are_trusted);
    RUN_TEST(test_a_key_is_the_name_of_a_socket);
    return UNITY_END();
}
