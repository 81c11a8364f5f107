/* ipc without CUDA: what becomes of exported blocks, in one process that is exporter and importer
 * (ipc_fake.h). */
#include "ipc_fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/share/ipc_board.h"

void setUp(void)
{
    ipc_fake_setup();
}

void tearDown(void) {}

/* ---- handles ---- */

static void test_a_block_has_one_handle_while_it_lives(void)
{
    ipc_fake_allocate(0, 0);
    ipc_fake_waits = 0;
    const struct ipc_ticket first = ipc_fake_export(0, 0), again = ipc_fake_export(0, 0);
    TEST_ASSERT_EQUAL_MEMORY(&first, &again, sizeof(first));
    TEST_ASSERT_EQUAL_INT(2, ipc_fake_waits); /* another process's work is not ordered behind ours */
    TEST_ASSERT_EQUAL_INT(1, ipc_fake_pins(0, 0));
    TEST_ASSERT_EQUAL_UINT64(4096, first.bytes);
    TEST_ASSERT_EQUAL_UINT64(512, first.offset);
    TEST_ASSERT_EQUAL_INT(getpid(), first.pid);
    ipc_fake_free(0, 0);
    TEST_ASSERT_EQUAL_INT(0, ipc_fake_pins(0, 0));
    ipc_fake_allocate(0, 0);
    TEST_ASSERT_NOT_EQUAL_UINT64(first.id, ipc_fake_export(0, 0).id);
    ipc_fake_free(0, 0);
}

static void test_an_export_that_fails_leaves_nothing(void)
{
    const int before = ipc_fake_descriptors();
    CUipcMemHandle handle;

    TEST_ASSERT_EQUAL_INT(-EINVAL, ipc_export(&ipc_fake_pools[0], IPC_FAKE_AT(0), &handle)); /* no block */
    ipc_fake_allocate(0, 0);
    ipc_fake_fail_backing = 1;
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ipc_export(&ipc_fake_pools[0], IPC_FAKE_AT(0), &handle));
    ipc_fake_fail_uuid = 1;
    TEST_ASSERT_EQUAL_INT(-EIO, ipc_export(&ipc_fake_pools[0], IPC_FAKE_AT(0), &handle));
    TEST_ASSERT_EQUAL_INT(0, ipc_fake_pins(0, 0));
    ipc_fake_pools[0].vmm.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, ipc_export(&ipc_fake_pools[0], IPC_FAKE_AT(0), &handle));
    TEST_ASSERT_EQUAL_INT(0, ipc_fake_pins(0, 0));
    ipc_fake_expect_descriptors(before);
    ipc_fake_free(0, 0);
}

static void test_handles_that_cannot_be_opened_are_told_apart(void)
{
    CUdeviceptr address;
    CUipcMemHandle handle;
    struct ipc_ticket ticket;

    ipc_fake_allocate(0, 0);
    ticket = ipc_fake_export(0, 0);
    memcpy(&handle, &ticket, sizeof(handle));
    TEST_ASSERT_TRUE(ipc_is_ours(&handle));
    TEST_ASSERT_EQUAL_INT(-EXDEV, ipc_open(&handle, ipc_fake_pools[0].context, &address));
    ticket.version++;
    memcpy(&handle, &ticket, sizeof(handle));
    TEST_ASSERT_EQUAL_INT(-EPROTONOSUPPORT, ipc_open(&handle, ipc_fake_pools[0].context, &address));
    ticket.version--;
    ticket.key[IPC_KEY - 1] ^= 1; /* another process's */
    memcpy(&handle, &ticket, sizeof(handle));
    ipc_fake_opened = 0;
    TEST_ASSERT_EQUAL_INT(0, ipc_open(&handle, ipc_fake_pools[0].context, &address));
    TEST_ASSERT_EQUAL_INT(1, ipc_fake_opened);
    ticket.zero = 1;
    memcpy(&handle, &ticket, sizeof(handle));
    TEST_ASSERT_EQUAL_INT(-EINVAL, ipc_open(&handle, ipc_fake_pools[0].context, &address));
    ticket.zero = ticket.bytes = 0;
    memcpy(&handle, &ticket, sizeof(handle));
    TEST_ASSERT_EQUAL_INT(-EINVAL, ipc_open(&handle, ipc_fake_pools[0].context, &address));
    TEST_ASSERT_EQUAL_INT(1, ipc_fake_opened);
    ticket.magic++;
    memcpy(&handle, &ticket, sizeof(handle));
    TEST_ASSERT_FALSE(ipc_is_ours(&handle));
    ipc_fake_free(0, 0);
}

