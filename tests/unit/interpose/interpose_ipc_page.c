/* ipc_page: what two processes know of a block without asking each other. Here both are this process, each
 * with a mapping of its own. */
#include "interpose/share/ipc_page.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unity.h>

#define ID   UINT64_C(7)
#define MOST 1023 /* times that a block can be open in one importer */

static struct ipc_page *exporter, *importer;

void setUp(void)
{
    const int fd = ipc_page_make(&exporter);

    TEST_ASSERT_GREATER_OR_EQUAL_INT(0, fd);
    TEST_ASSERT_EQUAL_INT(0, ipc_page_map(fd, &importer));
    close(fd);
}

void tearDown(void)
{
    ipc_page_unmap(exporter);
    ipc_page_unmap(importer);
}

static void test_only_what_is_offered_can_be_opened(void)
{
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_page_take(importer, ID));
    ipc_page_offer(exporter, ID);
    TEST_ASSERT_EQUAL_INT(0, ipc_page_take(importer, ID));
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_page_take(importer, ID + IPC_SLOTS)); /* the same slot */
    TEST_ASSERT_FALSE(ipc_page_holds(exporter, ID + IPC_SLOTS));
    TEST_ASSERT_FALSE(ipc_page_drop(importer, ID + IPC_SLOTS));
    TEST_ASSERT_TRUE(ipc_page_holds(exporter, ID));
    TEST_ASSERT_FALSE(ipc_page_drop(importer, ID)); /* not freed: there is nothing to tell */
    TEST_ASSERT_FALSE(ipc_page_holds(exporter, ID));
    TEST_ASSERT_FALSE(ipc_page_drop(importer, ID)); /* once too often changes nothing */
    TEST_ASSERT_EQUAL_INT(0, ipc_page_take(importer, ID));
    TEST_ASSERT_TRUE(ipc_page_holds(exporter, ID));
}

static void test_what_is_freed_cannot_be_opened_and_the_last_close_tells(void)
{
    ipc_page_offer(exporter, ID);
    TEST_ASSERT_EQUAL_INT(0, ipc_page_take(importer, ID));
    TEST_ASSERT_EQUAL_INT(0, ipc_page_take(importer, ID));
    TEST_ASSERT_TRUE(ipc_page_withdraw(exporter, ID));
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_page_take(importer, ID));
    TEST_ASSERT_FALSE(ipc_page_drop(importer, ID));
    TEST_ASSERT_TRUE(ipc_page_withdraw(exporter, ID));
    TEST_ASSERT_TRUE(ipc_page_drop(importer, ID));
    TEST_ASSERT_FALSE(ipc_page_withdraw(exporter, ID));
    TEST_ASSERT_FALSE(ipc_page_drop(importer, ID)); /* once too often */
    TEST_ASSERT_FALSE(ipc_page_holds(exporter, ID));
    TEST_ASSERT_FALSE(ipc_page_withdraw(exporter, ID));
}

static void test_a_block_is_not_open_more_often_than_can_be_counted(void)
{
    ipc_page_offer(exporter, ID);
    for (int i = 0; i < MOST; i++)
        TEST_ASSERT_EQUAL_INT(0, ipc_page_take(importer, ID));
    TEST_ASSERT_EQUAL_INT(-EMFILE, ipc_page_take(importer, ID));
    TEST_ASSERT_TRUE(ipc_page_withdraw(exporter, ID));
    for (int i = 0; i < MOST; i++)
        TEST_ASSERT_EQUAL(i == MOST - 1, ipc_page_drop(importer, ID));
}

static void test_a_page_that_could_change_its_size_is_refused(void)
{
    const int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct ipc_page *page;

    TEST_ASSERT_EQUAL_INT(0, ftruncate(fd, sizeof(*page)));
    TEST_ASSERT_EQUAL_INT(-EPROTO, ipc_page_map(fd, &page));
    TEST_ASSERT_EQUAL_INT(0, fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
    TEST_ASSERT_EQUAL_INT(0, ipc_page_map(fd, &page));
    ipc_page_unmap(page);
    TEST_ASSERT_EQUAL_INT(0, ftruncate(fd, sizeof(*page) + 4096)); /* of another version, maybe */
    TEST_ASSERT_EQUAL_INT(-EPROTO, ipc_page_map(fd, &page));
    close(fd);
    TEST_ASSERT_EQUAL_INT(-EPROTO, ipc_page_map(STDERR_FILENO, &page));
}

/* ---- both at once ---- */

#define ROUNDS 20000

static _Atomic uint64_t freed; /* the newest block that the exporter has freed */
static int told;               /* times that the importer would tell it of the last close */

static void *open_and_close(void *unused)
{
    for (uint64_t id = 1; id <= ROUNDS; id++) {
        int rc;

        while ((rc = ipc_page_take(importer, id)) && atomic_load(&freed) < id)
            continue; /* not offered yet */
        if (rc == 0)
            told += ipc_page_drop(importer, id);
    }
    return unused;
}

static void test_a_freed_block_that_is_open_is_told_of_exactly_once(void)
{
    pthread_t thread;
    int held = 0;

    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, open_and_close, NULL));
    for (uint64_t id = 1; id <= ROUNDS; id++) {
        ipc_page_offer(exporter, id);
        held += ipc_page_withdraw(exporter, id);
        atomic_store(&freed, id);
    }
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, NULL));
    TEST_ASSERT_EQUAL_INT(held, told);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_only_what_is_offered_can_be_opened);
    RUN_TEST(test_what_is_freed_cannot_be_opened_and_the_last_close_tells);
    RUN_TEST(test_a_block_is_not_open_more_often_than_can_be_counted);
    RUN_TEST(test_a_page_that_could_change_its_size_is_refused);
    RUN_TEST(test_a_freed_block_that_is_open_is_told_of_exactly_once);
    return UNITY_END();
}