/* ---- blocks that are open elsewhere ---- */

static void test_a_freed_block_stays_pinned_until_the_last_close(void)
{
    CUipcMemHandle handle;

    ipc_fake_allocate(0, 0);
    const struct ipc_ticket ticket = ipc_fake_export(0, 0);
    struct ipc_source *source = ipc_fake_source(&ticket);
    TEST_ASSERT_EQUAL_INT(0, ipc_source_take(source, ticket.id));
    TEST_ASSERT_EQUAL_INT(0, ipc_source_take(source, ticket.id));
    ipc_fake_free(0, 0);
    TEST_ASSERT_EQUAL_INT(1, ipc_fake_pins(0, 0));
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_source_take(source, ticket.id));
    TEST_ASSERT_EQUAL_INT(-EINVAL, ipc_export(&ipc_fake_pools[0], IPC_FAKE_AT(0), &handle));
    ipc_source_drop(source, ticket.id);
    TEST_ASSERT_EQUAL_INT(1, ipc_fake_pins(0, 0));
    ipc_source_drop(source, ticket.id);
    TEST_ASSERT_TRUE(ipc_fake_unpinned(0, 0));
    ipc_source_put(source);
}

static void test_the_newest_blocks_are_on_the_board_until_they_are_freed(void)
{
    struct ipc_ticket tickets[6];

    ipc_fake_allocate(0, 0);
    tickets[0] = ipc_fake_export(0, 0);
    struct ipc_source *source = ipc_fake_source(&tickets[0]);
    TEST_ASSERT_EQUAL_PTR(source, ipc_fake_source(&tickets[0])); /* one connection */
    ipc_source_put(source);
    const int before = ipc_fake_descriptors();
    TEST_ASSERT_EQUAL_UINT(2, ipc_fake_on_board(source, tickets[0].id));
    TEST_ASSERT_EQUAL_UINT(2, ipc_fake_on_board(source, tickets[0].id)); /* it was not taken away */
    for (int i = 1; i < 6; i++) {
        ipc_fake_allocate(0, i);
        tickets[i] = ipc_fake_export(0, i);
    }
    const unsigned fit = ipc_board_room() / 2;

    TEST_ASSERT_EQUAL_UINT_MESSAGE(4, fit, "a small part of the descriptors that a process may have");
    for (int i = 0; i < 6; i++)
        TEST_ASSERT_EQUAL_UINT(6 - i <= (int)fit ? 2 : 0, ipc_fake_on_board(source, tickets[i].id));
    ipc_fake_free(0, 5);
    TEST_ASSERT_EQUAL_UINT(
        0, ipc_fake_on_board(source, tickets[5].id)); /* else its memory could not be released */
    TEST_ASSERT_EQUAL_UINT(2, ipc_fake_on_board(source, tickets[4].id));
    for (int i = 1; i < 5; i++)
        ipc_fake_free(0, i);
    ipc_fake_free(0, 0);
    TEST_ASSERT_EQUAL_UINT(0, ipc_fake_on_board(source, tickets[4].id));
    ipc_fake_expect_descriptors(before - 2); /* the first block's two are closed, no more */
    ipc_source_put(source);
}

static void test_a_large_block_is_fetched_in_parts(void)
{
    struct ipc_link link;

    ipc_fake_allocate(0, IPC_FAKE_BLOCKS - 1);
    const struct ipc_ticket ticket = ipc_fake_export(0, IPC_FAKE_BLOCKS - 1);
    struct ipc_fake_got got = {.wanted = ticket.id};
    struct ipc_source *source = ipc_fake_source(&ticket);
    const int before = ipc_fake_descriptors();
    TEST_ASSERT_EQUAL_INT(0, ipc_source_connect(&link, &ticket));
    while (got.count < IPC_FAKE_MANY) {
        const unsigned first = got.count;

        TEST_ASSERT_EQUAL_INT(0, ipc_source_ask(&link, ticket.id, first, ipc_fake_take, &got));
        TEST_ASSERT_EQUAL_UINT(first + (first ? IPC_FAKE_MANY - IPC_BATCH : IPC_BATCH), got.count);
    }
    TEST_ASSERT_EQUAL_UINT64(VMM_PAGE, got.last.chunk_bytes);
    TEST_ASSERT_EQUAL_UINT64(4096, got.last.bytes);
    TEST_ASSERT_EQUAL_UINT64(512, got.last.offset);
    TEST_ASSERT_EQUAL_INT(7, got.last.card.bytes[0]);
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_source_ask(&link, ticket.id + 1, 0, ipc_fake_take, &got));
    ipc_fake_fail_export = 2; /* that of the first chunk is closed again */
    TEST_ASSERT_EQUAL_INT(-EIO, ipc_source_ask(&link, ticket.id, 0, ipc_fake_take, &got));
    got.count = 0;
    TEST_ASSERT_EQUAL_INT(
        0, ipc_source_ask(&link, ticket.id, IPC_FAKE_MANY, ipc_fake_take, &got)); /* behind the last */
    TEST_ASSERT_EQUAL_UINT(0, got.count);
    ipc_exports_ending(ipc_fake_pools[0].context, true);
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_source_ask(&link, ticket.id, 0, ipc_fake_take, &got));
    ipc_exports_ending(ipc_fake_pools[0].context, false);
    ipc_source_disconnect(&link);
    ipc_fake_expect_descriptors(before); /* the exporter has closed its end */
    ipc_fake_free(0, IPC_FAKE_BLOCKS - 1);
    ipc_source_put(source);
}

/* ---- the end of a context ---- */

static void test_while_a_context_may_end_its_blocks_stay_pinned(void)
{
    ipc_fake_allocate(0, 0);
    ipc_fake_allocate(1, 1);
    ipc_fake_export(0, 0);
    ipc_fake_export(1, 1);
    ipc_exports_ending(ipc_fake_pools[0].context, false); /* of a call that began before the export */
    ipc_exports_ending(ipc_fake_pools[0].context, true);
    ipc_exports_ending(ipc_fake_pools[0].context, true);
    ipc_fake_free(0, 0);
    ipc_fake_free(1, 1);
    TEST_ASSERT_EQUAL_INT(1, ipc_fake_pins(0, 0));
    TEST_ASSERT_EQUAL_INT(0, ipc_fake_pins(1, 1)); /* of another context */
    ipc_exports_ending(ipc_fake_pools[0].context, false);
    TEST_ASSERT_EQUAL_INT(1, ipc_fake_pins(0, 0));
    ipc_exports_ending(ipc_fake_pools[0].context, false);
    TEST_ASSERT_EQUAL_INT(0, ipc_fake_pins(0, 0));
}

static void test_the_exports_of_an_ended_context_are_gone_and_no_others(void)
{
    CUipcMemHandle handle;

    ipc_fake_allocate(0, 0);
    ipc_fake_allocate(1, 1);
    const struct ipc_ticket gone = ipc_fake_export(0, 0), stays = ipc_fake_export(1, 1);
    struct ipc_source *source = ipc_fake_source(&gone);
    ipc_exports_ending(ipc_fake_pools[0].context, true);
    ipc_exports_end(ipc_fake_pools[0].context);
    TEST_ASSERT_EQUAL_INT(1, ipc_fake_pins(0, 0)); /* its pool is closed with all that was pinned */
    ipc_fake_forget(0, 0);
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_source_take(source, gone.id));
    TEST_ASSERT_EQUAL_UINT(0, ipc_fake_on_board(source, gone.id));
    TEST_ASSERT_EQUAL_UINT(2, ipc_fake_on_board(source, stays.id));
    TEST_ASSERT_EQUAL_INT(0, ipc_source_take(source, stays.id));
    ipc_source_drop(source, stays.id);
    TEST_ASSERT_EQUAL_INT(-EINVAL, ipc_export(&ipc_fake_pools[0], IPC_FAKE_AT(0), &handle));
    ipc_fake_free(1, 1);
    TEST_ASSERT_EQUAL_INT(0, ipc_fake_pins(1, 1));
    ipc_source_put(source);
}

/* ---- fork ---- */

static int sockets(void)
{
    char path[64], to[64];
    int count = 0;

    for (int fd = 3; fd < 200; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(path, to, sizeof(to) - 1);
        count += length > 0 && (!strncmp(to, "socket:", 7) || !strncmp(to, "anon_inode:[eventfd]", 20) ||
                                !strncmp(to, "/memfd:chunk", 12));
    }
    return count;
}

/* Returns 0 if the child has nothing of its parent's, and can share blocks of its own. */
static int in_child(const struct ipc_ticket *parents)
{
    CUipcMemHandle handle;
    struct ipc_source *source;
    struct ipc_ticket own;

    if (sockets())
        return 1;
    memcpy(&handle, parents, sizeof(handle));
    CUdeviceptr address;
    if (ipc_open(&handle, ipc_fake_pools[0].context, &address) == -EXDEV)
        return 2;
    if (ipc_export(&ipc_fake_pools[0], IPC_FAKE_AT(0), &handle))
        return 3;
    memcpy(&own, &handle, sizeof(own));
    if (!memcmp(own.key, parents->key, IPC_KEY))
        return 4;
    if (ipc_source_get(&own, &source) || ipc_source_take(source, own.id))
        return 5;
    ipc_fake_free(0, 0);
    ipc_source_drop(source, own.id);
    TEST_ASSERT_TRUE(ipc_fake_unpinned(0, 0));
    return 0;
}

static void test_a_forked_child_has_nothing_of_its_parents_and_can_share_itself(void)
{
    int status;

    ipc_fake_allocate(0, 0);
    const struct ipc_ticket ticket = ipc_fake_export(0, 0);
    struct ipc_source *source = ipc_fake_source(&ticket);
    const pid_t pid = fork();
    if (pid == 0) {
        ipc_fake_forget(0, 0);
        ipc_fake_allocate(0, 0);
        _exit(in_child(&ticket));
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    TEST_ASSERT_EQUAL_UINT(2, ipc_fake_on_board(source, ticket.id)); /* the parent's is as before */
    TEST_ASSERT_EQUAL_INT(0, ipc_source_take(source, ticket.id));
    ipc_fake_free(0, 0);
    ipc_source_drop(source, ticket.id);
    TEST_ASSERT_TRUE(ipc_fake_unpinned(0, 0));
    ipc_source_put(source);
}

/* A thread that does not empty its eventfd would have polled a hundred thousand times by now. */
static void test_the_thread_sleeps_while_there_is_nothing_to_do(void)
{
    TEST_ASSERT_LESS_THAN_UINT64(2000, atomic_load(&ipc_fake_polls));
}

/* Runs after the library's own handler, as the driver's would: the thread must not call the driver any more.
 */
static void expect_no_thread(void)
{
    if (atomic_load(&ipc_fake_polling)) {
        fputs("the thread runs after exit\n", stderr);
        _exit(1);
    }
}

int main(void)
{
    atexit(expect_no_thread);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){1024, 1024}); /* the board has room for eight chunks */
    UNITY_BEGIN();
    RUN_TEST(test_a_block_has_one_handle_while_it_lives);
    RUN_TEST(test_an_export_that_fails_leaves_nothing);
    RUN_TEST(test_handles_that_cannot_be_opened_are_told_apart);
    RUN_TEST(test_a_freed_block_stays_pinned_until_the_last_close);
    RUN_TEST(test_the_newest_blocks_are_on_the_board_until_they_are_freed);
    RUN_TEST(test_a_large_block_is_fetched_in_parts);
    RUN_TEST(test_while_a_context_may_end_its_blocks_stay_pinned);
    RUN_TEST(test_the_exports_of_an_ended_context_are_gone_and_no_others);
    RUN_TEST(test_a_forked_child_has_nothing_of_its_parents_and_can_share_itself);
    RUN_TEST(test_the_thread_sleeps_while_there_is_nothing_to_do);
    return UNITY_END();
}
